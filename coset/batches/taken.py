"""Taken: what published batches have taken of each stream, and what of it is there."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence

from coset.batches.ends import balance, ends_after, known_after
from coset.sources.files import Files
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.model.gaps import covers
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.placement import any_of, each_of, hash_schema
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import PlannedPartition, PlannedStream
from partitioning.model.streams import Discovered, DiscoveredPartition, InputFile, Stream
from partitioning.packed_rows import PackedRows
from partitioning.planning.arrivals import planned_range
from partitioning.values import replace


def by_all_schemas(pipeline: Pipeline, ledger: Ledger, published: Plan) -> Pipeline:
    """The pipeline as it reads the records of all published batches: those of a stream whose keys had other schemas lie
    by any of them."""
    hashes = {stream.name: each_of(stream.hash) for stream in pipeline.streams if hash_schema(stream.hash)}
    plan: Plan | None = published
    while hashes and plan is not None:
        for stream in plan.streams:
            if stream.name in hashes and hash_schema(stream.declared.hash):
                now = hashes[stream.name]
                hashes[stream.name] = (*(each for each in each_of(stream.declared.hash) if each not in now), *now)
        plan = ledger.published_before(plan.batch)
    return pipeline.with_streams(lambda each: replace(each, hash=any_of(hashes.get(each.name, (each.hash,)))))


def as_taken(ledger: Ledger, published: Plan, found: Discovered) -> Discovered:
    """What is there of a stream; of an Iceberg table the files that batches took, as they counted its rows. Compaction
    has them in other files by now, which lie there until their snapshots expire."""
    files, starts = defaultdict[int, dict[int, InputFile]](dict), dict[int, int]()
    plan: Plan | None = published
    while plan is not None:
        for planned in (each for stream in plan.streams if stream.name == found.stream for each in stream.partitions):
            # A stream was counted otherwise before it was forgotten.
            if starts.setdefault(planned.partition, planned.end) == planned.end:
                starts[planned.partition] = planned.start
                files[planned.partition] |= {file.start: file for file in planned.files if file.snapshot}
        plan = ledger.published_before(plan.batch)
    if not any(files.values()):
        return found
    took = next((each for each in published.streams if each.name == found.stream), None)
    if took and took.topic.split()[:1] != found.topic.split()[:1]:
        # The table was made anew: its ids are those of other columns.
        found = replace(found, columns=took.columns, ids=took.ids, lacking=took.lacking, required=took.required)
    gone = {*Files().missing([file.path for of_one in files.values() for file in of_one.values()])}
    rows = (
        replace(each, files=tuple(of_one[start] for start in sorted(of_one) if of_one[start].path not in gone))
        for each in found.partitions
        for of_one in (files[each.partition],)
    )
    return replace(found, partitions=PackedRows.of(DiscoveredPartition, rows))


class AllTaken:
    """What published batches have taken of each stream, and what of it is there."""

    def __init__(self, ledger: Ledger, published: Plan, found: Sequence[Discovered]) -> None:
        self.published = published
        self._ledger = ledger
        self._ends = known_after(ledger, published).ends
        self._found = {each.stream: each for each in found}
        known = balance(ledger, published)
        self.accepted = tuple(each.offsets for each in known.lost)
        self.written = known.written
        self._first = {stream.name: stream for stream in _first_plan(ledger, published).streams}
        self._starts = {each.offsets.partition: each.offsets.end for each in known.skipped}

    def discovered(self, only: Pipeline) -> tuple[Discovered, ...]:
        return tuple(self._found[stream.name] for stream in only.streams)

    def changed_counts(self, stream: Stream) -> bool:
        was = self._first.get(stream.name)
        return was is not None and was.declared.partitions != stream.partitions

    def stream(self, stream: Stream, since: int) -> PlannedStream:
        """A stream with all that was taken of it by a batch and those after it."""
        found = self._found[stream.name]
        ranges = [self._range(stream, partition, since) for partition in found.partitions[: stream.partitions]]
        partitions = PackedRows.of(PlannedPartition, ranges)
        columns = found.columns, partitions, found.lacking, found.required, found.topic
        return PlannedStream(stream, *columns, untyped=found.untyped, ids=found.ids)

    def _range(self, stream: Stream, partition: DiscoveredPartition, since: int) -> PlannedPartition:
        start = self._start(stream, partition)
        if since and not stream.table:
            start = max(start, self._end_before(since, StreamPartition(stream.name, partition.partition)))
        end = self._ends.end(stream.name, partition.partition)
        return planned_range(partition, start, start, max(end.end if end else start, start))

    def _start(self, stream: Stream, partition: DiscoveredPartition) -> int:
        """The first offset that a batch took."""
        asked = self._starts.get(StreamPartition(stream.name, partition.partition))
        first, end = self._first.get(stream.name), self._ends.end(stream.name, partition.partition)
        if stream.table and not stream.kept:
            # The last batch read it whole, from where it began then.
            return min(end.beginning, partition.beginning) if end else partition.beginning
        known = first.partitions if first else ()
        start = next((each.start for each in known if each.partition == partition.partition), partition.beginning)
        return start if asked is None else asked

    def lost(self, only: Pipeline, since: int) -> list[OffsetRange]:
        """The records that are gone of those that a batch took and those after it."""
        return [each for stream in only.streams for each in self._lost(self.stream(stream, since))]

    def first_whole(self, lost: Sequence[OffsetRange]) -> int | None:
        """The first published batch whose records are all there, as those of all after it. None if there is none."""
        batches = range(self.published.batch + 1)

        def behind(batch: int) -> bool:
            return all(self._end_before(batch, each.partition) >= each.end for each in lost)

        first = bisect_left(batches, True, key=behind)
        return first if first < len(batches) else None

    def _end_before(self, batch: int, partition: StreamPartition) -> int:
        """Up to where a partition was read by the batches before one."""
        ends = ends_after(self._ledger, self._ledger.published_before(batch))
        end = ends.end(partition.stream, partition.partition)
        return end.end if end else 0

    def _lost(self, stream: PlannedStream) -> Iterator[OffsetRange]:
        for partition in () if stream.declared.may_lack_offsets else stream.partitions:
            first = partition.files[0].start if partition.files else partition.end
            last = max((file.end for file in partition.files), default=partition.end)
            # A batch may begin and end within a file.
            begin, stop = min(partition.start, first), min(last, partition.end)
            for start, end in ((begin, first), (stop, partition.end)):
                lost = OffsetRange(StreamPartition(stream.name, partition.partition), start, end)
                if start < end and not any(covers(loss, lost) for loss in self.accepted):
                    yield lost


def _first_plan(ledger: Ledger, published: Plan) -> Plan:
    """The first published plan."""
    befores = (ledger.published_before(batch) for batch in range(1, published.batch + 1))
    return next((plan for plan in befores if plan is not None), published)
