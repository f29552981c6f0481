"""Beside a backfill: the tables that would have rows of another query in the batches before or behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coset.batches.backfills.swap.layers import Layers
from partitioning.documents.ledger import Ledger
from partitioning.model.graph import Mode, Write
from partitioning.model.plan import Plan
from partitioning.planning.changed_queries import ChangedQuery, Now, changed_queries
from partitioning.planning.origins import graph_of
from partitioning.values import replace

Writes = dict[str, Write]


def first_behind(ledger: Ledger, layers: Layers, last: Plan) -> Iterator[tuple[Plan, Writes]]:
    """The plans of later batches than `last`, as readers see these, that are the first to write tables that keep rows,
    and these tables. A batch that is open is one of them."""
    standing, known = ledger.standing(), set[str]()
    newest, open_ = standing.published, standing.plan if standing.open else None
    later = (layers.top(batch).plan(batch) for batch in _published(ledger, last.batch, newest.batch if newest else 0))
    for plan in (*later, open_):
        if plan is not None and plan.batch > last.batch:
            writes = _keeping(plan)
            if first := {table: write for table, write in writes.items() if table not in known}:
                yield plan, first
            known |= {write.declared.table for write in plan.writes()}


def last_before(ledger: Ledger, layers: Layers, first: Plan) -> Iterator[tuple[Plan, Writes]]:
    """The plans of earlier batches than `first`, as readers see these, that were the last to write tables that it
    writes and that keep rows, and these tables."""
    left = _keeping(first)
    for batch in range(first.batch - 1, -1, -1):
        plan = layers.top(batch).plan(batch) if left and ledger.published(batch) else None
        if plan is not None:
            there = {write.declared.table for write in plan.writes()}
            if found := {table: write for table, write in left.items() if table in there}:
                yield plan, found
            left = {table: write for table, write in left.items() if table not in there}


def unlike_behind(ledger: Ledger, layers: Layers, last: Plan) -> Iterator[tuple[Plan, ChangedQuery]]:
    """The tables that have rows of another query in later batches than in `last`, each with the plan of the first one
    that wrote it."""
    for plan, tables in first_behind(ledger, layers, last):
        yield from ((plan, each) for each in _changed(last, plan, tables))


def unlike_before(ledger: Ledger, layers: Layers, first: Plan) -> Iterator[tuple[Plan, ChangedQuery]]:
    """The tables that have rows of another query in earlier batches than in `first`, each with the plan of the last one
    that wrote it."""
    for plan, tables in last_before(ledger, layers, first):
        yield from ((plan, each) for each in _changed(plan, first, tables))


def _changed(earlier: Plan, later: Plan, tables: Iterable[str]) -> Iterator[ChangedQuery]:
    """The tables whose rows differ from one batch to a later one, whichever of both has a column more."""
    named = {*tables}
    for was, now in ((earlier, later), (later, earlier)):
        graph, columns = graph_of(now), {write.declared.table: write.columns for write in now.writes()}
        # Rows that are upserted take the place of others, and so lack a column whichever came first.
        modes = {Mode.APPEND, Mode.UPSERT} if now is later else {Mode.UPSERT}
        writes = tuple(write for write in graph.writes if write.table in named and write.mode in modes)
        there = Now(replace(graph, writes=writes), now.streams, columns)
        yield from changed_queries(there, was, was.ends, steps_ask=False)


def _keeping(plan: Plan) -> Writes:
    """The tables of a plan that keep the rows of batches before it."""
    return {each.declared.table: each.declared for each in plan.writes() if each.declared.mode is not Mode.REPLACE}


def _published(ledger: Ledger, behind: int, newest: int) -> Iterator[int]:
    return (batch for batch in range(behind + 1, newest + 1) if ledger.published(batch))
