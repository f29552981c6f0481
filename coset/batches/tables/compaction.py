"""Compaction: merges small files of result tables, and removes files that no recent version of a table has.

In tables that batches append to, only files of the same batch are merged, so that a backfill can exchange them. Batches
may be published meanwhile: of two commits that remove the same file the second is refused, and is made again from the
new version.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from coset.batches.backfills.swaps import finish, in_force
from coset.batches.compared_rows import rows_of
from coset.batches.tables.deletion_vectors import PREFIX, version_of
from coset.batches.tables.delta import path_in
from coset.batches.tables.exchanged import removals, taken
from coset.batches.tables.held import compacted_in, held_in
from coset.batches.tables.iceberg import follow, tidied
from coset.batches.tables.live_files import OF_BATCH, LiveFile, has_vectors, live_files, vector_files
from coset.batches.tables.log_copy import actions_in
from coset.batches.tables.logs import opened, opened_whole
from coset.batches.tables.owners import Owner, check_owner
from coset.sources.counting import Counting, uncounted
from coset.sources.files import Files
from coset.sources.s3 import AGAIN, reaching
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store, at_once
from partitioning.documents.stores import store_at
from partitioning.model.graph import Write
from partitioning.model.plan import PlannedWrite
from partitioning.model.receipt import Artefact
from partitioning.sections import many
from partitioning.values import Value
from spark_jobs.tables.column_bounds import Floats, RowsFile, bounds_in, with_figures
from spark_jobs.tables.table_schema import folder, table_schema

_AGAIN = Retrying(
    retry=retry_if_exception_type(CommitFailedError),
    stop=stop_after_attempt(5),
    wait=wait_random(0.05, 0.5),
    reraise=True,
)


class Compacted(Value, frozen=True):
    """What was done to a table: `files` were merged into `made` new ones, and `removed` old files were deleted."""

    table: str
    files: int
    made: int
    removed: int

    def __str__(self) -> str:
        done = f"{many(self.files, 'file')} became {self.made:,}" if self.files else "nothing to merge"
        return f"{self.table}: {done}, {many(self.removed, 'old file')} removed"


def compact(
    pipeline: Pipeline, store: Store, keep: timedelta, *, across: bool = False, counting: Counting = uncounted
) -> tuple[Compacted, ...]:
    """Compact the existing result tables of a pipeline. Versions up to `keep` old stay readable.

    A half-done swap is finished first, because it removes files by name. With `across`, files of several batches are
    merged; no backfill can exchange their rows after that. Tables, and the batches of one, are `counting`.

    Raises Refused if a table belongs to another pipeline, and Refused or Unreachable if a log cannot be read or
    written.
    """
    finish(store, pipeline.name)
    compacted = list[Compacted | None]()
    with counting(len(pipeline.writes), "tables") as done:
        for write in pipeline.writes:
            compacted.append(_compacted(pipeline.name, write, store, keep, counting, across=across))
            done(1)
    return tuple(filter(None, compacted))


def _compacted(
    name: str, write: Write, store: Store, keep: timedelta, counting: Counting, *, across: bool
) -> Compacted | None:
    where = folder(store, write.table)
    with opened_whole(where) as table:
        if table is None:
            return None
        check_owner(table, write.table, Owner.here(store, name))
        within = write.mode.only_adds and not across
        merging = (
            partial(_within_batches, table, name, write.table, store, secrets.token_hex(4), counting)
            if within
            else partial(_together, table)
        )
        files, made = _AGAIN(merging)
        # An Iceberg table has the files from before until it follows.
        follow(store, name)
        old = _AGAIN(partial(_old, table, name, write.table, where, keep))
    at_once(store_at(where).delete, old)
    return Compacted(write.table, files, made, len(old) + tidied(store, write.table, keep))


def _old(table: DeltaTable, pipeline: str, name: str, where: str, keep: timedelta) -> list[str]:
    """The files that no version up to `keep` old has. The log says first that they go: a swap that wants one again is
    made before, or not at all."""
    table.update_incremental()
    # Without `full` it is only files that the log once named, so none of an unpublished batch.
    old = table.vacuum(keep // timedelta(hours=1), dry_run=True, enforce_retention_duration=False, full=False)
    old += _unneeded_vectors(where, keep)
    if old:
        until = max(int(1000 * (time.time() - keep.total_seconds())), table.transaction_version(removals(name)) or 0)
        said = CommitProperties(
            custom_metadata={"coset.pipeline": pipeline, "coset.removed": str(until)},
            app_transactions=[Transaction(removals(name), until)],
            max_commit_retries=0,
        )
        table.create_write_transaction(
            [], "append", table.schema(), table.metadata().partition_columns, commit_properties=said
        )
    return old


def _unneeded_vectors(where: str, keep: timedelta) -> list[str]:
    """The deletion vectors of Coset that no version up to `keep` old has.

    One that is made for a version to come may be of a batch that is being published.
    """
    with opened(where) as log:
        if log is None or not has_vectors(log):
            return []
        since, needed = time.time() - keep.total_seconds(), vector_files(live_files(log))
        for version in range(log.version(), -1, -1):
            actions = actions_in(log.commit(version) or b"")
            stamp = next((action["commitInfo"]["timestamp"] for action in actions if "commitInfo" in action), 0)
            if stamp / 1000 < since:
                break
            needed |= vector_files(LiveFile(action["remove"]) for action in actions if "remove" in action)
        there = (entry.key for entry in store_at(where).list(PREFIX))
        made = ((name, version_of(name)) for name in there if name not in needed)
        return [name for name, version in made if version is not None and version <= log.version()]


def _together(table: DeltaTable) -> tuple[int, int]:
    table.update_incremental()
    figures = table.optimize.compact()
    return figures["numFilesRemoved"], figures["numFilesAdded"]


def _within_batches(
    table: DeltaTable, pipeline: str, name: str, store: Store, run: str, counting: Counting
) -> tuple[int, int]:
    """Merge the files of each batch that has several."""
    table.update_incremental()
    held, layers = held_in(table).keys(), in_force(store, pipeline)
    several = Counter(int(match[1]) for match in map(OF_BATCH.match, held) if match)
    batches = sorted(batch for batch, count in several.items() if count > 1)
    actions, files = list[AddAction | RemoveAction](), 0
    with counting(len(batches), "batches") as done:
        for batch in batches:
            gone, write = _files(layers.top(batch), batch, name)
            if len(gone) > 1 and {path_in(file) for file in gone} <= held:
                files += len(gone)
                actions += [taken(path_in(file), file.size, changes=False) for file in gone]
                actions.append(_written(layers.top(batch), batch, write, gone, run))
            done(1)
    if actions:
        table.create_write_transaction(
            actions, "append", table.schema(), commit_properties=CommitProperties(max_commit_retries=0)
        )
    return files, sum(isinstance(action, AddAction) for action in actions)


def _files(ledger: Ledger, batch: int, table: str) -> tuple[Sequence[Artefact], PlannedWrite | None]:
    """The files with a batch's rows of a table. The number may be that of another pipeline's batch, which has none."""
    plan, verdict = ledger.plan(batch), ledger.verdict(batch)
    writes = plan.writes() if plan else ()
    write = next((write for write in writes if write.declared.table == table), None)
    return [file for file in verdict.rows_of(table) if file.records] if verdict and write else [], write


def _written(ledger: Ledger, batch: int, write: PlannedWrite | None, files: Sequence[Artefact], run: str) -> AddAction:
    """Write all rows of some files to one new file. Its name has that of this run: another's may be in the table
    already, and a run that ends early leaves half a file."""
    plan = ledger.plan(batch)
    assert write is not None
    assert plan is not None
    schema, path = table_schema(write), f"{compacted_in(batch, ledger.pipeline)}{run}.parquet"
    uri, arrow = f"{folder(ledger.store, write.declared.table)}/{path}", Files()
    with reaching("the file cannot be written", uri, AGAIN):
        floats, private = dict[str, Floats](), plan.private
        with arrow.create(uri) as sink, RowsFile(sink, schema, floats) as made:
            for batch_of_rows in rows_of([ledger.uri(file.path) for file in files], schema):
                made.write(batch_of_rows)
        with arrow.open(uri) as written:
            size, said = written.size(), bounds_in(pq.read_metadata(written), floats, private)
    stats = with_figures(said, numRecords=sum(file.records for file in files))
    return AddAction(path, size, {}, time.time_ns() // 1_000_000, False, stats)
