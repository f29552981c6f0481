"""Values that are Debezium's change events, read as rows of the table that they change."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from coset.sources.formats.change_lines import ChangeLines
from coset.sources.kafka.wrong import Wrong, first_wrong
from partitioning.model.streams import Stream

_ERRORS = (ValueError, pa.ArrowException)


class ChangeValues:
    """Reads the columns of rows from change events. Without a value, all are null."""

    def __init__(self, stream: Stream, schema: pa.Schema) -> None:
        self._schema = schema
        self._read = ChangeLines(stream)

    def columns(self, values: Sequence[bytes | None], names: Sequence[str]) -> list[pa.Array]:
        """These columns. Raises Wrong at the first value that is no change of a row, or not as declared."""
        wanted, said = pa.schema([self._schema.field(name) for name in names]), [each for each in values if each]
        try:
            rows = self._rows(said, wanted)
        except _ERRORS:
            wrong = first_wrong(values, lambda value: self._rows([value], wanted), _ERRORS)
            raise Wrong(wrong.number, f"the value is not as declared: {wrong.what}", wrong.then) from None
        there = iter(range(len(said)))
        places = pa.array([next(there) if each else None for each in values], pa.int64())
        return [column.take(places) for column in rows.columns]

    def _rows(self, values: Sequence[bytes], wanted: pa.Schema) -> pa.RecordBatch:
        # Between parts of a value a line may end; within a text none does.
        lines = b"".join(value.replace(b"\n", b" ") + b"\n" for value in values)
        return self._read(lines, wanted)
