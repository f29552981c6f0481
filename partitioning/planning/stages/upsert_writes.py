"""Upserted tables: whether a batch continues from a table's rows or rewrites all of them, and how it changes them."""

from __future__ import annotations

from partitioning.model.graph import Mode, Updates
from partitioning.model.plan import PlannedWrite
from partitioning.model.stage_inputs import StateInput
from partitioning.model.table_parts import is_small
from partitioning.planning.stages.context import StageContext
from partitioning.planning.stages.draft import StageDraft
from partitioning.values import replace


def planned(write: PlannedWrite, stage: StageDraft, context: StageContext) -> PlannedWrite:
    """How the next batch writes a table of a stage.

    It rewrites the table if the last batch did not upsert it from the same step, or if the state behind it moves to
    other partitions. A small batch writes beside the rows that are there, if the table is declared so and what it has
    is known: that of a backfill is not.
    """
    if write.declared.mode is not Mode.UPSERT:
        return write
    step, published = write.declared.step, context.published
    state = next(each.state for each in stage.steps if each.name == step)
    read = next((read for read in stage.inputs if isinstance(read, StateInput) and read.step == step), None)
    before = {other.declared.table: other.declared for other in published.writes()} if published else {}
    goes_on = before.get(write.declared.table)
    lies = read is not None and state is not False and read.placement == state.placement
    same = goes_on is not None and (goes_on.step, goes_on.mode) == ((read.was or step) if read else step, Mode.UPSERT)
    if not (lies and same):
        return replace(write, anew=True)
    parts = context.parts.get(write.declared.table)
    if parts is None or write.declared.updates is Updates.REWRITE or not is_small(context.records, parts):
        return write
    return replace(write, beside=True, merged=tuple(part.partition for part in parts if part.is_due))
