"""Watermarks of batches: those after the last published batch, and those of a plan beside what the ledger gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from coset.batches.backfills.swap.swaps import state_ledger
from coset.sources.rows import frame_of
from partitioning.documents.ledger import Ledger
from partitioning.model.graph import Graph
from partitioning.model.offsets import StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.streams import Stream
from partitioning.model.watermarks import LatestTimes, Watermark
from partitioning.planning.origins import graph_of
from partitioning.planning.watermarks import watermarks, with_watermarks
from partitioning.values import replace


def reached(ledger: Ledger, published: Plan | None, declared: Sequence[Stream] = ()) -> tuple[Watermark, ...]:
    """The watermarks after the last published batch, by which the next one goes unless its partitions fall idle, if
    streams are declared as they were or, those that are named, as now."""
    if published is None or not published.marks:
        return ()
    source, plan = _source(ledger, published)
    now = {stream.name: stream for stream in declared}
    streams = [replace(stream, declared=now.get(stream.name, stream.declared)) for stream in plan.streams]
    return watermarks(streams, plan, _counted(source, plan), _minute(plan))


def followed(ledger: Ledger, plan: Plan) -> pd.DataFrame:
    """A row for each time by which a plan goes: of what, which, by the plan, and by the ledger; both may be null."""
    rows = []
    if plan.marks:
        published = ledger.published_before(plan.batch)
        source, before = _source(ledger, published) if published else (ledger, None)
        known = watermarks(plan.streams, before, _counted(source, before) if before else (), _minute(plan))
        planned = graph_of(plan)
        by_plan = dict((*_times(plan.marks), *_passed(planned)))
        by_ledger = dict((*_times(known), *_passed(with_watermarks(planned, known, before))))
        rows = [
            {"of": of, "which": which, "by_plan": by_plan.get((of, which)), "by_ledger": by_ledger.get((of, which))}
            for of, which in dict.fromkeys((*by_plan, *by_ledger))
        ]
    return frame_of(rows, {"of": "string", "which": "string", "by_plan": "Int64", "by_ledger": "Int64"})


_Time = tuple[tuple[str, str], int | None]


def _times(marks: tuple[Watermark, ...]) -> Iterator[_Time]:
    for mark in marks:
        yield (mark.stream, "watermark"), mark.time
        for number, latest in enumerate(mark.latest):
            yield (str(StreamPartition(mark.stream, number)), "latest time before"), latest


def _passed(graph: Graph) -> Iterator[_Time]:
    for step in graph.steps:
        if step.state and step.state.watermark:
            yield (step.name, "watermark before"), step.state.watermark.before
            yield (step.name, "watermark"), step.state.watermark.now


def _source(ledger: Ledger, published: Plan) -> tuple[Ledger, Plan]:
    """A published plan and the ledger with its verdict: the backfill's own, or the one that counts now."""
    if published.pipeline == ledger.pipeline and ledger.original is not None:
        return ledger, published
    source = state_ledger(ledger.store, (ledger.original or ledger).pipeline, published.batch)
    return source, source.plan(published.batch) or published


def _minute(plan: Plan) -> int | None:
    return plan.as_of if isinstance(plan.as_of, int) else None


def _counted(ledger: Ledger, plan: Plan) -> tuple[LatestTimes, ...]:
    verdict = ledger.verdict(plan.batch)
    return verdict.latest_times if verdict else ()
