"""Parquet files: the footer has the columns, and where offsets lie.

INT96 are times as Hive, Impala and Spark wrote them: a Julian day, and the nanoseconds of the day. Enums are text."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import count
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coset.sources.file_columns import FileColumns, columns_of
from coset.sources.formats.landed_file import BATCH_ROWS, LAND_AGAIN, FileFacts, Unreadable, has_offsets
from coset.sources.plain_arrays import bare, bare_schema, rebuilt, with_leaves
from partitioning.model.task_engine import USUAL, TaskMemory

_NANOS_OF_MILLI = 1_000_000
_MOST_MILLIS = (2**63 - 1) // 1000 - 1
_UNENCRYPTED = (
    "land it without Parquet's own encryption, whose keys Coset does not have; S3 can encrypt what lies there"
)
# So many bytes of a file's end have its footer, if that is no longer; PyArrow asks for as many.
_TAIL = 1 << 16
_LENGTH, _MAGIC, _ENCRYPTED = 4, b"PAR1", b"PARE"


def open_parquet(
    source: pa.NativeFile,
    footer: pq.FileMetaData | None = None,
    *,
    pre_buffer: bool = False,
    bit_by_bit: int = 0,
    int96: str = "us",
) -> pq.ParquetFile:
    """Opens a Parquet file, with its footer if that was read. Pages that have checksums are verified as they are read.
    Each column of a row group is read as a whole, or so many bytes of it at a time.

    INT96 times are read in this unit: in nanoseconds, PyArrow's default, those before 1677 and after 2262 would become
    others. Reading raises OSError for a damaged page.
    """
    return pq.ParquetFile(
        source,
        metadata=footer,
        pre_buffer=pre_buffer,
        buffer_size=bit_by_bit,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit=int96,
    )


class ParquetRows:
    """A Parquet file, read row group by row group to bound memory."""

    def __init__(self, source: pa.NativeFile, offset: str, memory: TaskMemory) -> None:
        self._source = source
        self._offset = offset
        self._memory = memory

    @cached_property
    def _footer(self) -> pq.FileMetaData:
        return _footer_of(self._source)

    def _open(self, *, pre_buffer: bool = False, bit_by_bit: int = 0, int96: str = "us") -> pq.ParquetFile:
        return open_parquet(self._source, self._footer, pre_buffer=pre_buffer, bit_by_bit=bit_by_bit, int96=int96)

    @cached_property
    def schema(self) -> pa.Schema:
        return bare_schema(self.written_schema)

    @cached_property
    def written_schema(self) -> pa.Schema:
        """The columns, with what is written beside them."""
        file = self._open()
        schema = file.schema_arrow
        for name, enums in enum_leaves(file).items():
            field = schema.field(place := schema.get_field_index(name))
            schema = schema.set(place, field.with_type(with_leaves(field.type, _texts_for(enums))))
        return schema

    @cached_property
    def avro_schema(self) -> Any:
        """The parsed schema that its records had before, as Connect's sinks keep it beside them. None if there is
        none."""
        text = (self._footer.metadata or {}).get(b"parquet.avro.schema")
        return fastavro.parse_schema(json.loads(text)) if text else None

    def facts(self) -> FileFacts:
        return self.facts_as(columns_of(self.schema))

    def facts_as(self, columns: FileColumns) -> FileFacts:
        """Read from the footer; without statistics of offsets, from their column."""
        parquet = self._open()
        rows = _counted(parquet)
        if rows == 0 or not has_offsets(columns, self._offset):
            return FileFacts(columns, rows)
        if bounds := _statistics(parquet, self._offset):
            return FileFacts(columns, rows, *bounds)
        offsets = parquet.read(columns=[self._offset], use_threads=False).column(0)
        if offsets.null_count:
            return FileFacts(columns, rows, without_offset=offsets.null_count)
        bounds = pc.min_max(offsets)
        return FileFacts(columns, rows, bounds["min"].as_py(), bounds["max"].as_py())

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        """As the protocol says; a column of INT96 times may be text, as `times_of` gives it."""
        file = self._open(pre_buffer=True)
        names = set(file.schema_arrow.names)
        wanted = [name for name in columns if name in names]
        times = [name for name in int96_columns(file) if name in wanted]
        enums = {name: places for name, places in enum_leaves(file).items() if name in wanted}
        for group in range(file.metadata.num_row_groups):
            if _may_hold(file, group, self._offset, start, end):
                stored, each = _size(file, group, wanted)
                if stored > self._memory.part:
                    file = self._open(bit_by_bit=self._memory.part // len(wanted))
                batches = _whole(file, group, wanted, self._memory.rows(BATCH_ROWS, each))
                batches = self._with_times(batches, group, times) if times else batches
                yield from map(partial(_with_texts, enums=enums), batches) if enums else batches

    def _with_times(
        self, batches: Iterator[pa.RecordBatch], group: int, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The batches of a row group with these columns of INT96 times as they are."""
        read = [
            self._open(int96=unit).read_row_group(group, columns=list(names), use_threads=False)
            for unit in ("ms", "ns")
        ]
        columns = {name: times_of(*(table.column(name).combine_chunks() for table in read)) for name in names}
        first = 0
        for batch in batches:
            for name, column in columns.items():
                batch = batch.set_column(batch.schema.get_field_index(name), name, column.slice(first, len(batch)))
            yield batch
            first += len(batch)


def read_parquet(source: pa.NativeFile) -> pa.Table:
    """All records of a file. Raises Unreadable, or an error of Arrow's, also for a time that microseconds do not
    hold."""
    _counted(open_parquet(source, _footer_of(source)))
    file = ParquetRows(source, "", USUAL)
    schema, batches = file.schema, list(file.batches(file.schema.names, 0, 0))
    columns = [
        pa.chunked_array([batch.column(place).cast(field.type) for batch in batches], field.type)
        for place, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _footer_of(source: pa.NativeFile) -> pq.FileMetaData:
    """The footer of a file. Raises Unreadable if it or columns are encrypted, or if it says what PyArrow does not read:
    nothing is asked of a column before that is known."""
    size = source.size()
    tail = source.read_at(min(size, _TAIL), max(0, size - _TAIL))
    length = int.from_bytes(tail[-len(_MAGIC) - _LENGTH : -len(_MAGIC)], "little") + _LENGTH + len(_MAGIC)
    if len(tail) < length <= size:
        tail = source.read_at(length, size - length)
    if tail.endswith(_ENCRYPTED):
        raise Unreadable("its footer is encrypted", _UNENCRYPTED)
    try:
        footer = pq.read_metadata(pa.BufferReader(tail))
    except (pa.ArrowException, OSError) as error:
        if len(tail) < length:
            raise
        then = f"{LAND_AGAIN}; if its writer makes all files so, by another or without the column that is meant"
        raise Unreadable(f"its footer says what PyArrow does not read: {error}".partition("\n")[0], then) from error
    # Such a footer is signed behind its own bytes.
    if footer.serialized_size + _LENGTH + len(_MAGIC) < length:
        raise Unreadable("its columns are encrypted", _UNENCRYPTED)
    return footer


def _counted(parquet: pq.ParquetFile) -> int:
    """How many records a file holds. Raises Unreadable if its footer says several numbers: PyArrow goes by one of
    them, and reads no further."""
    footer, rows = parquet.metadata, 0
    repeated = [parquet.schema.column(number).max_repetition_level > 0 for number in range(footer.num_columns)]
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        rows += group.num_rows
        for chunk, many in zip(map(group.column, range(group.num_columns)), repeated, strict=True):
            if chunk.num_values < group.num_rows or (chunk.num_values > group.num_rows and not many):
                what = f"its column {chunk.path_in_schema!r} {chunk.num_values} values"
                raise Unreadable(f"row group {number} says {group.num_rows} records, and {what}", LAND_AGAIN)
    if footer.num_rows != rows:
        raise Unreadable(f"its footer says {footer.num_rows} records, and its row groups {rows}", LAND_AGAIN)
    return rows


def _whole(file: pq.ParquetFile, group: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
    """The batches of a row group, of so many rows at most. Raises Unreadable if a column has fewer values than the
    group says: PyArrow gives as many of all."""
    rows, said = 0, file.metadata.row_group(group).num_rows
    for batch in file.iter_batches(most, row_groups=[group], columns=columns, use_threads=False):
        rows += len(batch)
        yield bare(batch) if columns else batch
    if rows != said:
        raise Unreadable(f"row group {group} says {said} records, and its columns {rows}", LAND_AGAIN)


def _statistics(parquet: pq.ParquetFile, column: str) -> tuple[int, int] | None:
    """Smallest and largest value of a column, from the footer. None if it has none."""
    groups = (_chunk(parquet, group, column) for group in range(parquet.metadata.num_row_groups))
    statistics = [chunk.statistics for chunk in groups if chunk is not None and chunk.num_values]
    if not all(found is not None and found.has_min_max and found.null_count == 0 for found in statistics):
        return None
    return min(found.min for found in statistics), max(found.max for found in statistics)


def _may_hold(parquet: pq.ParquetFile, group: int, offset: str, start: int, end: int) -> bool:
    """Whether a row group may hold offsets of [start, end)."""
    chunk = _chunk(parquet, group, offset)
    if chunk is None or chunk.statistics is None or not chunk.statistics.has_min_max:
        return True
    return bool(chunk.statistics.min < end and chunk.statistics.max >= start)


def _size(parquet: pq.ParquetFile, group: int, columns: Sequence[str]) -> tuple[int, int]:
    """How many bytes these columns of a row group have in the file, and each row of them in memory at least."""
    metadata, wanted = parquet.metadata.row_group(group), set(columns)
    chunks = [metadata.column(number) for number in range(metadata.num_columns)]
    mine = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in wanted]
    stored = sum(chunk.total_compressed_size for chunk in mine)
    return stored, sum(chunk.total_uncompressed_size for chunk in mine) // max(1, metadata.num_rows)


def _chunk(parquet: pq.ParquetFile, group: int, column: str) -> pq.ColumnChunkMetaData | None:
    """A column in a row group; None if there is none of that name."""
    metadata = parquet.metadata.row_group(group)
    chunks = (metadata.column(number) for number in range(metadata.num_columns))
    return next((chunk for chunk in chunks if chunk.path_in_schema == column), None)


def int96_columns(file: pq.ParquetFile) -> Iterator[str]:
    """The columns of a file with such times, also within lists, maps and structs."""
    leaves = map(file.schema.column, range(len(file.schema)))
    within = {leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}
    yield from (name for name in file.schema_arrow.names if name.split(".")[0] in within)


def enum_leaves(file: pq.ParquetFile) -> Mapping[str, Collection[int]]:
    """The columns with a file's enums, which PyArrow calls bytes, and which of their parts these are."""
    written, found = map(file.schema.column, range(len(file.schema))), defaultdict[str, set[int]](set)
    for field in file.schema_arrow:
        for place, kind in enumerate(_leaves(field.type)):
            first, *_ = (next(written) for _ in (_leaves(kind.storage_type) if _is_extended(kind) else [kind]))
            if kind == pa.binary() and first.logical_type.type == "ENUM":
                found[field.name].add(place)
    return found


def _leaves(kind: pa.DataType) -> Sequence[pa.DataType]:
    """The parts of a type that are not nested."""
    found = list[pa.DataType]()

    def leaf(part: pa.DataType) -> pa.DataType:
        found.append(part)
        return part

    with_leaves(kind, leaf)
    return found


def _is_extended(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType)


def _texts_for(enums: Collection[int]) -> Callable[[pa.DataType], pa.DataType]:
    """What makes text of those parts of a type that are enums."""
    places = count()
    return lambda kind: pa.string() if next(places) in enums else kind


def _texts_of(enums: Collection[int]) -> Callable[[Sequence[pa.Array]], pa.Array]:
    """The same of values."""
    places = count()
    return lambda parts: parts[0].view(pa.string()) if next(places) in enums else parts[0]


def _with_texts(records: pa.RecordBatch, enums: Mapping[str, Collection[int]]) -> pa.RecordBatch:
    """The records with text in these columns where PyArrow has bytes. Who reads it looks whether it is UTF-8."""
    for name, places in enums.items():
        texts = rebuilt([records.column(name)], _texts_of(places))
        records = records.set_column(records.schema.get_field_index(name), name, texts)
    return records


def times_of(millis: pa.Array, nanos: pa.Array) -> pa.Array:
    """The values of a column that was read once in milliseconds, and once in nanoseconds, which wrap round.

    They are microseconds; or text, if any of them is finer than that or beyond it, to be cast to what holds it.
    """
    return rebuilt([millis, nanos], lambda parts: parts[0] if parts[0].type == parts[1].type else _times(*parts))


def _times(millis: pa.Array, nanos: pa.Array) -> pa.Array:
    missing = millis.is_null()
    whole, wrapped = (column.cast(pa.int64()).fill_null(0).to_numpy() for column in (millis, nanos))
    rest = (wrapped.view(np.uint64) - whole.view(np.uint64) * np.uint64(_NANOS_OF_MILLI)).view(np.int64)
    if not (rest % 1000).any() and (abs(whole) <= _MOST_MILLIS).all():
        micros = pa.array(whole * 1000 + rest // 1000, pa.timestamp("us"))
        return pc.if_else(missing, pa.scalar(None, micros.type), micros)
    digits = pc.utf8_lpad(pa.array(rest).cast(pa.string()), 6, "0")
    needed = pc.if_else(pa.array(rest % 1000 == 0), pc.utf8_slice_codeunits(digits, 0, 3), digits)
    printed = millis.cast(pa.string())
    # Arrow prints no year beyond 32767.
    far = np.char.replace(np.datetime_as_string(whole.view("M8[ms]"), unit="ms"), "T", " ")
    printed = pc.if_else(pc.starts_with(printed, "<"), pa.array(far), printed)
    texts = pc.binary_join_element_wise(printed, needed, "")
    return pc.if_else(missing, pa.scalar(None, pa.string()), texts)
