"""Upserted tables: whether a batch continues from a table's rows or rewrites all of them."""

from __future__ import annotations

from partitioning.model.graph import Mode
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.stage_inputs import StateInput
from partitioning.planning.stages.draft import StageDraft
from partitioning.values import replace


def planned(write: PlannedWrite, stage: StageDraft, published: Plan | None) -> PlannedWrite:
    """How the next batch writes a table of a stage.

    It rewrites the table if the last batch did not upsert it from the same step, or if the state behind it moves to
    other partitions.
    """
    if write.declared.mode is not Mode.UPSERT:
        return write
    step = write.declared.step
    state = next(each.state for each in stage.steps if each.name == step)
    read = next((read for read in stage.inputs if isinstance(read, StateInput) and read.step == step), None)
    before = {other.declared.table: other.declared for other in published.writes()} if published else {}
    goes_on = before.get(write.declared.table)
    lies = read is not None and state is not False and read.placement == state.placement
    same = goes_on is not None and (goes_on.step, goes_on.mode) == ((read.was or step) if read else step, Mode.UPSERT)
    return replace(write, anew=not (lies and same))
