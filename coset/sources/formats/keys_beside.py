"""Keys beside values: the files in which Confluent's sinks land the keys of records, one for each file of values and
with as many records in the same order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.file_columns import FileColumns, columns_of
from coset.sources.formats.avro import AvroRows
from coset.sources.formats.json_lines import JsonRows
from coset.sources.formats.landed_file import FileFacts, LandedFile, Unreadable
from coset.sources.formats.parquet import ParquetRows
from coset.sources.reader import WHY

# What a key that is no record is called by the sinks' writer of Parquet, and where nothing else calls it.
KEY = "key"
_EVERY = 2**63 - 1
_LAND_BOTH = "plan again if the sink was just writing them; else remove both files and land them again"


class KeyedRows:
    """A file of values with the columns of its keys, which hide others of their names. Its records count from the first
    on, so all of them are read."""

    def __init__(self, values: LandedFile, keys: LandedFile, names: Sequence[str]) -> None:
        self._values = values
        self._keys = keys
        self._names = names

    @cached_property
    def _of_keys(self) -> pa.Schema:
        there = self._keys.schema
        if missing := [name for name in self._names if name not in there.names]:
            what = f"its file of keys has the columns {', '.join(there.names)}, and not {', '.join(missing)}"
            raise Unreadable(what, "name the columns of the key as they are there")
        return pa.schema([there.field(name) for name in self._names])

    @cached_property
    def schema(self) -> pa.Schema:
        landed = [field for field in self._values.schema if field.name not in self._names]
        return pa.schema([*self._of_keys, *landed])

    def facts(self) -> FileFacts:
        facts, keys = self._values.facts(), self._keys.facts().rows
        if facts.rows != keys:
            raise _unlike(facts.rows, keys)
        found, landed = columns_of(self._of_keys), facts.columns
        columns = tuple(column for column in landed.columns if column.name not in self._names)
        required = found.required | {name for name in landed.required if name not in self._names}
        return FileFacts(
            FileColumns((*found.columns, *columns), required), facts.rows, facts.first, facts.last, facts.without_offset
        )

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        wanted = [field.name for field in self._of_keys if field.name in columns]
        there = set(self._values.schema.names)
        # A column of values says how many there are.
        landed = [name for name in columns if name in there and name not in self._names] or self._values.schema.names[
            :1
        ]
        values = self._values.batches(landed, 0, _EVERY)
        if not wanted:
            yield from values
            return
        keys, left, before = self._keys.batches(wanted, 0, _EVERY), None, 0
        for records in values:
            parts, missing = list[pa.RecordBatch](), len(records)
            while missing:
                left = next(keys, None) if left is None or not len(left) else left
                if left is None:
                    raise _unlike(None, before + len(records) - missing)
                parts.append(left.slice(0, missing))
                missing -= len(parts[-1])
                left = left.slice(len(parts[-1]))
            before += len(records)
            yield _beside(records, pa.Table.from_batches(parts, self._wanted(wanted)), columns)
        if (left is not None and len(left)) or any(map(len, keys)):
            raise _unlike(before, None)

    def _wanted(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self._of_keys.field(name) for name in names])


def _beside(records: pa.RecordBatch, keys: pa.Table, columns: Sequence[str]) -> pa.RecordBatch:
    """The records with these columns of keys; a record that cannot be used has none."""
    aside = records.column(WHY.name).is_valid() if WHY.name in records.schema.names else None
    found = {name: records.column(name) for name in records.schema.names if name not in keys.column_names}
    for name in keys.column_names:
        key = keys[name].combine_chunks()
        found[name] = key if aside is None else pc.if_else(aside, pa.scalar(None, key.type), key)
    ordered = [name for name in columns if name in found]
    ordered += [name for name in found if name not in ordered]
    return pa.RecordBatch.from_arrays([found[name] for name in ordered], names=ordered)


def _unlike(values: int | None, keys: int | None) -> Unreadable:
    more = [f"{count:,}" if count is not None else "more" for count in (values, keys)]
    return Unreadable(f"it has {more[0]} records, and its file of keys {more[1]}", _LAND_BOTH)


class AvroKeys(AvroRows):
    """Keys in Avro. Those that are no records become the one column of such."""

    def __init__(self, source: pa.NativeFile, name: str) -> None:
        super().__init__(source, "")
        self._name = name

    @cached_property
    def avro_schema(self) -> Any:
        written = super().avro_schema
        # The sinks refuse records without a key, also where its schema allows them.
        branches = [each for each in written if each != "null"] if isinstance(written, list) else [written]
        if len(branches) == 1 and isinstance(branches[0], dict) and branches[0].get("type") == "record":
            return branches[0]
        return {"type": "record", "name": "Keys", "fields": [{"name": self._name, "type": written}]}

    def records_of(self, block: Any) -> list[dict[str, Any]]:
        records = super().records_of(block)
        return [each if isinstance(each, dict) else {self._name: each} for each in records]


class JsonKeys(JsonRows):
    """Keys as JSON lines. Those that are no objects become the one column of such."""

    def __init__(self, source: pa.NativeFile, name: str, schema: pa.Schema) -> None:
        super().__init__(source, "", schema)
        self._begin = b"{%b:" % json.dumps(name).encode()

    def blocks(self) -> Iterator[bytes]:
        for block in self._lines():
            lines = (line for line in block.split(b"\n") if line.strip())
            yield b"".join(
                line + b"\n" if line.lstrip().startswith(b"{") else self._begin + line + b"}\n" for line in lines
            )


class ParquetKeys:
    """Keys in Parquet, where the sinks put each into a column `key`."""

    def __init__(self, rows: ParquetRows, name: str) -> None:
        self._rows = rows
        self._name = name

    @cached_property
    def schema(self) -> pa.Schema:
        written = self._rows.schema
        if written.names != [KEY]:
            what = f"its file of keys has the columns {', '.join(written.names)}, and not {KEY}"
            raise Unreadable(what, "look whether a sink for Kafka Connect wrote it, and land its topic again")
        kind = written.field(KEY).type
        return (
            pa.schema(list(kind)) if pa.types.is_struct(kind) else pa.schema([written.field(KEY).with_name(self._name)])
        )

    def facts(self) -> FileFacts:
        return FileFacts(columns_of(self.schema), self._rows.facts().rows)

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        for batch in self._rows.batches([KEY], start, end):
            keys = batch.column(KEY)
            is_record = pa.types.is_struct(keys.type)
            found = dict(zip(self.schema.names, keys.flatten() if is_record else [keys], strict=True))
            yield pa.RecordBatch.from_arrays([found[name] for name in columns], names=list(columns))
