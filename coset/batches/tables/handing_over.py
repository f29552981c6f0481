"""Handing over: a result table is given to another pipeline, in one commit to its log that says by whom and why."""

from __future__ import annotations

from deltalake.exceptions import CommitFailedError

from coset.batches.backfills.swap.swaps import finish
from coset.batches.tables.logs import opened_there
from coset.batches.tables.owners import Owner, check_owner, name_owner, owner_of
from partitioning.commands import HandOver, Repeat, Run
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Conflict, Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.offsets import check_name
from spark_jobs.tables.table_schema import folder


def hand_over(store: Store, table: str, before: str | None, to: str, *, who: str, why: str) -> None:
    """Give a table to the pipeline `to` of this store. It may be repeated.

    `before` is the pipeline that it belongs to, None if the table names none. Raises Refused if there is no such
    table, if it is another's, or if its owner has a batch open that writes to it; Conflict if somebody commits to it at
    the same time.
    """
    where, owner = folder(store.root, table), Owner.of(store, check_name(to, "pipeline"))
    with opened_there(store.root, table) as log:
        named = owner_of(log)
        if named == owner:
            return
        if named is not None and named.pipeline != before:
            not_theirs = f", not to {before!r}" if before else ""
            what = f"the table belongs to pipeline {named.pipeline!r}{not_theirs}"
            then = ("if it is to be handed over by that, ", HandOver(table, named.pipeline, to))
            raise Refused(Finding(Kind.TABLE_OWNER, what, where, then, about(table=table, owner=named.pipeline)))
        if named is None and before is not None:
            check_owner(log, table, Owner.here(store, before))
        if before is not None and (named is None or named.store == owner.store):
            _check_at_rest(store, before, table)
            log.update_incremental()
        metadata = {"coset.from": before or "", "coset.to": to, "coset.who": who, "coset.why": why}
        try:
            name_owner(log, owner, metadata)
        except CommitFailedError as error:
            what = "somebody else has committed to the table at the same time"
            raise Conflict(Finding(Kind.TABLE_OWNER, what, where, Repeat(), about(table=table))) from error


def _check_at_rest(store: Store, pipeline: str, table: str) -> None:
    """Finish what the owner has decided. Raises Refused if it has a batch open that writes to the table."""
    finish(store, pipeline)
    standing = Ledger(store, pipeline).standing()
    if standing.plan is None or not standing.open:
        return
    if table in {write.declared.table for write in standing.plan.writes()}:
        what = f"batch {standing.plan.batch} of {pipeline} is open, and writes to the table"
        where = folder(store.root, table)
        raise Refused(
            Finding(Kind.TABLE_OWNER, what, where, (Run(pipeline), " finishes it"), about(batch=standing.plan.batch))
        )
