"""The planner: from a pipeline, what was discovered and what was published last to the next plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from partitioning.checking import check
from partitioning.errors import Finding, Refused
from partitioning.grouping import Locality, balanced
from partitioning.offsets import StreamPartition
from partitioning.pipeline import Pipeline
from partitioning.plan import VERSION, Plan, PlannedPartition, PlannedStream, Stage, TaskRef
from partitioning.settings import DEFAULTS, Settings
from partitioning.stages import cut
from partitioning.statistics import Statistics
from partitioning.streams import Column, Discovered, DiscoveredPartition, Stream

# Up to this many records a batch, the audit compares every key itself and not only its hash.
KEYS_COMPARED = 1_000_000


def plan_batch(
    pipeline: Pipeline,
    discovered: Sequence[Discovered],
    results: Mapping[str, tuple[Column, ...]],
    *,
    batch: int = 0,
    parent: str | None = None,
    published: Plan | None = None,
    settings: Settings = DEFAULTS,
    statistics: Statistics | None = None,
    locality: Locality | None = None,
) -> Plan | None:
    """The plan of `batch`, or None if no records have arrived since `published`, the last published plan.

    `parent` is the digest of batch - 1, which may have been abandoned. `results` gives the columns of each
    result table. Tables are always read whole, whatever limit is set. `statistics` and `locality` are those of
    the last batch that ran, if there are any.

    Raises Refused, with all findings, if what was discovered does not continue what was published.
    """
    limit = settings.limit
    if limit is not None and limit < 1:
        raise Refused(Finding(f"a limit of {limit} records takes nothing", "limit", "use 1 or more, or none"))
    found = {each.stream: each for each in discovered}
    findings: list[Finding] = []
    streams = tuple(_stream(stream, found[stream.name], published, limit, findings) for stream in pipeline.streams)
    if findings:
        raise Refused(*findings)
    if all(partition.end == partition.committed for stream in streams for partition in stream.partitions):
        return None
    stages = cut(pipeline, results, settings.scheme)
    sizes = {
        TaskRef(stage.name, task.task): size
        for stage in stages
        for task, size in zip(stage.tasks, _sizes(stage, streams), strict=True)
    }
    plan = Plan(
        pipeline.name,
        batch,
        parent,
        VERSION,
        streams,
        (),
        stages,
        balanced(sizes, settings.groups, list(sizes)),
        key_sample=1,
    )
    return check(replace(plan, key_sample=max(1, -(-plan.records // KEYS_COMPARED))))


def _stream(
    stream: Stream, found: Discovered, published: Plan | None, limit: int | None, findings: list[Finding]
) -> PlannedStream:
    numbers = [each.partition for each in found.partitions]
    if numbers != list(range(stream.partitions)):
        findings.append(
            Finding(
                f"partitions {numbers} were found, but {stream.partitions} are declared",
                f"stream {stream.name!r} in {stream.source}",
                "declare the topic's partition count",
            )
        )
        return PlannedStream(stream, found.columns, ())
    before = {each.name: each for each in published.streams}.get(stream.name) if published else None
    if before is not None and len(before.partitions) != stream.partitions:
        findings.append(
            Finding(
                f"partition count changed from {len(before.partitions)} to {stream.partitions}",
                f"stream {stream.name!r}",
                "keep the count; a changeover needs an exchange, which this version does not run",
            )
        )
        before = None
    partitions = tuple(
        _partition(stream, each, before.partitions[each.partition].end if before else None, limit, findings)
        for each in found.partitions
    )
    return PlannedStream(stream, found.columns, partitions)


def _partition(
    stream: Stream, found: DiscoveredPartition, committed: int | None, limit: int | None, findings: list[Finding]
) -> PlannedPartition:
    where = f"{StreamPartition(stream.name, found.partition)} in {stream.source}"
    if committed is None:
        committed = found.beginning
    if found.end < committed:
        findings.append(
            Finding(
                f"offsets end at {found.end}, but {committed} is committed: the topic was reset or re-created",
                where,
                "restore the landed files, or give the new topic another stream name",
            )
        )
    elif found.beginning > committed and not stream.table:
        findings.append(
            Finding(
                f"offsets start at {found.beginning}, but only those before {committed} are committed: "
                f"[{committed},{found.beginning}) is lost",
                where,
                "restore the landed files of that range",
            )
        )
    start = found.beginning if stream.table else committed
    end = max(found.end, start)
    if limit is not None and not stream.table:
        end = min(end, start + limit)
    files = tuple(file for file in found.files if max(file.start, start) < min(file.end, end))
    size = sum(file.size * (min(file.end, end) - max(file.start, start)) // (file.end - file.start) for file in files)
    return PlannedPartition(found.partition, found.beginning, committed, start, end, size, files)


def _sizes(stage: Stage, streams: tuple[PlannedStream, ...]) -> list[tuple[int, int]]:
    """Bytes and records that each task of the stage reads."""
    planned = {stream.name: stream.partitions for stream in streams}
    sizes = []
    for task in stage.tasks:
        read = [planned[name][number] for name, numbers in task.reads.items() for number in numbers]
        sizes.append((sum(each.bytes for each in read), sum(each.end - each.start for each in read)))
    return sizes
