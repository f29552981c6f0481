"""Migration: rows that a step kept become rows of now, all of them, once; and what their keys were and are."""

from __future__ import annotations

from partitioning.model.graph import Step, quote
from partitioning.model.leaving import BATCH, GONE, state_columns
from partitioning.model.order import Order
from partitioning.model.receipt import MODULUS, Keyed, Migrated
from partitioning.model.stage_inputs import StateInput
from partitioning.values import replace
from spark_jobs.engine.functions import FunctionStep
from spark_jobs.engine.relations import Relations
from spark_jobs.engine.states import rows_of_now
from spark_jobs.sql.kept_versions import projection

_NONE = Keyed(0, f"{0:016x}")


def migrated(
    relations: Relations, order: Order, step: Step, read: StateInput, known: str | None
) -> tuple[StateInput, str | None, Migrated]:
    """The input as if all its rows were of now, the query for these rows, and the figures of old rows and new.

    `known` is the query for the rows of all runs, if there are any.
    """
    assert step.state
    assert read.migration
    raw, old, new = (f"{step.name}.state@{word}" for word in ("raw", "old", "new"))
    where, now = f"migration of step {step.name!r}", state_columns(step.state)
    as_now = replace(read, columns=now)
    if known is None:
        return as_now, None, Migrated(step.name, _NONE, _NONE)
    # DuckDB may scan the input of a window twice, and an intake can be read only once.
    relations.create(raw, known, where)
    relations.create(old, rows_of_now(step.state, read, quote(raw), order.day_end), where)
    relations.drop(raw)
    if read.migration.function:
        others = ", ".join(quote(column.name) for column in read.columns if column not in (BATCH, GONE))
        kept = relations.query(f"SELECT {others} FROM {quote(old)}", where).read_all()
        made = FunctionStep(order, replace(step, function=read.migration.function)).apply_once(kept)
        relations.relate(f"{new}@rows", made, step.state.columns, where)
        key = quote(read.placement.key) if read.placement.key else "0"
        batches = f"SELECT {key} AS key, max({quote(BATCH.name)}) AS batch FROM {quote(old)} GROUP BY 1"
        # A row of a strange key counts as kept, so that the figures have it.
        marks = f"coalesce(batch, {read.batch})::BIGINT AS {quote(BATCH.name)}, false AS {quote(GONE.name)}"
        rows = f"{quote(f'{new}@rows')} AS made LEFT JOIN ({batches}) AS batches"
        relations.create(new, f"SELECT made.*, {marks} FROM {rows} ON {key} IS NOT DISTINCT FROM batches.key", where)
    else:
        relations.create(new, f"SELECT {projection(read.changes, now)} FROM {quote(old)}", where)
    before, after = (_keyed(relations, name, read.placement.key, where) for name in (old, new))
    relations.drop(old)
    return as_now, f"SELECT * FROM {quote(new)}", Migrated(step.name, before, after)


def _keyed(relations: Relations, relation: str, key: str, where: str) -> Keyed:
    """How many rows there are, and the digest of their keys, which does not depend on their order."""
    text = f"{quote(key)}::VARCHAR" if key else "NULL::VARCHAR"
    digest = f"coalesce(sum((hash({text}) % {MODULUS})::HUGEINT) % {MODULUS}, 0)::BIGINT"
    (row,) = (
        relations.query(f"SELECT count(*) AS rows, {digest} AS keys FROM {quote(relation)}", where)
        .read_all()
        .to_pylist()
    )
    return Keyed(row["rows"], f"{row['keys']:016x}")
