"""Gaps: offset ranges that have arrived and that no published batch holds."""

from __future__ import annotations

from collections.abc import Iterator

from coset.batches.backfills.swap.swaps import in_force
from coset.batches.ends import ends_after
from partitioning.commands import Run, Then
from partitioning.documents.ledger import Ledger
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.verdict import Decision
from partitioning.values import Value


class Gap(Value, frozen=True):
    """Offsets that no published batch holds, why, and the command that takes them; empty if none does."""

    range: OffsetRange
    why: str
    then: Then


def gaps(ledger: Ledger) -> tuple[Gap, ...]:
    """What was skipped on purpose, what was lost, and what abandoned batches had that no later one has taken."""
    standing = ledger.standing()
    return (*_skipped(ledger), *_lost(ledger), *_abandoned(ledger, standing.plan.batch if standing.plan else -1))


def _skipped(ledger: Ledger) -> Iterator[Gap]:
    """The offsets before those that first batches were asked to begin with."""
    plan = ledger.standing().published
    seen = dict[str, int]()
    while plan is not None:
        for stream in plan.streams:
            for partition in stream.partitions:
                name = f"{stream.name}-{partition.partition}"
                if name in plan.starts and partition.beginning < plan.starts[name]:
                    seen[name] = partition.beginning
        for name in sorted(plan.starts.keys() & seen.keys()):
            stream_name, _, number = name.rpartition("-")
            skipped = OffsetRange(StreamPartition(stream_name, int(number)), seen.pop(name), plan.starts[name])
            then = "a pipeline of another name reads them, from the first offset on"
            yield Gap(skipped, f"batch {plan.batch} was asked to start at {plan.starts[name]:,}", then)
        plan = ledger.published_before(plan.batch)


def _lost(ledger: Ledger) -> Iterator[Gap]:
    """The offsets that were gone before a batch read them, and that somebody accepted to lose."""
    plan, layers = ledger.standing().published, in_force(ledger.store, ledger.pipeline)
    while plan is not None:
        counts = layers.top(plan.batch).plan(plan.batch) or plan
        for lost in counts.lost:
            yield Gap(lost, f"they were gone when batch {plan.batch} was planned", "nothing does: they are lost")
        plan = ledger.published_before(plan.batch)


def _abandoned(ledger: Ledger, newest: int) -> Iterator[Gap]:
    """The ranges of given-up batches at the end, that the next batch is going to take."""
    published = ledger.standing().published
    ends = ends_after(ledger, published)
    waiting = dict[str, tuple[OffsetRange, str]]()
    for batch in range(published.batch + 1 if published else 0, newest + 1):
        plan, verdict = ledger.plan(batch), ledger.verdict(batch)
        if plan is None or verdict is None or verdict.decision is not Decision.ABANDON:
            continue
        streams = [stream for stream in plan.streams if not stream.declared.table]
        for read in (stream.range(partition.partition) for stream in streams for partition in stream.partitions):
            known = ends.end(read.partition.stream, read.partition.partition)
            if read.end > max(read.start, known.end if known else 0):
                waiting[str(read.partition)] = read, f"batch {batch} was given up: {verdict.why}"
    for read, why in waiting.values():
        yield Gap(read, why, (Run(ledger.pipeline), " takes them"))
