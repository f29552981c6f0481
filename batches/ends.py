"""Ends: up to where the published batches of a pipeline have read each stream partition, by its ledger.

Each plan has them. Plans that were made before plans had them do not: there all published plans are asked.
"""

from __future__ import annotations

from msgspec import UNSET

from partitioning.documents.ledger import Ledger
from partitioning.model.ends import NOTHING, Ends
from partitioning.model.plan import Plan


def ends_after(ledger: Ledger, published: Plan | None) -> Ends:
    """What was read by a published plan and all before it. Raises Refused if one of them is missing."""
    ends, plan = NOTHING, published
    while plan is not None:
        ends = plan.ends.then(ends) if ends.streams else plan.ends
        plan = ledger.published_before(plan.batch) if plan.remembered is UNSET else None
    return ends
