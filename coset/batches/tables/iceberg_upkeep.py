"""Upkeep of Iceberg tables: removes snapshots that are too old, and files of Coset that no snapshot names.

A file's name has the id of its table and the number of the snapshot that it was written for. Once the table has had
that number, no other snapshot gets it: whoever wrote the file and comes late is refused. So a file that no snapshot
names by then never will be. No file's time decides, and a file that a listing leaves out stays.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import pairwise

from pyarrow.fs import FileSelector
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate

from coset.batches.tables.iceberg_marks import FOLDER, is_ours
from coset.batches.tables.iceberg_place import Namespace
from coset.sources.iceberg.catalogue_changes import TableChange, commit
from coset.sources.iceberg.named_catalogue import Unsure, catalogue, catalogue_errors, changing
from partitioning.commands import Repeat
from partitioning.documents.store import at_once

_WRITTEN = re.compile(r"/(?:coset|dead-[0-9a-f]{32})-([0-9a-f-]{36})-([0-9]+)-[^/]*$")


def tidy(place: Namespace, where: str, name: str, keep: timedelta) -> int:
    """Remove the snapshots of the table that follows the one in a folder, if they have not been its newest for so long,
    and files that none names. Returns how many files went.

    Snapshots of others, and those that a branch or a tag names, stay. This may be repeated, raced and interrupted.
    Raises Refused or Unreachable if the catalogue or its folder does not let it.
    """
    with catalogue_errors(place.named(name), Repeat()):
        known = catalogue(place.catalogue)
        try:
            table = known.load_table(f"{place.name}.{name}")
            if table.properties.get(FOLDER) != where:
                return 0
            if old := _old(table, keep):
                try:
                    with changing():
                        commit(known, [old])
                except Unsure:
                    # The files that are there by now decide.
                    pass
                table = known.load_table(f"{place.name}.{name}")
        except NoSuchTableError:
            return 0
        unnamed = [*_unnamed(table)]
        at_once(partial(_remove, table.io), unnamed)
        return len(unnamed)


def _remove(io: FileIO, where: str) -> None:
    # Somebody else may do the same.
    with suppress(FileNotFoundError):
        io.delete(where)


def _old(table: Table, keep: timedelta) -> TableChange | None:
    """The removal of old snapshots, if nobody gives the table or a branch another one meanwhile."""
    until, refs = 1000 * (time.time() - keep.total_seconds()), table.refs()
    named = {ref.snapshot_id for ref in refs.values()}
    line = sorted(table.snapshots(), key=lambda each: each.sequence_number or 0)
    old = [
        each.snapshot_id
        for each, after in pairwise(line)
        if after.timestamp_ms <= until and each.snapshot_id not in named and is_ours(each)
    ]
    if not old:
        return None
    upon = [AssertRefSnapshotId(snapshot_id=ref.snapshot_id, ref=name) for name, ref in refs.items()]  # type: ignore[call-arg]
    removal = RemoveSnapshotsUpdate(snapshot_ids=old)  # type: ignore[call-arg]
    return TableChange(table, (AssertTableUUID(uuid=table.metadata.table_uuid), *upon), (removal,))


def _unnamed(table: Table) -> Iterator[str]:
    """The files that Coset wrote for a table, and that no snapshot names, or ever will."""
    named, taken = _named(table), table.last_sequence_number
    for where in _listed(table):
        found = _WRITTEN.search(where)
        is_its = found and found[1] == str(table.metadata.table_uuid) and int(found[2]) <= taken
        # Addresses may be spelled in several ways.
        if is_its and where.rpartition("/")[2] not in named:
            yield where


def _named(table: Table) -> set[str]:
    """The files that snapshots name, without their folders, and those of which they say that they took them away."""
    manifests = {each for found in at_once(lambda each: each.manifests(table.io), table.snapshots()) for each in found}
    deletes = [each for each in manifests if each.content is ManifestContent.DELETES]
    entries = at_once(lambda each: each.fetch_manifest_entry(table.io, discard_deleted=False), deletes)
    paths = (
        *(each.manifest_list for each in table.snapshots()),
        *(each.manifest_path for each in manifests),
        *(entry.data_file.file_path for found in entries for entry in found),
    )
    return {path.rpartition("/")[2] for path in paths}


def _listed(table: Table) -> Iterator[str]:
    """The files in a table's folder, as its snapshots name them. None where PyArrow does not read them."""
    if not isinstance(table.io, PyArrowFileIO):
        return
    places = table.location_provider()
    for where in {places.metadata_path, places.data_path}:
        scheme, netloc, path = PyArrowFileIO.parse_location(where, table.io.properties)
        for each in table.io.fs_by_scheme(scheme, netloc).get_file_info(
            FileSelector(path, allow_not_found=True, recursive=True)
        ):
            yield where + each.path.removeprefix(path.rstrip("/"))
