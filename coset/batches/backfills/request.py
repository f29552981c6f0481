"""The requests for backfills: which batches are run again, how they are planned, and which wait for their swap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from coset.batches.backfills.swaps import blockers, in_place, taken_back
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import BackfillAsking, Backfills, Command, Status, SwapAsking
from partitioning.documents.document import decode, digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store, numbered
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, Comparison, key_of
from partitioning.model.composite_key import key_columns, key_parts
from partitioning.model.read_ends import Ends
from partitioning.model.sources import LandedSource
from partitioning.model.streams import Discovered
from partitioning.planning.beginnings import beginnings
from partitioning.planning.origins import over
from partitioning.values import replace
from spark_jobs.sql.column_check import check_sql
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


def with_backfill(
    refusal: Refused, store: Store, pipeline: Pipeline, discovered: Sequence[Discovered], ends: Ends
) -> Refused:
    """The refusal of a plan, whose backfill of all batches is one that works: the swap of one that was compared, if it
    would let the pipeline go on and nothing keeps it from its place, or one of the files of now, if only they have what
    the pipeline reads."""
    if not any(_of_all(part) for finding in refusal.findings for part in finding.steps):
        return refusal
    instead: tuple[str | Command, ...] = ()
    if swap := _swap(store, pipeline):
        instead = (swap, " puts the one in place that was compared")
    elif names := _unread(pipeline, discovered, ends):
        keys = " and ".join(repr(name) for name in names if name)
        land = f"land the files of earlier batches with column {keys}, then " if keys else ""
        instead = (land, BackfillAsking(pipeline.name, 0, cascade=True, repaired=True))
    else:
        return refusal
    return refusal.saying(lambda finding: replace(finding, next=tuple(_with(instead, finding.steps))))


def _with(instead: tuple[str | Command, ...], parts: tuple[str | Command, ...]) -> Iterator[str | Command]:
    for part in parts:
        yield from instead if _of_all(part) else (part,)


def _of_all(part: str | Command) -> bool:
    return isinstance(part, BackfillAsking) and part.cascade and part.first == 0


def _unread(pipeline: Pipeline, discovered: Sequence[Discovered], ends: Ends) -> list[str]:
    """The columns of keys that no record has which batches have read; an empty name if steps read such columns."""
    keys, known, streams = list[str](), list[Discovered](), {stream.name: stream for stream in pipeline.streams}
    for found in discovered:
        stream, read = streams[found.stream], ends.stream(found.stream)
        if read is None or not isinstance(stream.origin, LandedSource):
            known.append(found)
            continue
        made = {stream.key} if key_parts(stream.key) else set[str]()
        made |= {*key_columns(stream.key)} if stream.key_bytes else set()
        names = made | {*(column.name for column in read.columns), *read.untyped}
        known.append(replace(found, columns=tuple(column for column in found.columns if column.name in names)))
        keys += [name for name in key_columns(stream.key) if name not in names]
    try:
        check_sql(pipeline, known)
    except Refused:
        return keys or [""]
    return keys


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
