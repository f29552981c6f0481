"""Data files of Iceberg tables: their columns by ids, under the names that the table has for them now, and which of
their rows count, as plans say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from coset.sources.formats.landed_file import FileFacts, Unreadable
from coset.sources.formats.parquet import ParquetRows
from coset.sources.plain_arrays import bare_schema, is_nested, rebuilt
from partitioning.model.streams import DELETED, PART
from partitioning.model.task_engine import USUAL, TaskMemory

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


def rows_at(positions: np.ndarray, count: int) -> str:
    """These positions, in order, in a file of so many rows: how many are left out and taken, by turns; nothing if all
    are.

    >>> rows_at(np.array([3, 7, 8]), 20), rows_at(np.arange(20), 20)
    ('3,1,3,2', '')
    """
    if len(positions) == count:
        return ""
    ends = np.flatnonzero(np.diff(positions, append=count + 1) > 1)
    firsts, lasts = positions[np.concatenate([[0], ends[:-1] + 1])], positions[ends] + 1
    turns = np.stack([firsts - np.concatenate([[0], lasts[:-1]]), lasts - firsts], 1)
    return ",".join(map(str, turns.ravel().tolist()))


def taken(rows: str, count: int) -> np.ndarray:
    """Of each row of a file of so many whether it counts.

    >>> taken("3,1,3,2", 10).nonzero()[0].tolist()
    [3, 7, 8]
    """
    turns = [int(turn) for turn in rows.split(",")] if rows else [0, count]
    found = np.zeros(count, np.bool_)
    found[: sum(turns)] = np.repeat(np.arange(len(turns)) % 2 == 1, turns)
    return found


_ID = b"PARQUET:field_id"
WRITE_IDS = "let the table's engine rewrite it, as Spark's rewrite_data_files does, and begin anew"


class DataFile:
    """A Parquet file of a table. A column that the table no longer has keeps no name that another could have.

    `ids` has those of columns, and of their parts if the plan knows them. Only the rows that `rows` says are given, all
    if it is empty. With `gone`, a column says whether they are deleted. Columns of files that say no ids go by their
    names. Of these reading a column that has parts raises Unreadable.
    """

    def __init__(
        self,
        source: pa.NativeFile,
        ids: Mapping[str, int],
        memory: TaskMemory = USUAL,
        rows: str = "",
        *,
        gone: bool | None = None,
    ) -> None:
        # No column of the file has offsets, whatever it is called.
        self._rows = ParquetRows(source, "", memory)
        self._ids = ids
        self._taken = rows
        self._gone = gone

    @cached_property
    def schema(self) -> pa.Schema:
        written = bare_schema(self._written)
        fields = [
            field.with_name(name).with_type(self._of_now(name, pa.array([], kind)).type)
            for field, name, kind in zip(written, self._names, self._written.types, strict=True)
        ]
        return pa.schema(fields if self._gone is None else [*fields, pa.field(DELETED, pa.bool_())])

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns as they were written."""
        return list(self._written.names)

    @cached_property
    def says_ids(self) -> bool:
        """Whether its columns have ids, which no files have that were added to a table, and not written by it."""
        return any(number is not None for number in self._numbers)

    def facts(self) -> FileFacts:
        return self._rows.facts()

    def batches(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.RecordBatch]:
        written = dict(zip(self._names, self._written.names, strict=True))
        # To count rows, they must be read.
        names = [name for name in columns if name in written] or self._names[:1]
        first, is_taken = 0, taken(self._taken, self.facts().rows) if self._taken else None
        for records in self._rows.batches([written[name] for name in names], start, end):
            found = pa.RecordBatch.from_arrays(
                [self._of_now(name, records.column(written[name])) for name in names], names
            )
            if is_taken is not None:
                found, first = found.filter(pa.array(is_taken[first : first + len(records)])), first + len(records)
            if self._gone is not None and DELETED in columns:
                found = found.append_column(DELETED, pa.array(np.full(len(found), self._gone)))
            yield found

    def _of_now(self, name: str, values: pa.Array) -> pa.Array:
        """The values of a column, whose parts have the names of now, without parts that the table no longer has."""
        if not is_nested(values.type) or not (named := self._parts(name)):
            return values
        if not self.says_ids:
            raise Unreadable(f"the parts of its column {name!r} have no ids", WRITE_IDS)
        return rebuilt([values], lambda leaves: leaves[0], lambda field: _named(field, named))

    def _parts(self, column: str) -> Mapping[int, str]:
        """The names within a column of its parts of now, by their ids. Older plans have none."""
        return {
            number: name.rpartition(PART)[2] for name, number in self._ids.items() if name.startswith(f"{column}{PART}")
        }

    @cached_property
    def _written(self) -> pa.Schema:
        return self._rows.written_schema

    @cached_property
    def _numbers(self) -> Sequence[int | None]:
        return [_id_of(field) for field in self._written]

    @cached_property
    def _names(self) -> list[str]:
        numbers, named = self._numbers, {number: name for name, number in self._ids.items()}
        if not self.says_ids:
            return [name if name in self._ids else f"{PART}{name}" for name in self._written.names]
        if None in numbers or len({*numbers}) < len(numbers):
            raise Unreadable("some of its columns have no ids", WRITE_IDS)
        # A column that went since has a name that no column has.
        return [named.get(number or 0, f"{PART}{number}") for number in numbers]


def ids_in(schema: Schema) -> dict[str, int]:
    """The ids of the columns of a table and of their parts, by their names."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415  an extra

    return dict(each for field in schema_to_pyarrow(schema) for each in ids_of(field))


def ids_of(field: pa.Field) -> Iterator[tuple[str, int]]:
    """The ids of a column and of its parts, by their names."""
    if (said := _id_of(field)) is not None:
        yield field.name, said
    for part in _parts_of(field.type):
        yield from ids_of(part.with_name(f"{field.name}{PART}{part.name}"))


def _id_of(field: pa.Field) -> int | None:
    said = (field.metadata or {}).get(_ID)
    return None if said is None else int(said)


def _named(field: pa.Field, names: Mapping[int, str]) -> pa.Field | None:
    name = names.get(_id_of(field) or 0)
    return None if name is None else pa.field(name, field.type, field.nullable)


def _parts_of(kind: pa.DataType) -> Iterator[pa.Field]:
    if pa.types.is_struct(kind):
        yield from kind
    elif pa.types.is_map(kind):
        yield from (kind.key_field.with_name("key"), kind.item_field.with_name("value"))
    elif kind.num_fields:
        yield kind.field(0).with_name("element")
