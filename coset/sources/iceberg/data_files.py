"""Data files of Iceberg tables: their columns by ids, under the names that the table has for them now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import pyarrow as pa

from coset.sources.formats.landed_file import FileFacts, Unreadable
from coset.sources.formats.parquet import ParquetRows
from coset.sources.plain_arrays import bare_schema
from partitioning.model.task_memory import USUAL, TaskMemory

_ID = b"PARQUET:field_id"


class DataFile:
    """A Parquet file of a table. A column that the table no longer has keeps no name that another could have."""

    def __init__(self, source: pa.NativeFile, ids: Mapping[str, int], memory: TaskMemory = USUAL) -> None:
        # No column of the file has offsets, whatever it is called.
        self._rows = ParquetRows(source, "", memory)
        self._named = {number: name for name, number in ids.items()}

    @cached_property
    def schema(self) -> pa.Schema:
        written = bare_schema(self._written)
        return pa.schema([field.with_name(name) for field, name in zip(written, self._names, strict=True)])

    @cached_property
    def parts(self) -> Mapping[str, tuple[int, ...]]:
        """The ids of each column and, behind its own, of its parts."""
        return {name: tuple(ids_of(field)) for field, name in zip(self._written, self._names, strict=True)}

    def facts(self) -> FileFacts:
        return self._rows.facts()

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        written = dict(zip(self._names, self._written.names, strict=True))
        names = [name for name in columns if name in written]
        for records in self._rows.batches([written[name] for name in names], start, end):
            yield pa.RecordBatch.from_arrays([records.column(written[name]) for name in names], names)

    @cached_property
    def _written(self) -> pa.Schema:
        return self._rows.written_schema

    @cached_property
    def _names(self) -> list[str]:
        numbers = [next(iter(ids_of(field)), None) for field in self._written]
        if None in numbers or len({*numbers}) < len(numbers):
            what = "its columns have no ids, as those of files that were added to a table, and not written by it"
            raise Unreadable(
                what, "let the table's engine rewrite it, as Spark's rewrite_data_files does, and begin anew"
            )
        return [self._named.get(number or 0, f"@{number}") for number in numbers]


def ids_of(field: pa.Field) -> Iterator[int]:
    """The ids of a column and of its parts."""
    if (said := (field.metadata or {}).get(_ID)) is not None:
        yield int(said)
    for number in range(field.type.num_fields):
        yield from ids_of(field.type.field(number))
