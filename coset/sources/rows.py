"""Rows of a table: read again each time, batch by batch, never all at once; or in a small data frame."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd
import pyarrow as pa

# Large enough to make Great Expectations' overhead negligible, small enough for memory.
BLOCK = 250_000


def frame_of(rows: Sequence[Mapping[str, object]], types: Mapping[str, str | None]) -> pd.DataFrame:
    """Rows as a data frame with these columns. A column without a type has that of its values.

    >>> frame_of([{"batch": 3, "of": None}], {"batch": None, "of": "Int64"}).dtypes.astype(str).to_dict()
    {'batch': 'int64', 'of': 'Int64'}
    """
    columns = {name: [row[name] for row in rows] for name in types}
    return pd.DataFrame(
        {name: pd.array(column, types[name]) if types[name] else column for name, column in columns.items()}
    )


def each_row(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows of a data frame by the names of its columns, as `itertuples` gives them in far more time.

    >>> [row.batch + 1 for row in each_row(pd.DataFrame({"batch": [3, 4]}))]
    [4, 5]
    """
    columns = (frame[name].tolist() for name in frame.columns)
    return map(_row(tuple(frame.columns))._make, zip(*columns, strict=True))


@lru_cache(maxsize=64)
def _row(columns: tuple[str, ...]) -> Any:
    return namedtuple("Row", columns)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows: their number and columns. `read` gives the named columns in the same order each time."""

    schema: pa.Schema
    count: int
    read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]

    @classmethod
    def of(cls, table: pa.Table) -> Rows:
        """The rows of a small table."""
        return cls(table.schema, len(table), lambda columns: iter(table.select(list(columns)).to_batches()))

    def blocks(self, size: int) -> Iterator[Rows]:
        """All rows in order, in blocks of this size except the last; one empty block if there are none."""
        held = self.schema.empty_table()
        for batch in self.read(self.schema.names):
            held = pa.concat_tables([held, pa.Table.from_batches([batch]).cast(self.schema)])
            while len(held) > size:
                yield Rows.of(held[:size])
                held = held[size:]
        yield Rows.of(held)

    def select(self, columns: Sequence[str]) -> Rows:
        """The same rows with only these columns."""
        kept = pa.schema([self.schema.field(name) for name in columns], self.schema.metadata)
        return Rows(kept, self.count, self.read)

    def frame(self) -> pd.DataFrame:
        """All rows as a data frame. Most tables are small, and threads would take longer to begin."""
        batches = self.read(self.schema.names)
        tables = [pa.Table.from_batches([batch]).cast(self.schema) for batch in batches]
        return pa.concat_tables([self.schema.empty_table(), *tables]).to_pandas(use_threads=self.count > BLOCK)

    def at(self, places: Collection[int]) -> dict[int, dict[str, Any]]:
        """The rows at these positions."""
        there: dict[int, dict[str, Any]] = {}
        start = 0
        for batch in self.read(self.schema.names):
            inside = [place for place in places if start <= place < start + len(batch)]
            there |= {place: batch.slice(place - start, 1).to_pylist()[0] for place in inside}
            start += len(batch)
        return there
