"""Live files: those that a table has by its log, each with the rows of it that are dead.

delta-rs does not say where the dead rows of a file are noted, so the log is read here: its newest checkpoint, and what
was committed since.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable

from coset.batches.tables.deletion_vectors import Vector, file_of
from coset.batches.tables.log_copy import TableLog, actions_in
from partitioning.errors import Refused
from partitioning.kinds import Kind
from spark_jobs.tables.table_schema import RESIDUE

# What a batch's own files are called in its table.
OF_BATCH = re.compile(r"data/plan-([0-9]+)/attempt-")
VECTORS = "deletionVectors"
# delta-rs demands to know these with vectors, though a table has none.
VARIANTS = "variantType"


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of a table: as its log names it, and where its dead rows are noted."""

    added: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Its path below the table's folder, as it is in the store."""
        return unquote(self.added["path"])

    @property
    def partition(self) -> int:
        """The partition of an upserted table; 0 in others."""
        return int((self.added.get("partitionValues") or {}).get(RESIDUE) or 0)

    @property
    def batch(self) -> int | None:
        """The batch that wrote it; None if somebody has written it of files that were there."""
        match = OF_BATCH.match(self.path)
        return int(match[1]) if match else None

    @property
    def size(self) -> int:
        return int(self.added["size"])

    @property
    def vector(self) -> Vector | None:
        return self.added.get("deletionVector")

    @property
    def written(self) -> int:
        """How many rows it has, with the dead."""
        return int(json.loads(self.added.get("stats") or "{}").get("numRecords") or 0)

    @property
    def dead(self) -> int:
        return int(self.vector["cardinality"]) if self.vector else 0


def identity(file: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells a file with its dead rows from others, in a log: with other dead rows it is another."""
    vector = file.get("deletionVector") or {}
    return unquote(file["path"]), vector.get("storageType"), vector.get("pathOrInlineDv"), vector.get("offset")


def has_vectors(table: DeltaTable) -> bool:
    """Whether files of a table may have dead rows."""
    return VECTORS in (table.protocol().reader_features or ())


def live_files(log: TableLog, version: int | None = None) -> Sequence[LiveFile]:
    """The files of a table as it is now, or was in a version, in the order of their paths.

    Raises Refused if its log lacks what that takes, or is of an unknown kind.
    """
    until = log.version() if version is None else version
    return log.once(("live files", until), lambda: _live_files(log, until))


def is_known(log: TableLog, version: int) -> bool:
    """Whether the copy of a log has what it takes to say which files the table had in a version."""
    begins, _ = log.copy.checkpoint()
    return max(0, begins - 1) <= version <= log.version()


def _live_files(log: TableLog, until: int) -> Sequence[LiveFile]:
    # Mostly the version before was asked for.
    known, before = log.listed if log.listed[0] <= until else (-1, {})
    found = dict[str, Mapping[str, Any]](before)
    for action in _actions(log, known, until):
        if removed := action.get("remove"):
            found.pop(removed["path"], None)
        if added := action.get("add"):
            found[added["path"]] = added
    log.listed = until, found
    return tuple(LiveFile(found[path]) for path in sorted(found))


def vector_files(files: Iterable[LiveFile]) -> set[str]:
    """The files in which the dead rows of these are noted, below the table's folder."""
    named = (file_of(file.vector) for file in files if file.vector)
    return {name for name in named if name}


def _actions(log: TableLog, known: int, until: int) -> Iterator[Mapping[str, Any]]:
    """What a log has up to a version, oldest first, after one that is known, or -1. Of a version what it removes comes
    before what it adds."""
    begins, checkpoint = log.copy.checkpoint()
    if known >= 0:
        begins, checkpoint = known + 1, []
    elif until < begins - 1:
        begins, checkpoint = 0, []
    for path in checkpoint:
        if path.suffix != ".parquet" or _has_sidecars(path):
            what, then = "the table's checkpoint is of a kind that Coset does not read", "write one of the classic kind"
            raise Refused.of(Kind.TABLE_RULE, what, log.table_uri, then, file=path.name)
        for added in pq.read_table(path, columns=["add"])["add"].to_pylist():
            if added:
                yield {"add": _as_in_json(added)}
    for version in range(begins, until + 1):
        if (data := log.commit(version)) is None:
            then = "restore the table's _delta_log/ from a backup"
            raise Refused.of(Kind.FILE_GONE, f"the log has lost version {version}", log.table_uri, then, lost=version)
        yield from sorted(actions_in(data), key=lambda action: "add" in action)


def _has_sidecars(checkpoint: Path) -> bool:
    """Whether a checkpoint has its files in others beside it."""
    columns = pq.read_schema(checkpoint).names
    return "sidecar" in columns and any(pq.read_table(checkpoint, columns=["sidecar"])["sidecar"].to_pylist())


def _as_in_json(added: Mapping[str, Any]) -> dict[str, Any]:
    """The addition of a file as commits have it: maps are pairs in Arrow, and what is null is left out."""
    values = {**added, "partitionValues": dict(added["partitionValues"] or ())}
    if values.get("tags") is not None:
        values["tags"] = dict(values["tags"])
    if vector := values.get("deletionVector"):
        values["deletionVector"] = {name: value for name, value in vector.items() if value is not None}
    left_out = ("partitionValues_parsed", "stats_parsed")
    return {name: value for name, value in values.items() if value is not None and name not in left_out}
