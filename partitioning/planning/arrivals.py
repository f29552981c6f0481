"""Arrivals: the offset ranges that a batch reads of each stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from partitioning.commands import Forget, Then
from partitioning.errors import Finding, refuse
from partitioning.kinds import Kind
from partitioning.model.gaps import Explained, covers, explained, gaps, go_on_without
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.read_ends import Ends, StreamProgress
from partitioning.model.sources import IcebergSource, KafkaSource, LandedSource
from partitioning.model.stage_inputs import PlannedPartition, PlannedStream
from partitioning.model.streams import Discovered, DiscoveredPartition, InputFile, Stream
from partitioning.packed_rows import PackedRows
from partitioning.planning.changeover import changeovers
from partitioning.planning.task_coverage import listed


def arrivals(
    streams: Sequence[Stream],
    discovered: Sequence[Discovered],
    ends: Ends,
    limit: int | None,
    starts: Mapping[str, int],
    accepted: Sequence[OffsetRange] = (),
) -> tuple[PlannedStream, ...]:
    """Each stream with the offset ranges to read: from its `ends` on, at most `limit` records of a partition.

    A table is always read to its end. After a change of the partition count, so are the partitions that both counts
    have: the next batch assumes that what is left was placed by the new count. A stream partition that no batch has
    read begins where `starts` says, else at its first offset. Offsets that were lost unread are refused unless they are
    in `accepted`.

    Raises Refused, with all findings, if what was discovered does not continue what was published.
    """
    by_stream = {discovery.stream: discovery for discovery in discovered}
    mixed = {name: len(over.change.mixed) for name, over in changeovers(streams, ends).items() if over.counts}
    findings = [*_no_such_partitions(streams, starts), *_no_such_losses(streams, accepted)]
    planned = []
    for stream in streams:
        discovery, last = by_stream[stream.name], ends.stream(stream.name)
        findings.extend(_counts(stream, discovery, last))
        whole = ends.is_read_whole(stream)
        findings.extend(_table_lies_otherwise(stream, last) if last and not whole else ())
        partitions, reset, holes = list[PlannedPartition](), dict[DiscoveredPartition, int](), dict[OffsetRange, str]()
        for partition in discovery.partitions[: stream.partitions]:
            first = starts.get(f"{stream.name}-{partition.partition}", partition.beginning)
            known = ends.end(stream.name, partition.partition)
            committed = known.end if known else first
            start = partition.beginning if whole else committed
            if partition.end < committed:
                reset[partition] = committed
            else:
                holes |= _lost_unread(stream, partition, committed, start, accepted)
            findings.extend(_cut_file(stream, partition, start))
            gone = _expired(ends, stream, partition)
            holes |= _not_all_there(gone, accepted)
            unlimited = stream.table or partition.partition < mixed.get(stream.name, 0)
            partitions.append(_partition(partition, committed, start, None if unlimited else limit))
            lost = [loss for loss in accepted if loss.partition == StreamPartition(stream.name, partition.partition)]
            lost = [loss for loss in lost if gone is None or not covers(loss, gone)]
            findings.extend(_not_lost(stream, partition, committed, start, lost) if lost else ())
        findings.extend(_reset(ends, stream, reset))
        findings.extend(_lost(stream, holes))
        columns = discovery.columns, PackedRows.of(PlannedPartition, partitions), discovery.lacking, discovery.required
        planned.append(PlannedStream(stream, *columns, discovery.topic, discovery.untyped, discovery.ids))
    refuse(findings)
    return tuple(planned)


def _no_such_partitions(streams: Sequence[Stream], starts: Mapping[str, int]) -> Iterator[Finding]:
    counts = {stream.name: 0 if stream.table else stream.partitions for stream in streams}
    for name in starts:
        stream, _, partition = name.rpartition("-")
        if not (partition.isdecimal() and int(partition) < counts.get(stream, 0)):
            what = f"{name!r} is no partition of a stream that is read batch by batch"
            then = f"write stream-partition; the streams are {', '.join(n for n, count in counts.items() if count)}"
            yield Finding.of(Kind.SETTING, what, "starts in the settings", then, name=name)


def _no_such_losses(streams: Sequence[Stream], accepted: Sequence[OffsetRange]) -> Iterator[Finding]:
    counts = {stream.name: stream.partitions for stream in streams}
    for loss in accepted:
        if loss.partition.partition >= counts.get(loss.partition.stream, 0):
            what = f"{loss.partition} is no partition of a stream"
            then = f"the streams are {', '.join(counts)}"
            yield Finding.of(Kind.LOSS_UNFOUNDED, what, "--accept-loss", then, partition=loss.partition)


def _counts(stream: Stream, discovery: Discovered, last: StreamProgress | None) -> Iterator[Finding]:
    """Findings for the discovered partitions: all declared partitions must exist. Others may exist only if they
    vanished from the declaration."""
    numbers = [partition.partition for partition in discovery.partitions]
    where = f"stream {stream.name!r} in {stream.source}"
    count = last.declared.partitions if last else stream.partitions
    if numbers != list(range(len(numbers))) or not stream.partitions <= len(numbers) <= max(count, stream.partitions):
        what = f"partitions {numbers} were found, but {stream.partitions} are declared"
        then = "declare the topic's partition count"
        yield Finding.of(Kind.PARTITIONS, what, where, then, numbers=numbers, partitions=stream.partitions)
    elif last is not None:
        for partition in discovery.partitions[stream.partitions :]:
            known = last.end(partition.partition)
            if partition.end != (committed := known.end if known else 0):
                yield Finding.of(
                    Kind.PARTITIONS,
                    f"the partition is gone, as {stream.partitions} of {count} are declared, "
                    f"but {committed} is committed and its offsets end at {partition.end}",
                    f"{StreamPartition(stream.name, partition.partition)} in {stream.source}",
                    f"declare {count} partitions until a batch has read it to its end",
                    partitions=stream.partitions,
                    count=count,
                    committed=committed,
                    end=partition.end,
                )
        if stream.table and count != stream.partitions:
            what = (
                f"the table's partition count changed from {count} to {stream.partitions}: "
                "its latest record of a key may lie in either of two partitions, whose offsets do not compare"
            )
            then = "keep the count, or land the table anew and give it another stream name"
            yield Finding.of(Kind.PARTITIONS, what, where, then, count=count, partitions=stream.partitions)


def _table_lies_otherwise(stream: Stream, last: StreamProgress) -> Iterator[Finding]:
    """A finding for a kept table whose keys lie by another hash, or under another schema, than what is kept of it."""
    before, now = last.declared.hash, stream.hash
    if stream.table and stream.partitions > 1 and before != now:
        what = (
            f"the table's keys lay by {before} and lie by {now}: its latest record of a key may lie in either of two "
            "partitions, whose offsets do not compare"
        )
        then = "declare what it was; or land the table anew under what it is now, and give it another stream name"
        yield Finding.of(Kind.PARTITIONS, what, f"stream {stream.name!r}", then, before=before, now=now)


def _reset(ends: Ends, stream: Stream, reset: Mapping[DiscoveredPartition, int]) -> Iterator[Finding]:
    """Findings for partitions that end before what was read of each."""
    read = ends.stream(stream.name)
    behind = _is_behind_its_broker(stream, read)
    # A topic that was made anew is begun anew as a whole.
    whole = read is not None and len(reset) == sum(1 for end in read.ends if end.end) > 1
    for partition, committed in reset.items():
        what = f"offsets end at {partition.end}, but {committed} is committed: the topic was reset or re-created"
        then: Then = (
            "restore the landed files; give the new topic another stream name, or begin anew with it: ",
            Forget(ends.pipeline, stream.name, None if whole else partition.partition),
        )
        if behind:
            what = f"its files end at {partition.end}, but it was read from its broker up to {committed}"
            then = "wait until all that is landed too, or read the stream from its broker until then"
        where = f"{StreamPartition(stream.name, partition.partition)} in {stream.source}"
        values = {"stream": stream.name, "end": partition.end, "committed": committed}
        yield Finding.of(Kind.STREAM_RESET, what, where, then, **values)


def _lost_unread(
    stream: Stream, discovered: DiscoveredPartition, committed: int, start: int, accepted: Sequence[OffsetRange]
) -> dict[OffsetRange, str]:
    """The offsets before the first unread file that nobody explains, and what is said of them."""
    unread = next((file.start for file in discovered.files if file.end > committed), committed)
    if unread <= committed or start != committed:
        return {}
    hole = OffsetRange(StreamPartition(stream.name, discovered.partition), committed, unread)
    behind = [file for file in discovered.files if file.start == unread]
    if explained(stream, hole, accepted, behind) is not Explained.NOBODY:
        return {}
    what = f"offsets start at {unread}, but only those before {committed} are committed: [{committed},{unread}) is lost"
    return {hole: what}


def _lost(stream: Stream, holes: Mapping[OffsetRange, str]) -> Iterator[Finding]:
    """Findings for offsets that are lost; each says how to go on without any of them."""
    for hole, what in holes.items():
        where, then = f"{hole.partition} in {stream.source}", _make_good(stream, tuple(holes))
        values = {"stream": stream.name, "committed": hole.start, "unread": hole.end}
        yield Finding.of(Kind.STREAM_LOST, what, where, then, **values)


def _expired(ends: Ends, stream: Stream, discovered: DiscoveredPartition) -> OffsetRange | None:
    """The offsets that a table read whole no longer has. If the last batch kept the table, `beginnings` checks it
    instead."""
    read, known = ends.stream(stream.name), ends.end(stream.name, discovered.partition)
    if read is None or known is None or not read.declared.table or not ends.is_read_whole(stream):
        return None
    if read.declared.kept and read.batch == ends.batch:
        return None
    gone = StreamPartition(stream.name, discovered.partition), known.beginning, discovered.beginning
    return OffsetRange(*gone) if known.beginning < discovered.beginning else None


def _not_all_there(gone: OffsetRange | None, accepted: Sequence[OffsetRange]) -> dict[OffsetRange, str]:
    if gone is None or any(covers(loss, gone) for loss in accepted):
        return {}
    what = (
        f"an earlier batch read the table from offset {gone.start:,} on, and its records before {gone.end:,} are gone: "
        "the latest of their keys would be missing"
    )
    return {gone: what}


def _is_behind_its_broker(stream: Stream, read: StreamProgress | None) -> bool:
    """Whether it is landed, and was read from its broker last: the sink may not have come so far."""
    was = read.declared.origin if read else None
    return isinstance(stream.origin, LandedSource) and isinstance(was, KafkaSource)


def _make_good(stream: Stream, holes: Sequence[OffsetRange]) -> str:
    """The next step for ranges that were lost unread."""
    match stream.origin:
        case LandedSource() | IcebergSource():
            those = "those ranges" if len(holes) > 1 else "that range"
            return f"restore the landed files of {those}; {go_on_without(*holes)}"
        case KafkaSource():
            return f"the broker's retention has removed it; {go_on_without(*holes)}, and run more often than it removes"


def _not_lost(
    stream: Stream, discovered: DiscoveredPartition, committed: int, start: int, accepted: Sequence[OffsetRange]
) -> Iterator[Finding]:
    """Accepted losses where no offset is missing. An earlier batch accepted those before the committed offset."""
    files = [file for file in discovered.files if file.end > start]
    holes = [gap.offsets for gap in gaps(stream, discovered.partition, start, files, accepted) if gap.file is None]
    for loss in accepted:
        if loss.end > committed and not any(covers(loss, hole) for hole in holes):
            what = f"{loss} is accepted as lost, but it is not: {listed(holes) or 'no offset'} is missing there"
            then = "leave it out, or give the range as the error named it"
            yield Finding.of(Kind.LOSS_UNFOUNDED, what, "--accept-loss", then, loss=loss)


def _cut_file(stream: Stream, discovered: DiscoveredPartition, start: int) -> Iterator[Finding]:
    """A start within a file with missing offsets. How many records such a file has from there on is unknown."""
    for file in discovered.files:
        if file.missing and file.start < start < file.end:
            yield Finding.of(
                Kind.STREAM_START,
                f"offset {start} is within a file of {file.records:,} records with the offsets "
                f"[{file.start},{file.end}), so how many of them are left is not known",
                f"{StreamPartition(stream.name, discovered.partition)} in {file.path}",
                f"begin with a file, at offset {file.start} or {file.end}, or land the records from {start} on in a "
                "file of their own",
                start=start,
                records=file.records,
                begins=file.start,
                ends=file.end,
            )


def _partition(discovered: DiscoveredPartition, committed: int, start: int, limit: int | None) -> PlannedPartition:
    end = max(discovered.end, start) if limit is None else _end(discovered.files, start, limit)
    return planned_range(discovered, committed, start, end)


def planned_range(discovered: DiscoveredPartition, committed: int, start: int, end: int) -> PlannedPartition:
    """The offsets [start, end) of a partition, with the files that hold them."""
    files = tuple(file for file in discovered.files if _is_read(file, start, end))
    size = sum(file.share(start, end) for file in files)
    missing = end - start - sum(file.held(start, end) for file in files)
    partition, beginning, epoch = discovered.partition, discovered.beginning, discovered.epoch
    if end < discovered.end and any(file.snapshot for file in discovered.files):
        epoch = -1
    doubles = tuple(double for double in discovered.doubles if double.start < end)
    return PlannedPartition(partition, beginning, committed, start, end, size, files, missing, epoch, doubles)


def _is_read(file: InputFile, start: int, end: int) -> bool:
    """Whether it holds what is read; an empty one shows that earlier records are gone."""
    return max(file.start, start) < min(file.end, end) or start < file.start == file.end


def _end(files: Sequence[InputFile], start: int, limit: int) -> int:
    """Where a batch that takes at most `limit` records from `start` on ends.

    A file with missing offsets is taken whole, the first one even if it has more records.
    """
    end, left = start, limit
    for file in files:
        first = max(file.start, start)
        count = file.held(first, file.end) if first < file.end else 0
        if not count:
            end = file.end if _is_read(file, start, file.end) else end
            continue
        if count > left and (not file.missing or left < limit):
            return end if file.missing else first + left
        end, left = file.end, left - count
        if left <= 0:
            break
    return end
