"""Ends: how far the published batches of a pipeline have read each stream partition, by its ledger.

Each plan has the ends. Plans of older versions do not, so all published plans before them are read. `coset forget`
stores a document; the batch after it does not know what the document names.

After each hundred batches a balance is stored, made from the one before and the plans since. Balances decide nothing
that is not held against a table's log. Without them all plans would be read.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from coset.batches.backfills.swaps import in_force
from partitioning.commands import Run, Status, Then
from partitioning.documents.document import decode, encode
from partitioning.documents.ledger import Ledger, LedgerBalance
from partitioning.documents.store import last_from, numbered
from partitioning.errors import Conflict, CosetError, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Swap
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import NOTHING, End, Ends, Forgetting, Forgotten, StreamProgress, What
from partitioning.packed_rows import PackedRows
from partitioning.sections import many
from partitioning.values import replace
from spark_jobs.engine.occasions import clock_time

EVERY = 100


def balance(ledger: Ledger, published: Plan | None) -> LedgerBalance:
    """What the batches up to a published one add up to, by the last stored balance and the plans since.

    Raises Refused if one of these is missing or damaged.
    """
    known, since = _stored(ledger, _newest(ledger, published.batch // EVERY if published else 0)), list[Plan]()
    while published is not None and published.batch >= known.before:
        since.append(published)
        published = ledger.published_before(published.batch)
    for plan in reversed(since):
        known = known.then(plan)
    return known


def settled(ledger: Ledger, batch: int) -> str:
    """Store the balance of the hundred before a published batch. Of hundreds that have none the first is next.

    Returns the end of a sentence, which says what went wrong: nothing depends on a balance but the time that it saves.
    """
    newest = _newest(ledger, batch // EVERY)
    if ledger.original is not None or newest == batch // EVERY:
        return ""
    before = (newest + 1) * EVERY
    try:
        made = replace(balance(ledger, ledger.published_before(before)), before=before)
        ledger.store.put_new(_balance_key(ledger, newest + 1), encode(made))
    except CosetError as error:
        return f"; the balance of the batches before {before} could not be stored: {error.findings[0].what}"
    return ""


def _newest(ledger: Ledger, most: int) -> int:
    """The number of the last stored balance, at `most` this one. 0 if there is none."""

    def there(number: int) -> bool:
        return number <= most and ledger.store.head(_balance_key(ledger, number)) is not None

    for number in range(most, max(most - 2, 0), -1):
        if there(number):
            return number
    # The batches before were published by a version that stored none.
    return last_from(0, there) if most > 2 else 0


def _stored(ledger: Ledger, number: int) -> LedgerBalance:
    data = ledger.store.get(_balance_key(ledger, number)) if number else None
    return (
        LedgerBalance(ledger.pipeline)
        if data is None
        else decode(LedgerBalance, data, ledger.uri(_balance_key(ledger, number)))
    )


def _balance_key(ledger: Ledger, number: int) -> str:
    return f"{ledger.pipeline}/balances/{number}.json"


@dataclass(frozen=True, slots=True)
class Known:
    """The ends that the next batch continues from. They do not have what was `forgotten`."""

    ends: Ends
    forgotten: tuple[Forgotten, ...] = ()


def ends_after(ledger: Ledger, published: Plan | None) -> Ends:
    """The ends after a published plan and all before it. Raises Refused if one of them is missing."""
    ends, plan = NOTHING, published
    while plan is not None:
        ends = plan.ends.then(ends) if ends.streams else plan.ends
        plan = ledger.published_before(plan.batch) if plan.remembered is None else None
    return replace(ends, pipeline=_origin(ledger).pipeline)


def ends_before(ledger: Ledger, batch: int) -> Ends:
    """The ends that a batch has to continue from, by the stored documents. In a backfill they are those that the batch
    continued from at first. Raises Refused as `ends_after`."""
    origin = _origin(ledger)
    published, first = origin.published_before(batch), origin.plan(batch) if ledger.original else None
    return ends_after(origin, published).without(first.forgotten if first else _forgotten_after(origin, published))


def known_after(ledger: Ledger, published: Plan | None, decided: Iterable[Swap] | None = None) -> Known:
    """The ends that the batch after a published plan continues from. Files are those whose rows readers see, now or
    after these swaps."""
    origin = _origin(ledger)
    forgotten = _forgotten_after(origin, published)
    return Known(_by_files_that_count(origin, ends_after(ledger, published), decided).without(forgotten), forgotten)


def forgettings(ledger: Ledger) -> Iterator[Forgetting]:
    """What a pipeline forgot, oldest first."""
    return numbered(ledger.store, Forgetting, partial(_key, ledger.pipeline))


def forget(ledger: Ledger, stream: str, partition: int | None, what: What, why: str) -> Forgetting:
    """Make a pipeline forget a stream or a partition: the next batch reads it as if for the first time.

    Raises Refused if a batch is open or if nothing is known of the stream, and Conflict if another process plans or
    forgets at the same time.
    """
    pipeline, standing = ledger.pipeline, ledger.standing()
    if standing.open and standing.plan:
        what_is = f"batch {standing.plan.batch} is open: it continues from the ends that it was planned with"
        then: Then = ("finish it first: ", Run(pipeline))
        raise Refused.of(Kind.BATCH_OPEN, what_is, f"pipeline {pipeline!r}", then, batch=standing.plan.batch)
    known = known_after(ledger, standing.published).ends
    forgotten, number = _named(known, stream, partition, what), sum(1 for _ in forgettings(ledger))
    made = Forgetting(pipeline, number, known.batch, forgotten, getpass.getuser(), why, clock_time())
    key = _key(pipeline, number)
    stored = decode(Forgetting, ledger.store.put_new(key, encode(made)), ledger.uri(key))
    if stored != made or ledger.standing() != standing:
        what_is = "another process planned a batch or forgot something at the same time"
        then = ("see what is known now, then repeat the command: ", Status(pipeline))
        raise Conflict.of(Kind.BATCH_OPEN, what_is, ledger.uri(key), then, number=number)
    return made


def _origin(ledger: Ledger) -> Ledger:
    """The pipeline's own ledger."""
    return ledger.original or ledger


def _forgotten_after(ledger: Ledger, published: Plan | None) -> tuple[Forgotten, ...]:
    if published is None:
        return ()
    return tuple(one for each in forgettings(ledger) if each.after == published.batch for one in each.forgotten)


def _named(ends: Ends, stream: str, partition: int | None, what: What) -> tuple[Forgotten, ...]:
    read = ends.stream(stream)
    known = [end for end in read.ends if partition in (None, end.partition)] if read else []
    if not known:
        named = stream if partition is None else f"{stream}-{partition}"
        listed = ", ".join(f"{each.name} ({many(len(each.ends), 'partition')})" for each in ends.streams) or "none"
        what_is, then = f"no batch has read {named}", f"name a stream that was read: {listed}"
        raise Refused.of(Kind.NAME, what_is, f"pipeline {ends.pipeline!r}", then, name=named)
    return tuple(Forgotten(_range(stream, end), what) for end in known)


def _range(stream: str, end: End) -> OffsetRange:
    return OffsetRange(StreamPartition(stream, end.partition), min(end.beginning, end.end), end.end)


def _by_files_that_count(ledger: Ledger, ends: Ends, decided: Iterable[Swap] | None) -> Ends:
    """The ends with the files of backfills, where a backfill's rows have replaced those of a batch."""
    named = {end.batch for read in ends.streams for end in read.ends}
    exchanged = in_force(ledger.store, ledger.pipeline, decided).exchanged()
    plans = {batch: Ledger(ledger.store, name).plan(batch) for batch, name in exchanged.items() if batch in named}
    by_batch = {batch: plan.ends for batch, plan in plans.items() if plan}
    return replace(ends, streams=tuple(_by_files(read, by_batch) for read in ends.streams)) if by_batch else ends


def _by_files(read: StreamProgress, by_batch: Mapping[int, Ends]) -> StreamProgress:
    ends = (
        replace(end, files=other.files)
        if end.batch in by_batch and (other := by_batch[end.batch].end(read.name, end.partition))
        else end
        for end in read.ends
    )
    # The newest batch has the columns of all before it.
    newest = by_batch.get(read.batch, NOTHING).stream(read.name)
    seen = {"columns": newest.columns, "ids": newest.ids} if newest else {}
    return replace(read, ends=PackedRows.of(End, ends), **seen)


def _key(pipeline: str, number: int) -> str:
    return f"{pipeline}/forgets/{number}.json"
