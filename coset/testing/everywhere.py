"""The same everywhere: whether a pipeline publishes the same however its records are assigned to tasks and batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from coset.testing.likeness import alike, without
from coset.testing.runs import Landed, Trial, run
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_columns
from partitioning.model.graph import Op

_SCHEMES = ("max", "cogroup", "elastic(2)", "tasks(1)", "tasks(2)", "tasks(7)")
# How many runs it may take to find the fewest records that differ.
_RUNS = 60
_SHOWN = 5

Tables = Mapping[str, list[dict[str, object]]]
# Records with their stream, in the order in which they arrive.
Records = Sequence[tuple[str, Mapping[str, object]]]
# A table, with the rows that it has only in one batch by default, and only otherwise.
_Difference = tuple[str, list[dict[str, object]], list[dict[str, object]]]


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
        keys = {stream.name: key_columns(stream.key) for stream in pipeline.streams}
        if self.by_key:
            records = sorted(records, key=lambda record: repr([record[1].get(name) for name in keys[record[0]]]))
        with Trial.made(pipeline) as place:
            for number, part in enumerate(_parts(records, self.batches)):
                place.land(_landed(part))
                place.run(self.settings[number % len(self.settings)], twice=self.twice)
            place.close()
            return place.tables()


def assert_same_everywhere(
    pipeline: Pipeline, rows: Landed, *, batches: bool = False, depends_on_batches: Collection[str] = ()
) -> tuple[str, ...]:
    """Check that a pipeline publishes the same rows whatever the scheme, the number of tasks and groups, the order of
    records of different keys, and after a retry; with `batches`, also however the records are split into batches, and
    if the number of tasks changes between two. Returns what was tried; schemes that the pipeline cannot have are not.

    The rows are compared with those of one batch by default, floating-point numbers to one in a billion; those are held
    against the query of each table, as `run` does. Give `batches`
    for what promises that, such as running steps and upserted tables: an aggregate that is not running gives a row for
    each batch in which a key occurs. Tables in `depends_on_batches` do not promise it: such as one whose rows join what
    a table holds when the batch runs. They are compared in one batch only.

    Raises AssertionError with the fewest records that it finds for which something differs, or if a table is not its
    query, and Refused if there is no such table.
    """
    _check_tables(pipeline, depends_on_batches)
    usual, tried = run(pipeline, rows).tables, list[str]()
    records = _in_turn(rows)
    for variation in _variations(batches=batches):
        try:
            found = variation.tables(pipeline, records)
        except Refused as refusal:
            if any(finding.kind is not Kind.SCHEME for finding in refusal.findings):
                raise
            continue
        tried.append(variation.name)
        promised = _Promised(pipeline, variation, () if variation.batches == 1 else depends_on_batches)
        if any(promised.differ(usual, found)):
            raise AssertionError(promised.text(promised.fewest(records)))
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


def _in_turn(rows: Landed) -> Records:
    """The first record of each stream, and then those of all streams as if they came evenly over time."""
    placed = [
        (number and (number + 1) / len(of_stream), stream, row)
        for stream, of_stream in rows.items()
        for number, row in enumerate(of_stream)
    ]
    return [(stream, row) for _, stream, row in sorted(placed, key=lambda each: each[0])]


def _parts(records: Records, count: int) -> Iterator[Records]:
    """The records in so many parts or fewer, none of them empty. The first has records of each stream: a batch needs
    that something of each has landed."""
    length = max(1, -(-len(records) // count))
    first = max(length, len({stream for stream, _ in records}))
    yield records[:first]
    yield from (records[start : start + length] for start in range(first, len(records), length))


def _landed(records: Records) -> Landed:
    by_stream: dict[str, list[Mapping[str, object]]] = {}
    for stream, row in records:
        by_stream.setdefault(stream, []).append(row)
    return by_stream


class _Promised:
    """A variation of a pipeline, and the tables of which it is promised that they are the same in it."""

    def __init__(self, pipeline: Pipeline, variation: _Variation, but: Collection[str]) -> None:
        self._pipeline, self._variation, self._but = pipeline, variation, but

    def differ(self, usual: Tables, found: Tables) -> Iterator[_Difference]:
        """Each table whose rows differ, with those that only one of the two has."""
        for table, rows in usual.items():
            alike_all = len(rows) == len(found[table]) and all(map(alike, rows, found[table]))
            if table not in self._but and not alike_all:
                yield table, without(rows, found[table]), without(found[table], rows)

    def fewest(self, records: Records) -> Records:
        """The fewest records that still give other rows, found by leaving out ever smaller parts of them."""
        runs, length = 0, len(records) // 2
        while length and runs < _RUNS:
            for start in range(0, len(records), length):
                fewer, runs = [*records[:start], *records[start + length :]], runs + 1
                if self._differs(fewer):
                    records = fewer
                    break
            else:
                length //= 2
        return records

    def text(self, records: Records) -> str:
        """What differs, and from which records."""
        pipeline, name = self._pipeline, self._variation.name
        lines = [f"{pipeline.name} gives other rows with {name} than in one batch by default:"]
        for table, usual, found in self._found(records):
            lines += [f"  table {table}, only by default: {row}" for row in usual[:_SHOWN]]
            lines += [f"  table {table}, only with {name}: {row}" for row in found[:_SHOWN]]
            if self._variation.batches > 1 and (joins := _joins(pipeline, table)):
                then = f"if that is meant, give depends_on_batches=({table!r},)"
                lines.append(f"  table {table} comes from {', '.join(joins)}, which joins: {then}")
        lines += (
            [f"from {len(records):,} records, of which these are the first:"] if len(records) > _SHOWN else ["from:"]
        )
        lines += [f"  {stream}: {dict(row)}" for stream, row in records[:_SHOWN]]
        return "\n".join(lines)

    def _differs(self, records: Records) -> bool:
        try:
            return any(self._found(records))
        except Refused:
            # Too few records to be planned or to meet expectations show nothing.
            return False

    def _found(self, records: Records) -> Iterator[_Difference]:
        usual = _Variation("one batch by default").tables(self._pipeline, records)
        return self.differ(usual, self._variation.tables(self._pipeline, records))


def _check_tables(pipeline: Pipeline, named: Collection[str]) -> None:
    tables = [write.table for write in pipeline.writes]
    if unknown := sorted(set(named) - set(tables)):
        what, then = f"the pipeline writes no table {unknown[0]!r}", f"name one of {', '.join(tables)}"
        raise Refused.of(Kind.ARGUMENT, what, "depends_on_batches", then, table=unknown[0])


def _joins(pipeline: Pipeline, table: str) -> list[str]:
    """The joins that a table's rows come from."""
    behind = {write.step for write in pipeline.writes if write.table == table}
    for step in reversed(pipeline.steps):
        behind.update(step.inputs if step.name in behind else ())
    return [step.name for step in pipeline.steps if step.op is Op.JOIN and step.name in behind]
