"""Branches: tables of what a stream's records come to by key; and what direct queries say has to be in them.

Nothing of that is asked of the product but which records a batch has read, which it writes to a table of its own as
they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import duckdb
import pyarrow as pa

from partitioning.authoring.flow import Flow
from partitioning.kinds import Kind
from partitioning.model.table_mode import Mode
from tests.changing import key_of
from tests.stream_marks import Marks

Row = tuple[str, int, int]
MINUTE = timedelta(minutes=1)
# A record happened at the minute of its number. A key expires so long after its last one; windows are so long.
LIFE, WINDOW = 30, 20
TIME = "make_timestamp({} * 60000000)"


@dataclass(frozen=True)
class Branch:
    """How many records of a stream there are `by` a key and what a `measure` makes of their numbers: of a batch, or
    `running`, of all; of records `where` that holds. If it is `timed`, its keys expire, or it has a row for each window
    that is over."""

    stream: str
    table: str
    step: str
    mode: Mode
    running: bool
    by: str = "k"
    where: str = "true"
    measure: str = "sum"
    timed: str = ""

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that it writes."""
        return (self.table, f"{self.table}-ended") if self.timed == "expires" else (self.table,)

    @property
    def keeps(self) -> str:
        """The step that keeps something; none if nothing does."""
        if self.timed == "windows":
            return f"{self.step}.{self.table}.{'where' if self.by == 'k' else 'by'}"
        if self.running:
            return self.step
        return f"{self.table}.upsert" if self.mode is Mode.UPSERT else ""

    def add_to(self, flow: Flow) -> None:
        flow = flow.filter(self.where, name=f"{self.table}.where")
        # One column has the key, whatever it is made by; only what is not keyed otherwise stays where it lies.
        flow = flow if self.by == "k" else flow.select("number", name=f"{self.table}.number")
        flow = flow if self.by == "k" else flow.rekey("by", sql=self.by, name=f"{self.table}.by")
        made = f"count(*) AS n, {self.measure}(number)::BIGINT AS total"
        if self.timed == "windows":
            windows = flow.windows(made, time=TIME.format("number"), every=WINDOW * MINUTE, name=self.step)
            windows.to_stream().write(self.table, mode=self.mode)
            return
        if self.timed == "expires":
            each = flow.select("1::BIGINT AS n, number AS total, number AS last", name=f"{self.table}.each")
            columns = f"sum(n)::BIGINT AS n, {self.measure}(total)::BIGINT AS total, max(last) AS last"
            lives = each.combine(columns, running=True, time=TIME.format("last"), keep=LIFE * MINUTE, name=self.step)
            lives.to_stream().write(self.table, mode=self.mode)
            lives.expired(name=f"{self.table}.ended").write(self.tables[1])
            return
        if not self.running:
            flow.aggregate(made, name=self.step).to_stream().write(self.table, mode=self.mode)
            return
        all_of_them = f"sum(n)::BIGINT AS n, {self.measure}(total)::BIGINT AS total"
        counted = flow.aggregate(made, name=f"{self.table}.counted")
        counted.combine(all_of_them, running=True, name=self.step).to_stream().write(self.table, mode=self.mode)


@dataclass
class Wanted:
    """What the tables of branches have to hold.

    `published` are the branches of the last batch by what they keep, `known` the records that these steps go on
    from, as their keys and numbers were, `last` the row that they had last of each key. `upserted` are the tables that
    were made so. `passed` has the watermarks by which they went.
    """

    tables: dict[str, list[Row]] = field(default_factory=dict)
    published: dict[str, Branch] = field(default_factory=dict)
    known: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    last: dict[str, dict[str, Row]] = field(default_factory=dict)
    upserted: dict[str, bool] = field(default_factory=dict)
    passed: dict[str, int | None] = field(default_factory=dict)

    def refusals(self, branches: Iterable[Branch]) -> Mapping[str, Kind]:
        """The steps that a batch of these branches is not planned for unless it is asked for by name."""
        found = {}
        for branch in branches:
            was = self.published.get(branch.keeps)
            if branch.keeps and was is None and any(map(self.tables.get, branch.tables)):
                found[branch.keeps] = Kind.STATE_BEGINS
            elif branch.keeps and was is not None and _meaning(was) != _meaning(branch):
                found[branch.keeps] = Kind.STATE_CHANGED
        return found

    def can_go_on(self, branch: Branch) -> bool:
        """Whether it is what comes before its step that has changed."""
        was = self.published.get(branch.keeps)
        return was is not None and (not (branch.running or branch.timed) or _itself(was) == _itself(branch))

    def has_another_mode(self, branch: Branch) -> bool:
        return self.upserted.get(branch.table, branch.mode is Mode.UPSERT) is not (branch.mode is Mode.UPSERT)

    def after(
        self, branches: Sequence[Branch], read: Mapping[str, Sequence[int]], anew: Iterable[str], marks: Marks
    ) -> None:
        """A batch is published, in which these steps began anew, it `read` these numbers of the streams, and went by
        these watermarks."""
        known = {branch.keeps: self.known.get(branch.keeps, []) for branch in branches if branch.keeps}
        last = {branch.keeps: self.last.get(branch.keeps, {}) for branch in branches if branch.keeps}
        self.known, self.last = known | {name: [] for name in anew}, last | {name: {} for name in anew}
        for branch in branches:
            self.upserted.setdefault(branch.table, branch.mode is Mode.UPSERT)
            if branch.timed:
                self._give(branch, read[branch.stream], marks.time.get(branch.stream))
            else:
                self._write(branch, read[branch.stream])
        self.passed = {branch.keeps: self.passed.get(branch.keeps) for branch in branches if branch.timed}
        self.published = {branch.keeps: branch for branch in branches if branch.keeps}

    def _write(self, branch: Branch, numbers: Sequence[int]) -> None:
        new = _keyed(branch, numbers)
        if branch.running:
            self.known[branch.keeps] = [*self.known[branch.keeps], *new]
            touched = {key for key, _ in new}
            rows = [row for row in _counted(branch, self.known[branch.keeps]) if row[0] in touched]
        else:
            rows = _counted(branch, new)
        if branch.keeps:
            self.last[branch.keeps] = self.last[branch.keeps] | {row[0]: row for row in rows}
        match branch.mode:
            case Mode.APPEND:
                self.tables[branch.table] = [*self.tables.get(branch.table, []), *rows]
            case Mode.REPLACE:
                self.tables[branch.table] = rows
            case Mode.UPSERT:
                self.tables[branch.table] = list(self.last[branch.keeps].values())

    def _give(self, branch: Branch, numbers: Sequence[int], watermark: int | None) -> None:
        """Rows of the windows that are over, or of the keys that have expired and those that this batch has."""
        new, before = _keyed(branch, numbers), self.passed.get(branch.keeps)
        now = max((time for time in (before, watermark) if time is not None), default=None)
        self.passed[branch.keeps] = now
        parts, rows, ended = list[list[tuple[str, int]]](), list[Row](), list[Row]()
        if branch.timed == "windows":
            new = [one for one in new if before is None or _end_of_window(one[1]) > before]
            parts = _windows([*self.known[branch.keeps], *new])
            is_over = [now is not None and _end_of_window(part[0][1]) <= now for part in parts]
            rows = [row for part, over in zip(parts, is_over, strict=True) if over for row in _counted(branch, part)]
        else:
            parts = list(_lives([*self.known[branch.keeps], *new]))
            is_over = [now is not None and part[-1][1] < now - LIFE for part in parts]
            ended = [row for part, over in zip(parts, is_over, strict=True) if over for row in _counted(branch, part)]
            last = {part[0][0]: part for part, over in zip(parts, is_over, strict=True) if not over}
            rows = [row for key, part in last.items() if key in dict(new) for row in _counted(branch, part)]
            self.tables[branch.tables[1]] = [*self.tables.get(branch.tables[1], []), *ended]
        self.known[branch.keeps] = [one for part, over in zip(parts, is_over, strict=True) if not over for one in part]
        before_rows = self.tables.get(branch.table, []) if branch.mode is Mode.APPEND else []
        self.tables[branch.table] = [*before_rows, *rows]


def _windows(records: Iterable[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """The records of each key and window."""
    found = dict[tuple[str, int], list[tuple[str, int]]]()
    for key, number in records:
        found.setdefault((key, _end_of_window(number)), []).append((key, number))
    return list(found.values())


def _end_of_window(number: int) -> int:
    # It divides a day, so windows begin at multiples of it.
    return number - number % WINDOW + WINDOW


def _lives(records: Iterable[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    """The records of each life of a key, those of a key in their order."""
    life = list[tuple[str, int]]()
    for key, number in sorted(records):
        if life and (life[-1][0] != key or number - life[-1][1] > LIFE):
            yield life
            life = []
        life.append((key, number))
    if life:
        yield life


def _meaning(branch: Branch) -> Branch:
    """What has to be the same for rows to mean the same."""
    # What is kept of windows are their records.
    measure = "" if branch.timed == "windows" else branch.measure
    return replace(branch, table="", mode=Mode.APPEND, step="", measure=measure)


def _itself(branch: Branch) -> tuple[object, ...]:
    """What a running step keeps by: the column of its key, and what is added up."""
    return branch.by == "k", branch.timed, "" if branch.timed == "windows" else branch.measure


def _keyed(branch: Branch, numbers: Sequence[int]) -> list[tuple[str, int]]:
    """The records that a branch takes, with their keys."""
    read = pa.table({"k": [key_of(number) for number in numbers], "number": pa.array(numbers, pa.int64())})  # noqa: F841
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT {branch.by}, number FROM read WHERE {branch.where}").fetchall()


def _counted(branch: Branch, records: Sequence[tuple[str, int]]) -> list[Row]:
    read = pa.table(  # noqa: F841
        {
            "key": pa.array([key for key, _ in records], pa.string()),
            "number": pa.array([number for _, number in records], pa.int64()),
        }
    )
    with duckdb.connect() as connection:
        query = f"SELECT key, count(*), {branch.measure}(number)::BIGINT FROM read GROUP BY key"
        return connection.execute(query).fetchall()
