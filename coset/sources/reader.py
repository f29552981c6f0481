"""Readers: the port by which a task reads an input, whatever its source."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa

T = TypeVar("T")

# Columns of records that cannot be used, in batches of streams that set them aside: why, and the bytes as they were
# written. Both are null for other records. In other columns but the offset, a record that cannot be used has nulls.
WHY = pa.field("@why", pa.string())
RAW = pa.field("@raw", pa.binary())

# To work on fewer records takes less time than to begin a thread that reads others meanwhile.
_MANY = 10_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records of a partition, and `where` they were read. Their offsets must be in [first, end).

    If only the reader knows how far that is, `reached` is the offset up to which all records have been returned.
    """

    partition: int
    first: int
    end: int
    where: str
    records: pa.RecordBatch
    reached: int | None = None
    _known: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, name: Hashable, work_out: Callable[[], T]) -> T:
        """The result of `work_out`, which is called once for all tasks that get these records."""
        if name not in self._known:
            self._known[name] = work_out()
        known: T = self._known[name]
        return known


def ahead(batches: Iterator[Batch], records: int) -> Iterator[Batch]:
    """The same batches, of so many records. Each is read while the one before is worked on; few are read at once."""
    if records < _MANY:
        yield from batches
        return
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = thread.submit(next, batches, None)
            yield batch


class Reader(Protocol):
    """Reads the partitions that an order names, in its order."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """The types of these columns, dictionaries decoded. Call it only if there is something to read."""

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """All records with these columns, once. Raises Refused if a record is no longer there as planned."""
