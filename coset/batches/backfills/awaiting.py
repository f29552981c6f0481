"""Backfills that wait for their swap: where a refused plan asks for one, the swap is what is left to do."""

from __future__ import annotations

from collections.abc import Iterator

from coset.batches.backfills.request import backfills, comparison_of
from coset.batches.backfills.swap.swaps import blockers, in_place, taken_back
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import BackfillAsking, Command, SwapAsking, Then
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.planning.beginnings import beginnings
from partitioning.planning.origins import graph_of, over
from partitioning.values import replace
from spark_jobs.sql.engines import engine


def with_swap(refusal: Refused, store: Store, pipeline: Pipeline) -> Refused:
    """The refusal of a plan, which names the swap in place of a backfill of all batches if one was compared, would let
    the pipeline go on, and nothing keeps it from its place."""
    if not any(isinstance(part, BackfillAsking) for finding in refusal.findings for part in _parts(finding.next)):
        return refusal
    if (swap := _swap(store, pipeline)) is None:
        return refusal
    return refusal.saying(lambda finding: replace(finding, next=tuple(_named(swap, _parts(finding.next)))))


def _parts(then: Then) -> tuple[str | Command, ...]:
    return then if isinstance(then, tuple) else (then,)


def _named(swap: SwapAsking, parts: tuple[str | Command, ...]) -> Iterator[str | Command]:
    for part in parts:
        if isinstance(part, BackfillAsking) and part.cascade and part.first == 0:
            yield from (swap, " puts the one in place that was compared")
        else:
            yield part


def _swap(store: Store, pipeline: Pipeline) -> SwapAsking | None:
    newest = next(reversed(list(backfills(store, pipeline.name))), None)
    found = comparison_of(store, newest) if newest else None
    if newest is None or found is None or in_place(store, newest) or taken_back(store, newest):
        return None
    last = Ledger(store, newest.name).plan(newest.batches[-1])
    if last is None or blockers(store, newest, found):
        return None
    written = {write.table: None for write in pipeline.writes}
    columns = [column for stream in last.streams for column in stream.columns]
    if not written.keys() <= {write.declared.table for write in last.writes()}:
        return None
    now = over(pipeline.graph, last.streams)
    if any(beginnings(now, graph_of(last), written)) or engine(now, columns, last).mixing:
        return None
    return SwapAsking(pipeline.name, newest.number, digest(found))
