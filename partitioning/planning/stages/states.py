"""States: what the steps of a stage go on from, as the last published batch left it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from partitioning.errors import Finding
from partitioning.model.graph import Graph, Step
from partitioning.model.placement import MURMUR2, KeyHash, Placement
from partitioning.model.plan import Plan, Stage, StateInput
from partitioning.planning.stages.placed_by import KeyHashes, keys_of, placed_by
from partitioning.values import Value


class State(Value, frozen=True):
    """What a step left in a batch: the step as it was then, where its state lies, and by which key column."""

    step: Step
    batch: int
    cosets: int
    key_hash: KeyHash | None


class States:
    """The states that the last published batch left, by step."""

    def __init__(self, published: Plan | None) -> None:
        self._left = {state.step.name: state for state in _left(published)} if published else {}

    def input(self, step: Step, key: str, now: KeyHashes) -> StateInput | None:
        """What the step goes on from, None if there is nothing. `now` are the hashes by which its records lie.

        State lies by residue of the stage that left it, so that any number of tasks can go on from it.
        """
        state = self._left.get(step.name) if step.state else None
        if state is None:
            return None
        # In one partition lie all keys, by any hash.
        key_hash = (_only(now) if state.cosets == 1 else state.key_hash) or KeyHash(step.key_format, MURMUR2)
        placement = Placement(key, key_hash.key_format, key_hash.hash, state.cosets)
        return StateInput(f"{step.name}.state", step.name, placement, state.batch)

    def misfits(self, step: Step, now: KeyHashes, cosets: int) -> Iterator[Finding]:
        """What keeps the step, in a stage of so many cosets, from going on from its state."""
        state = self._left.get(step.name) if step.state else None
        if state is None:
            return
        then = "rename the step to begin anew, or change it back"
        where = f"state of {step.name}, left by batch {state.batch}"
        for noun, before, after in _meaning(state.step, step):
            if before != after:
                yield Finding(f"its {noun} changed from {before} to {after}", where, then)
        if min(state.cosets, cosets) > 1 and now != {state.key_hash}:
            listed = " and ".join(sorted(map(_text, now)))
            yield Finding(
                f"its keys were placed by {_text(state.key_hash)}, but its records are by {listed}", where, then
            )


def _left(published: Plan) -> Iterator[State]:
    steps = tuple(step for stage in published.stages for step in stage.steps)
    keys = keys_of(Graph(tuple(stream.declared for stream in published.streams), steps, ()))
    for stage in published.stages:
        lying = placed_by(stage.steps, _read(stage), keys)
        for step in stage.steps:
            if step.state:
                yield State(step, published.batch, stage.cosets, _only(lying[step.inputs[0]]))


def _read(stage: Stage) -> Mapping[str, KeyHash | None]:
    return {source.step: source.placement.key_hash for source in stage.inputs if not isinstance(source, StateInput)}


def _only(key_hashes: KeyHashes) -> KeyHash | None:
    return next(iter(key_hashes)) if len(key_hashes) == 1 else None


def _meaning(before: Step, now: Step) -> Iterator[tuple[str, str, str]]:
    """What state depends on, of the step that left it and of the one that goes on."""
    yield "operation", before.op, now.op
    yield "key", f"{before.key} ({before.key_format})", f"{now.key} ({now.key_format})"
    yield "columns", _columns(before), _columns(now)


def _columns(step: Step) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in step.columns) or ", ".join(step.expressions)


def _text(key_hash: KeyHash | None) -> str:
    return str(key_hash) if key_hash else "no hash"
