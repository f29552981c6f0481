"""Upserted tables: whether a batch goes on from what one holds, or writes all of its rows."""

from __future__ import annotations

from partitioning.model.graph import Mode
from partitioning.model.plan import Plan, PlannedWrite, Stage, StateInput
from partitioning.values import replace


def planned(write: PlannedWrite, stage: Stage, published: Plan | None) -> PlannedWrite:
    """A table of a stage as the next batch writes it.

    It is written anew if the last batch did not write it so, or if the state that it is written from comes to lie in
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
    same = goes_on is not None and (goes_on.step, goes_on.mode) == (step, Mode.UPSERT)
    return replace(write, anew=not (lies and same))
