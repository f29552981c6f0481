"""The requests for backfills: which batches are run again, how they are planned, and which wait for their swap.

Repaired input: finds the files that hold a batch's offsets after some were landed again, and what changed in them.
The offsets stay those of the batch. Only offsets that were missing may be added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import UNSET

from coset.batches.backfills.swaps import blockers, in_place, taken_back
from coset.sources.landed import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import BackfillAsking, Backfills, Command, Status, SwapAsking, Then
from partitioning.documents.document import decode, digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store, numbered
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, Comparison, InputChange, key_of
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Ends, Explained, Gap, gaps
from partitioning.model.receipt import range_digest
from partitioning.model.sources import IcebergSource, LandedSource
from partitioning.model.stage_inputs import PlannedPartition, PlannedStream
from partitioning.model.streams import DiscoveredPartition, InputFile, Stream
from partitioning.planning.beginnings import beginnings
from partitioning.planning.origins import graph_of, over
from partitioning.values import replace
from spark_jobs.sql.database import engine


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
    if not written.keys() <= {write.declared.table for write in last.writes()}:
        return None
    now = over(pipeline.graph, last.streams)
    if any(beginnings(now, graph_of(last), written)) or engine(now, columns, last).mixing:
        return None
    return SwapAsking(pipeline.name, newest.number, digest(found))


_FIRST = 3


def with_files_of_now(pipeline: Pipeline, stored: Plan, ends: Ends, lost: Sequence[OffsetRange]) -> Plan:
    """The plan of a batch that continued from these `ends`, with the files that hold its offsets now.

    Topics that are read from their brokers stay as planned. `lost` are the accepted losses of all batches. Raises
    Refused with all findings if offsets of the batch are missing now, if no stream has landed, and as `discover`.
    """
    landed = [stream for stream in pipeline.streams if isinstance(stream.origin, LandedSource)]
    if not landed:
        raise Refused(*(_not_landed(stream) for stream in pipeline.streams))
    declared = {stream.name: stream for stream in landed}
    discovered = {found.stream: found for found in discover(landed, ends.of_any_files(), lost)}
    streams, missing, findings = list[PlannedStream](), list[OffsetRange](), list[Finding]()
    for stream in stored.streams:
        if (found := discovered.get(stream.name)) is None:
            streams.append(stream)
            continue
        there = {one.partition: one for one in found.partitions}
        nothing = DiscoveredPartition(0)
        partitions = [_with_files(part, there.get(part.partition, nothing)) for part in stream.partitions]
        for part in partitions:
            for gap in _gaps(stream, part, lost):
                if gap.explained is Explained.ACCEPTED:
                    missing.append(gap.offsets)
                elif gap.explained is Explained.NOBODY:
                    findings.append(_missing(gap, stored))
        columns = found.columns, tuple(partitions), found.lacking, found.required
        streams.append(PlannedStream(declared[stream.name], *columns, untyped=found.untyped))
    if findings:
        raise Refused(*findings)
    return replace(stored, streams=tuple(streams), losses=tuple(missing) or UNSET)


def _with_files(planned: PlannedPartition, found: DiscoveredPartition) -> PlannedPartition:
    start, end = planned.start, planned.end
    mine, doubles = (
        tuple(file for file in files if max(file.start, start) < min(file.end, end))
        for files in (found.files, found.doubles)
    )
    size = sum(file.share(start, end) for file in mine)
    missing = end - start - sum(file.held(start, end) for file in mine)
    return replace(planned, files=mine, bytes=size, missing=missing, doubles=doubles)


def _gaps(stream: PlannedStream, planned: PlannedPartition, lost: Sequence[OffsetRange]) -> Iterator[Gap]:
    yield from gaps(stream.declared, planned.partition, planned.start, planned.files, lost)
    # The batch's last offset had a record: nothing explains that the files now end before it.
    end = max((file.end for file in planned.files), default=planned.start)
    if end < planned.end:
        yield Gap(_range(stream, planned, end, planned.end), planned.end - end, Explained.NOBODY)


def _not_landed(stream: Stream) -> Finding:
    what = f"topic {stream.name!r} is read from its broker, where no record can be corrected"
    then = "produce the corrected records to the topic once more: the next batch takes each once"
    if isinstance(stream.origin, IcebergSource):
        what = f"{stream.origin.uri(stream.name)} is an Iceberg table, whose earlier rows stay as batches took them"
        then = "correct the rows there: the next batch takes what changed"
    return Finding.of(Kind.BACKFILL_INPUT, what, f"stream {stream.name!r}", then, stream=stream.name)


def _missing(gap: Gap, stored: Plan) -> Finding:
    where = f"batch {stored.batch} of {stored.pipeline}"
    what = f"{gap.offsets} was read, and no file holds it any more"
    return Finding.of(Kind.BACKFILL_INPUT, what, where, "land the records of these offsets too", offsets=gap.offsets)


def input_changes(before: Plan, now: Plan) -> Iterator[InputChange]:
    """The stream partitions of a batch whose files have changed."""
    streams = {stream.name: stream for stream in now.streams}
    for stream in (stream for stream in before.streams if stream.name in streams):
        for old, new in zip(stream.partitions, streams[stream.name].partitions, strict=False):
            if _pinned(old.files) != _pinned(new.files):
                yield _change(before, now, stream, old, new)


def _change(
    before: Plan, now: Plan, stream: PlannedStream, old: PlannedPartition, new: PlannedPartition
) -> InputChange:
    were, are = _pinned(old.files), _pinned(new.files)
    other = sorted(path for path, identity in are.items() if were.get(path) != identity)
    gone = sorted(were.keys() - are.keys())
    partition = StreamPartition(stream.name, old.partition)
    were_missing, missing = (
        [gap.offsets for gap in plan.gaps.get(partition, ()) if gap.file is None] for plan in (before, now)
    )
    added = [part for hole in were_missing for part in _without(hole, missing)]
    return InputChange(
        before.batch,
        str(_range(stream, old, old.start, old.end)),
        (len(other), len(gone)),
        tuple([*other, *gone][:_FIRST]),
        (old.records, new.records),
        tuple((part.start, part.end) for part in added),
    )


def added_digest(change: InputChange) -> int:
    """The digest of the added offsets."""
    return sum(range_digest(start, end) for start, end in change.added)


def _without(offsets: OffsetRange, holes: Sequence[OffsetRange]) -> Iterator[OffsetRange]:
    """The parts of a range that are in no hole."""
    start = offsets.start
    for hole in (hole for hole in holes if hole.start < offsets.end and start < hole.end):
        if start < hole.start:
            yield replace(offsets, start=start, end=hole.start)
        start = max(start, hole.end)
    if start < offsets.end:
        yield replace(offsets, start=start)


def _range(stream: PlannedStream, planned: PlannedPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(StreamPartition(stream.name, planned.partition), start, end)


def _pinned(files: Sequence[InputFile]) -> dict[str, tuple[object, ...]]:
    return {file.path: (file.size, file.etag, file.keys_size, file.keys_etag) for file in files}
