"""Waiting: an open batch whose checks fail in the same way again is not run until somebody asks for it."""

from __future__ import annotations

import json

import msgspec

from partitioning.documents.ledger import Ledger
from partitioning.errors import Finding


def waits_for(ledger: Ledger, batch: int) -> tuple[Finding, ...]:
    """What the checks of the last two attempts both found, if they found the same; else nothing."""
    attempt = ledger.attempt(batch)
    if attempt < 2:
        return ()
    last, before = (found_by(ledger.failed_check(batch, attempt - past)) for past in (1, 2))
    return last if last == before else ()


def found_by(report: bytes | None, kind: str = "findings") -> tuple[Finding, ...]:
    """What the report of a check found, or its `warnings`; nothing, if another version of Coset wrote it in its own
    way."""
    try:
        return msgspec.convert(json.loads(report or b"{}").get(kind, ()), tuple[Finding, ...])
    except msgspec.ValidationError:
        return ()
