"""Evidence: all tables that a batch is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from coset.batches.audit import Audit
from coset.batches.continuity import Continuity
from expectations.checkpoint import Evidence


def evidence(audited: Audit, before: Continuity, rows: Sequence[Mapping[str, object]] = ()) -> Evidence:
    """The tables of an attempt's audit beside those of what its batch goes on from, and the rows of its result tables
    before and after."""
    return Evidence(**_tables(audited), **_tables(before), rows=rows)


def _tables(of: Audit | Continuity) -> dict[str, Any]:
    return {field.name: getattr(of, field.name) for field in fields(of)}
