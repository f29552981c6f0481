"""Repaired input: finds the files that hold a batch's offsets after some were landed again, and what changed in them.

The offsets stay those of the batch. Only offsets that were missing may be added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coset.sources.landed import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import InputChange
from partitioning.model.gaps import Explained, Gap, gaps
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Ends
from partitioning.model.receipt import range_digest
from partitioning.model.sources import IcebergSource, LandedSource
from partitioning.model.stage_inputs import PlannedPartition, PlannedStream
from partitioning.model.streams import DiscoveredPartition, InputFile, Stream
from partitioning.values import replace

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
    return replace(stored, streams=tuple(streams), losses=tuple(missing))


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
