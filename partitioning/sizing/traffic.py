"""Traffic: how many records and bytes pass through an exchange, as far as that is known before it runs."""

from __future__ import annotations

from collections.abc import Sequence

from partitioning.model.plan import Exchange, Plan
from partitioning.model.planned_streams import PlannedPartition
from partitioning.values import Value


class Traffic(Value, frozen=True):
    """Records and bytes; None where they are not known."""

    records: int | None
    bytes: int | None


def traffic(plan: Plan, exchange: Exchange) -> Traffic:
    """How many records and bytes pass through an exchange of this plan.

    For a stream, that is what the plan reads of it. For a step, it is the last batch's count; each record has the mean
    size of the streams that the step's records come from.
    """
    if not exchange.of_part and any(exchange.source == stream.name for stream in plan.streams):
        parts = plan.stream(exchange.source).partitions
        return _total(parts if exchange.only is None else [parts[number] for number in exchange.only])
    if exchange.moves is None:
        return Traffic(None, None)
    origin = _total([part for name in sorted(_streams(plan, exchange.source)) for part in plan.stream(name).partitions])
    assert origin.records is not None
    assert origin.bytes is not None
    return Traffic(exchange.moves, origin.bytes * exchange.moves // max(origin.records, 1))


def _total(parts: Sequence[PlannedPartition]) -> Traffic:
    return Traffic(sum(part.records for part in parts), sum(part.bytes for part in parts))


def _streams(plan: Plan, source: str) -> set[str]:
    """The streams that a step's records come from."""
    inputs = {step.name: step.inputs for stage in plan.stages for step in stage.steps}
    streams: set[str] = set()
    left = [source]
    while left:
        name = left.pop()
        left.extend(inputs.get(name, ()))
        if name not in inputs:
            streams.add(name)
    return streams
