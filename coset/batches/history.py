"""History: the statistics of published batches, from their receipts."""

from __future__ import annotations

from collections import Counter

from coset.batches.attempt import Attempt
from partitioning.documents.ledger import Ledger
from partitioning.model.figures import figures_of
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.statistics import Statistics, statistics_of
from partitioning.model.streams import Discovered, DiscoveredPartition, InputFile
from partitioning.packed_rows import PackedRows
from partitioning.values import replace


def statistics(attempt: Attempt | None) -> Statistics | None:
    """The statistics of a batch's published attempt. None if there is none, or a receipt is gone."""
    if attempt is None or attempt.missing:
        return None
    return statistics_of(attempt.plan, list(attempt.receipts.values()))


def set_apart(attempt: Attempt) -> dict[str, int]:
    """How many records have event times that do not count, by step, in the stored receipts."""
    records = Counter[str]()
    for apart in (apart for task in attempt.tasks for apart in task.apart):
        records[apart.step] += apart.records
    return dict(sorted(records.items()))


def expired(ledger: Ledger, plan: Plan) -> int | None:
    """How many keys expired in a published batch: None if none of its steps lets them, or a receipt is gone. Its
    receipts are read only if one does."""
    lets = any(step.state and step.state.of_lives for step in plan.steps)
    attempt = Attempt.published(ledger, plan) if lets else None
    if attempt is None or attempt.missing:
        return None
    return figures_of(plan, tuple(attempt.receipts.values())).expired


def history(ledger: Ledger, published: Plan | None, batches: int) -> tuple[Statistics, ...]:
    """The statistics of the last `batches` published batches up to `published`, oldest first.

    Abandoned batches, and batches whose receipts are gone, are left out.
    """
    newest_first: list[Statistics] = []
    plan = published
    while plan is not None and len(newest_first) < batches:
        if (figures := statistics(Attempt.published(ledger, plan))) is not None:
            newest_first.append(figures)
        plan = ledger.plan(plan.batch - 1) if plan.batch else None
    return tuple(reversed(newest_first))


def replayed(plan: Plan) -> tuple[Discovered, ...]:
    """The input of a plan as if nothing else had ever arrived, to plan it again in another way."""
    return tuple(
        Discovered(
            stream.name,
            stream.columns,
            PackedRows.of(
                DiscoveredPartition,
                (DiscoveredPartition(part.partition, _files(part), epoch=part.epoch) for part in stream.partitions),
            ),
            ids=stream.ids,
        )
        for stream in plan.streams
    )


def _files(planned: PlannedPartition) -> tuple[InputFile, ...]:
    """The planned part of each file, with that part's share of the file's size."""
    files = []
    for file in planned.files:
        start, end = max(file.start, planned.start), min(file.end, planned.end)
        missing = end - start - file.held(start, end)
        files.append(replace(file, start=start, end=end, size=file.share(start, end), missing=missing))
    return tuple(files)
