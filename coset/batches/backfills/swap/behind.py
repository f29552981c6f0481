"""Behind a backfill: the tables that would have rows of another query in later batches than in its own."""

from __future__ import annotations

from collections.abc import Iterator

from coset.batches.backfills.swap.layers import Layers
from partitioning.documents.ledger import Ledger
from partitioning.model.graph import Mode, Write
from partitioning.model.plan import Plan
from partitioning.planning.changed_queries import ChangedQuery, Now, changed_queries
from partitioning.planning.origins import graph_of
from partitioning.values import replace


def first_behind(ledger: Ledger, layers: Layers, last: Plan) -> Iterator[tuple[Plan, dict[str, Write]]]:
    """The plans of later batches than `last`, as readers see these, that are the first to write tables that keep rows,
    and these tables."""
    newest, known = ledger.standing().published, set[str]()
    for batch in range(last.batch + 1, newest.batch + 1 if newest else 0):
        plan = layers.top(batch).plan(batch) if ledger.published(batch) else None
        writes = {} if plan is None else {write.declared.table: write.declared for write in plan.writes()}
        first = {
            table: write for table, write in writes.items() if table not in known and write.mode is not Mode.REPLACE
        }
        if plan is not None and first:
            yield plan, first
        known |= writes.keys()


def unlike_behind(ledger: Ledger, layers: Layers, last: Plan) -> Iterator[tuple[Plan, ChangedQuery]]:
    """The tables that have rows of another query in later batches than in `last`, each with the plan of the first one
    that wrote it."""
    graph, columns = graph_of(last), {write.declared.table: write.columns for write in last.writes()}
    kept = {step.name for step in graph.steps if step.state}
    for plan, first in first_behind(ledger, layers, last):
        writes = tuple(write for write in graph.writes if write.table in first)
        now = Now(replace(graph, writes=writes), last.streams, columns)
        yield from ((plan, each) for each in changed_queries(now, plan, plan.ends, kept))
