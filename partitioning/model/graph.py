"""The logical graph: streams, steps and result tables as values, before anything is planned."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from partitioning.model.placement import MURMUR2, KeyFormat, Placement
from partitioning.model.streams import Column, Stream
from partitioning.values import Value


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
    PROCESS = "process"
    SPARK = "spark"


class Join(StrEnum):
    """Which records a join keeps that match none of the others: none, those of the first flow, or all."""

    INNER = "inner"
    LEFT = "left"
    FULL = "full"

    @property
    def sql(self) -> str:
        """The words between two sides in SQL."""
        return "JOIN" if self is Join.INNER else f"{self.name} JOIN"


class Mode(StrEnum):
    """What becomes of the rows that a result table has: those of a batch come beside them, take the place of the rows
    of their keys, or of all."""

    APPEND = "append"
    UPSERT = "upsert"
    REPLACE = "replace"


class Keeps(Value, frozen=True, omit_defaults=True):
    """What a step keeps from batch to batch: its state.

    Without `sql` these are its own rows, which it reads again as more of its input. They take the place of whatever it
    kept of the keys that it gets. With `sql`, they are the rows that this selects; those stay beside what it kept
    before, each so many `microseconds` of its column `@time`. `apart` selects the key and time of the records whose
    time does not count. A function says by itself what it keeps.

    Planning adds the `columns`, unless they are a function's, and the `placement` by which the rows lie.
    """

    sql: str = ""
    microseconds: int = 0
    columns: tuple[Column, ...] = ()
    placement: Placement | None = None
    apart: str = ""

    def since(self, latest: int | None) -> int | None:
        """The earliest `@time` of rows that are still kept if `latest` was seen; None if none is over."""
        return None if latest is None else latest - self.microseconds


class Step(Value, frozen=True):
    """One step: `sql` selects from the streams and steps named in `inputs`. `expressions` are what the user wrote.

    What it gives has the key column `key` (empty: none), hashed as `key_format`; a step that `rekeys` gives
    records other keys than they had. A `keyed` step needs all records of a key in one task. With `state` it
    goes on from what it kept in the batch before. `partitions` fixes the number of tasks, `hash` is that by which
    records are moved to it, `fan_in` how many inputs a unifier has. `function` is the import path of a process step's
    function, or of one on Spark's DataFrames, `columns` are what it declares to give.
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
    state: Keeps | Literal[False] = False
    partitions: int | None = None
    hash: str = MURMUR2
    fan_in: int | None = None
    function: str | None = None
    columns: tuple[Column, ...] = ()

    @property
    def on_dataframes(self) -> bool:
        """Whether it is a function on Spark's DataFrames: what it makes is there only after its stage has run."""
        return self.op is Op.SPARK

    @property
    def keeps_its_rows(self) -> bool:
        """Whether what it keeps are its own rows, by key: the newest of each key that it ever got."""
        return self.state is not False and not self.state.sql and not self.function


class Write(Value, frozen=True, omit_defaults=True):
    """A result table: the step it holds, whether rows carry `_batch` and `_task`, and what is expected of it.

    `expectations` are Great Expectations configurations: `{"type": …, "kwargs": {…}}`, as JSON text. An upserted table
    holds a step that keeps its rows.
    """

    table: str
    step: str
    key: str
    lineage: bool
    expectations: tuple[str, ...]
    mode: Mode = Mode.APPEND


class Graph(Value, frozen=True):
    """Streams, steps (each after its inputs) and result tables, in declared order."""

    streams: tuple[Stream, ...]
    steps: tuple[Step, ...]
    writes: tuple[Write, ...]


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
