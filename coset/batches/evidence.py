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
    balanced: Sequence[Mapping[str, object]] = (),
    queries: Sequence[Mapping[str, object]] = (),
    figures: Sequence[Mapping[str, object]] = (),
) -> Evidence:
    """The audit tables, the continuity tables, the row counts of the result tables before and after the batch, how they
    add up and differ from their queries, and the figures of result tables that expectations ask for."""
    of_tables = {"rows": rows, "balanced": balanced, "queries": queries, "figures": figures}
    return Evidence(**_tables(audited), **_tables(before), **of_tables)


def _tables(of: Audit | Continuity) -> dict[str, Any]:
    return {field.name: getattr(of, field.name) for field in fields(of)}
