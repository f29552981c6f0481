"""Rows: those of a table, read anew as often as they are asked for, a batch at a time, never all at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# Large enough that Great Expectations' own work does not count, small enough to hold.
BLOCK = 250_000


@dataclass(frozen=True, slots=True)
class Rows:
    """So many rows, of these columns; `read` gives them in the same order each time, with the named columns."""

    schema: pa.Schema
    count: int
    read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]

    @classmethod
    def of(cls, table: pa.Table) -> Rows:
        """Those of a small table."""
        return cls(table.schema, len(table), lambda columns: iter(table.select(list(columns)).to_batches()))

    def blocks(self, size: int) -> Iterator[Rows]:
        """All rows in their order, so many at a time but for the last; one block without any if there are none."""
        held = self.schema.empty_table()
        for batch in self.read(self.schema.names):
            held = pa.concat_tables([held, pa.Table.from_batches([batch]).cast(self.schema)])
            while len(held) > size:
                yield Rows.of(held[:size])
                held = held[size:]
        yield Rows.of(held)

    def select(self, columns: Sequence[str]) -> Rows:
        """The same rows with these columns only."""
        kept = pa.schema([self.schema.field(name) for name in columns], self.schema.metadata)
        return Rows(kept, self.count, self.read)

    def save(self, path: Path) -> None:
        """Write all rows to a Parquet file."""
        with pq.ParquetWriter(path, self.schema) as writer:
            for batch in self.read(self.schema.names):
                writer.write_table(pa.Table.from_batches([batch]).cast(self.schema))

    def at(self, places: Collection[int]) -> dict[int, dict[str, Any]]:
        """The rows at these places."""
        there: dict[int, dict[str, Any]] = {}
        start = 0
        for batch in self.read(self.schema.names):
            inside = [place for place in places if start <= place < start + len(batch)]
            there |= {place: batch.slice(place - start, 1).to_pylist()[0] for place in inside}
            start += len(batch)
        return there
