"""Noting dead rows: the actions of a table's log that say which rows of its files are dead from a version on.

delta-rs reads and keeps deletion vectors, but writes none, so these actions are Coset's own. Source: Delta's protocol,
"Deletion Vectors" and "Table Features".
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

from deltalake.exceptions import CommitFailedError
from deltalake.table import ProtocolVersions

from coset.batches.tables.dead_rows import DeadRows, check_noted
from coset.batches.tables.deletion_vectors import Vector, packed
from coset.batches.tables.live_files import VARIANTS, VECTORS, LiveFile, has_vectors, identity
from coset.batches.tables.log_copy import Action, TableLog
from partitioning.documents.stores import store_at
from spark_jobs.tables.column_bounds import with_figures

_ENABLED = "delta.enableDeletionVectors"
# What a table of a version demands of writers without naming it, by the version that first did.
_UNNAMED = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
_NAMED = 7


def noted(
    table: TableLog,
    actions: Sequence[Action],
    dead: Sequence[DeadRows],
    again: Sequence[LiveFile] = (),
    whole: Collection[int] = (),
) -> list[Action]:
    """The actions of the next version of a table, by which it has these dead rows too, and files `again` with the dead
    rows that they had. Stores new vectors. All files of `whole` partitions may go.

    A file of which all rows are dead goes. No version adds what it removes: readers would not agree on what that means.
    Raises Refused if the actions say something else, delta-rs's CommitFailedError if other vectors have been stored
    for that version, and the store's errors.
    """
    left = [each for each in dead if len(each.all) < each.of]
    name, content, vectors = packed(table.version() + 1, [each.all for each in left])
    stamp = time.time_ns() // 1_000_000
    gone = [_removed(each.file, stamp) for each in dead]
    come = [_added(each, vector, stamp) for each, vector in zip(left, vectors, strict=True)]
    back = {identity(file.added): {"add": {**file.added, "dataChange": True}} for file in again}
    both = {identity(action["remove"]) for action in actions if "remove" in action} & back.keys()
    kept = [action for action in actions if "remove" not in action or identity(action["remove"]) not in both]
    come += [action for file, action in back.items() if file not in both]
    has_dead = any("deletionVector" in action["add"] for action in come)
    all_of = [*kept, *(_enabling(table) if has_dead else ()), *gone, *come]
    check_noted(table, all_of, dead, again, whole, {name: content})
    if left and store_at(table.table_uri).put_new(name, content) != content:
        raise CommitFailedError(f"somebody else has stored {name}")
    return all_of


def _removed(file: LiveFile, stamp: int) -> Action:
    named = ("path", "partitionValues", "size", "deletionVector")
    said = {name: file.added[name] for name in named if name in file.added}
    return {"remove": {**said, "deletionTimestamp": stamp, "dataChange": True, "extendedFileMetadata": True}}


def _added(dead: DeadRows, vector: Vector, stamp: int) -> Action:
    # The file's writer may not have counted it. Least and greatest values may be those of dead rows from now on.
    stats = with_figures(dead.file.added.get("stats"), numRecords=dead.of, tightBounds=False)
    changed = {"stats": stats, "deletionVector": vector, "modificationTime": stamp, "dataChange": True}
    return {"add": {**dead.file.added, **changed}}


def asking_no_more(had: ProtocolVersions, actions: Sequence[Action]) -> list[Action]:
    """The actions without the feature that delta-rs 1.6.6 demands of who reads a table with vectors once a property of
    it is set: that of variants, which it has none of."""
    for asked in (action["protocol"] for action in actions if "protocol" in action):
        for whose, before in (("readerFeatures", had.reader_features), ("writerFeatures", had.writer_features)):
            named = asked.get(whose)
            if named is not None and VARIANTS not in (before or ()):
                asked[whose] = [name for name in named if name != VARIANTS]
    return list(actions)


def _enabling(table: TableLog) -> Iterator[Action]:
    """The actions by which readers and writers of a table have to know vectors, if they do not have to yet.

    delta-rs 1.6.6 would demand `variantType` of them too.
    """
    properties = table.metadata().configuration
    if has_vectors(table) and properties.get(_ENABLED) == "true":
        return
    asked, said = table.protocol(), table.metadata()
    writer = set(asked.writer_features or ())
    if asked.min_writer_version < _NAMED:
        writer.update(
            name for version, names in _UNNAMED.items() if version <= asked.min_writer_version for name in names
        )
    yield {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": _NAMED,
            "readerFeatures": sorted({*(asked.reader_features or ()), VECTORS}),
            "writerFeatures": sorted({*writer, VECTORS}),
        }
    }
    yield {
        "metaData": {
            "id": str(said.id),
            "name": said.name,
            "description": said.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": said.partition_columns,
            "createdTime": said.created_time,
            "configuration": {**properties, _ENABLED: "true"},
        }
    }
