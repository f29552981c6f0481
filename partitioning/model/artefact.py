"""Artefacts: files that tasks left, by their role."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from partitioning.values import Value


class Role(StrEnum):
    """What a file is for: rows of a result table; sampled keys for the audit; rows for later tasks, moved by an
    exchange or left in place as a result; state for later batches; the input of a step on Spark's DataFrames; the
    records that a task set aside; or the keys of which new rows were written beside the rows that they replace."""

    TABLE = "table"
    KEYS = "keys"
    EXCHANGE = "exchange"
    RESULT = "result"
    STATE = "state"
    GIVEN = "given"
    SET_ASIDE = "set aside"
    REPLACED = "replaced"


class PartitionSlice(Value, frozen=True, order=True, array_like=True):
    """The rows of one partition in a file: `records` of them, in the bytes [start, end)."""

    partition: int
    start: int
    end: int
    records: int


class Artefact(Value, frozen=True, order=True, omit_defaults=True):
    """A file that a task wrote. `name` is a result table, an input, or the group or stage whose keys it holds.

    `path` is its key below the store's root, `digest` the SHA-256 of its `size` bytes, `etag` the store's own. A file
    for later tasks is sorted by partition: `parts` lists the partitions that have rows, ascending. In a file of state,
    `task` is the task that wrote it and `latest` the greatest `@time` of its rows, if they have one. `seal` stands for
    the footer of a stored file of a table, as the task looked at it when it had written the file, and `bounds` are
    what the table's log says of its columns.
    """

    role: Role
    name: str
    path: str
    size: int
    etag: str
    digest: str
    records: int
    parts: tuple[PartitionSlice, ...] = ()
    task: int = 0
    latest: int | None = None
    seal: str = ""
    bounds: str = ""


def files_of(files: Iterable[Artefact], table: str) -> tuple[Artefact, ...]:
    """Those of these files that are of a result table: its rows, and the keys of rows that are replaced."""
    return tuple(file for file in files if file.name == table and file.role in (Role.TABLE, Role.REPLACED))
