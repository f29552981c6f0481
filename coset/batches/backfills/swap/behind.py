"""Beside a backfill: the tables that would have rows of another query in the batches before or behind it."""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import chain

from coset.batches.backfills.swap.layers import Layers
from partitioning.documents.ledger import Ledger
from partitioning.model.graph import Mode
from partitioning.model.plan import Plan
from partitioning.planning.changed_queries import ChangedQuery, Now, changed_queries
from partitioning.planning.origins import graph_of
from partitioning.values import replace


def first_behind(ledger: Ledger, layers: Layers, batch: int, tables: Set[str]) -> Iterator[tuple[Plan, Set[str]]]:
    """The plans of later batches than this one, as readers see these, that are the first to write some of the tables
    and keep their rows, and these tables. A batch that is open is one of them."""
    standing, left = ledger.standing(), tables
    newest, open_ = standing.published, standing.plan if standing.open else None
    later = (layers.top(each).plan(each) for each in _published(ledger, batch, newest.batch if newest else 0))
    for plan in chain(later, [open_]):
        if not left:
            break
        if plan is not None and plan.batch > batch:
            if found := left & keeping(plan):
                yield plan, found
            left = left - _written(plan)


def last_before(ledger: Ledger, layers: Layers, first: Plan) -> Iterator[tuple[Plan, Set[str]]]:
    """The plans of earlier batches than `first`, as readers see these, that were the last to write tables that it
    writes and that keep rows, and these tables."""
    left = keeping(first)
    for batch in range(first.batch - 1, -1, -1):
        plan = layers.top(batch).plan(batch) if left and ledger.published(batch) else None
        if plan is not None:
            if found := left & _written(plan):
                yield plan, found
            left = left - _written(plan)


def unlike(earlier: Plan, later: Plan, tables: Set[str]) -> Iterator[ChangedQuery]:
    """The tables whose rows differ from one batch to a later one, whichever of both has a column more."""
    for was, now in ((earlier, later), (later, earlier)):
        graph, columns = graph_of(now), {write.declared.table: write.columns for write in now.writes()}
        # Rows that are upserted take the place of others, and so lack a column whichever came first.
        modes = {Mode.APPEND, Mode.UPSERT} if now is later else {Mode.UPSERT}
        writes = tuple(write for write in graph.writes if write.table in tables and write.mode in modes)
        there = Now(replace(graph, writes=writes), now.streams, columns)
        yield from changed_queries(there, was, was.ends, steps_ask=False)


def keeping(plan: Plan) -> Set[str]:
    """The tables of a plan that keep the rows of batches before it."""
    return {each.declared.table for each in plan.writes() if each.declared.mode is not Mode.REPLACE}


def _written(plan: Plan) -> Set[str]:
    return {write.declared.table for write in plan.writes()}


def _published(ledger: Ledger, behind: int, newest: int) -> Iterator[int]:
    return (batch for batch in range(behind + 1, newest + 1) if ledger.published(batch))
