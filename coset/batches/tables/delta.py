"""Result tables: Delta tables below the store's root. Exactly one commit adds each batch.

A commit is put if absent, as the version after the one that was read. delta-rs accepts a transaction that the
table has already, and removes files that were compacted into others since. So the check and the commit are of one
version: after a lost race both are done again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from deltalake import CommitProperties, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from coset.batches.tables.acceptance import accepting
from coset.batches.tables.dead_rows import DeadRows, dying
from coset.batches.tables.live_files import LiveFile
from coset.batches.tables.log_copy import TableLog, actions_in
from coset.batches.tables.logs import (
    Logs,
    add_columns,
    check_held_columns,
    comment_on,
    log_error,
    log_schema,
    opened,
    partitioned_by,
)
from coset.batches.tables.noting import noted
from coset.batches.tables.owners import Owner, adopt, application, check_owner
from coset.batches.tables.table_rules import check_rules
from coset.sources.s3 import AGAIN
from partitioning.documents.document import digest
from partitioning.documents.store import Store
from partitioning.errors import CosetError, OutcomeUnknown, Refused, Unreachable
from partitioning.kinds import Kind
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.receipt import Artefact, Role
from partitioning.model.root_names import TABLES
from partitioning.model.table_parts import Buckets, buckets_of
from spark_jobs.tables.column_bounds import with_figures
from spark_jobs.tables.table_schema import RESIDUE, folder

_TRIES = 5


def transaction_version(store: Store, pipeline: str, table: str, logs: Logs | None = None) -> int | None:
    """The newest batch of `pipeline` in a table, by its Delta log. None if it holds none.

    The log decides what is published; the ledger's commits are receipts of it. Raises Refused or Unreachable if the log
    cannot be read.
    """
    with opened(folder(store, table), logs) as table_log:
        return None if table_log is None else newest_in(table_log, pipeline, table)


# What the commit of a batch or a swap says of a table's partitions.
BUCKETS = "coset.buckets"


@dataclass(frozen=True, slots=True)
class Held:
    """The newest batch of a pipeline in a table, and the digest of its plan. Each is None if unknown."""

    batch: int | None
    plan: str | None


def held(store: Store, pipeline: str, table: str, logs: Logs | None = None) -> Held | None:
    """What a table holds of a pipeline, by its Delta log. None if there is no table.

    Raises Refused if the log cannot be read.
    """
    with opened(folder(store, table), logs) as table_log:
        if table_log is None:
            return None
        newest = newest_in(table_log, pipeline, table)
        if newest is None:
            return Held(None, None)
        entry = entry_of(table_log, {"coset.pipeline": pipeline, "coset.plan": str(newest)})
        return Held(newest, entry["coset.digest"] if entry else None)


@dataclass(frozen=True, slots=True)
class Change:
    """A commit's change of a table. In mode `overwrite` it removes all files, or those in the partitions of `filters`.

    `takes` says whether it may remove files. `columns` are the table's new columns, by default those of the write.
    `dead` has the rows of files that are dead from then on; files that had dead rows may come `again`. The
    commit says in what buckets a table `lies`, if so. `accepted` is the version up to which changes of others are
    accepted then: -1 if the rows have none of them; as before if None.
    """

    actions: list[AddAction | RemoveAction]
    mode: Literal["append", "overwrite"]
    filters: list[tuple[str, str, list[str]]] | None = None
    takes: bool = False
    columns: Schema | None = None
    dead: Sequence[DeadRows] = ()
    again: Sequence[LiveFile] = ()
    lies: str | None = None
    accepted: int | None = None

    def lying(self, buckets: Buckets | None) -> Change:
        """It, saying in what buckets the table's rows are then."""
        return replace(self, lies=str(buckets or ""))

    @property
    def is_noted(self) -> bool:
        """Whether delta-rs has no words for some of it."""
        return bool(self.dead or self.again)

    @property
    def whole(self) -> set[int]:
        """The partitions of which it removes all files, by `filters`."""
        return {int(number) for _, _, values in self.filters or () for number in values}

    @classmethod
    def of(cls, write: PlannedWrite, files: Sequence[Artefact], dead: Sequence[DeadRows] = ()) -> Change:
        """The change of a batch that left these files."""
        rows = [file for file in files if file.records and file.role is Role.TABLE]
        actions: list[AddAction | RemoveAction] = [added(file, write) for file in rows]
        touched = {part.partition for file in files for part in file.parts}
        whole = [str(number) for number in sorted(touched) if not write.is_beside(number)]
        if write.declared.mode.only_adds:
            return cls(actions, "append")
        if write.anew or not write.declared.mode.keeps:
            return cls(actions, "overwrite", takes=True, accepted=-1)
        if whole:
            return cls(actions, "overwrite", [(RESIDUE, "in", whole)], takes=True, dead=dead)
        return cls(actions, "append", takes=bool(dead), dead=dead)


def version_of(store: Store, plan: Plan, write: PlannedWrite, owner: Owner, logs: Logs | None = None) -> int | None:
    """The Delta version that holds a batch's rows. None if the table does not have the batch yet.

    Raises Refused if the table belongs to another pipeline, has other columns, holds this batch of another plan, or
    cannot be read.
    """
    with opened(folder(store, write.declared.table), logs) as table_log:
        if table_log is None:
            return None
        check_owner(table_log, write.declared.table, owner)
        check_rules(table_log, takes=not write.declared.mode.only_adds)
        return _version_in(table_log, plan, write)


def commit(
    store: Store, plan: Plan, write: PlannedWrite, files: Sequence[Artefact], owner: Owner, logs: Logs | None = None
) -> int:
    """Add a batch's files to a table in one Delta commit, and return its version. A batch without files is committed
    too.

    Any number of processes may call this any number of times: one commit results. Raises Refused as `version_of`, and
    OutcomeUnknown if the store did not say whether it has the commit.
    """

    def change_of(table: TableLog) -> Change:
        change, buckets = Change.of(write, files, dying(table, store, write, files)), buckets_of(plan, write)
        if not write.declared.mode.by_key:
            return change
        # Others may have put rows anywhere, and these stay.
        return change.lying(buckets if write.anew or buckets == buckets_in(table) else None)

    return carry_out(
        folder(store, write.declared.table),
        write,
        owner,
        f"batch {plan.batch}",
        (application(plan.pipeline, write.declared.table), plan.batch),
        {"coset.pipeline": plan.pipeline, "coset.plan": str(plan.batch), "coset.digest": digest(plan)},
        lambda table: _version_in(table, plan, write),
        change_of,
        logs,
    )


def carry_out(
    where: str,
    write: PlannedWrite,
    owner: Owner,
    what: str,
    transaction: tuple[str, int],
    metadata: dict[str, str],
    version_in: Callable[[TableLog], int | None],
    change_of: Callable[[TableLog], Change],
    logs: Logs | None = None,
) -> int:
    """Commit a change to a table, once, and return the version that holds it. A missing table is created."""
    logs, error = logs or Logs(), None
    for _ in range(_TRIES):
        try:
            table = logs.table(where) or logs.create(where, write, owner)
            check_owner(table, write.declared.table, owner)
            version = version_in(table)
            if version is not None:
                return version
            change = change_of(table)
            check_rules(table, takes=change.takes)
            if not (
                adopt(table, owner)
                or (change.mode == "append" and change.columns is None and add_columns(table, write))
                or comment_on(table, write)
            ):
                table.create_write_transaction(
                    change.actions,
                    change.mode,
                    table.schema() if change.mode == "append" else change.columns or log_schema(write, table),
                    partition_by=partitioned_by(write),
                    partition_filters=change.filters,
                    commit_properties=CommitProperties(
                        custom_metadata=metadata | ({} if change.lies is None else {BUCKETS: change.lies}),
                        app_transactions=[
                            Transaction(*transaction),
                            *accepting(table, write.declared.table, change.accepted),
                        ],
                    ),
                    post_commithook_properties=PostCommitHookProperties(
                        create_checkpoint=not change.is_noted, cleanup_expired_logs=False
                    ),
                )
                if change.is_noted:
                    noting = partial(noted, table, dead=change.dead, again=change.again, whole=change.whole)
                    logs.amend(where, noting)
                    continue
            logs.push(where)
        except (DeltaError, OSError, CosetError) as failure:
            # Only reading the log again tells a lost race, a lost answer and a fault apart.
            if isinstance(failure, CosetError) and not _may_be_stored(failure, error):
                raise
            error = failure
            logs.forget(where)
            time.sleep(random.uniform(0.05, 0.5))
    assert error is not None
    if isinstance(error, CosetError | CommitFailedError):
        raise OutcomeUnknown.of(
            Kind.STORE_UNKNOWN,
            f"after {_TRIES} tries it is not known whether the table has {what}: {error}",
            where,
            AGAIN,
            what=what,
        ) from error
    # The error would come again. Each try read the log, which does not have the commit.
    raise log_error(error, where) from error


def _may_be_stored(failure: CosetError, before: Exception | None) -> bool:
    """Whether a commit may be stored although this was raised, after an error of an earlier try."""
    denied = failure.findings[0].kind is Kind.STORE_DENIED
    return isinstance(failure, Unreachable | OutcomeUnknown) or (denied and before is not None)


def _version_in(table: TableLog, plan: Plan, write: PlannedWrite) -> int | None:
    check_held_columns(table, write, plan.pipeline)
    newest = newest_in(table, plan.pipeline, write.declared.table)
    if newest is None or newest < plan.batch:
        return None
    if entry := entry_of(table, {"coset.digest": digest(plan)}):
        return int(entry["version"])
    what = f"the table holds batch {newest}, but batch {plan.batch} in it is of another plan than {digest(plan)}"
    then = f"restore the folder {plan.pipeline}/ of the store that the table was published from"
    raise Refused.of(
        Kind.DOCUMENTS_DISAGREE, what, table.table_uri, then, newest=newest, batch=plan.batch, plan=digest(plan)
    )


def entry_of(table: TableLog, metadata: Mapping[str, str]) -> dict[str, Any] | None:
    """The newest commit that has this metadata. It is nearly always among the last."""
    return next((entry for entry in table.entries() if metadata.items() <= entry.items()), None)


def buckets_in(table: TableLog, version: int | None = None) -> Buckets | None:
    """The buckets that the partitions of a table are, or were in a version. None if they are none, or if others have
    changed rows since they were."""
    for number in range(table.version() if version is None else version, -1, -1):
        actions = actions_in(table.commit(number) or b"")
        said = [action["commitInfo"][BUCKETS] for action in actions if BUCKETS in action.get("commitInfo", {})]
        if said:
            return Buckets.parse(said[0])
        changes = [action.get("add") or action.get("remove") or {} for action in actions]
        if not actions or any(change.get("dataChange") for change in changes):
            return None
    return None


def newest_in(table: TableLog, pipeline: str, name: str) -> int | None:
    """The newest batch of a pipeline in a table. None if it has none."""
    asked = application(pipeline, name)
    return table.once(("newest", asked), lambda: _newest_in(table, asked))


def _newest_in(table: TableLog, application: str) -> int | None:
    # Mostly it is what was committed last, and delta-rs would look at all commits.
    actions = actions_in(table.commit(table.version()) or b"")
    version: int | None = next(
        (action["txn"]["version"] for action in actions if action.get("txn", {}).get("appId") == application),
        None,
    )
    return table.transaction_version(application) if version is None else version


def path_in(file: Artefact) -> str:
    """The path of a file in its table's log."""
    return file.path.removeprefix(f"{TABLES}{file.name}/")


def added(file: Artefact, write: PlannedWrite) -> AddAction:
    return AddAction(
        path=path_in(file),
        size=file.size,
        partition_values={column: str(part.partition) for column in partitioned_by(write) for part in file.parts},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=with_figures(file.bounds, numRecords=file.records),
    )
