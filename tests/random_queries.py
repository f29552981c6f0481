"""Random pipelines as lines of code over streams and tables that change, and whether each table that is a query has,
after each batch, the rows that DuckDB alone gives for the query that is printed of it.

Usage: python -m tests.random_queries MINUTES [SEED]. Takes fresh seeds, or those from SEED on, until the time is over;
ends with the first failure, with as few lines and batches as still fail.
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from datetime import datetime, timedelta
from decimal import Decimal

import duckdb

from coset.batches.backfills import swaps
from coset.batches.tables.first_rows import first_rows, in_order
from coset.batches.tables.iceberg import follow
from coset.sources.iceberg.named_catalogue import catalogue
from coset.testing.runs import Landed, Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Refused
from partitioning.explain.table_query import table_query
from partitioning.kinds import Kind
from partitioning.model import table_parts
from partitioning.model.meaning import RowKind, meanings
from partitioning.model.plan import Plan
from partitioning.model.schemes import Scheme
from partitioning.model.table_mode import Mode
from partitioning.values import replace
from tests.random_acts import (
    BACKFILLS,
    DEEDS,
    LAKE,
    MOST,
    WAYS,
    all_names,
    asking,
    done,
    following,
    rows_of,
    run,
    texts_of,
)
from tests.random_steps import AS_SQL, DELETES, KEPT, TWICE, VALUES, Writer

# A row as texts.
_Row = tuple[str, ...]
_BEGIN = datetime.fromisoformat("2026-11-01")
# The batch that is the first of the pipeline as it is later.
_LATER = 3


@dataclass(frozen=True)
class Arriving:
    """What arrives before a batch, how it runs, what becomes of it, and what is done to the store after it."""

    records: Landed
    scheme: str | None
    groups: int
    twice: bool
    after: str = ""
    way: str = ""


@dataclass(frozen=True)
class History:
    """A pipeline as lines of code, and its batches. Tables of the flows that are `late` are added after two batches, or
    are left out of the second one alone if they are `away`. Streams have so many more partitions then as have `grown`,
    and a line may be `edited`, to another, by which batches may be `corrected` before the next one. Iceberg tables may
    be `followed` by: they have the same rows after each batch and deed."""

    lines: tuple[str, ...]
    batches: tuple[Arriving, ...]
    late: frozenset[str] = frozenset()
    grown: int = 0
    edited: tuple[str, str] | None = None
    away: bool = False
    corrected: bool = False
    followed: bool = False

    def __str__(self) -> str:
        """As code: what arrives is a comment, as far as it is short."""
        said = (
            f"{each.scheme or 'default'}, {each.groups} groups{', run twice' * each.twice}, {each.way}; {each.after}"
            for each in self.batches
        )
        later = [f"# {'away' if self.away else 'later'}: {', '.join(sorted(self.late))}; {self.grown} more partitions"]
        later += ["# later: all batches are backfilled first"] * self.corrected
        later += [f"# later: {self.edited[1]}"] if self.edited else []
        later += ["# Iceberg tables follow"] * self.followed
        return "\n".join(["pipeline = Pipeline('p')", *self.lines, *later, *(f"# {one}" for one in said)])

    def lines_of(self, batch: int) -> tuple[str, ...]:
        """The lines of a batch, of which the first is 1."""
        return self.went_on if batch >= _LATER else self.lines if self.away and batch == 1 else self.begun

    @property
    def begun(self) -> tuple[str, ...]:
        """The lines without the tables that are late, and what leads to them alone."""
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
        """The lines of the batches after the first two."""
        old, new = self.edited or ("", "")
        return tuple(
            re.sub(r"partitions=(\d+)", lambda match: f"partitions={int(match[1]) + self.grown}", line)
            for line in (new if line == old else line for line in self.lines)
        )

    @property
    def reached(self) -> frozenset[str]:
        """The tables that what was edited reaches."""
        if self.edited is None:
            return frozenset()
        pipeline, name = made(self.lines)[0], _made_by(self.edited[0]) or self.edited[0].partition(".")[0]
        above = {write.table: pipeline.graph.above(write.step) for write in pipeline.writes}
        behind = {table for table, names in above.items() if any(re.match(rf"{name}\b", each) for each in names)}
        # to_stream() of records is no step.
        return frozenset(behind | {*re.findall(rf'\b{name}\.write\("(\w+)"', " ".join(self.lines))})


@dataclass
class Compared:
    """How many tables were compared after a batch, by what their rows are, in pipelines of which steps; how many plans
    were refused; and of the tables that were added, for how many the plan `asked`, as they lack something."""

    tables: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    added: int = 0
    asked: int = 0
    edited: int = 0
    unasked: int = 0
    after: Counter[str] = field(default_factory=Counter)
    ops: Counter[str] = field(default_factory=Counter)


class Differs(AssertionError):
    """A table is not its query."""


def history(seed: int, *, wide: bool = False) -> History:
    """Three to five batches for a pipeline of up to ten steps, of which some tables are queries. A `wide` one has all
    steps, values that are missing or no numbers, and records that come late; it may be edited, and its batches
    backfilled."""
    chance = random.Random(f"{seed} wide" if wide else seed)
    written = (_written(chance, wide=wide) for _ in range(50))
    lines, _ = next((each for each in written if each[1] >= 2), _written(chance, wide=wide))
    named = re.findall(r"pipeline\.(?:stream|table|cdc)\(\"(\w+)\"", "\n".join(lines))
    keyless = {name for name in named if any(f'"{name}"' in line and '"drop"' in line for line in lines)}
    ids = iter(range(1_000_000))
    batches = tuple(
        _arriving(chance, batch, named, keyless, ids) for batch in range(chance.randint(3, 4 if wide else 5))
    )
    tables = [line.partition(".")[0] for line in lines if ".write(" in line]
    late = [name for name in tables if chance.random() < 0.3] if len(tables) > 1 and chance.random() < 0.5 else []
    grown = chance.randint(1, 3) if chance.random() < 0.2 else 0
    of = History(lines, batches, frozenset(late[: len(tables) - 1]), grown)
    return _widened(of, random.Random(f"{seed} more")) if wide else of


def kept(seed: int) -> History:
    """Four batches of a pipeline with all that steps keep, of which one is edited, and something that is done after
    each: after the third, which few keys come in, all are backfilled."""
    chance, ids, edited = random.Random(f"{seed} kept"), iter(range(1_000_000)), KEPT[2]
    batches = tuple(_arriving(chance, batch, ["s0", "u0"], set(), ids) for batch in range(4))
    of = _widened(History(KEPT, batches), chance)
    before, behind = (f"{deed} {chance.randrange(3)}" * (deed in BACKFILLS) or deed for deed in chance.sample(DEEDS, 2))
    deeds = "", before, chance.choice(("backfill 0", "redo 0", "undo 0", "stop 0")), behind
    batches = tuple(replaced(each, after=deed) for each, deed in zip(of.batches, deeds, strict=True))
    few = replaced(batches[2], records={name: rows[:2] for name, rows in batches[2].records.items()})
    edits = edited, edited.replace("<> 0", "<> 1")
    return replaced(of, batches=(*batches[:2], few, batches[3]), edited=edits, followed=seed % 3 == 0)


def _widened(of: History, chance: random.Random) -> History:
    """The history with values that are missing, records that come late, an edited line, and what is done after
    batches."""
    late = any("late=" in line for line in of.lines)
    edited = _edited(chance, of.lines) if chance.random() < 0.6 else None
    batches, sources = list[Arriving](), {_made_by(line) for line in of.lines if "pipeline.cdc" in line}
    # A table that has no such condition would have rows without values.
    deleting = {_made_by(line) for line in of.lines if DELETES in line or "pipeline.stream(" in line} | sources
    # What is merged, or goes on as its own input, has the same columns.
    grows = chance.random() < 0.3 and not re.search(r"merge\(| = \w+\.combine\(", "\n".join(of.lines))
    for number, each in enumerate(of.batches):
        more = grows and number > 0
        records = {
            name: [
                _odd(chance, row, late, seen, name in sources, more=more and name == "s0")
                if seen == 0 or name not in deleting or chance.random() < (0.95 if name.startswith("s") else 0.85)
                else _tombstone(row, name in sources)
                for seen, row in enumerate(rows)
            ]
            for name, rows in each.records.items()
        }
        after, way = chance.choice(DEEDS) if number else "", chance.choice(WAYS)
        after += f" {chance.choice((0, 0, 1, 2))}" * (after in BACKFILLS)
        batches.append(replaced(each, records=records, after=after, way=way))
    away, corrected = bool(of.late) and chance.random() < 0.4, edited is not None and chance.random() < 0.3
    followed = chance.random() < 0.3
    return replaced(of, batches=tuple(batches), edited=edited, away=away, corrected=corrected, followed=followed)


def _odd(
    chance: random.Random, row: Mapping[str, object], late: bool, seen: int, of_source: bool, *, more: bool
) -> dict[str, object]:
    """A record of which some values are missing, but for the first, and which may come up to two days late; one `of`
    a `source` may delete its row. It may have one column `more`."""
    kept = dict(row) | ({"e": f"e{seen}"} if more else {})
    if seen and chance.random() < 0.2:
        kept["d"] = chance.choice((0.0, -0.0))
    if seen:
        kept |= {name: None for name in ("a", "b", "n", "d", "c") if chance.random() < 0.12}
    if of_source:
        kept["_deleted"] = bool(seen) and chance.random() < 0.25
    if late and chance.random() < 0.3 and isinstance(time := row["t"], datetime):
        kept["t"] = time - timedelta(minutes=chance.randrange(2880))
    return kept


def _tombstone(row: Mapping[str, object], of_source: bool) -> dict[str, object]:
    """A record that has a key alone, by which its row is deleted."""
    return dict.fromkeys(row) | {"k": row["k"]} | ({"_deleted": True} if of_source else {})


# What is changed in a line, and to what.
_EDITS = (
    (r"n % 3 <> (\d)", ("0", "1", "2")),
    (r"n \+ (\d) AS n", ("1", "2")),
    (r"sql=\"(a|b|a \|\| b)\"", ("a", "b", "a || b")),
    (r"how=\"(inner|left|full)\"", ("inner", "left", "full")),
    (r"latest\(\"([^\"]+)\"", ("n", "(b, n)", "(t, i)")),
    (r"hours=(\d+)", ("2", "3", "30")),
    (r"minutes=(\d+)", ("20", "90", "30")),
    (r"(max|min)\(b\)", ("max", "min")),
    (r"(max|min)\(t\) AS t", ("max", "min")),
    (r"distinct\(\"(a|n)\"", ("a", "n")),
    (r"n % (\d) AS odd", ("2", "3")),
    (r"repartition\((\d)", ("2", "4")),
    (r"(, running=True)", ("",)),
    (r"deletes=\"n % (\d) = 0", ("3", "4")),
    (r"(, kept=True|, updates=\"beside\")", ("",)),
    (r"^f\d+ = [suf]\d+(\.)", ('.filter("n % 7 IS DISTINCT FROM 1", name="INSERTED").',)),
    (r"^f\d+ = ([suf]\d+)\.", ("s0", "s1", "f0", "f1", "f2")),
)


def _edited(chance: random.Random, lines: Sequence[str]) -> tuple[str, str] | None:
    """A line, and another in its place."""
    line, text = chance.choice(lines), " ".join(lines)
    if (named := _RENAMED.search(line)) and chance.random() < 0.5 and not re.search(rf"\b{named[1]}\.[a-z]\b", text):
        # Steps that keep something do so under another name.
        renamed = f'{line[: named.start(1)]}{named[1]}n{line[named.end(1) :]}; pipeline.changed("{named[1]}n"'
        return line, f'{renamed}, was="{named[1]}")'
    for pattern, words in chance.sample(_EDITS, len(_EDITS)):
        if (found := re.search(pattern, line)) and (others := [each for each in words if each != found[1]]):
            new = chance.choice(others).replace("INSERTED", f"{_made_by(line)}x")
            old = line[: found.start(1)] + new + line[found.end(1) :]
            if new.startswith((".filter", "s", "f")) and "join" in line:
                continue
            return line, old
    return None


_RENAMED = re.compile(r'(?:latest|combine)\([^()]*(?:\([^()]*\)[^()]*)*name="(f\d+)"\)$')


def _made_by(line: str) -> str:
    """The flow that a line makes; empty if it writes one."""
    return found[1] if (found := re.match(r"(\w+) = ", line)) else ""


def _is_write(line: str, of: Collection[str]) -> bool:
    return ".write(" in line and line.partition(".")[0] in of


def _written(chance: random.Random, *, wide: bool) -> tuple[tuple[str, ...], int]:
    """A pipeline, and how many of its tables are queries. In which mode a table is one is found out by trying each."""
    writer = Writer(chance, wide=wide)
    _, steps = made([*writer.lines()])
    used = set(re.findall(r"\b[suf]\d+\b(?!\")", " ".join(line.partition(" = ")[2] for line in steps)))
    flows = [line.partition(" ")[0] for line in steps]
    tried = {(flow, mode): _write(flow, mode) for flow in flows for mode in writer.modes(flow)}
    pipeline, _ = made([*steps, *(line.replace('"t_', f'"{mode}_') for (_, mode), line in tried.items())])
    are = meanings(pipeline.graph)
    lines, queries = [*steps], 0
    for flow in flows:
        if (flow in used and chance.random() < 0.6) or (wide and not flow.startswith("f")):
            continue
        good = [mode for mode in writer.modes(flow) if (means := are.get(f"{mode}_{flow}")) and means.is_query]
        mode = chance.choice(good) if good and chance.random() < 0.9 else chance.choice(writer.modes(flow))
        # Of a stream alone it says little.
        queries += mode in good and flow.startswith("f")
        deletes = ', deletes="n % 5 = 0"' if mode == "upsert" and chance.random() < 0.2 else ""
        # Not by `chance`, so that seeds that found something stay what they were.
        updates = ', updates="beside"' if mode == "upsert" and len(lines) % 2 else ""
        lines.append(_write(flow, mode, deletes + updates))
        if wide and chance.random() < 0.2:
            lines.append(f'{flow}.write("c_{flow}", mode="changelog")')
        if wide and len(lines) % 3 == 0:
            lines.append(f'{flow}.to_stream().write("r_{flow}", mode="replace")')
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
            **_more(next(ids)),
        }
        for number in range(chance.choice((2, 6, 12) if of_table else (4, 12, 25)))
    ]


def _more(number: int) -> dict[str, object]:
    """The other columns of a record. Not by the chance of the history, so that seeds that found something stay what
    they were."""
    chance = random.Random(number)
    real = chance.choice((0.5, -1.5, 2.25, float("nan"), 1e10))
    return {"i": number, "d": real, "c": Decimal(chance.randrange(-200, 300)) / 100}


def made(lines: Sequence[str]) -> tuple[Pipeline, tuple[str, ...]]:
    """The pipeline of the lines, without those that are refused or follow such, and the lines that are left."""
    pipeline, left = Pipeline("p"), list[str]()
    known: dict[str, object] = {"pipeline": pipeline, "timedelta": timedelta}
    for line in lines:
        before = dict(pipeline._steps), dict(pipeline._flows), dict(known)
        try:
            exec(line, known)
            left.append(line)
        except (Refused, NameError, AttributeError):
            # A line may have made a flow before it was refused.
            pipeline._steps, pipeline._flows, known = before
    return pipeline, tuple(left)


def check(of: History, compared: Compared) -> None:
    """Run the batches, and compare after each. Lines of which the first plan says that they mean nothing are left out.

    Raises Differs for the first table that is not its query.
    """
    # However small a table is, batches write beside its rows, until a partition has a few files.
    table_parts.SMALL, table_parts.MOST_FILES = 0, 3
    pipeline, lines = made(of.lines_of(1))
    if not pipeline.writes:
        return
    with Trial.made(pipeline) as place, following(place, of.followed):
        going = _Going(of, compared, place, lines)
        for number, arriving in enumerate(of.batches, 1):
            going.land(number, arriving)
            try:
                going.run(number, arriving)
            except Refused as refusal:
                if other := going.without(number, refusal):
                    check(other, compared)
                return
            going.compare(number)
            if arriving.after and _published(place) is not None:
                going.do(number, arriving.after)
        compared.asked += len(going.lacking)
    compared.ops.update(step.op for step in place.pipeline.steps)


@dataclass
class _Going:
    """A history while it goes on. Tables that are `lacking` something, or are `waiting` for a batch of what is new, are
    not compared; others have `touched` some, and `altered` some: by how many each row is there more often than in the
    query. A table that is appended to has that until something is `exchanged`."""

    of: History
    compared: Compared
    place: Trial
    lines: tuple[str, ...]
    of_batches: dict[str, dict[int, list[_Row]]] = field(default_factory=dict)
    lacking: set[str] = field(default_factory=set)
    waiting: frozenset[str] = frozenset()
    touched: set[str] = field(default_factory=set)
    altered: dict[str, Counter[_Row]] = field(default_factory=dict)
    exchanged: bool = False

    def __post_init__(self) -> None:
        self._new = {f"{kind}_{name}" for name in self.of.late for kind in "tcr"} | self.of.reached

    def land(self, number: int, arriving: Arriving) -> None:
        """Let the records of a batch arrive, for the pipeline that it has."""
        of, there = self.of, {write.table for write in self.place.pipeline.writes}
        if of.lines_of(number) != of.lines_of(max(1, number - 1)):
            pipeline, self.lines = made(of.lines_of(number))
            self.place.go_on_with(pipeline)
            self.compared.added += len({write.table for write in pipeline.writes} - there)
        streams = {stream.name for stream in self.place.pipeline.streams}
        self.place.land({name: rows for name, rows in arriving.records.items() if name in streams})

    def run(self, number: int, arriving: Arriving) -> None:
        """Run a batch. Raises Refused."""
        of, last, later = self.of, _published(self.place), number == _LATER
        edited = of.edited is not None and later
        if of.corrected and edited and done(self.place, "backfill 0", number, self.touched) is not None:
            self.compared.after["corrected"] += 1
            self._made_anew()
        self.lacking |= _run(self.place, arriving, self._new if later and (edited or of.away) else frozenset())
        # An edited line waits for a batch.
        self.waiting = (of.reached if edited else self.waiting) if _published(self.place) == last else frozenset()
        self.compared.edited += edited
        self.compared.unasked += edited and not self.lacking & of.reached

    def without(self, number: int, refusal: Refused) -> History | None:
        """The history without what a batch is refused for; none if it ends there. Raises the refusal if it is for
        nothing that may be left out."""
        of, later = self.of, number == _LATER
        if of.edited and later:
            return replaced(of, edited=None, corrected=False)
        if of.away and 1 < number <= _LATER:
            return replaced(of, away=False)
        if "a row has no key" in str(refusal):
            # Nothing is published then.
            return None
        # What is added later may be refused then.
        known = of.lines if later else self.lines
        first = not Ledger(store_at(self.place.root), self.place.pipeline.name).standing().plan or later
        if not first or len(left := _but(known, refusal)) == len(known):
            raise refusal
        self.compared.refused += 1
        return replaced(of, lines=made([line for line in of.lines if line in left or line not in known])[1])

    def compare(self, number: int) -> None:
        """Hold the tables against their queries."""
        so_far = replaced(self.of, batches=self.of.batches[:number])
        _compare(self, so_far)

    def do(self, number: int, deed: str) -> None:
        """Do something after a batch, and compare unless that stopped half way."""
        store, tables = store_at(self.place.root), [write.table for write in self.place.pipeline.writes]
        before = {table: _there(store, table) for table in tables if deed == "alter"}
        named = done(self.place, deed, number, self.touched)
        self.compared.after[f"{deed.partition(' ')[0]}{' in vain' * (named is None)}"] += 1
        if named is None:
            return
        if deed in {"touch", "alter", "restore"}:
            self.touched = {*tables}
        for table, were in before.items():
            self.altered.setdefault(table, Counter()).update(_there(store, table))
            self.altered[table].subtract(were)
        self.exchanged |= deed.partition(" ")[0] in {"backfill", "redo", "stop", "part"}
        if deed in {"backfill 0", "redo 0", "stop 0"}:
            self._made_anew()
        elif named:
            self.lacking |= named | self._new
        if swaps.half(store, self.place.pipeline.name) is None:
            self.compare(number)

    def _made_anew(self) -> None:
        """All batches were made again."""
        self.lacking, self.waiting, self.exchanged = self._uncounted(), frozenset(), False
        self.altered.clear()

    def _uncounted(self) -> set[str]:
        """The tables with rows of batches that nobody counted, as a backfill made them by what is new."""
        means = meanings(self.place.pipeline.graph)
        return {table for table in self._new & means.keys() if means[table].rows is RowKind.OF_BATCH}


def _published(place: Trial) -> int | None:
    """The last batch that is published."""
    plan = Ledger(store_at(place.root), place.pipeline.name).standing().published
    return plan.batch if plan else None


def _but(lines: Sequence[str], refusal: Refused) -> tuple[str, ...]:
    """The lines without those that a refusal names, by step or table, and those that follow them."""
    named = set(re.findall(r"\b(?:t_)?([suf]\d+)", " ".join(f"{each.what} {each.where}" for each in refusal.findings)))
    writes = {line for line in lines if ".write(" in line and line.partition(".")[0] in named}
    tables = any(f"t_{name}" in str(refusal) for name in named)
    return made([line for line in lines if line not in writes and (tables or line.partition(" ")[0] not in named)])[1]


def _run(place: Trial, arriving: Arriving, reached: Collection[str]) -> set[str]:
    """Run a batch, and return the tables that are added by their name, as the plan says that they lack something, and
    those that an edited line has `reached`, if the plan asks about it."""
    try:
        _run_asking(place, arriving, ())
    except Refused as refusal:
        named = {str(dict(finding.about).get("table")) for finding in refusal.findings}
        if reached:
            try:
                _run_asking(place, arriving, all_names(place))
            except Refused:
                raise refusal from None
            return {*named, *reached}
        if {finding.kind for finding in refusal.findings} - {Kind.TABLE_BEGINS, Kind.TABLE_QUERY}:
            raise
        _run_asking(place, arriving, tuple(named))
        return named
    return set()


def _run_asking(place: Trial, arriving: Arriving, named: tuple[str, ...]) -> None:
    scheme = Scheme.parse(arriving.scheme) if arriving.scheme else None
    settings = asking(place, named, groups=arriving.groups)
    try:
        run(place, arriving.way, replace(settings, scheme=scheme), twice=arriving.twice)
    except Refused:
        if scheme is None:
            raise
        # Not each scheme fits each pipeline.
        run(place, arriving.way, settings, twice=arriving.twice)


def _compare(going: _Going, so_far: History) -> None:
    """Hold each table that is not lacking something against its query; one whose rows are of a batch against those of
    its batches."""
    place, compared = going.place, going.compared
    store, means = store_at(place.root), meanings(place.pipeline.graph)
    plan = Ledger(store, place.pipeline.name).standing().published
    assert plan is not None
    if so_far.followed:
        _compare_followed(place, plan, so_far)
    # Nothing may have come since a table was added.
    written = {write.declared.table for write in plan.writes()} - going.lacking - going.waiting
    for write in (write for write in place.pipeline.writes if write.table in written):
        if write.table.startswith("c_"):
            _compare_log(place, plan, write.table, so_far)
            compared.tables["a changelog"] += 1
            continue
        query, is_query = _query_of(place.pipeline, plan, write.table), means[write.table].is_query
        is_one_batch = f"over the records of batch {plan.batch}" in query and write.mode is not Mode.UPSERT
        compared.tables[f"{means[write.table].rows}{', a batch at a time' * is_one_batch}"] += 1
        if not is_query and not is_one_batch:
            continue
        published = _there(store, write.table)
        with duckdb.connect() as alone:
            right = _texts(alone.sql(query))
        if is_one_batch and write.mode is Mode.APPEND:
            # What arrived may have made no batch.
            going.of_batches.setdefault(write.table, {})[plan.batch] = right
            right = [row for rows in going.of_batches[write.table].values() for row in rows]
        altered = going.altered.get(write.table, Counter())
        more = Counter(published)
        more.subtract(right)
        stays = write.mode is Mode.APPEND and not going.exchanged
        if any(
            count != altered[row] if stays else not min(0, altered[row]) <= count <= max(0, altered[row])
            for row, count in (more | altered if stays else more).items()
        ):
            right = [*(Counter(right) + altered).elements()]
            missing, more = Counter(right) - published, published - Counter(right)
            raise Differs(
                f"{write.table} after batch {plan.batch}\n{so_far}\n\n{query}\n"
                f"missing: {sorted(missing)[:5]}\ntoo many: {sorted(more)[:5]}"
            )


def _there(store: Store, table: str) -> Counter[_Row]:
    """The rows of a table."""
    there = first_rows(store, table, MOST)
    with duckdb.connect() as alone:
        return Counter(_texts(alone.from_arrow(there.rows)) if there else [])


def _query_of(pipeline: Pipeline, plan: Plan, table: str) -> str:
    return TWICE.sub(AS_SQL, table_query(pipeline.graph, plan, table))


def _compare_log(place: Trial, plan: Plan, table: str, so_far: History) -> None:
    """Raise Differs if a changelog does not add up to its query."""
    query, there = _query_of(place.pipeline, plan, table), first_rows(store_at(place.root), table, MOST)
    sums = "sum(CASE _change_type WHEN 'insert' THEN 1 ELSE -1 END)"
    with duckdb.connect() as alone:
        right = Counter(_texts(alone.sql(query).project(VALUES)))
        published = Counter[_Row]()
        if there:
            of_sums = alone.from_arrow(there.rows).aggregate(f"{VALUES}, {sums}::BIGINT AS z")
            published = Counter({each[:-1]: int(each[-1]) for each in _texts(of_sums)})
            published = Counter({row: count for row, count in published.items() if count})
    if right != published:
        raise Differs(
            f"{table} after batch {plan.batch}\n{so_far}\n\n{query}\n"
            f"right: {sorted(right - published)[:5]}\ntoo many: {sorted(published - right)[:5]}"
        )


def _compare_followed(place: Trial, plan: Plan, so_far: History) -> None:
    """Raise Differs if an Iceberg table has other rows than the table that it follows."""
    store = store_at(place.root)
    follow(store, place.pipeline.name)
    for table in (write.declared.table for write in plan.writes()):
        # What delta-rs updates has views of texts, which `to_arrow` does not put together with others.
        read = catalogue(LAKE).load_table(f"shop.{table}").scan().to_arrow_batch_reader()
        right, rows = rows_of(store, [table]).get(table, Counter()), texts_of(in_order(read, MOST, ()))
        if right != rows:
            raise Differs(
                f"{table} in Iceberg after batch {plan.batch}\n{so_far}\n\n"
                f"missing: {sorted(right - rows)[:5]}\ntoo many: {sorted(rows - right)[:5]}"
            )


def _texts(rows: duckdb.DuckDBPyRelation) -> list[_Row]:
    names = sorted(rows.columns)
    # Nobody tells one NaN from another, nor one zero.
    text = (
        "CASE \"{0}\"::VARCHAR WHEN '-nan' THEN 'nan' WHEN '-0.0' THEN '0.0' ELSE coalesce(\"{0}\"::VARCHAR, '-') END"
    )
    listed = ", ".join(map(text.format, names))
    return rows.project(listed).fetchall()


def smallest(of: History, seconds: float = 120) -> History:
    """A history that still fails as this one does, with fewer lines, batches and records, as far as that is found in
    time."""
    end, grown, how = time.monotonic() + seconds, True, failure(of).partition("\n")[0]
    while grown and time.monotonic() < end:
        grown = False
        for less in _less(of):
            if time.monotonic() < end and failure(less).partition("\n")[0] == how:
                of, grown = less, True
                break
    return of


def _less(of: History) -> Iterator[History]:
    """The history without its last batch, without a line and what follows it, and with half of a stream's records."""
    if len(of.batches) > 1:
        yield replaced(of, batches=of.batches[:-1])
    if of.late or of.grown:
        yield replaced(of, late=frozenset(), grown=0)
    if of.followed:
        yield replaced(of, followed=False)
    if of.edited or of.away:
        yield replaced(of, edited=None, away=False, corrected=False)
    for number, arriving in enumerate(of.batches):
        for less in _less_of(arriving):
            yield replaced(of, batches=(*of.batches[:number], less, *of.batches[number + 1 :]))
    for line in reversed(of.lines):
        yield replaced(of, lines=made([each for each in of.lines if each != line])[1])


def _less_of(arriving: Arriving) -> Iterator[Arriving]:
    """The batch with nothing done to it or after it, or with half of a stream's records."""
    plain = (replaced(arriving, after=""), replaced(arriving, way=""), replaced(arriving, twice=False))
    yield from (each for each in plain if each != arriving)
    for name, rows in arriving.records.items():
        for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            yield replaced(arriving, records={**arriving.records, name: half}, scheme=None, groups=1, twice=False)


def failure(of: History) -> str:
    """How a history fails, in a line, and what of it; empty if it does not."""
    try:
        check(of, Compared())
    except Differs as differs:
        return f"A table is not its query\n{differs}"
    except CosetError as error:
        return f"{', '.join(sorted({finding.kind for finding in error.findings}))}\n{of}\n{error}"
    except Exception as error:
        return f"{type(error).__name__}\n{of}\n{traceback.format_exc()}"
    return ""


def main(minutes: float, seed: int, *, wide: bool = True) -> int:
    """Take seeds until the time is over; 1 at the first that fails."""
    os.environ.setdefault("COSET_IMPORTS", "tests")
    end, first, compared = time.monotonic() + 60 * minutes, seed, Compared()
    while time.monotonic() < end:
        try:
            check(history(seed, wide=wide), compared)
        except Exception as error:
            print(f"Seed {seed}: {error}\nAs few lines as still fail so:", flush=True)
            print(failure(smallest(history(seed, wide=wide))))
            return 1
        print(f"Seed {seed} has no difference", file=sys.stderr, flush=True)
        seed += 1
    print(f"No difference in seeds {first} to {seed - 1}: {compared}")
    return 0


if __name__ == "__main__":
    given = sys.argv[2:]
    sys.exit(main(float(sys.argv[1]), int(given[0]) if given else random.randrange(10**6)))
