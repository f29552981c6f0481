"""Artefacts: files that tasks left, by their role."""

from __future__ import annotations

from enum import StrEnum

from partitioning.values import Value


class Role(StrEnum):
    """What a file is for: rows of a result table, or the sampled keys that the audit compares."""

    TABLE = "table"
    KEYS = "keys"


class Artefact(Value, frozen=True, order=True):
    """A file that a task left: `name` is that of the result table, or of the stage whose keys it holds.

    `path` is its key below the store's root. `digest` is the sha256 of its `size` bytes, `etag` the store's own.
    """

    role: Role
    name: str
    path: str
    size: int
    etag: str
    digest: str
    records: int
