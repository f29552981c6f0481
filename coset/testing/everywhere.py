"""The same everywhere: whether a pipeline publishes the same however its records are dealt to tasks and batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from coset.testing.combines import alike
from coset.testing.runs import Landed, Trial, run
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.errors import Refused
from partitioning.kinds import Kind

_SCHEMES = ("max", "cogroup", "elastic(2)", "tasks(1)", "tasks(2)", "tasks(7)")
# How many runs it may take to find the fewest records that differ.
_RUNS = 60
_SHOWN = 5

Tables = Mapping[str, list[dict[str, object]]]
# Records with their stream, in the order in which they arrive.
Records = Sequence[tuple[str, Mapping[str, object]]]


@dataclass(frozen=True, slots=True)
class _Variation:
    """Another way to run the same records: in so many batches, with these settings in turn; in the order of their keys
    among those of other keys; or with an attempt of each batch in vain."""

    name: str
    settings: tuple[Settings, ...] = (DEFAULTS,)
    batches: int = 1
    by_key: bool = False
    twice: bool = False

    def tables(self, pipeline: Pipeline, records: Records) -> Tables:
        keys = {stream.name: stream.key for stream in pipeline.streams}
        if self.by_key:
            records = sorted(records, key=lambda record: repr(record[1].get(keys[record[0]])))
        with Trial.made(pipeline) as place:
            for number, part in enumerate(_parts(records, self.batches)):
                place.land(_landed(part))
                place.run(self.settings[number % len(self.settings)], twice=self.twice)
            return place.tables()


def assert_same_everywhere(pipeline: Pipeline, rows: Landed, *, batches: bool = False) -> tuple[str, ...]:
    """Check that a pipeline publishes the same rows whatever the scheme, the number of tasks and groups, the order of
    records of different keys, and after a retry; with `batches`, also however the records are split into batches, and
    if the number of tasks changes between two. Returns what was tried; schemes that the pipeline cannot have are not.

    The rows are compared with those of one batch by default, floating-point numbers to one in a billion. Give `batches`
    for what promises that, such as running steps and upserted tables: an aggregate that is not running gives a row for
    each batch in which a key occurs.

    Raises AssertionError with the fewest records that it finds for which something differs.
    """
    usual, tried = run(pipeline, rows).tables, list[str]()
    records = [(stream, row) for stream, of_stream in rows.items() for row in of_stream]
    for variation in _variations(batches=batches):
        try:
            found = variation.tables(pipeline, records)
        except Refused as refusal:
            if any(finding.kind is not Kind.SCHEME for finding in refusal.findings):
                raise
            continue
        tried.append(variation.name)
        if any(_differ(usual, found)):
            fewest = _fewest(pipeline, variation, records)
            raise AssertionError(_text(pipeline, variation, fewest))
    return tuple(tried)


def _variations(*, batches: bool) -> Iterator[_Variation]:
    for scheme in _SCHEMES:
        yield _Variation(f"scheme {scheme}", (Settings.parse(scheme=scheme),))
    yield _Variation("3 task groups", (Settings.parse(groups=3),))
    yield _Variation("records in the order of their keys", by_key=True)
    yield _Variation("a second attempt", twice=True)
    if batches:
        for count in (2, 3, 8):
            yield _Variation(f"{count} batches", batches=count)
        changing = Settings.parse(scheme="tasks(2)"), Settings.parse(scheme="tasks(5)")
        yield _Variation("4 batches with 2 and 5 tasks in turn", changing, batches=4)


def _parts(records: Records, count: int) -> Iterator[Records]:
    """The records in so many parts or fewer, none of them empty."""
    length = max(1, -(-len(records) // count))
    return (records[start : start + length] for start in range(0, len(records), length))


def _landed(records: Records) -> Landed:
    by_stream: dict[str, list[Mapping[str, object]]] = {}
    for stream, row in records:
        by_stream.setdefault(stream, []).append(row)
    return by_stream


def _differ(usual: Tables, found: Tables) -> Iterator[tuple[str, list[dict[str, object]], list[dict[str, object]]]]:
    """Each table whose rows differ, with those that only one of the two has."""
    for table, rows in usual.items():
        if len(rows) != len(found[table]) or not all(map(alike, rows, found[table])):
            yield table, _without(rows, found[table]), _without(found[table], rows)


def _without(rows: list[dict[str, object]], others: list[dict[str, object]]) -> list[dict[str, object]]:
    left, only = list(others), []
    for row in rows:
        place = next((number for number, other in enumerate(left) if alike(row, other)), None)
        if place is None:
            only.append(row)
        else:
            del left[place]
    return only


def _fewest(pipeline: Pipeline, variation: _Variation, records: Records) -> Records:
    """The fewest records that still give other rows, found by leaving out ever smaller parts of them."""
    runs, length = 0, len(records) // 2
    while length and runs < _RUNS:
        for start in range(0, len(records), length):
            fewer, runs = [*records[:start], *records[start + length :]], runs + 1
            if _differs(pipeline, variation, fewer):
                records = fewer
                break
        else:
            length //= 2
    return records


def _differs(pipeline: Pipeline, variation: _Variation, records: Records) -> bool:
    try:
        usual = run(pipeline, _landed(records)).tables
        return any(_differ(usual, variation.tables(pipeline, records)))
    except Refused:
        # Too few records to be planned or to meet expectations show nothing.
        return False


def _text(pipeline: Pipeline, variation: _Variation, records: Records) -> str:
    differ = _differ(run(pipeline, _landed(records)).tables, variation.tables(pipeline, records))
    lines = [f"{pipeline.name} gives other rows with {variation.name} than in one batch by default:"]
    for table, usual, found in differ:
        lines += [f"  table {table}, only by default: {row}" for row in usual[:_SHOWN]]
        lines += [f"  table {table}, only with {variation.name}: {row}" for row in found[:_SHOWN]]
    lines += [f"from {len(records):,} records, of which these are the first:"] if len(records) > _SHOWN else ["from:"]
    lines += [f"  {stream}: {dict(row)}" for stream, row in records[:_SHOWN]]
    return "\n".join(lines)
