"""Kept before: the step of the last plan that a step continues from, by its own name or by the one that it had."""

from __future__ import annotations

from collections.abc import Collection

from partitioning.model.graph import Step
from partitioning.model.kept_change import KeptChange


def kept_before(step: Step, before: Collection[str]) -> str:
    """The name of the step that it continues from, among those `before`; empty if there is none."""
    if step.name in before:
        return step.name
    was = step.state.changed.was if step.state and step.state.changed else ""
    return was if was in before else ""


def still_asked(now: Step, before: Step | None) -> KeptChange:
    """What is declared of a step and was not carried out in the last plan, in which it was the step `before`."""
    if not now.state or now.state.changed is None:
        return KeptChange()
    return now.state.changed.since((before.state.changed if before.state else None) if before else None)
