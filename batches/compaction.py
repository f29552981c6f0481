"""Compaction: small files of result tables put together, and files removed that no recent version of a table has.

Batches may be published meanwhile: of two commits that take away the same file, delta-rs refuses the one that comes
second, and it is made again from what there is then.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from batches.tables import opened
from partitioning.authoring.pipeline import Pipeline
from partitioning.sections import many
from partitioning.values import Value
from spark_jobs.table_schema import folder

_AGAIN = Retrying(
    retry=retry_if_exception_type(CommitFailedError),
    stop=stop_after_attempt(5),
    wait=wait_random(0.05, 0.5),
    reraise=True,
)


class Compacted(Value, frozen=True):
    """What was done to a table: so many of its files became fewer, `made`, and so many old ones were `removed`."""

    table: str
    files: int
    made: int
    removed: int

    def __str__(self) -> str:
        done = f"{many(self.files, 'file')} became {self.made:,}" if self.files else "nothing to put together"
        return f"{self.table}: {done}, {many(self.removed, 'old file')} removed"


def compact(pipeline: Pipeline, store_root: str, keep: timedelta) -> tuple[Compacted, ...]:
    """Compact the result tables of a pipeline that are there. What they were until so long ago can still be read.

    Raises Refused or Unreachable if a table's log cannot be read or written.
    """
    tables = (write.table for write in pipeline.writes)
    return tuple(filter(None, (_compacted(table, folder(store_root, table), keep) for table in tables)))


def _compacted(name: str, where: str, keep: timedelta) -> Compacted | None:
    with opened(where) as table:
        if table is None:
            return None
        figures = _AGAIN(_together, table)
        # Without `full` only what the log once named is removed, and no file of a batch that is not published.
        old = table.vacuum(keep // timedelta(hours=1), dry_run=False, enforce_retention_duration=False, full=False)
        return Compacted(name, figures["numFilesRemoved"], figures["numFilesAdded"], len(old))


def _together(table: DeltaTable) -> dict[str, Any]:
    table.update_incremental()
    return table.optimize.compact()
