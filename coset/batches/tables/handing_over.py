"""Handing over: gives a result table to another pipeline, by a commit to its log that says by whom and why."""

from __future__ import annotations

from functools import partial

from deltalake.exceptions import CommitFailedError

from coset.batches.backfills.swaps import finish
from coset.batches.tables.logs import Logs, opened, unknown
from coset.batches.tables.noting import asking_no_more
from coset.batches.tables.owners import Owner, check_owner, name_owner, owner_of, who_wrote
from partitioning.commands import HandOver, Repeat, Run
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Conflict, Refused
from partitioning.kinds import Kind
from partitioning.model.offsets import check_name
from spark_jobs.tables.table_schema import folder


def hand_over(store: Store, table: str, before: str | None, to: str, *, who: str, why: str) -> None:
    """Give a table to the pipeline `to` of this store. This may be repeated.

    `before` is the table's owner, None if the table names none. Raises Refused if there is no such table, if it has
    another owner, or if an open batch of its owner writes to it. Raises Conflict if somebody commits to it at the same
    time.
    """
    where, owner, logs = folder(store, table), Owner.of(store, check_name(to, "pipeline")), Logs()
    with opened(where, logs) as log:
        if log is None:
            raise Refused(unknown(where, table))
        named = owner_of(log)
        if named == owner:
            return
        if named is not None and named.pipeline != before:
            not_theirs = f", not to {before!r}" if before else ""
            what = f"the table belongs to pipeline {named.pipeline!r}{not_theirs}"
            then = ("if that pipeline shall hand it over, ", HandOver(table, named.pipeline, to))
            raise Refused.of(Kind.TABLE_OWNER, what, where, then, table=table, owner=named.pipeline)
        if named is None and before is not None:
            check_owner(log, table, Owner.here(store, before))
        if before is not None and (named is None or named.store == owner.store):
            _check_at_rest(store, before, table)
            logs.again(where)
            log = logs.table(where) or log
        earlier = (
            who_wrote(log, table, owner) if named is None else {named.pipeline} if named.store == owner.store else ()
        )
        metadata = {"coset.from": before or "", "coset.to": to, "coset.who": who, "coset.why": why}
        try:
            had = log.protocol()
            name_owner(log, owner, metadata, earlier)
            logs.amend(where, partial(asking_no_more, had))
        except CommitFailedError as error:
            what = "somebody else committed to the table at the same time"
            raise Conflict.of(Kind.TABLE_OWNER, what, where, Repeat(), table=table) from error


def _check_at_rest(store: Store, pipeline: str, table: str) -> None:
    """Finish a half-done swap of the owner. Raises Refused if an open batch of the owner writes to the table."""
    finish(store, pipeline)
    standing = Ledger(store, pipeline).standing()
    if standing.plan is None or not standing.open:
        return
    if table in standing.plan.tables:
        what = f"batch {standing.plan.batch} of {pipeline} is open, and writes to the table"
        where = folder(store, table)
        raise Refused.of(Kind.TABLE_OWNER, what, where, (Run(pipeline), " finishes it"), batch=standing.plan.batch)
