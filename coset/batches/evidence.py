"""Evidence: the tables by which a batch is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from coset.batches.auditing.audit_tables import Audit
from coset.batches.continuity import Continuity
from expectations.questions import Evidence


def evidence(
    audited: Audit,
    before: Continuity,
    rows: Sequence[Mapping[str, object]] = (),
    figures: Sequence[Mapping[str, object]] = (),
) -> Evidence:
    """The audit tables, the continuity tables, the row counts of the result tables before and after the batch, and the
    figures of result tables that expectations ask for."""
    return Evidence(**_tables(audited), **_tables(before), rows=rows, figures=figures)


def _tables(of: Audit | Continuity) -> dict[str, Any]:
    return {field.name: getattr(of, field.name) for field in fields(of)}
