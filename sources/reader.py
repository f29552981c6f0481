"""Readers: where a task gets the records of an input from, whatever kind of source that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records of a partition, and `where` they lay; their offsets have to be in [first, end)."""

    partition: int
    first: int
    end: int
    where: str
    records: pa.RecordBatch


class Reader(Protocol):
    """The records of the partitions that an order names, partition by partition, in their order there."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """The types of these columns, dictionaries decoded, if there is something to read."""

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        """All records with these columns, once. Raises Refused if a record is not there any more as it was planned."""
