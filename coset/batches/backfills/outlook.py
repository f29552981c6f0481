"""Outlook: how much work a backfill is, what depends on its batches, and which offsets are in no batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from coset.batches.attempt import Attempt
from coset.batches.backfills.blockers import newest_dependent
from coset.batches.backfills.swaps import in_force
from coset.batches.ends import balance, ends_after
from coset.batches.tables.acceptance import accepted_in
from partitioning.commands import Run, Then
from partitioning.documents.ledger import Ledger, LedgerBalance, LeftOut
from partitioning.documents.store import Store
from partitioning.model.graph import Write
from partitioning.model.meaning import mode_of
from partitioning.model.offsets import OffsetRange
from partitioning.model.plan import Plan
from partitioning.model.verdict import Decision
from partitioning.values import Value


class Later(Value, frozen=True):
    """A later batch that depends on the state after a backfill's last batch. An `open` one is not published yet."""

    batch: int
    open: bool


class Touched(Value, frozen=True):
    """A result table that the batches write, in which mode, and how many rows they wrote to it."""

    write: Write
    mode: str
    rows: int


class Outlook(Value, frozen=True):
    """The seconds that the tasks of each batch worked in its first run, where that is known; the steps with state; the
    later batches that depend on it; the tables that are written; and those of which changes of others, which somebody
    accepted, would be taken back."""

    seconds: dict[int, float]
    keeps: tuple[str, ...]
    later: tuple[Later, ...]
    tables: tuple[Touched, ...]
    accepted: tuple[str, ...] = ()


def outlook(store: Store, pipeline: str, stored: Sequence[Plan]) -> Outlook:
    """The outlook on a backfill of these published batches."""
    ledger, last = Ledger(store, pipeline), stored[-1]
    keeps = tuple(sorted({step.name for step in last.steps if step.state}))
    worked = {plan.batch: seconds_worked(ledger, plan) for plan in stored}
    return Outlook(
        {batch: seconds for batch, seconds in worked.items() if seconds is not None},
        keeps,
        tuple(_later(ledger, last.batch)) if keeps else (),
        touched := tuple(_touched(ledger, stored)),
        tuple(_accepted(ledger, last, (each.write for each in touched))),
    )


def seconds_worked(ledger: Ledger, plan: Plan) -> float | None:
    """How long all tasks of a published batch worked, together. None if a receipt is gone."""
    attempt = Attempt.published(ledger, plan)
    return None if attempt is None or attempt.missing else sum(task.milliseconds for task in attempt.tasks) / 1000


def _later(ledger: Ledger, last: int) -> Iterator[Later]:
    newest = newest_dependent(ledger.store, ledger.pipeline)
    for batch in range(last + 1, (newest or 0) + 1):
        if ledger.verdict(batch) is None:
            yield Later(batch, open=True)
        elif ledger.published(batch):
            yield Later(batch, open=False)


def _touched(ledger: Ledger, stored: Sequence[Plan]) -> Iterator[Touched]:
    rows, writes = Counter[str](), dict[str, Touched]()
    for plan in stored:
        verdict, steps = ledger.published(plan.batch), {step.name: step for step in plan.steps}
        for write in (write.declared for write in plan.writes()):
            rows[write.table] += sum(file.records for file in verdict.rows_of(write.table)) if verdict else 0
            writes[write.table] = Touched(write, mode_of(write, steps), rows[write.table])
    yield from (writes[table] for table in sorted(writes))


def _accepted(ledger: Ledger, last: Plan, writes: Iterable[Write]) -> Iterator[str]:
    """The upserted tables with rows that others changed, if the backfill writes these anew: up to the newest batch."""
    if (published := ledger.standing().published) is None or published.batch != last.batch:
        return
    yield from (write.table for write in writes if write.mode.by_key and accepted_in(ledger.store, write.table) >= 0)


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
    of_backfills = [LeftOut(offsets, batch) for batch, plan in again if plan for offsets in plan.losses]
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
