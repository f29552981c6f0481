"""Readers: where a task gets the records of an input from, whatever kind of source that is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records of a partition, and `where` they lay; their offsets have to be in [first, end).

    Where only who reads can know how far that is, `reached` is the offset up to which all records were given by now.
    """

    partition: int
    first: int
    end: int
    where: str
    records: pa.RecordBatch
    reached: int | None = None
    _known: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, name: Hashable, work_out: Callable[[], T]) -> T:
        """What `work_out` gives, which is the same for all tasks that are given these records: it is called once."""
        if name not in self._known:
            self._known[name] = work_out()
        known: T = self._known[name]
        return known


class Reader(Protocol):
    """The records of the partitions that an order names, partition by partition, in their order there."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """The types of these columns, dictionaries decoded, if there is something to read."""

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """All records with these columns, once. Raises Refused if a record is not there any more as it was planned."""
