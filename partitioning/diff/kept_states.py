"""States of two plans: the steps that do not simply go on from what they kept."""

from __future__ import annotations

from collections.abc import Iterator

from partitioning.model.plan import Plan, StateInput
from partitioning.planning.beginnings import Beginning, beginnings, graph_of
from partitioning.values import Value

_ASKED = "as asked for by its name"


class StateChange(Value, frozen=True):
    """A step that keeps something: what becomes of that, why, and the tables that come from it."""

    step: str
    fate: str
    why: tuple[str, ...]
    tables: tuple[str, ...]


def state_changes(before: Plan, now: Plan) -> Iterator[StateChange]:
    """The steps that begin with nothing below a table that was there, or go on though something before them changed."""
    written = {write.declared.table: None for write in before.writes()}
    found = {each.step: each for each in beginnings(graph_of(now), graph_of(before), written)}
    going_on = {read.step for stage in now.stages for read in stage.inputs if isinstance(read, StateInput)}
    asked = {*(now.anew or ()), *(now.on or ())}
    for step in dict.fromkeys([*sorted(asked), *found]):
        fate = "goes on from what it kept" if step in going_on else "begins with nothing"
        known = found.get(step, Beginning(step, ()))
        why = (*_why(known), *([_ASKED] if step in asked else []))
        yield StateChange(step, fate, why, tuple(write.table for write in known.tables))


def _why(beginning: Beginning) -> Iterator[str]:
    if beginning.renamed:
        yield f"it does what {beginning.renamed} did"
    elif beginning.tables and not beginning.changes:
        yield "it is new"
    for noun, was, now in beginning.changes:
        yield f"its {noun} changed from {was} to {now}"
