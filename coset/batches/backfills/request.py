"""The backfills of a pipeline, as they were asked for: which batches are run again, and how they are planned."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from partitioning.commands import Backfills, Status
from partitioning.documents.document import decode, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.numbered import numbered
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, key_of
from partitioning.values import replace


def published_batches(ledger: Ledger, first: int, last: int | None) -> tuple[int, ...]:
    """The published batches from `first` to `last`, or to the newest.

    Raises Refused if there are none, or not so many.
    """
    standing = ledger.standing()
    newest = standing.published.batch if standing.published else -1
    where = f"pipeline {ledger.pipeline!r}"
    last = newest if last is None else last
    if not 0 <= first <= last <= newest:
        there = f"batches 0 to {newest} are" if newest >= 0 else "no batch is"
        asked = f"batch {first} was" if first == last else f"batches {first} to {last} were"
        what = f"{asked} asked for, but {there} published"
        raise Refused(
            Finding(
                Kind.BATCH_UNPUBLISHED,
                what,
                where,
                ("name batches that are published: ", Status(ledger.pipeline)),
                about(first=first, last=last, newest=newest),
            )
        )
    published = tuple(batch for batch in range(first, last + 1) if ledger.published(batch))
    if not published:
        raise Refused(
            Finding(
                Kind.BATCH_UNPUBLISHED,
                f"none of the batches {first} to {last} was published",
                where,
                "name one that was",
                about(first=first, last=last),
            )
        )
    return published


def backfills(store: Store, pipeline: str) -> Iterator[Backfill]:
    """All backfills of a pipeline, oldest first."""
    return numbered(store, Backfill, partial(key_of, pipeline))


def backfill(store: Store, pipeline: str, number: int) -> Backfill:
    """One of them. Raises Refused if there is none of that number."""
    key = key_of(pipeline, number)
    data = store.get(key) if number >= 0 else None
    if data is None:
        raise Refused(
            Finding(
                Kind.BACKFILL_UNKNOWN,
                f"there is no backfill {number}",
                f"{store.root}/{key}",
                Backfills(pipeline),
                about(number=number),
            )
        )
    return decode(Backfill, data, f"{store.root}/{key}")


def put(store: Store, asked: Backfill) -> Backfill:
    """Store a request under the next number that is free."""
    while True:
        stored = store.put_new(key_of(asked.pipeline, asked.number), encode(asked))
        if stored == encode(asked):
            return asked
        asked = replace(asked, number=asked.number + 1)


def comparison_key(backfill: Backfill) -> str:
    """Where its comparison lies, once it is made."""
    return f"{backfill.name}/comparison.json"
