"""Waits: whether the records that a join in time kept may be given by the times of now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from partitioning.model.graph import Graph, Op, StateSpec, Step
from partitioning.planning.origins import near


def waits_changed(was: Step, before: Graph, step: Step, now: Graph) -> Iterator[tuple[str, str, str]]:
    """The old and new time for which the records of a step wait, or are kept, if those that it kept cannot go by the
    new one: nobody knows any more which of them were given by the old one, or had met a partner by it.

    Of windows, the length is among the expressions.
    """
    if not was.state or not step.state or was.expressions != step.expressions:
        return
    waited, waits = _waited(was, before), _waited(step, now)
    kept, keeps = was.state, step.state
    if keeps.waits is not None and waited is not None and waited != waits:
        yield "time to wait", _text(waited), _text(waits)
    elif (keeps.waits is not None and kept.waits is None and kept.microseconds < keeps.microseconds) or (
        keeps.newest and not kept.newest
    ):
        yield "time to keep records", _kept(kept), _kept(keeps)


def _waited(step: Step, graph: Graph) -> int | None:
    """How long the records of a step wait, or those of the other side of its join; of an inner join, how far apart in
    time records may be."""
    steps = {each.name: each for each in graph.steps}
    joins = [each for each in graph.steps if each.op is Op.JOIN and step.name in each.inputs]
    sides = [step, *(steps[name] for each in joins for name in each.inputs if name in steps)]
    waits = [side.state.waits for side in sides if side.state and side.state.waits is not None]
    return waits[0] if waits else next((apart for each in joins if (apart := near(each)) is not None), None)


def _kept(state: StateSpec) -> str:
    return f"{_text(state.microseconds)}{' and the newest of each key' if state.newest else ''}"


def _text(microseconds: int | None) -> str:
    return str(timedelta(microseconds=microseconds or 0))
