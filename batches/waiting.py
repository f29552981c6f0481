"""Waiting: an open batch whose checks fail in the same way again is not run until somebody asks for it."""

from __future__ import annotations

import json

from partitioning.documents.ledger import Ledger


def waits_for(ledger: Ledger, batch: int) -> tuple[str, ...]:
    """What the checks of the last two attempts both say is wrong, if they say the same; else nothing."""
    attempt = ledger.attempt(batch)
    if attempt < 2:
        return ()
    last, before = (_told(ledger.failed_check(batch, attempt - past)) for past in (1, 2))
    return last if last == before else ()


def _told(report: bytes | None) -> tuple[str, ...]:
    """What a failed check's report says is wrong."""
    return tuple(finding["what"] for finding in json.loads(report or b"{}").get("findings", ()))
