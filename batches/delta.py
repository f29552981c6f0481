"""Result tables: Delta tables below the store's root, to which each batch is added by exactly one commit.

delta-rs commits by put-if-absent and refuses a commit whose snapshot is older than another commit of the same
transaction's application. It does not refuse the same (application, version) from a fresh snapshot, so the
check and the commit always go through one table object.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from partitioning.documents.document import digest
from partitioning.errors import CosetError, Finding, OutcomeUnknown, Refused
from partitioning.model.artefact import Artefact
from partitioning.model.plan import Plan, PlannedWrite
from sources.s3 import AGAIN, is_denied, may_pass, storage_options, store_error
from spark_jobs.table_schema import folder, table_schema

_TRIES = 5
_LOOK = "run the same command again; if it fails again, restore the table's _delta_log/ as it was"


def check_storable(write: PlannedWrite) -> None:
    """Raise Refused, with all findings, for columns of types that a Delta table cannot hold."""
    findings = [
        Finding(
            f"column {column.name!r} is {column.type}, which a Delta table cannot hold",
            f"table {write.declared.table!r}",
            "cast it in the step that the table is written from",
        )
        for column, kind in zip(write.columns, table_schema(write).types, strict=False)
        if not _is_storable(kind)
    ]
    if findings:
        raise Refused(*findings)


class Logs:
    """The Delta logs that one piece of work looks at: each is read whole once, then what has come to it since.

    It is for work that is done at once: a log that is rolled back meanwhile is not seen to be.
    """

    def __init__(self) -> None:
        self._read: dict[str, DeltaTable] = {}

    def table(self, where: str) -> DeltaTable | None:
        """The table as it is now, if there is one."""
        if (read := self._read.get(where)) is not None:
            read.update_incremental()
            return read
        try:
            self._read[where] = DeltaTable(where, storage_options=storage_options())
        except TableNotFoundError:
            return None
        return self._read[where]

    def create(self, where: str, columns: pa.Schema) -> DeltaTable:
        """A new table."""
        # A retry would put a second CREATE after the one that came first.
        once = CommitProperties(max_commit_retries=0)
        self._read[where] = DeltaTable.create(
            where, Schema.from_arrow(columns), storage_options=storage_options(), commit_properties=once
        )
        return self._read[where]

    def forget(self, where: str) -> None:
        """Read a log whole when it is looked at again."""
        self._read.pop(where, None)


def check_columns(store_root: str, write: PlannedWrite, logs: Logs | None = None) -> None:
    """Raise Refused, with all findings, if there is a table and it has other columns.

    It keeps those that it has: a batch of others would be run and judged in vain.
    """
    with _reading(folder(store_root, write.declared.table), logs) as table:
        if table is not None:
            _check_held_columns(table, write)


def transaction_version(store_root: str, pipeline: str, table: str, logs: Logs | None = None) -> int | None:
    """The newest batch of `pipeline` that a table holds by its Delta log; None if it holds none.

    The log decides what was published; the ledger's commits are receipts of it. Raises Refused, or Unreachable, if it
    cannot be read.
    """
    with _reading(folder(store_root, table), logs) as table_log:
        return None if table_log is None else _newest(table_log, pipeline, table)


@dataclass(frozen=True, slots=True)
class Held:
    """The newest batch of a pipeline that a table holds, and the digest of its plan; None where that is not known."""

    batch: int | None
    plan: str | None


def held(store_root: str, pipeline: str, table: str) -> Held | None:
    """What a table holds of a pipeline by its Delta log; None if there is no table.

    Raises Refused if the log cannot be read.
    """
    with _reading(folder(store_root, table)) as table_log:
        if table_log is None:
            return None
        newest = _newest(table_log, pipeline, table)
        of = {"coset.pipeline": pipeline, "coset.plan": str(newest)}
        entries = (entry for limit in (8, None) for entry in table_log.history(limit))
        plan = next((entry["coset.digest"] for entry in entries if of.items() <= entry.items()), None)
        return Held(newest, plan if newest is not None else None)


def version_of(store_root: str, plan: Plan, write: PlannedWrite, logs: Logs | None = None) -> int | None:
    """The Delta version that holds a batch's rows, None if the batch is not there yet.

    Raises Refused if the table does not have the plan's columns, holds this batch of another plan, or cannot
    be read.
    """
    with _reading(folder(store_root, write.declared.table), logs) as table_log:
        return None if table_log is None else _version_in(table_log, plan, write)


def commit(
    store_root: str, plan: Plan, write: PlannedWrite, files: Sequence[Artefact], logs: Logs | None = None
) -> int:
    """Add a batch's files to a table in one Delta commit, also if there are none; give its version.

    May be run by any number of processes, any number of times: one commit comes of it. Raises Refused as
    `version_of`, and OutcomeUnknown if the store did not say whether it stored the commit.
    """
    where, logs = folder(store_root, write.declared.table), logs or Logs()
    transaction = CommitProperties(
        custom_metadata={
            "coset.pipeline": plan.pipeline,
            "coset.plan": str(plan.batch),
            "coset.digest": digest(plan),
        },
        app_transactions=[Transaction(_application(plan.pipeline, write.declared.table), plan.batch)],
    )
    added: list[AddAction | RemoveAction] = [_added(file) for file in files]
    error: Exception | None = None
    for _ in range(_TRIES):
        try:
            table = logs.table(where) or logs.create(where, table_schema(write))
            version = _version_in(table, plan, write)
            if version is not None:
                return version
            table.create_write_transaction(
                added,
                "append",
                table.schema(),
                commit_properties=transaction,
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
        except (DeltaError, OSError) as failure:
            # A lost race, a lost answer or a fault: only a fresh look at the log can tell which.
            if is_denied(failure) and error is None:
                raise _log_error(failure, where) from failure
            error = failure
            logs.forget(where)
            time.sleep(random.uniform(0.05, 0.5))
    assert error is not None
    if not may_pass(error) and not isinstance(error, CommitFailedError):
        # It will be so again. The log was read each time, and the batch was not in it.
        raise _log_error(error, where) from error
    (finding,) = store_error(
        error, f"after {_TRIES} tries nobody can say if batch {plan.batch} is in", where, AGAIN
    ).findings
    raise OutcomeUnknown(finding) from error


@contextmanager
def _reading(where: str, logs: Logs | None = None) -> Iterator[DeltaTable | None]:
    """The table as it is now, if there is one; what goes wrong is raised as Coset's errors."""
    try:
        yield (logs or Logs()).table(where)
    except (DeltaError, OSError) as error:
        raise _log_error(error, where) from error


def _version_in(table: DeltaTable, plan: Plan, write: PlannedWrite) -> int | None:
    _check_held_columns(table, write)
    newest = _newest(table, plan.pipeline, write.declared.table)
    if newest is None or newest < plan.batch:
        return None
    # The batch is nearly always the newest version; the whole history is read only if it is not.
    for limit in (8, None):
        for entry in table.history(limit):
            if entry.get("coset.digest") == digest(plan):
                return int(entry["version"])
    raise Refused(
        Finding(
            f"the table holds batch {newest}, but batch {plan.batch} in it is of another plan than {digest(plan)}",
            table.table_uri,
            f"restore the folder {plan.pipeline}/ of the store that the table was published from",
        )
    )


def _check_held_columns(table: DeltaTable, write: PlannedWrite) -> None:
    """Raise Refused, with all findings, if the table's columns are not the plan's: both are named."""
    held = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
    wanted = {field.name: field.type for field in table_schema(write)}
    findings = [
        Finding(
            f"column {name!r} is {held.get(name, 'missing')} in the table, {wanted.get(name, 'missing')} in the plan",
            table.table_uri,
            "keep the columns as they are, or write to a table of another name",
        )
        for name in held | wanted
        if held.get(name) != wanted.get(name)
    ]
    if findings:
        raise Refused(*findings)


def _is_storable(kind: pa.DataType) -> bool:
    """Whether a Delta table gives back what was written to it."""
    if kind == pa.timestamp("ns"):
        return False  # delta-rs has a type of its own for it, which other readers do not know
    try:
        back = pa.schema(Schema.from_arrow(pa.schema([pa.field("it", kind)])).to_arrow())
    except Exception:  # delta-rs raises the base class here
        return False
    return bool(back.field("it").type == kind)


def _newest(table: DeltaTable, pipeline: str, name: str) -> int | None:
    version: int | None = table.transaction_version(_application(pipeline, name))
    return version


def _application(pipeline: str, table: str) -> str:
    return f"{pipeline}:{table}"


def _added(file: Artefact) -> AddAction:
    return AddAction(
        path=file.path.removeprefix(f"tables/{file.name}/"),
        size=file.size,
        partition_values={},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=json.dumps({"numRecords": file.records}),
    )


def _log_error(error: Exception, where: str) -> CosetError:
    return store_error(error, "the Delta log cannot be read or written", where, _LOOK)
