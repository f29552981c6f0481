"""Publication: the decision on a batch, and its rows made visible together with its offsets.

Each function may be run again at any time, by any number of processes: what the store holds decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq

from coset.batches.attempt import Attempt
from coset.batches.tables.delta import commit, transaction_version, version_of
from coset.batches.tables.logs import Logs, check_table
from coset.batches.tables.owners import Owner
from coset.sources.files import Files
from coset.sources.s3 import may_pass, reaching, store_error
from partitioning.commands import Repeat, Replan, Run, Status, Then
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.errors import Conflict, Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.artefact import Artefact, Role
from partitioning.model.plan import Plan
from partitioning.model.verdict import Commit, Decision, GivenUp, Judged, TableVersion, Verdict
from spark_jobs.engine.occasions import now, occasion
from spark_jobs.tables.table_schema import folder, table_schema

__all__ = ["abandon", "decide", "publish", "transaction_version"]

# boto3 keeps ten connections.
_AT_ONCE = 8
_CHUNK = 1 << 22
_RESTORE = ("restore the file from a backup and ", Repeat(), "; the verdict names it and stays")


def decide(attempt: Attempt, why: Judged) -> Verdict:
    """Decide to publish an attempt whose checks passed; the answer is the verdict that counts.

    A verdict to publish this plan that is there already stays, whatever attempt it names. Raises Refused, with
    all findings, if a receipt is missing or a file is not there as its receipt says, and Conflict if the batch
    was abandoned meanwhile.
    """
    ledger, plan, identity, began = attempt.ledger, attempt.plan, digest(attempt.plan), now()
    stored = ledger.verdict(plan.batch)
    if stored is not None and (stored.decision, stored.plan) == (Decision.PUBLISH, identity):
        return stored
    owner = Owner.here(ledger.store, ledger.pipeline)
    for write in plan.writes():
        check_table(ledger.store.root, write, owner)
    # What tasks left for those of later waves has served: it may go.
    kept = tuple(artefact for artefact in attempt.artefacts if artefact.role in (Role.TABLE, Role.KEYS, Role.STATE))
    rows = [artefact for artefact in kept if artefact.role is Role.TABLE]
    # Keys were read by the audit.
    check_files(ledger, [artefact for artefact in kept if artefact.role is not Role.KEYS], _restore_or_replan(plan))
    _check_contents(ledger, plan, rows)
    taken = occasion(began)
    return ledger.put_verdict(Verdict(identity, plan.batch, Decision.PUBLISH, attempt.number, why, kept, taken))


def publish(ledger: Ledger, plan: Plan) -> Commit:
    """Make a decided batch visible: one Delta commit per result table, then the commit object.

    Tables are published one after the other; what was published before is found and left as it is, and a lost
    commit object is made again with the same content. Raises Refused if there is no verdict to publish this
    plan, if a file or table is not what it has to be, Conflict if another commit object is there, and
    OutcomeUnknown if the store did not answer.
    """
    stored = ledger.commit(plan.batch)
    if stored is not None:
        return _agreed(ledger, stored, stored.plan == digest(plan))
    verdict = _verdict_to_publish(ledger, plan)
    root, logs, owner = ledger.store.root, Logs(), Owner.of(ledger.store, ledger.pipeline)
    _check_tables_hold_the_batch_before(ledger, plan, logs)
    waiting = [write for write in plan.writes() if version_of(root, plan, write, owner, logs) is None]
    check_files(ledger, [file for write in waiting for file in verdict.rows_of(write.declared.table)], _RESTORE)
    versions = []
    for write in plan.writes():
        table = write.declared.table
        versions.append(TableVersion(table, commit(root, plan, write, verdict.rows_of(table), owner, logs)))
    ours = Commit(digest(plan), plan.batch, digest(verdict), tuple(versions))
    stored = ledger.put_commit(ours)
    return _agreed(ledger, stored, stored == ours)


def abandon(ledger: Ledger, why: str) -> Verdict:
    """Give up the open batch: nothing of it is published, and its records belong to the next one.

    Raises Refused if no batch is open or its publication is decided, and Conflict if that is decided meanwhile.
    """
    began, standing = now(), ledger.standing()
    if standing.plan is None or not standing.open:
        raise Refused(
            Finding(
                Kind.BATCH_NONE_OPEN,
                "no batch is open, so there is nothing to abandon",
                f"pipeline {ledger.pipeline!r}",
                Status(ledger.pipeline),
                about(pipeline=ledger.pipeline),
            )
        )
    batch = standing.plan.batch
    if standing.verdict is not None:
        raise Refused(
            Finding(
                Kind.BATCH_DECIDED,
                f"batch {batch} is decided: {standing.verdict.decision} ({standing.verdict.why})",
                ledger.uri(ledger.key("verdicts", batch)),
                (Run(ledger.pipeline), " finishes its publication"),
                about(batch=batch, decision=standing.verdict.decision),
            )
        )
    attempt, taken = ledger.attempt(batch), occasion(began)
    return ledger.put_verdict(Verdict(digest(standing.plan), batch, Decision.ABANDON, attempt, GivenUp(why), (), taken))


def _restore_or_replan(plan: Plan) -> Then:
    return "restore the file, or ", Replan(plan.pipeline)


def _verdict_to_publish(ledger: Ledger, plan: Plan) -> Verdict:
    verdict, where = ledger.verdict(plan.batch), ledger.uri(ledger.key("verdicts", plan.batch))
    if verdict is None:
        raise Refused(
            Finding(
                Kind.BATCH_UNDECIDED,
                f"batch {plan.batch} is not decided",
                where,
                (Run(ledger.pipeline), " checks it first"),
                about(batch=plan.batch),
            )
        )
    if verdict.decision is not Decision.PUBLISH:
        raise Refused(
            Finding(
                Kind.BATCH_DECIDED,
                f"batch {plan.batch} was decided: {verdict.decision} ({verdict.why})",
                where,
                Status(ledger.pipeline),
                about(batch=plan.batch, decision=verdict.decision),
            )
        )
    if verdict.plan != digest(plan):
        raise Refused(
            Finding(
                Kind.DOCUMENTS_DISAGREE,
                f"the verdict is on the plan {verdict.plan}, not on {digest(plan)}",
                where,
                Status(ledger.pipeline),
                about(plan=digest(plan), found=verdict.plan),
            )
        )
    return verdict


def _agreed(ledger: Ledger, stored: Commit, agrees: bool) -> Commit:
    if agrees:
        return stored
    raise Conflict(
        Finding(
            Kind.DOCUMENTS_DISAGREE,
            f"batch {stored.batch} has a commit of the plan {stored.plan}, tables "
            + ", ".join(f"{table.table} at version {table.version}" for table in stored.tables)
            + ", which is not what the Delta logs and the plan say",
            ledger.uri(ledger.key("commits", stored.batch)),
            "find out who wrote it; if the tables are right, remove it and publish again",
            about(batch=stored.batch, found=stored.plan, tables=[table.table for table in stored.tables]),
        )
    )


def _check_tables_hold_the_batch_before(ledger: Ledger, plan: Plan, logs: Logs) -> None:
    """Raise Refused if a table lost what an earlier commit says is in it."""
    numbers = range(plan.batch - 1, -1, -1)
    before = next((commit for number in numbers if (commit := ledger.commit(number)) is not None), None)
    if before is None:
        return
    root = ledger.store.root
    held = {written.table: transaction_version(root, plan.pipeline, written.table, logs) for written in before.tables}
    findings = [
        Finding(
            Kind.TABLE_BEHIND,
            f"the table holds {'no batch' if newest is None else f'batch {newest} as its newest'}, "
            f"but batch {before.batch} was published to it",
            folder(root, table),
            "restore the table's folder from a backup",
            about(table=table, batch=newest, published=before.batch),
        )
        for table, newest in held.items()
        if newest is None or newest < before.batch
    ]
    if findings:
        raise Refused(*findings)


def check_files(ledger: Ledger, files: Sequence[Artefact], then: Then) -> None:
    """Raise Refused, with every file that is not in the store as its receipt says.

    A file that was put back has another etag if it was uploaded in another way; then its content is compared.
    """

    def look(file: Artefact) -> str | None:
        entry = ledger.store.head(file.path)
        if entry is None:
            return "the file is missing"
        if entry.size != file.size:
            return f"the file has {entry.size} bytes, not {file.size} bytes"
        if entry.etag != file.etag and (content := _content(ledger, file)) != file.digest:
            return f"the file has the content {content}, not {file.digest}"
        return None

    _check_each(ledger, files, look, then)


def _content(ledger: Ledger, file: Artefact) -> str:
    """The digest of what the store holds under a file's name."""
    content, uri = sha256(), ledger.uri(file.path)
    with (
        reaching("the file cannot be read", uri, _RESTORE),
        Files().stream(uri) as stream,
    ):
        while chunk := stream.read(_CHUNK):
            content.update(chunk)
    return f"sha256:{content.hexdigest()}"


def _check_contents(ledger: Ledger, plan: Plan, files: Sequence[Artefact]) -> None:
    """Raise Refused, with every file that does not have its table's columns or its receipt's record count."""
    wanted = {write.declared.table: table_schema(write) for write in plan.writes()}
    files_in_store, then = Files(), _restore_or_replan(plan)

    def look(file: Artefact) -> str | None:
        uri = ledger.uri(file.path)
        try:
            with files_in_store.open(uri) as there:
                footer = pq.read_metadata(there)
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


def _check_each(ledger: Ledger, files: Sequence[Artefact], look: Callable[[Artefact], str | None], then: Then) -> None:
    """Look at all files, several at once. Raise Refused with everything that was found."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        looked = list(zip(files, pool.map(look, files), strict=True))
    findings = [
        Finding(Kind.TASK_FILES, what, ledger.uri(file.path), then, about(file=file.path))
        for file, what in looked
        if what is not None
    ]
    if findings:
        raise Refused(*findings)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
