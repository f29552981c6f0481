"""The logical graph: streams, steps and result tables as values, before anything is planned. Changes of what its
steps keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Literal

from msgspec import UnsetType

from partitioning.model.placement import MURMUR2, HashName, KeyFormat, Placement
from partitioning.model.streams import Column, Stream
from partitioning.model.table_mode import Mode, Updates
from partitioning.model.watermarks import TimePassed
from partitioning.values import Value


class KeptChange(Value, frozen=True, omit_defaults=True):
    """What a pipeline declares of a step that keeps something and was changed.

    The step continues from what the step `was` called kept. Of the rows that it kept, new columns begin as the SQL
    expressions in `begins` say, by column. `migrate` has such expressions too, and `function` is the import path of a
    function from old rows to new: all rows are written again, once. The step begins `anew` for this reason.
    """

    was: str = ""
    begins: tuple[tuple[str, str], ...] = ()
    migrate: tuple[tuple[str, str], ...] = ()
    function: str = ""
    anew: str = ""

    @property
    def migrates(self) -> bool:
        """Whether all rows are written again."""
        return bool(self.migrate or self.function)

    def since(self, before: KeptChange | None) -> KeptChange:
        """What of it is still to be done, if what was declared `before` is done."""
        if before is None:
            return self
        return KeptChange(
            self.was,
            self.begins,
            tuple(pair for pair in self.migrate if pair not in before.migrate),
            self.function if self.function != before.function else "",
            self.anew if self.anew != before.anew else "",
        )


NO_CHANGE = KeptChange()


class How(StrEnum):
    """How a column of kept rows changes."""

    DROPPED = "dropped"
    WIDENED = "widened"
    BEGINS = "begins"
    MIGRATED = "migrated"


class ColumnChange(Value, frozen=True, omit_defaults=True):
    """A column of what a step keeps that changes in a batch: its name, how, its type before and now, and the SQL that
    makes it of a row that was kept before."""

    name: str
    how: How
    before: str = ""
    now: str = ""
    sql: str = ""

    def __str__(self) -> str:
        """The change in a few words.

        >>> print(ColumnChange("orders", How.BEGINS, "", "BIGINT", "0"))
        orders begins as 0
        """
        match self.how:
            case How.DROPPED:
                return f"{self.name} is dropped"
            case How.WIDENED:
                return f"{self.name} is {self.now}, before {self.before}"
            case How.BEGINS:
                return f"{self.name} begins as {self.sql.replace('NULL', 'null')}"
            case How.MIGRATED:
                return f"{self.name} becomes {self.sql}" if self.sql else f"{self.name} is made by the function"


class KeptVersion(Value, frozen=True):
    """Rows that a step kept in other columns than now: the `columns` of their files, and the SELECT lists, applied one
    after the other, that make of them what is kept now."""

    columns: tuple[Column, ...]
    readings: tuple[str, ...]


def listed(changes: Sequence[ColumnChange]) -> str:
    """The changes in one sentence's worth of words."""
    return ", ".join(map(str, changes))


class Op(StrEnum):
    """What a step does."""

    FILTER = "filter"
    SELECT = "select"
    REKEY = "rekey"
    REPARTITION = "repartition"
    MERGE = "merge"
    AGGREGATE = "aggregate"
    COGROUP = "cogroup"
    JOIN = "join"
    PARTIAL = "partial"
    COMBINE = "combine"
    LATEST = "latest"
    TABLE = "table"
    DISTINCT = "distinct"
    RECENT = "recent"
    UPSERT = "upsert"
    CHANGES = "changes"
    KEEP = "keep"
    ROWS = "rows"
    TO_STREAM = "to_stream"
    PROCESS = "process"
    SPARK = "spark"


class Join(StrEnum):
    """Which unmatched records a join keeps: none, those of the first flow, or all."""

    INNER = "inner"
    LEFT = "left"
    FULL = "full"

    @property
    def sql(self) -> str:
        """The SQL keywords between the two sides."""
        return "JOIN" if self is Join.INNER else f"{self.name} JOIN"


class Missing(StrEnum):
    """What becomes of a record for which no version is valid: it is given with nulls, or it is dropped."""

    NULL = "null"
    DROP = "drop"


class StateSpec(Value, frozen=True, omit_defaults=True):
    """The state of a step: what it keeps from batch to batch.

    Without `sql`, a step keeps its own output, one row for each key, and reads it as further input of the next batch.
    With `sql`, it keeps the rows that this selects, each for `microseconds` of its column `@time`, beside those of
    earlier batches. A row that `waits` closes once the watermark is so many microseconds past its time, or earlier if
    that is `gap` past the last row of its session. Of versions, the `newest` of each key that is older stays too, as it
    is still valid. `apart` selects key and time of records whose time does not count. A function returns its state
    itself.

    Without `sql` and with `microseconds`, it keeps a row for each life of a key: the rows of which each came no more
    than that after the one before. `times` selects key and time of this batch's. A life `waits` as long to be over.

    Planning adds the `columns`, unless a function declares them, the `placement` of the rows, and the `watermark` of
    the streams that they come from, if these have one. `changed` is what the pipeline declares of a change.
    """

    sql: str = ""
    microseconds: int = 0
    columns: tuple[Column, ...] = ()
    placement: Placement | None = None
    apart: str = ""
    changed: KeptChange | None = None
    watermark: TimePassed | None = None
    waits: int | None = None
    newest: bool = False
    gap: int = 0
    times: str = ""

    @property
    def of_lives(self) -> bool:
        """Whether it has a row for each life of a key, which expires."""
        return not self.sql and self.microseconds > 0

    @property
    def shortest(self) -> int:
        """After how many microseconds a row closes at the earliest."""
        return self.gap or self.waits or 0

    @property
    def own_time(self) -> int:
        """Which of the step's expressions says when a record itself happened. Of a session the first says its window's
        time."""
        return -2 if self.gap else -1 if self.of_lives else 0

    @property
    def lengths(self) -> dict[str, int]:
        """How many microseconds it does what for."""
        return {"keeps each for": self.microseconds, "gives it after": self.waits or 0, "ends sessions after": self.gap}

    @property
    def closing(self) -> str:
        """How windows close that it keeps, as a sentence goes on about them."""
        said = {"corrected for": self.microseconds - (self.waits or 0), "in sessions with a gap of": self.gap}
        return "".join(f", {what} {timedelta(microseconds=time)}" for what, time in said.items() if time)

    def since(self, latest: int | None, day_end: int | UnsetType | None) -> int | None:
        """The earliest `@time` of rows still kept once the watermark has passed or, where none is known of its streams,
        `latest` was seen, or the day of planning ended before that. None if no row expires."""
        if self.watermark:
            reached = self.watermark.before
        else:
            reached = min(latest, day_end) if latest is not None and isinstance(day_end, int) else latest
        return None if reached is None else reached - self.microseconds


class Step(Value, frozen=True):
    """A step. `sql` selects from the streams and steps named in `inputs`; `expressions` are as the user wrote them.

    The output has the key column `key` (empty: none), hashed as `key_format`. A step that `rekeys` changes the records'
    keys. A `keyed` step needs all records of a key in one task. With `state` it continues from its state of the batch
    before. `partitions` fixes the number of tasks, `hash` places the records that move to it, `fan_in` limits the
    inputs of a unifier. `function` is the import path of a function on Arrow tables or Spark's DataFrames, `columns`
    its declared output.
    """

    name: str
    op: Op
    inputs: tuple[str, ...]
    sql: str
    expressions: tuple[str, ...]
    key: str
    key_format: KeyFormat = KeyFormat.STRING
    keyed: bool = False
    rekeys: bool = False
    state: StateSpec | Literal[False] = False
    partitions: int | None = None
    hash: HashName = MURMUR2
    fan_in: int | None = None
    function: str | None = None
    columns: tuple[Column, ...] = ()

    @property
    def on_dataframes(self) -> bool:
        """Whether it is a function on Spark's DataFrames. Its output exists only after its stage has run."""
        return self.op is Op.SPARK

    @property
    def keeps_its_rows(self) -> bool:
        """Whether its state is its own output: the newest row of each key it ever got."""
        return self.state is not False and not self.state.sql and not self.function


def waiting(step: Step, steps: Mapping[str, Step]) -> tuple[str, ...]:
    """The inputs of a join or of windows whose records are given once their time is over; the step itself if its keys
    expire; none of another step."""
    if step.state and step.state.of_lives:
        return (step.name,)
    inputs = (steps[name] for name in step.inputs if name in steps) if step.op in {Op.JOIN, Op.AGGREGATE} else ()
    return tuple(side.name for side in inputs if side.state and side.state.waits is not None)


def gives_what_is_over(steps: Iterable[Step]) -> bool:
    """Whether records are given once their time is over, also in a batch without records."""
    return any(step.state and step.state.waits is not None for step in steps)


class ColumnComment(Value, frozen=True):
    """What is said of a column of a result table."""

    column: str
    text: str

    def __str__(self) -> str:
        return f"{self.column}: {self.text}"


class Write(Value, frozen=True, omit_defaults=True):
    """A result table: the step whose rows it holds, whether rows carry `_batch` and `_task`, and what is expected of
    it.

    `expectations` are Great Expectations configurations: `{"type": …, "kwargs": {…}}`, as JSON text. An upserted table
    holds a step that keeps its rows. `comment` and `comments` go into its log, for who reads the table.
    """

    table: str
    step: str
    key: str
    lineage: bool
    expectations: tuple[str, ...]
    mode: Mode = Mode.APPEND
    comment: str = ""
    comments: tuple[ColumnComment, ...] = ()
    updates: Updates = Updates.REWRITE


class Graph(Value, frozen=True):
    """Streams, steps (each after its inputs) and result tables, in declared order; and of a plan the names of the
    `columns` that its streams have, and digests of the `code` of functions."""

    streams: tuple[Stream, ...]
    steps: tuple[Step, ...]
    writes: tuple[Write, ...]
    columns: Mapping[str, tuple[str, ...]] = {}
    code: Mapping[str, str] = {}

    def above(self, name: str) -> frozenset[str]:
        """The names of the streams and steps that the records of a stream or step come from, with its own."""
        names = {name}
        for step in reversed(self.steps):
            names.update(step.inputs if step.name in names else ())
        return frozenset(names)


def alive_of(step: str) -> str:
    """The name of the step that gives the keys of another which have not expired. Nothing has to follow it, if only
    what expired is asked for."""
    return f"{step}.alive"


def gives_expired(step: Step, steps: Mapping[str, Step]) -> bool:
    """Whether a step gives the lives of keys that are over: each once, and not what is newest of a key."""
    lives = steps.get(step.inputs[0])
    return bool(lives and lives.state and lives.state.of_lives) and step.name != alive_of(step.inputs[0])


def state_of(step: str) -> str:
    """The name of a step's state, as a task's input and in SQL."""
    return f"{step}.state"


def quote(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def union(names: Iterable[str]) -> str:
    """The SELECT of a merge of these streams or steps: columns are matched by name.

    >>> print(union(["a", "b"]))
    SELECT * FROM "a" UNION ALL BY NAME SELECT * FROM "b"
    """
    return " UNION ALL BY NAME ".join(f"SELECT * FROM {quote(name)}" for name in names)


def list_items(text: str) -> Iterator[str]:
    """The parts of a list, at its commas outside of brackets and quotes.

    >>> list(list_items("a, f(b, 'x,y') AS c"))
    ['a', " f(b, 'x,y') AS c"]
    """
    depth, start, quoted = 0, 0, ""
    for place, letter in enumerate(text):
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "'\"":
            quoted = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and not depth:
            yield text[start:place]
            start = place + 1
    yield text[start:]
