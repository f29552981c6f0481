"""The requests for backfills: which batches are run again, how they are planned, and which wait for their swap."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from coset.batches.backfills.swaps import blockers, in_place, taken_back
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import BackfillAsking, Backfills, Command, Status, SwapAsking, Then
from partitioning.documents.document import decode, digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store, numbered
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, Comparison, key_of
from partitioning.planning.beginnings import beginnings
from partitioning.planning.origins import over
from partitioning.values import replace
from spark_jobs.sql.engines import engine


def published_batches(ledger: Ledger, first: int, last: int | None) -> tuple[int, ...]:
    """The published batches from `first` to `last`, by default to the newest.

    Raises Refused if there is none, or if the range goes beyond the published batches.
    """
    standing = ledger.standing()
    newest = standing.published.batch if standing.published else -1
    where = f"pipeline {ledger.pipeline!r}"
    asked = _asked(first, last)
    last = newest if last is None else last
    if not 0 <= first <= last <= newest:
        there = f"batches 0 to {newest} are" if newest > 0 else "only batch 0 is" if newest == 0 else "no batch is"
        what = f"{asked} requested, but {there} published"
        then = ("name batches that are published: ", Status(ledger.pipeline))
        raise Refused.of(Kind.BATCH_UNPUBLISHED, what, where, then, first=first, last=last, newest=newest)
    published = tuple(batch for batch in range(first, last + 1) if ledger.published(batch))
    if not published:
        what = f"none of the batches {first} to {last} was published"
        raise Refused.of(Kind.BATCH_UNPUBLISHED, what, where, "name one that was", first=first, last=last)
    return published


def _asked(first: int, last: int | None) -> str:
    if last is None:
        return f"batches from {first} on were"
    return f"batch {first} was" if first == last else f"batches {first} to {last} were"


def backfills(store: Store, pipeline: str) -> Iterator[Backfill]:
    """All backfills of a pipeline, oldest first."""
    return numbered(store, Backfill, partial(key_of, pipeline))


def backfill(store: Store, pipeline: str, number: int) -> Backfill:
    """The backfill with this number. Raises Refused if there is none."""
    key = key_of(pipeline, number)
    data = store.get(key) if number >= 0 else None
    if data is None:
        what = f"there is no backfill {number}"
        raise Refused.of(Kind.BACKFILL_UNKNOWN, what, f"{store.root}/{key}", Backfills(pipeline), number=number)
    return decode(Backfill, data, f"{store.root}/{key}")


def put(store: Store, asked: Backfill) -> Backfill:
    """Store a request under the next free number."""
    while True:
        stored = store.put_new(key_of(asked.pipeline, asked.number), encode(asked))
        if stored == encode(asked):
            return asked
        asked = replace(asked, number=asked.number + 1)


def comparison_key(backfill: Backfill) -> str:
    """The key of a backfill's comparison."""
    return f"{backfill.name}/comparison.json"


def comparison_of(store: Store, backfill: Backfill) -> Comparison | None:
    """The last comparison. None if there is none yet."""
    data = store.get(comparison_key(backfill))
    return None if data is None else decode(Comparison, data, f"{store.root}/{comparison_key(backfill)}")


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
    if not written.keys() <= set(last.tables):
        return None
    now = over(pipeline.graph, last.streams)
    if any(beginnings(now, last.graph, written)) or engine(now, columns, last).mixing:
        return None
    return SwapAsking(pipeline.name, newest.number, digest(found))
