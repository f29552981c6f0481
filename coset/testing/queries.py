"""Queries: whether the tables of a trial are their queries, computed in another way than its batches were.

DuckDB alone answers the query that is printed of a table, over the records that have landed. Where that only names a
function, or does not know what was set aside, the records go through the pipeline's own steps once more, as one batch
without any state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import duckdb
import pyarrow as pa

from coset.batches.auditing.audit_tables import load_some
from coset.batches.ends import balance
from coset.batches.tables import first_rows
from coset.batches.verifying import by_arrival, published_rows, replaces_one_batch, verify
from coset.testing.engine import alone
from coset.testing.likeness import MOST_ROWS, Rows, plain_rows, without
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.explain.table_query import rows_are, table_query
from partitioning.model.backfill import Difference
from partitioning.model.composite_key import key_columns
from partitioning.model.graph import Op, Write
from partitioning.model.meaning import meanings
from partitioning.model.plan import Plan
from partitioning.sections import many

_SHOWN = 5


@alone()
def check(pipeline: Pipeline, root: str) -> dict[str, str]:
    """Hold each published table against its query. Returns, by table, why it has none, or none that can be told.

    Raises AssertionError with the first keys of each table that is not its query: what is published, and what is right.
    """
    ledger, means = Ledger(store_at(root), pipeline.name), meanings(pipeline.graph)
    plan = ledger.standing().published
    if plan is None:
        return {}
    written = {write.declared.table: write for write in plan.writes()}
    unlike = {each.table for each in pipeline.writes if not replaces_one_batch(pipeline, each, means[each.table])}
    told = {table: f"its rows are {rows_are(means[table])}" for table in unlike if not means[table].is_query}
    asked = {write.table: write for write in pipeline.writes if write.table in written and write.table not in told}
    by_steps = [table for table, write in asked.items() if not _is_printed(pipeline, write)]
    found: dict[str, Difference | str] = {
        table: _by_duckdb(pipeline, ledger, plan, write) for table, write in asked.items() if table not in by_steps
    }
    if by_steps:
        found |= {each.table: each.found for each in verify(pipeline, ledger.store, by_steps, compare=difference)}
    wrong = list[str]()
    for table, different in found.items():
        if isinstance(different, str):
            told[table] = different
        elif not different.same:
            if late := _late(pipeline, ledger, plan, asked[table]):
                told[table] = late
            else:
                wrong += _lines(table, different)
    if wrong:
        raise AssertionError("\n".join(wrong))
    return told


def difference(
    published: pa.RecordBatchReader, right: pa.RecordBatchReader, key: str, private: Collection[str] = ()
) -> Difference:
    """How the rows of a table differ from the right ones, floating-point numbers by more than one in a billion."""
    rows = [plain_rows(first_rows.in_order(each, MOST_ROWS, ())) for each in (published, right)]
    gone, come = without(*rows), without(*reversed(rows))
    keys = sorted({_key(row, key) for row in (*gone, *come)})
    first = [(each, _listed(gone, key, each), _listed(come, key, each)) for each in keys[:_SHOWN]]
    digests = ("published", "right") if keys else ("", "")
    return Difference((len(rows[0]), len(rows[1])), digests, len(keys), tuple(first))


def _is_printed(pipeline: Pipeline, write: Write) -> bool:
    """Whether the printed query of a table is all that is to be known to have its rows."""
    only = pipeline.up_to(write.step, write.table)
    return not any(step.function for step in only.steps) and not any(stream.sets_aside for stream in only.streams)


def _by_duckdb(pipeline: Pipeline, ledger: Ledger, plan: Plan, write: Write) -> Difference:
    upto = balance(ledger, plan)
    skipped = [each.offsets for each in upto.skipped]
    with duckdb.connect() as connection, published_rows(pipeline, write, ledger.store) as published:
        right = connection.sql(table_query(pipeline.graph, plan, write.table, skipped, upto.doubled or ()))
        return difference(published, right.to_arrow_reader(), write.key)


def _late(pipeline: Pipeline, ledger: Ledger, plan: Plan, write: Write) -> str:
    """Why records count in a table's query that are in no row of it: they came too late. Empty if none did."""
    steps = [step for step in pipeline.steps if step.name in pipeline.graph.above(write.step)]
    names, late = {step.name for step in steps}, 0
    for batch in range(plan.batch + 1):
        if (of_batch := ledger.plan(batch)) and (verdict := ledger.published(batch)):
            closed = load_some(ledger, of_batch, verdict.attempt, "closed")["closed"]
            counts = closed[closed["step"].isin(names)][["late", "late_versions"]]
            late += int(counts.fillna(0).to_numpy().sum())
    if late:
        return f"{many(late, 'record')} came too late for its rows, and count in its query"
    if plan.batch and (first := next(by_arrival(steps), "")):
        return first
    forgetful = (step.name for step in steps if step.op is Op.RECENT and step.state and step.state.waits is None)
    if plan.batch and (name := next(forgetful, None)):
        return f"step {name} forgets by time, and does not count what came too late for it"
    return ""


def _lines(table: str, found: Difference) -> Iterator[str]:
    published, right = found.rows
    of_keys = f"the rows of {many(found.keys, 'key')} differ"
    yield f"Table {table} is not its query: {of_keys}; it has {many(published, 'row')}, its query {right:,}"
    for key, is_there, is_right in found.first:
        yield f"  key {key}, published: {is_there or 'no row'}"
        yield f"  key {key}, right: {is_right or 'no row'}"


def _key(row: dict[str, object], key: str) -> str:
    """A row's key for people; without one, the row."""
    return ", ".join(str(row.get(name)) for name in (key_columns(key) if key else row))


def _listed(rows: Rows, key: str, value: str) -> str:
    return "; ".join(str(row) for row in [row for row in rows if _key(row, key) == value][:_SHOWN])
