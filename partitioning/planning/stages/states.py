"""States: what the steps of a stage go on from, as the last published batch left it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from partitioning.errors import Finding
from partitioning.model.graph import Graph, Step
from partitioning.model.placement import MURMUR2, Placement
from partitioning.model.plan import STATE, Input, Plan, Stage
from partitioning.planning.exchanges.placements import Way
from partitioning.planning.stages.ways import Ways, keys_of, way_of, ways


@dataclass(frozen=True, slots=True)
class State:
    """What a step left in a batch: the step as it was then, where its state lies, and by which key column."""

    step: Step
    batch: int
    cosets: int
    way: Way | None


class States:
    """The states that the last published batch left, by step."""

    def __init__(self, published: Plan | None) -> None:
        self._left = {state.step.name: state for state in _left(published)} if published else {}

    def input(self, step: Step, key: str, now: Ways) -> Input | None:
        """What the step goes on from, None if there is nothing. `now` are the ways in which its records lie.

        State lies by residue of the stage that left it, so that any number of tasks can go on from it.
        """
        state = self._left.get(step.name) if step.state else None
        if state is None:
            return None
        # In one partition lie all keys, by any hash.
        way = (_only(now) if state.cosets == 1 else state.way) or Way(step.key_format, MURMUR2)
        return Input(
            f"{step.name}.state",
            STATE,
            step.name,
            Placement(key, way.key_format, way.hash, state.cosets),
            batch=state.batch,
        )

    def misfits(self, step: Step, now: Ways, cosets: int) -> Iterator[Finding]:
        """What keeps the step, in a stage of so many cosets, from going on from its state."""
        state = self._left.get(step.name) if step.state else None
        if state is None:
            return
        then = "rename the step to begin anew, or change it back"
        where = f"state of {step.name}, left by batch {state.batch}"
        for noun, before, after in _meaning(state.step, step):
            if before != after:
                yield Finding(f"its {noun} changed from {before} to {after}", where, then)
        if min(state.cosets, cosets) > 1 and now != {state.way}:
            listed = " and ".join(sorted(map(_text, now)))
            yield Finding(f"its keys were placed by {_text(state.way)}, but its records are by {listed}", where, then)


def _left(published: Plan) -> Iterator[State]:
    steps = tuple(step for stage in published.stages for step in stage.steps)
    keys = keys_of(Graph(tuple(each.declared for each in published.streams), steps, ()))
    for stage in published.stages:
        found = ways(stage.steps, _read(stage), keys)
        for step in stage.steps:
            if step.state:
                yield State(step, published.batch, stage.cosets, _only(found[step.inputs[0]]))


def _read(stage: Stage) -> Mapping[str, Way | None]:
    return {each.step: way_of(each.placement) for each in stage.inputs if each.kind != STATE}


def _only(some: Ways) -> Way | None:
    return next(iter(some)) if len(some) == 1 else None


def _meaning(before: Step, now: Step) -> Iterator[tuple[str, str, str]]:
    """What state depends on, of the step that left it and of the one that goes on."""
    yield "operation", before.op, now.op
    yield "key", f"{before.key} ({before.key_format})", f"{now.key} ({now.key_format})"
    yield "columns", _columns(before), _columns(now)


def _columns(step: Step) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in step.columns) or ", ".join(step.expressions)


def _text(way: Way | None) -> str:
    return f"{way.hash} of {way.key_format} keys" if way else "no hash"
