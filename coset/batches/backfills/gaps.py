"""Gaps: offset ranges that have arrived and are in no published batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coset.batches.backfills.swap.swaps import in_force
from coset.batches.balances import balance
from coset.batches.ends import ends_after
from partitioning.commands import Run, Then
from partitioning.documents.ledger import Ledger
from partitioning.model.ledger_balance import LedgerBalance, LeftOut
from partitioning.model.offsets import OffsetRange
from partitioning.model.plan import Plan
from partitioning.model.verdict import Decision
from partitioning.values import Value


class Gap(Value, frozen=True):
    """Offsets that are in no published batch, why, and what reads them."""

    range: OffsetRange
    why: str
    then: Then


def gaps(ledger: Ledger) -> tuple[Gap, ...]:
    """The offsets that were skipped on request, that were lost, and that abandoned batches had and no later one
    read."""
    standing = ledger.standing()
    known, newest = balance(ledger, standing.published), standing.plan.batch if standing.plan else -1
    return (*_skipped(known), *_lost(ledger, known), *_abandoned(ledger, standing.published, newest))


def _skipped(known: LedgerBalance) -> Iterator[Gap]:
    """The offsets before those that batches were asked to begin with."""
    then = "a pipeline of another name reads them, from the first offset on"
    for skipped in _newest_first(known.skipped):
        yield Gap(skipped.offsets, f"batch {skipped.batch} was asked to start at {skipped.offsets.end:,}", then)


def _lost(ledger: Ledger, known: LedgerBalance) -> Iterator[Gap]:
    """The offsets that were gone before a batch read them, whose loss somebody accepted. Backfills have their own."""
    exchanged = in_force(ledger.store, ledger.pipeline).exchanged()
    again = ((batch, Ledger(ledger.store, name).plan(batch)) for batch, name in exchanged.items())
    of_backfills = [LeftOut(offsets, batch) for batch, plan in again if plan for offsets in plan.lost]
    for lost in _newest_first((*(lost for lost in known.lost if lost.batch not in exchanged), *of_backfills)):
        why = f"they were gone when batch {lost.batch} was planned"
        yield Gap(lost.offsets, why, "nothing reads them: they are lost")


def _newest_first(left_out: Iterable[LeftOut]) -> list[LeftOut]:
    return sorted(left_out, key=lambda one: -one.batch)


def _abandoned(ledger: Ledger, published: Plan | None, newest: int) -> Iterator[Gap]:
    """The ranges of the abandoned batches after the last published one. The next batch reads them."""
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
        yield Gap(read, why, (Run(ledger.pipeline), " reads them"))
