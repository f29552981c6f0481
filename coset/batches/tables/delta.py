"""Result tables: Delta tables below the store's root, to which each batch is added by exactly one commit.

delta-rs commits by put-if-absent and refuses a commit whose snapshot is older than another commit of the same
transaction's application. It does not refuse the same (application, version) from a fresh snapshot, so the
check and the commit always go through one table object. Nor does it refuse to take files away that were compacted into
others since the snapshot, whose rows would stay: such a commit is made of the newest version only.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from coset.batches.tables.logs import Logs, add_columns, check_held_columns, log_error, opened, partitioned_by
from coset.batches.tables.owners import Owner, adopt, application, check_owner
from coset.batches.tables.table_rules import check_rules
from coset.sources.s3 import AGAIN, is_denied, may_pass, store_error
from partitioning.documents.document import digest
from partitioning.errors import Finding, OutcomeUnknown, Refused, about
from partitioning.kinds import Kind
from partitioning.model.artefact import Artefact
from partitioning.model.graph import Mode
from partitioning.model.plan import Plan, PlannedWrite
from spark_jobs.tables.table_schema import RESIDUE, columns_of, folder

_TRIES = 5


def transaction_version(store_root: str, pipeline: str, table: str, logs: Logs | None = None) -> int | None:
    """The newest batch of `pipeline` that a table holds by its Delta log; None if it holds none.

    The log decides what was published; the ledger's commits are receipts of it. Raises Refused, or Unreachable, if it
    cannot be read.
    """
    with opened(folder(store_root, table), logs) as table_log:
        return None if table_log is None else newest_in(table_log, pipeline, table)


@dataclass(frozen=True, slots=True)
class Held:
    """The newest batch of a pipeline that a table holds, and the digest of its plan; None where that is not known."""

    batch: int | None
    plan: str | None


def held(store_root: str, pipeline: str, table: str) -> Held | None:
    """What a table holds of a pipeline by its Delta log; None if there is no table.

    Raises Refused if the log cannot be read.
    """
    with opened(folder(store_root, table)) as table_log:
        if table_log is None:
            return None
        newest = newest_in(table_log, pipeline, table)
        if newest is None:
            return Held(None, None)
        entry = entry_of(table_log, {"coset.pipeline": pipeline, "coset.plan": str(newest)})
        return Held(newest, entry["coset.digest"] if entry else None)


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit does to a table: its actions, and in mode `overwrite` it takes away all files in the partitions of
    `filters`, or all there are. It `takes` if any may go. It gives the table the columns of its rows, or `columns`."""

    actions: list[AddAction | RemoveAction]
    mode: Literal["append", "overwrite"]
    filters: list[tuple[str, str, list[str]]] | None = None
    takes: bool = False
    columns: Schema | None = None

    @classmethod
    def of(cls, write: PlannedWrite, files: Sequence[Artefact]) -> Change:
        actions: list[AddAction | RemoveAction] = [added(file, write) for file in files if file.records]
        touched = sorted({part.partition for file in files for part in file.parts})
        match write.declared.mode:
            case Mode.APPEND:
                return cls(actions, "append")
            case Mode.REPLACE:
                return cls(actions, "overwrite", takes=True)
            case Mode.UPSERT if write.anew:
                return cls(actions, "overwrite", takes=True)
            case Mode.UPSERT if touched:
                return cls(actions, "overwrite", [(RESIDUE, "in", list(map(str, touched)))], takes=True)
            case Mode.UPSERT:
                return cls(actions, "append")
            case _:
                assert_never(write.declared.mode)


def version_of(store_root: str, plan: Plan, write: PlannedWrite, owner: Owner, logs: Logs | None = None) -> int | None:
    """The Delta version that holds a batch's rows, None if the batch is not there yet.

    Raises Refused if the table is another's, does not have the plan's columns, holds this batch of another plan, or
    cannot be read.
    """
    with opened(folder(store_root, write.declared.table), logs) as table_log:
        if table_log is None:
            return None
        check_owner(table_log, write.declared.table, owner)
        check_rules(table_log, takes=write.declared.mode is not Mode.APPEND)
        return _version_in(table_log, plan, write)


def commit(
    store_root: str,
    plan: Plan,
    write: PlannedWrite,
    files: Sequence[Artefact],
    owner: Owner,
    logs: Logs | None = None,
) -> int:
    """Add a batch's files to a table in one Delta commit, also if there are none; give its version.

    May be run by any number of processes, any number of times: one commit comes of it. Raises Refused as
    `version_of`, and OutcomeUnknown if the store did not say whether it stored the commit.
    """
    change = Change.of(write, files)
    return carry_out(
        folder(store_root, write.declared.table),
        write,
        owner,
        f"batch {plan.batch}",
        (application(plan.pipeline, write.declared.table), plan.batch),
        {"coset.pipeline": plan.pipeline, "coset.plan": str(plan.batch), "coset.digest": digest(plan)},
        lambda table: _version_in(table, plan, write),
        lambda table: change,
        logs,
    )


def carry_out(
    where: str,
    write: PlannedWrite,
    owner: Owner,
    what: str,
    transaction: tuple[str, int],
    metadata: dict[str, str],
    version_in: Callable[[DeltaTable], int | None],
    change_of: Callable[[DeltaTable], Change],
    logs: Logs | None = None,
) -> int:
    """Make one commit of a change to a table, which is made if it is not there; the version that holds it."""
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
            if adopt(table, owner):
                continue
            if change.mode == "append" and change.columns is None and add_columns(table, write):
                continue
            table.create_write_transaction(
                change.actions,
                change.mode,
                table.schema() if change.mode == "append" else change.columns or Schema.from_arrow(columns_of(write)),
                partition_by=partitioned_by(write),
                partition_filters=change.filters,
                commit_properties=CommitProperties(
                    # delta-rs would put what takes files away after whatever came first, though that made others of
                    # them.
                    max_commit_retries=0 if change.takes else None,
                    custom_metadata=metadata,
                    app_transactions=[Transaction(*transaction)],
                ),
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
        except (DeltaError, OSError) as failure:
            # A lost race, a lost answer or a fault: only a fresh look at the log can tell which.
            if is_denied(failure) and error is None:
                raise log_error(failure, where) from failure
            error = failure
            logs.forget(where)
            time.sleep(random.uniform(0.05, 0.5))
    assert error is not None
    if not may_pass(error) and not isinstance(error, CommitFailedError):
        # It will be so again. The log was read each time, and it was not in it.
        raise log_error(error, where) from error
    (finding,) = store_error(error, f"after {_TRIES} tries nobody can say if {what} is in", where, AGAIN).findings
    raise OutcomeUnknown(finding) from error


def _version_in(table: DeltaTable, plan: Plan, write: PlannedWrite) -> int | None:
    check_held_columns(table, write)
    newest = newest_in(table, plan.pipeline, write.declared.table)
    if newest is None or newest < plan.batch:
        return None
    if entry := entry_of(table, {"coset.digest": digest(plan)}):
        return int(entry["version"])
    raise Refused(
        Finding(
            Kind.DOCUMENTS_DISAGREE,
            f"the table holds batch {newest}, but batch {plan.batch} in it is of another plan than {digest(plan)}",
            table.table_uri,
            f"restore the folder {plan.pipeline}/ of the store that the table was published from",
            about(newest=newest, batch=plan.batch, plan=digest(plan)),
        )
    )


def entry_of(table: DeltaTable, metadata: Mapping[str, str]) -> dict[str, Any] | None:
    """The newest commit with these among its metadata; it is nearly always one of the last."""
    entries = (entry for limit in (8, None) for entry in table.history(limit))
    return next((entry for entry in entries if metadata.items() <= entry.items()), None)


def newest_in(table: DeltaTable, pipeline: str, name: str) -> int | None:
    version: int | None = table.transaction_version(application(pipeline, name))
    return version


def path_in(file: Artefact) -> str:
    """Where it lies, as the table's log says."""
    return file.path.removeprefix(f"tables/{file.name}/")


def added(file: Artefact, write: PlannedWrite) -> AddAction:
    return AddAction(
        path=path_in(file),
        size=file.size,
        partition_values={column: str(part.partition) for column in partitioned_by(write) for part in file.parts},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=json.dumps({"numRecords": file.records}),
    )
