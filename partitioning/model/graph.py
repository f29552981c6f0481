"""The logical graph: streams, steps and result tables as values, before anything is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from partitioning.model.placement import MURMUR2
from partitioning.model.streams import Column, Stream


@dataclass(frozen=True, slots=True)
class Step:
    """One step: `sql` selects from the streams and steps named in `inputs`. `expressions` are what the user wrote.

    What it gives has the key column `key` (empty: none), hashed as `key_format`; a step that `rekeys` gives
    records other keys than they had. A `keyed` step needs all records of a key in one task. With `state` it
    goes on from its own last result. `partitions` fixes the number of tasks, `placement` the hash by which
    records are moved to it, `fan_in` how many inputs a unifier has. `function` is a process step's import
    path, `columns` are what it declares to give.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    sql: str
    expressions: tuple[str, ...]
    key: str
    key_format: str = "string"
    keyed: bool = False
    rekeys: bool = False
    state: bool = False
    partitions: int | None = None
    placement: str = MURMUR2
    fan_in: int | None = None
    function: str | None = None
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Write:
    """A result table: the step it holds, whether rows carry `_batch` and `_task`, and what is expected of it.

    `expectations` are Great Expectations configurations: `{"type": …, "kwargs": {…}}`, as JSON text.
    """

    table: str
    step: str
    key: str
    lineage: bool
    expectations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Streams, steps (each after its inputs) and result tables, in declared order."""

    streams: tuple[Stream, ...]
    steps: tuple[Step, ...]
    writes: tuple[Write, ...]

    def step(self, name: str) -> Step | None:
        """The step of that name; None if it is a stream's."""
        return next((step for step in self.steps if step.name == name), None)

    def readers(self, name: str) -> Iterator[Step]:
        """The steps that read a stream or step."""
        return (step for step in self.steps if name in step.inputs)


def quote(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def union(names: Iterable[str]) -> str:
    """The SELECT of a merge of these streams or steps: columns are matched by name.

    >>> print(union(["a", "b"]))
    SELECT * FROM "a" UNION ALL BY NAME SELECT * FROM "b"
    """
    return " UNION ALL BY NAME ".join(f"SELECT * FROM {quote(name)}" for name in names)
