"""Versions: the version of a result table that a batch made, as long as its log and its files are there."""

from __future__ import annotations

from bisect import bisect_left

import pyarrow as pa

from coset.batches.tables.delta import entry_of
from coset.batches.tables.held import deleted
from coset.batches.tables.logs import opened, opened_at, opened_whole
from coset.sources.files import Files
from partitioning.commands import Run, Then, VerifyAsking
from partitioning.documents.ledger import Ledger
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.sections import many
from spark_jobs.tables.table_schema import folder


def version_of_batch(ledger: Ledger, table: str, batch: int, newest: int) -> int:
    """The version of a table that has the rows as a batch published them.

    Raises Refused if it is not published to the end, or if the version is gone; with the first batch after it, up to
    the `newest`, whose version is there.
    """
    version = _version(ledger, table, batch)
    if version is None:
        what, where = f"the publication of batch {batch} is not finished", f"table {table!r}"
        raise Refused.of(Kind.BATCH_UNPUBLISHED, what, where, ("finish it: ", Run(ledger.pipeline)), batch=batch)
    if lacking := lacks(ledger, table, version):
        later = range(batch + 1, newest + 1)
        # The files that were taken out of the table first are removed.
        place = bisect_left(later, True, key=lambda each: _is_whole(ledger, table, each))
        there = later[place] if place < len(later) and _is_whole(ledger, table, later[place]) else None
        then: Then = ("verify it as it is now: ", VerifyAsking(ledger.pipeline, table))
        if there is not None:
            then = (f"batch {there} is the first whose version is there: ", VerifyAsking(ledger.pipeline, table, there))
        what = f"version {version}, which batch {batch} made, is gone: {lacking}"
        where = f"table {table!r} in {folder(ledger.store, table)}"
        raise Refused.of(Kind.VERIFY_VERSION, what, where, then, table=table, batch=batch, version=version)
    return version


def _version(ledger: Ledger, table: str, batch: int) -> int | None:
    """The version that a batch made. None if it made none. Where its receipt is gone the table's log says it."""
    if commit := ledger.commit(batch):
        return next((each.version for each in commit.tables if each.table == table), None)
    with opened(folder(ledger.store, table)) as log:
        entry = log and entry_of(log, {"coset.pipeline": ledger.pipeline, "coset.plan": str(batch)})
        return int(entry["version"]) if entry else None


def _is_whole(ledger: Ledger, table: str, batch: int) -> bool:
    version = _version(ledger, table, batch)
    return version is not None and not lacks(ledger, table, version)


def lacks(ledger: Ledger, table: str, version: int) -> str:
    """What a version of a table lacks, in words. Raises Coset's errors if that cannot be found out."""
    where = folder(ledger.store, table)
    try:
        with opened_at(where, version) as there:
            paths = pa.table(there.get_add_actions())["path"].to_pylist()
    except Refused:
        # If it is not the version, this raises too.
        with opened_whole(where) as now:
            if now is None:
                raise Refused(deleted(where)) from None
            return "the table's log does not have it any more"
    gone = Files().missing([f"{where}/{path}" for path in paths])
    return f"{len(gone)} of its {many(len(paths), 'file')} were removed" if gone else ""
