"""Random pipelines as lines of code over streams and tables that change, and whether each table that is a query has,
after each batch, the rows that DuckDB alone gives for the query that is printed of it.

Usage: python -m tests.random_queries MINUTES [SEED]. Takes fresh seeds, or those from SEED on, until the time is over;
ends with the first failure, with as few lines and batches as still fail.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from datetime import datetime, timedelta

import duckdb

from coset.batches.tables.first_rows import first_rows
from coset.testing.runs import Landed, Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Refused
from partitioning.explain.table_query import table_query
from partitioning.kinds import Kind
from partitioning.model import table_parts
from partitioning.model.allowance import Allowance
from partitioning.model.graph import Mode
from partitioning.model.meaning import meanings
from partitioning.model.schemes import Scheme
from partitioning.values import replace

# A row as texts.
_Row = tuple[str, ...]
# All flows have these columns, beside their key. No two records have one `i`.
VALUES = "a, b, n, t, i"
SUMS = "min(a) AS a, max(b) AS b, sum(n)::BIGINT AS n, max(t) AS t, max(i) AS i"
_BEGIN = datetime.fromisoformat("2026-11-01")
_MOST = 1_000_000
# The batch that is the first of the pipeline as it is later.
_LATER = 3


@dataclass(frozen=True)
class Made:
    """What is known of the flow that a line makes. It has one row for each key if it is `unique`; its rows come in the
    batch of their time `t`, and in no later one, if they are `prompt`."""

    key: str
    unique: bool = False
    prompt: bool = True
    timed: bool = True


@dataclass(frozen=True)
class Arriving:
    """What arrives before a batch, and how it runs."""

    records: Landed
    scheme: str | None
    groups: int
    twice: bool


@dataclass(frozen=True)
class History:
    """A pipeline as lines of code, and its batches. Tables of the flows that are `late` are added after two batches,
    when streams have so many more partitions as have `grown`."""

    lines: tuple[str, ...]
    batches: tuple[Arriving, ...]
    late: frozenset[str] = frozenset()
    grown: int = 0

    def __str__(self) -> str:
        """As code: what arrives is a comment, as far as it is short."""
        said = (
            f"{each.scheme or 'default'}, {each.groups} groups{', run twice' * each.twice}" for each in self.batches
        )
        later = [f"# later: {', '.join(sorted(self.late)) or 'nothing'}, {self.grown} more partitions"]
        return "\n".join(["pipeline = Pipeline('p')", *self.lines, *later, *(f"# {one}" for one in said)])

    @property
    def begun(self) -> tuple[str, ...]:
        """The lines of the first batches: without the tables that are late, and what leads to them alone."""
        lines = [line for line in self.lines if not _is_write(line, self.late)]
        while self.late:
            used = set(re.findall(r"\b[suf]\d+\b(?!\")", " ".join(line[len(_made_by(line)) :] for line in lines)))
            left = [line for line in lines if not _made_by(line) or _made_by(line) in used]
            if left == lines:
                break
            lines = left
        return made(lines)[1]

    @property
    def went_on(self) -> tuple[str, ...]:
        """The lines of the batches after them."""
        return tuple(
            re.sub(r"partitions=(\d+)", lambda match: f"partitions={int(match[1]) + self.grown}", line)
            for line in self.lines
        )


@dataclass
class Compared:
    """How many tables were compared after a batch, by what their rows are, in pipelines of which steps; how many plans
    were refused; and of the tables that were added, for how many the plan `asked`, as they lack something."""

    tables: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    added: int = 0
    asked: int = 0
    ops: Counter[str] = field(default_factory=Counter)


class Differs(AssertionError):
    """A table is not its query."""


def history(seed: int) -> History:
    """Three to five batches for a pipeline of up to ten steps, of which some tables are queries."""
    chance = random.Random(seed)
    written = (_written(chance) for _ in range(50))
    lines, _ = next((each for each in written if each[1] >= 2), _written(chance))
    named = re.findall(r"pipeline\.(?:stream|table)\(\"(\w+)\"", "\n".join(lines))
    keyless = {name for name in named if any(f'"{name}"' in line and '"drop"' in line for line in lines)}
    ids = iter(range(1_000_000))
    batches = tuple(_arriving(chance, batch, named, keyless, ids) for batch in range(chance.randint(3, 5)))
    tables = [line.partition(".")[0] for line in lines if ".write(" in line]
    late = [name for name in tables if chance.random() < 0.3] if len(tables) > 1 and chance.random() < 0.5 else []
    grown = chance.randint(1, 3) if chance.random() < 0.2 else 0
    return History(lines, batches, frozenset(late[: len(tables) - 1]), grown)


def _made_by(line: str) -> str:
    """The flow that a line makes; empty if it writes one."""
    return found[1] if (found := re.match(r"(\w+) = ", line)) else ""


def _is_write(line: str, of: Collection[str]) -> bool:
    return ".write(" in line and line.partition(".")[0] in of


def _written(chance: random.Random) -> tuple[tuple[str, ...], int]:
    """A pipeline, and how many of its tables are queries. In which mode a table is one is found out by trying each."""
    writer = _Writer(chance)
    _, steps = made([*writer.lines()])
    used = set(re.findall(r"\b[suf]\d+\b(?!\")", " ".join(line.partition(" = ")[2] for line in steps)))
    flows = [line.partition(" ")[0] for line in steps]
    tried = {(flow, mode): _write(flow, mode) for flow in flows for mode in writer.modes(flow)}
    pipeline, _ = made([*steps, *(line.replace('"t_', f'"{mode}_') for (_, mode), line in tried.items())])
    are = meanings(pipeline.graph)
    lines, queries = [*steps], 0
    for flow in flows:
        if flow in used and chance.random() < 0.6:
            continue
        good = [mode for mode in writer.modes(flow) if (means := are.get(f"{mode}_{flow}")) and means.is_query]
        mode = chance.choice(good) if good and chance.random() < 0.9 else chance.choice(writer.modes(flow))
        # Of a stream alone it says little.
        queries += mode in good and flow.startswith("f")
        deletes = ', deletes="n % 5 = 0"' if mode == "upsert" and chance.random() < 0.2 else ""
        # Not by `chance`, so that seeds that found something stay what they were.
        updates = ', updates="beside"' if mode == "upsert" and len(lines) % 2 else ""
        lines.append(_write(flow, mode, deletes + updates))
    return tuple(lines), queries


def _write(flow: str, mode: str, more: str = "") -> str:
    return f'{flow}.write("t_{flow}", mode="{mode}"{more})'


def _arriving(
    chance: random.Random, batch: int, named: Sequence[str], keyless: set[str], ids: Iterator[int]
) -> Arriving:
    # Each stream has columns from the first batch on, and something is new in each.
    quiet = {name for name in named[1:] if batch and chance.random() < 0.25}
    scheme = chance.choice(
        (None, None, "cogroup", f"tasks({chance.randint(1, 6)})", f"elastic({chance.randint(1, 3)})")
    )
    records = {
        name: _records(chance, batch, name.startswith("u"), name in keyless, ids) for name in named if name not in quiet
    }
    return Arriving(records, scheme, chance.randint(1, 2), chance.random() < 0.15)


def _records(
    chance: random.Random, batch: int, of_table: bool, keyless: bool, ids: Iterator[int]
) -> list[dict[str, object]]:
    """Records two days after those of the batch before, of which few or many keys come."""
    day, keys = _BEGIN + timedelta(days=2 * batch), chance.choice((3, 8, 8))
    return [
        {
            "k": None if keyless and chance.random() < 0.1 else f"k{chance.randrange(keys)}",
            "a": f"a{chance.randrange(4)}",
            "b": f"b{chance.randrange(3)}",
            "n": chance.randrange(-5, 15),
            "t": day + timedelta(minutes=chance.randrange(600), seconds=number),
            "i": next(ids),
        }
        for number in range(chance.choice((2, 6, 12) if of_table else (4, 12, 25)))
    ]


class _Writer:
    """Writes a pipeline, line by line. Lines that are refused are left out when they run."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._made: dict[str, Made] = {}

    def lines(self) -> Iterator[str]:
        chance = self._chance
        for number in range(chance.randint(1, 2)):
            nulls = ', null_keys="drop"' if chance.random() < 0.3 else ""
            self._made[name := f"s{number}"] = Made("k")
            said = f'"{name}", key="k", partitions={chance.randint(1, 5)}, source="s3://lake", time="t"{nulls}'
            yield f"{name} = pipeline.stream({said})"
        for number in range(chance.randint(0, 2)):
            deletes = ', deletes="n % 4 = 0"' if chance.random() < 0.6 else ""
            kept = ", kept=True" if chance.random() < 0.6 else ""
            self._made[name := f"u{number}"] = Made("k", unique=True, timed=False)
            yield f'{name} = pipeline.table("{name}", key="k", partitions={chance.randint(1, 5)}, source="s3://lake"{deletes}{kept})'
        for number in range(chance.randint(2, 10)):
            # What was made last is followed most.
            one = chance.choice([*self._made, *list(self._made)[-2:]])
            if found := chance.choice(_STEPS)(self, one, f"f{number}"):
                code, self._made[f"f{number}"] = found
                yield f"f{number} = {code}"

    def modes(self, name: str) -> Sequence[str]:
        """How the flow can be written: a table that is upserted has one row for each key."""
        return ("append", "replace", "upsert", "upsert") if self._made[name].unique else ("append", "replace")

    def other(self, one: str, *, same_key: bool = False, prompt: bool = False) -> str | None:
        key = self._made[one].key
        found = [
            name
            for name, made in self._made.items()
            if name != one
            and (not prompt or (made.prompt and made.timed))
            and (
                made.key == key
                if same_key
                else (made.key == "m") == (key == "m") and (made.key == "(p, q)") == (key == "(p, q)")
            )
        ]
        return self._chance.choice(found) if found else None

    def of(self, name: str) -> Made:
        return self._made[name]

    def some(self, *words: str) -> str:
        return self._chance.choice(words)


# The code of a step and what it makes; None if it cannot follow.
Step = tuple[str, Made] | None


def _alone(code: str, **changes: bool | str) -> Callable[[_Writer, str, str], Step]:
    """A step of one flow. Of words that are separated by bars one is chosen."""

    def written(writer: _Writer, one: str, name: str) -> Step:
        said = re.sub(r"\[\[(.+?)\]\]", lambda match: writer.some(*match[1].split("|")), code)
        return f"{one}.{said.replace('NAME', name)}", _changed(writer.of(one), **changes)

    return written


def _changed(made: Made, **changes: bool | str) -> Made:
    return Made(**({"key": made.key, "unique": made.unique, "prompt": made.prompt, "timed": made.timed} | changes))  # type: ignore[arg-type]


def _rekeyed(writer: _Writer, one: str, name: str) -> Step:
    key = writer.some(
        *({"x", "m", "(p, q)"} - {writer.of(one).key} and sorted({"x", "m", "(p, q)"} - {writer.of(one).key}))
    )
    code = {
        "x": f'rekey("x", sql="{writer.some("a", "b", "a || b")}", name="{name}r")',
        "m": f'rekey("m", sql="n % 5", key_format="long", name="{name}r")',
        "(p, q)": f'select("{VALUES}, a AS p, n % 3 AS q", name="{name}s").rekey(("p", "q"), name="{name}r")',
    }[key]
    made = _changed(writer.of(one), key=key, unique=False)
    return f'{one}.{code}.select("{VALUES}", name="{name}")', made


def _partial(writer: _Writer, one: str, name: str) -> Step:
    key = writer.of(one).key
    by = f'by="{key}"' if key != "(p, q)" else 'by=("p", "q")'
    running = writer.some("", ", running=True", ", running=True")
    code = f'{one}.partial("{SUMS}", {by}, name="{name}p").combine("{SUMS}"{running}, name="{name}")'
    return (code, _changed(writer.of(one), unique=True)) if key != "m" else None


def _by(writer: _Writer, one: str, name: str) -> Step:
    code = f'{one}.aggregate("{SUMS}", by="n % 2 AS odd", name="{name}g").select("{VALUES}", name="{name}")'
    return code, _changed(writer.of(one), unique=False)


def _of_both(writer: _Writer, one: str, other: str, *, unique: bool) -> Made:
    both = writer.of(one), writer.of(other)
    return Made(both[0].key, unique, all(each.prompt for each in both), all(each.timed for each in both))


def _merged(writer: _Writer, one: str, name: str) -> Step:
    if (other := writer.other(one, same_key=True)) is None:
        return None
    return f'{one}.merge({other}, name="{name}")', _of_both(writer, one, other, unique=False)


def _joined(writer: _Writer, one: str, name: str) -> Step:
    if (other := writer.other(one)) is None:
        return None
    how, on = writer.some("inner", "left", "full"), writer.some("", "", f', on="{one}.n + {other}.n > 0"')
    unique = writer.of(one).unique and writer.of(other).unique
    code = f'{one}.join({other}, "{_pair(one, other)}", how="{how}"{on}, name="{name}")'
    # What a further condition keeps apart is given twice by a full join.
    return code, _of_both(writer, one, other, unique=unique and not (on and how == "full"))


def _pair(one: str, other: str) -> str:
    """The columns of a pair, also of one that lacks a side."""
    return (
        f"coalesce({one}.a, {other}.a) AS a, coalesce({other}.b, {one}.b) AS b, "
        f"coalesce({one}.n, 0) - coalesce({other}.n, 0) AS n, "
        f"coalesce(greatest({one}.t, {other}.t), {one}.t, {other}.t) AS t, "
        f"(coalesce({one}.i, 0) * 1009 + coalesce({other}.i, 0)) % 1000003 AS i"
    )


def _cogrouped(writer: _Writer, one: str, name: str) -> Step:
    if (other := writer.other(one)) is None:
        return None
    left, right = (
        "min(a) AS a, count(*) AS c, max(t) AS t",
        "max(b) AS b, sum(n)::BIGINT AS o, max(t) AS u, max(i) AS i",
    )
    columns = "coalesce(a, '') AS a, coalesce(b, '') AS b, coalesce(c, 0) + coalesce(o, 0) AS n"
    columns += ", coalesce(greatest(t, u), t, u) AS t, coalesce(i, 0) AS i"
    both = f'{one}.cogroup("{left}", ({other}, "{right}"), name="{name}c")'
    return f'{both}.select("{columns}", name="{name}")', _of_both(writer, one, other, unique=True)


def _in_time(step: Callable[[_Writer, str, str], Step]) -> Callable[[_Writer, str, str], Step]:
    """A step that goes by times, which has to follow records that come in their order."""

    def written(writer: _Writer, one: str, name: str) -> Step:
        made = writer.of(one)
        return step(writer, one, name) if made.prompt and made.timed else None

    return written


def _within(writer: _Writer, one: str, name: str) -> Step:
    if (other := writer.other(one, prompt=True)) is None:
        return None
    how = writer.some("inner", "inner", "left", "full")
    said = f'times=("t", "t"), within=timedelta(minutes=90), how="{how}", name="{name}"'
    code = f'{one}.join_within({other}, "{_pair(one, other)}", {said})'
    return code, Made(writer.of(one).key, prompt=how == "inner")


def _as_of(writer: _Writer, one: str, name: str) -> Step:
    if (other := writer.other(one, prompt=True)) is None:
        return None
    more = writer.some("", ', missing="drop"', ', deletes="n % 6 = 0"', ", wait=timedelta(minutes=30)")
    said = f'times=("t", "t"), keep=timedelta(days=1){more}, name="{name}"'
    return f'{one}.join_as_of({other}, "{_pair(one, other)}", {said})', Made(writer.of(one).key, prompt=False)


_EVERY = 'time="t", every=timedelta(hours=3)[[|, gap=timedelta(minutes=20)]], name="NAMEw"'
_WINDOWS = f'windows("{SUMS}", {_EVERY}).select("{VALUES}", name="NAME")'
_EXPIRED = 'latest("(t, i)", time="t", keep=timedelta(hours=[[3|30]]), name="NAMEl").expired(name="NAME")'
_STEPS: Sequence[Callable[[_Writer, str, str], Step]] = (
    *[_alone('filter("n % 3 <> [[0|1|2]]", name="NAME")')] * 2,
    _alone('select("a, b, n + 1 AS n, t, i", name="NAME")'),
    _alone('select("b AS a, a AS b, -n AS n, t, i", name="NAME")'),
    _alone('repartition([[2|3]], name="NAME")'),
    _alone('to_stream(name="NAME")', unique=False),
    *[_alone('kept(name="NAME")', unique=False)] * 2,
    *[_alone('latest("[[n|(b, n)|(t, i)]]", name="NAME")', unique=True)] * 3,
    *[_alone(f'combine("{SUMS}", running=True, name="NAME")', unique=True)] * 2,
    *[_alone(f'aggregate("{SUMS}", name="NAME")', unique=True)] * 2,
    *[_rekeyed] * 2,
    _partial,
    _by,
    *[_merged] * 2,
    *[_joined] * 3,
    *[_cogrouped] * 2,
    _in_time(_alone('distinct("[[a|n]]", time="t", within=timedelta(hours=2), name="NAME")')),
    _in_time(_alone(_WINDOWS, unique=False, prompt=False)),
    _in_time(_alone('latest("(t, i)", time="t", keep=timedelta(hours=[[3|30]]), name="NAME")', unique=True)),
    _in_time(
        _alone(f'combine("{SUMS}", running=True, time="t", keep=timedelta(hours=[[3|30]]), name="NAME")', unique=True)
    ),
    _in_time(_alone(_EXPIRED, unique=False, prompt=False)),
    _in_time(_within),
    _in_time(_as_of),
)


def made(lines: Sequence[str]) -> tuple[Pipeline, tuple[str, ...]]:
    """The pipeline of the lines, without those that are refused or follow such, and the lines that are left."""
    pipeline, left = Pipeline("p"), list[str]()
    known: dict[str, object] = {"pipeline": pipeline, "timedelta": timedelta}
    for line in lines:
        before = dict(pipeline._steps), dict(pipeline._flows)
        try:
            exec(line, known)
            left.append(line)
        except (Refused, NameError):
            pipeline._steps, pipeline._flows = before
    return pipeline, tuple(left)


def check(of: History, compared: Compared) -> None:
    """Run the batches, and compare after each. Lines of which the first plan says that they mean nothing are left out.

    Raises Differs for the first table that is not its query.
    """
    # However small a table is, batches write beside its rows, until a partition has a few files.
    table_parts.SMALL, table_parts.MOST_FILES = 0, 3
    pipeline, lines = made(of.begun)
    of_batches, lacking = dict[str, dict[int, list[_Row]]](), set[str]()
    if not pipeline.writes:
        return
    with Trial.made(pipeline) as place:
        for number, arriving in enumerate(of.batches, 1):
            if number == _LATER and of.went_on != of.begun:
                pipeline, lines = made(of.went_on)
                there = {write.table for write in place.pipeline.writes}
                place.go_on_with(pipeline)
                compared.added += len({write.table for write in pipeline.writes} - there)
            streams = {stream.name for stream in pipeline.streams}
            place.land({name: rows for name, rows in arriving.records.items() if name in streams})
            try:
                lacking |= _run(place, arriving)
            except Refused as refusal:
                # What is added later may be refused then.
                known = of.lines if number == _LATER else lines
                first = not Ledger(store_at(place.root), pipeline.name).standing().plan or number == _LATER
                if not first or len(left := _but(known, refusal)) == len(known):
                    raise
                compared.refused += 1
                kept = [line for line in of.lines if line in left or line not in known]
                return check(replaced(of, lines=made(kept)[1]), compared)
            _compare(place, compared, of_batches, replaced(of, batches=of.batches[:number]), lacking)
        compared.asked += len(lacking)
    compared.ops.update(step.op for step in pipeline.steps)


def _but(lines: Sequence[str], refusal: Refused) -> tuple[str, ...]:
    """The lines without those that a refusal names, by step or table, and those that follow them."""
    named = set(re.findall(r"\b(?:t_)?([suf]\d+)", " ".join(f"{each.what} {each.where}" for each in refusal.findings)))
    writes = {line for line in lines if ".write(" in line and line.partition(".")[0] in named}
    tables = any(f"t_{name}" in str(refusal) for name in named)
    return made([line for line in lines if line not in writes and (tables or line.partition(" ")[0] not in named)])[1]


def _run(place: Trial, arriving: Arriving) -> set[str]:
    """Run a batch, and return the tables that are added by their name, as the plan says that they lack something."""
    try:
        _run_asking(place, arriving, ())
    except Refused as refusal:
        if {finding.kind for finding in refusal.findings} - {Kind.TABLE_BEGINS, Kind.TABLE_QUERY}:
            raise
        named = {str(dict(finding.about)["table"]) for finding in refusal.findings}
        _run_asking(place, arriving, tuple(named))
        return named
    return set()


def _run_asking(place: Trial, arriving: Arriving, named: tuple[str, ...]) -> None:
    scheme = Scheme.parse(arriving.scheme) if arriving.scheme else None
    # Tables of a batch, and those of rows that change, may lose most of their rows.
    may_go = Allowance(named=tuple(write.table for write in place.pipeline.writes))
    settings = Settings(groups=arriving.groups, allowance=may_go, begin_anew=named, go_on=named)
    try:
        place.run(replace(settings, scheme=scheme), twice=arriving.twice)
    except Refused:
        if scheme is None:
            raise
        # Not each scheme fits each pipeline.
        place.run(settings, twice=arriving.twice)


def _compare(
    place: Trial,
    compared: Compared,
    of_batches: dict[str, dict[int, list[_Row]]],
    so_far: History,
    lacking: Collection[str],
) -> None:
    """Hold each table that is not `lacking` something against its query; one whose rows are of a batch against those of
    its batches `of_batches`."""
    store, means = store_at(place.root), meanings(place.pipeline.graph)
    plan = Ledger(store, place.pipeline.name).standing().published
    assert plan is not None
    for write in (write for write in place.pipeline.writes if write.table not in lacking):
        query, is_query = table_query(place.pipeline, plan, write.table), means[write.table].is_query
        is_one_batch = f"over the records of batch {plan.batch}" in query and write.mode is not Mode.UPSERT
        compared.tables[f"{means[write.table].rows}{', a batch at a time' * is_one_batch}"] += 1
        if not is_query and not is_one_batch:
            continue
        there = first_rows(store, write.table, _MOST)
        with duckdb.connect() as alone:
            right = _texts(alone.sql(query))
            published = _texts(alone.from_arrow(there.rows)) if there else []
        if is_one_batch and write.mode is Mode.APPEND:
            # What arrived may have made no batch.
            of_batches.setdefault(write.table, {})[plan.batch] = right
            right = [row for rows in of_batches[write.table].values() for row in rows]
        if Counter(right) != Counter(published):
            missing, more = Counter(right) - Counter(published), Counter(published) - Counter(right)
            raise Differs(
                f"{write.table} after batch {plan.batch}\n{so_far}\n\n{query}\n"
                f"missing: {sorted(missing)[:5]}\ntoo many: {sorted(more)[:5]}"
            )


def _texts(rows: duckdb.DuckDBPyRelation) -> list[_Row]:
    names = sorted(rows.columns)
    listed = ", ".join(f"coalesce(\"{name}\"::VARCHAR, '-')" for name in names)
    return rows.project(listed).fetchall()


def smallest(of: History, seconds: float = 120) -> History:
    """A history that still fails, with fewer lines, batches and records, as far as that is found in time."""
    end, grown = time.monotonic() + seconds, True
    while grown and time.monotonic() < end:
        grown = False
        for less in _less(of):
            if time.monotonic() < end and _fails(less):
                of, grown = less, True
                break
    return of


def _less(of: History) -> Iterator[History]:
    """The history without its last batch, without a line and what follows it, and with half of a stream's records."""
    if len(of.batches) > 1:
        yield replaced(of, batches=of.batches[:-1])
    if of.late or of.grown:
        yield replaced(of, late=frozenset(), grown=0)
    for line in reversed(of.lines):
        yield replaced(of, lines=made([each for each in of.lines if each != line])[1])
    for number, arriving in enumerate(of.batches):
        for name, rows in arriving.records.items():
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                fewer = Arriving(dict(arriving.records) | {name: half}, None, 1, twice=False)
                yield replaced(of, batches=(*of.batches[:number], fewer, *of.batches[number + 1 :]))


def _fails(of: History) -> bool:
    try:
        check(of, Compared())
    except Differs:
        return True
    except (CosetError, AssertionError, StopIteration):
        return False
    return False


def main(minutes: float, seed: int) -> int:
    """Take seeds until the time is over; 1 at the first difference."""
    end, first, compared = time.monotonic() + 60 * minutes, seed, Compared()
    while time.monotonic() < end:
        try:
            check(history(seed), compared)
        except Differs:
            print(f"Seed {seed} differs; as few lines as still do:", flush=True)
            try:
                check(smallest(history(seed)), Compared())
            except Differs as differs:
                print(differs)
            return 1
        except Refused as refusal:
            print(f"Seed {seed} is refused:\n{history(seed)}\n{refusal}")
            return 1
        print(f"Seed {seed} has no difference", file=sys.stderr, flush=True)
        seed += 1
    print(f"No difference in seeds {first} to {seed - 1}: {compared}")
    return 0


if __name__ == "__main__":
    given = sys.argv[2:]
    sys.exit(main(float(sys.argv[1]), int(given[0]) if given else random.randrange(10**6)))
