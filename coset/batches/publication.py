"""Publication: decides on a batch, and makes its rows and its offsets visible together.

Any number of processes may run each function at any time: the stored documents decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UNSET

from coset.batches.attempt import Attempt
from coset.batches.tables.delta import commit, transaction_version, version_of
from coset.batches.tables.logs import Logs, check_table
from coset.batches.tables.owners import Owner
from coset.sources.files import TAIL, Files
from coset.sources.s3 import may_pass, reaching, store_error
from partitioning.commands import Repeat, Replan, Run, Status, Then
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Entry, at_once, listed
from partitioning.errors import Conflict, Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.measures import Measured
from partitioning.model.plan import Plan
from partitioning.model.receipt import Artefact, Role, latest_times
from partitioning.model.verdict import Commit, Decision, GivenUp, Judged, TableVersion, Verdict
from spark_jobs.engine.occasions import now, occasion
from spark_jobs.tables.footers import footer_in, seal
from spark_jobs.tables.table_schema import folder, table_schema

__all__ = ["abandon", "decide", "publish", "transaction_version"]

_CHUNK = 1 << 22
# Exchanges and results have served, and are not kept.
_KEPT = (Role.TABLE, Role.REPLACED, Role.KEYS, Role.STATE, Role.SET_ASIDE)
_RESTORE = ("restore the file from a backup and ", Repeat(), "; the verdict names it and stays")


def decide(attempt: Attempt, why: Judged, measured: Sequence[Measured] = (), logs: Logs | None = None) -> Verdict:
    """Decide to publish an attempt whose checks passed. Returns the verdict that counts; it keeps what was `measured`.
    Tables are as in the `logs`, if the checks have read them; to publish looks at them again.

    A stored verdict to publish this plan stays, whatever attempt it names. Raises Refused with all findings if a
    receipt or a file is missing or is not what it should be, and Conflict if the batch was abandoned meanwhile.
    """
    ledger, plan, identity, began = attempt.ledger, attempt.plan, digest(attempt.plan), now()
    logs = logs or Logs()
    for write in plan.writes():
        check_table(ledger.store, write, ledger.pipeline, logs)
    kept = tuple(artefact for artefact in attempt.artefacts if artefact.role in _KEPT)
    try:
        # The audit has read the files of keys.
        _check_contents(ledger, plan, [artefact for artefact in kept if artefact.role is not Role.KEYS])
    except Refused:
        # The files of a batch that was given up meanwhile may be swept already: the decision is what there is to say.
        if ledger.verdict(plan.batch) is None:
            raise
    taken = occasion(began)
    times = latest_times(plan, attempt.tasks) or UNSET
    verdict = Verdict(identity, plan.batch, Decision.PUBLISH, attempt.number, why, kept, taken, tuple(measured), times)
    return ledger.put_verdict(verdict)


def publish(ledger: Ledger, plan: Plan, checked: int | None = None, logs: Logs | None = None) -> Commit:
    """Make a decided batch visible: one Delta commit for each result table, then the commit document.

    If this process has just decided on the attempt that it `checked`, its files are not looked at again. Tables are as
    in the `logs`, if that has read them: a commit is of the version after. Tables that have the batch are left as they
    are, and a lost commit document is written again with the same content. Raises Refused if no verdict publishes this
    plan or if a file or table is not what it should be, Conflict if the commit document is another, and OutcomeUnknown
    if the store did not answer.
    """
    if checked is None and (stored := ledger.commit(plan.batch)) is not None:
        return _agreed(ledger, stored, stored.plan == digest(plan))
    verdict = _verdict_to_publish(ledger, plan)
    store, logs, owner = ledger.store, logs or Logs(), Owner.of(ledger.store, ledger.pipeline)
    _check_tables_hold_the_batch_before(ledger, plan, logs)
    waiting = [write for write in plan.writes() if version_of(store, plan, write, owner, logs) is None]
    if verdict.attempt != checked:
        check_files(ledger, [file for write in waiting for file in verdict.files_of(write.declared.table)], _RESTORE)
    versions = []
    for write in plan.writes():
        table = write.declared.table
        versions.append(TableVersion(table, commit(store, plan, write, verdict.files_of(table), owner, logs)))
    ours = Commit(digest(plan), plan.batch, digest(verdict), tuple(versions))
    stored = ledger.put_commit(ours)
    return _agreed(ledger, stored, stored == ours)


def abandon(ledger: Ledger, why: str) -> Verdict:
    """Give up the open batch: nothing of it is published, and the next batch reads its records.

    Raises Refused if no batch is open or its publication is decided, and Conflict if it is decided meanwhile.
    """
    began, standing = now(), ledger.standing()
    if standing.plan is None or not standing.open:
        what, then = "no batch is open, so there is nothing to abandon", Status(ledger.pipeline)
        raise Refused.of(Kind.BATCH_NONE_OPEN, what, f"pipeline {ledger.pipeline!r}", then, pipeline=ledger.pipeline)
    batch = standing.plan.batch
    if standing.verdict is not None:
        raise Refused.of(
            Kind.BATCH_DECIDED,
            f"batch {batch} is decided: {standing.verdict.decision} ({standing.verdict.why})",
            ledger.uri(ledger.key("verdicts", batch)),
            (Run(ledger.pipeline), " finishes its publication"),
            batch=batch,
            decision=standing.verdict.decision,
        )
    attempt, taken = ledger.attempt(batch), occasion(began)
    return ledger.put_verdict(Verdict(digest(standing.plan), batch, Decision.ABANDON, attempt, GivenUp(why), (), taken))


def _verdict_to_publish(ledger: Ledger, plan: Plan) -> Verdict:
    verdict, where = ledger.verdict(plan.batch), ledger.uri(ledger.key("verdicts", plan.batch))
    if verdict is None:
        check = (Run(ledger.pipeline), " checks it first")
        raise Refused.of(Kind.BATCH_UNDECIDED, f"batch {plan.batch} is not decided", where, check, batch=plan.batch)
    if verdict.decision is not Decision.PUBLISH:
        what, then = f"batch {plan.batch} was decided: {verdict.decision} ({verdict.why})", Status(ledger.pipeline)
        raise Refused.of(Kind.BATCH_DECIDED, what, where, then, batch=plan.batch, decision=verdict.decision)
    if verdict.plan != digest(plan):
        what, then = f"the verdict is on the plan {verdict.plan}, not on {digest(plan)}", Status(ledger.pipeline)
        raise Refused.of(Kind.DOCUMENTS_DISAGREE, what, where, then, plan=digest(plan), found=verdict.plan)
    return verdict


def _agreed(ledger: Ledger, stored: Commit, agrees: bool) -> Commit:
    if agrees:
        return stored
    raise Conflict.of(
        Kind.DOCUMENTS_DISAGREE,
        f"batch {stored.batch} has a commit of the plan {stored.plan}, tables "
        + ", ".join(f"{table.table} at version {table.version}" for table in stored.tables)
        + ", which is not what the Delta logs and the plan say",
        ledger.uri(ledger.key("commits", stored.batch)),
        "find out who wrote it; if the tables are right, remove it and publish again",
        batch=stored.batch,
        found=stored.plan,
        tables=[table.table for table in stored.tables],
    )


def _check_tables_hold_the_batch_before(ledger: Ledger, plan: Plan, logs: Logs) -> None:
    """Raise Refused if a table does not hold the batch of the last commit document any more."""
    numbers = range(plan.batch - 1, -1, -1)
    before = next((commit for number in numbers if (commit := ledger.commit(number)) is not None), None)
    if before is None:
        return
    store = ledger.store
    held = {written.table: transaction_version(store, plan.pipeline, written.table, logs) for written in before.tables}
    findings = [
        Finding.of(
            Kind.TABLE_BEHIND,
            f"the table holds {'no batch' if newest is None else f'batch {newest} as its newest'}, "
            f"but batch {before.batch} was published to it",
            folder(store, table),
            "restore the table's folder from a backup",
            table=table,
            batch=newest,
            published=before.batch,
        )
        for table, newest in held.items()
        if newest is None or newest < before.batch
    ]
    refuse(findings)


def check_files(ledger: Ledger, files: Sequence[Artefact], then: Then) -> None:
    """Raise Refused with each file that the store does not have as its receipt says.

    A restored file may have another etag; then the content is compared.
    """

    there = listed(ledger.store, [file.path for file in files])
    _check_each(ledger, files, lambda file: _differs(ledger, file, there), then)


def _differs(ledger: Ledger, file: Artefact, listed: Collection[Entry] = ()) -> str | None:
    """How a file in the store differs from what its receipt says. One that is `listed` as it says does not; of any
    other the store is asked by its name."""
    if Entry(file.path, file.size, file.etag) in listed:
        return None
    entry = ledger.store.head(file.path)
    if entry is None:
        return "the file is missing"
    if entry.size != file.size:
        return f"the file has {entry.size} bytes, not {file.size} bytes"
    if entry.etag != file.etag and (content := _content(ledger, file)) != file.digest:
        return f"the file has the content {content}, not {file.digest}"
    return None


def _content(ledger: Ledger, file: Artefact) -> str:
    """The digest of a file's content in the store."""
    content, uri = sha256(), ledger.uri(file.path)
    with reaching("the file cannot be read", uri, _RESTORE), Files().stream(uri) as stream:
        while chunk := stream.read(_CHUNK):
            content.update(chunk)
    return f"sha256:{content.hexdigest()}"


def _check_contents(ledger: Ledger, plan: Plan, files: Sequence[Artefact]) -> None:
    """Raise Refused with each file that is not as its receipt says, or lacks its table's columns or records.

    The file of a table is opened unless a listing shows it as its task stored it, and the task's own look at the footer
    found these columns and records.
    """
    wanted = {write.declared.table: table_schema(write) for write in plan.writes()}
    files_in_store, then = Files(), ("restore the file, or ", Replan(plan.pipeline))
    there = listed(ledger.store, [file.path for file in files])

    def look(file: Artefact) -> str | None:
        if file.role is not Role.TABLE:
            return _differs(ledger, file, there)
        is_listed = Entry(file.path, file.size, file.etag) in there
        if is_listed and file.seal == seal(file.size, file.etag, file.digest, file.records, wanted[file.name]):
            return None
        # The store gives it only of the object with this etag: one answer says that it is there, and what it has.
        end = ledger.store.get_part(file.path, max(0, file.size - TAIL), file.size, file.etag)
        if end is None and (how := _differs(ledger, file)) is not None:
            return how
        uri = ledger.uri(file.path)
        try:
            footer = _footer(end, files_in_store, uri)
        except (pa.ArrowException, OSError) as error:
            if may_pass(error):
                raise store_error(error, "the file cannot be read", uri, then) from error
            return f"the file cannot be read as Parquet: {error}"
        columns = footer.schema.to_arrow_schema()
        if not columns.equals(wanted[file.name]):
            return f"the file has the columns {_columns(columns)}, its table {_columns(wanted[file.name])}"
        if footer.num_rows != file.records:
            return f"the file has {footer.num_rows} records, its receipt says {file.records}"
        return None

    _check_each(ledger, files, look, then)


def _footer(end: bytes | None, files: Files, uri: str) -> pq.FileMetaData:
    """The footer of a Parquet file, from the `end` of the file if that has all of it."""
    if end is not None and (footer := footer_in(end)) is not None:
        return footer
    with files.open(uri) as there:
        return pq.read_metadata(there)


def _check_each(ledger: Ledger, files: Sequence[Artefact], look: Callable[[Artefact], str | None], then: Then) -> None:
    """Look at all files, several at once. Raises Refused with all findings."""
    looked = zip(files, at_once(look, files), strict=True)
    findings = [
        Finding.of(Kind.TASK_FILES, what, ledger.uri(file.path), then, file=file.path)
        for file, what in looked
        if what is not None
    ]
    refuse(findings)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
