"""Artefacts: files that tasks left, by their role."""

from __future__ import annotations

from enum import StrEnum

from partitioning.values import Value


class Role(StrEnum):
    """What a file is for: rows of a result table, the sampled keys that the audit compares, rows for later tasks, which
    read them moved through an exchange or as a result, where they were made, rows for later batches: state, or rows
    that a step on Spark's DataFrames is given."""

    TABLE = "table"
    KEYS = "keys"
    EXCHANGE = "exchange"
    RESULT = "result"
    STATE = "state"
    GIVEN = "given"


class PartitionSlice(Value, frozen=True, order=True, array_like=True):
    """The rows of one partition in a file: so many `records`, in the bytes [start, end)."""

    partition: int
    start: int
    end: int
    records: int


class Artefact(Value, frozen=True, order=True, omit_defaults=True):
    """A file that a task left: `name` is that of a result table, of the stage whose keys it holds, or of an input.

    `path` is its key below the store's root. `digest` is the sha256 of its `size` bytes, `etag` the store's own. What
    is for later tasks lies by partition: `parts` has those that have rows, ascending. Of state, `task` is the number of
    the task that left it, and `latest` the greatest `@time` of its rows, if these have one.
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
