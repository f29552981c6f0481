"""JSON lines of streams that set records aside: a line that cannot be read is a record that says why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from coset.sources.formats.json_lines import JsonRows, Parse, unreadable
from coset.sources.formats.landed_file import Unreadable
from coset.sources.reader import RAW, WHY


@dataclass(frozen=True, slots=True)
class _Bad:
    """A line that cannot be read, and why."""

    line: bytes
    error: Unreadable


class UsableLines(JsonRows):
    """A file of JSON lines. All declared columns count, whichever are asked for, so that all readers agree.

    If a line does not say its offset, it has the one that follows the record before; that of the first line is `first`.
    """

    def __init__(
        self,
        source: pa.NativeFile,
        offset: str,
        schema: pa.Schema,
        first: int,
        *,
        dense: bool,
        parse: Parse | None = None,
    ) -> None:
        super().__init__(source, offset, schema, parse)
        self._following = first
        self._dense = dense

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        names = [name for name in dict.fromkeys(columns) if name in self.schema.names]
        schema = pa.schema([*(self.schema.field(name) for name in names), WHY, RAW])
        following, line = self._following, 1
        for block in self.blocks():
            there = list[pa.RecordBatch]()
            for run in self._runs(block.removesuffix(b"\n").split(b"\n"), line):
                if isinstance(run, _Bad):
                    at = self._offset_of(run, following)
                    values = {self.offset: at, WHY.name: str(run.error), RAW.name: run.line}
                    there.append(pa.RecordBatch.from_pylist([values], schema))
                    following = at + 1
                    continue
                if self.offset in self.schema.names:
                    following = run.column(self.offset)[-1].as_py() + 1
                good = [run.column(name) for name in names] + [pa.nulls(len(run), field.type) for field in (WHY, RAW)]
                there.append(pa.RecordBatch.from_arrays(good, schema=schema))
            if there:
                yield from pa.Table.from_batches(there).combine_chunks().to_batches()
            line += block.count(b"\n")

    def _runs(self, lines: Sequence[bytes], first: int) -> Iterator[pa.RecordBatch | _Bad]:
        """The records of lines, of which `first` is the number of the first."""
        block = b"\n".join(lines) + b"\n"
        try:
            records = self.parse(block, self.schema)
            if self.offset in self.schema.names and records.column(self.offset).null_count:
                raise ValueError(f"there is no {self.offset!r}")
        except (pa.ArrowException, ValueError) as error:
            if len(lines) == 1:
                yield _Bad(lines[0], unreadable(block, self.schema, first, error, self.parse))
                return
            half = len(lines) // 2
            yield from self._runs(lines[:half], first)
            yield from self._runs(lines[half:], first + half)
        else:
            if len(records):
                yield records

    def _offset_of(self, bad: _Bad, following: int) -> int:
        """The offset of a line that cannot be read. Raises its error if nobody knows."""
        if self.offset not in self.schema.names:
            return following
        try:
            said = self.parse(bad.line + b"\n", pa.schema([self.schema.field(self.offset)])).column(0)[0].as_py()
        except (pa.ArrowException, ValueError):
            said = None
        if isinstance(said, int):
            return said
        if not self._dense:
            what = f"{bad.error}; nor does it say its offset, so it cannot be set aside"
            raise Unreadable(what, bad.error.then)
        return following
