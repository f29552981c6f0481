"""Balances in the store: one after each hundred batches, made from the one before and the plans since.

They decide nothing that is not held against a table's log. Without them all plans would be read.
"""

from __future__ import annotations

from partitioning.documents.document import decode, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.numbered import last_from
from partitioning.errors import CosetError
from partitioning.model.ledger_balance import LedgerBalance
from partitioning.model.plan import Plan
from partitioning.values import replace

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
        ledger.store.put_new(_key(ledger, newest + 1), encode(made))
    except CosetError as error:
        return f"; the balance of the batches before {before} could not be stored: {error.findings[0].what}"
    return ""


def _newest(ledger: Ledger, most: int) -> int:
    """The number of the last stored balance, at `most` this one. 0 if there is none."""

    def there(number: int) -> bool:
        return number <= most and ledger.store.head(_key(ledger, number)) is not None

    for number in range(most, max(most - 2, 0), -1):
        if there(number):
            return number
    # The batches before were published by a version that stored none.
    return last_from(0, there) if most > 2 else 0


def _stored(ledger: Ledger, number: int) -> LedgerBalance:
    data = ledger.store.get(_key(ledger, number)) if number else None
    return (
        LedgerBalance(ledger.pipeline)
        if data is None
        else decode(LedgerBalance, data, ledger.uri(_key(ledger, number)))
    )


def _key(ledger: Ledger, number: int) -> str:
    return f"{ledger.pipeline}/balances/{number}.json"
