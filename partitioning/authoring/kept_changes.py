"""Declarations of changes in what a step keeps: checked, and as values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from partitioning.errors import Finding, Refused
from partitioning.imports import import_path
from partitioning.kinds import Kind
from partitioning.model.graph import Step
from partitioning.model.kept_change import KeptChange


def kept_change(
    steps: Sequence[Step],
    name: str,
    was: str,
    begins: Mapping[str, object],
    migrate: Mapping[str, str] | str | Callable[..., Any] | None,
    anew: str,
) -> KeptChange:
    """The declaration for the step of that name. Raises Refused, with all findings."""
    where, function = f"change of step {name!r}", ""
    findings = list(_wrong(steps, name, where, begins, migrate))
    if migrate is not None and not isinstance(migrate, Mapping):
        try:
            function = import_path(migrate, where)
        except Refused as refusal:
            findings.extend(refusal.findings)
    if findings:
        raise Refused(*findings)
    values = {column: _sql(value) or "" for column, value in begins.items()}
    columns = migrate if isinstance(migrate, Mapping) else {}
    return KeptChange(was, tuple(sorted(values.items())), tuple(sorted(columns.items())), function, anew)


def _wrong(
    steps: Sequence[Step],
    name: str,
    where: str,
    begins: Mapping[str, object],
    migrate: Mapping[str, str] | str | Callable[..., Any] | None,
) -> Iterator[Finding]:
    keeping = [step.name for step in steps if step.state]
    if name not in keeping:
        listed = ", ".join(keeping) or "none does"
        what, then = f"there is no step {name!r} that keeps something", f"name one that does: {listed}"
        yield Finding.of(Kind.STATE_NONE, what, where, then, step=name)
    for column, value in begins.items():
        if _sql(value) is None:
            what = f"column {column!r} cannot begin as {value!r}"
            then = "give a number, a date, True, False or None, or an SQL expression as text"
            yield Finding.of(Kind.DECLARATION, what, where, then, column=column, value=repr(value))
    for column in sorted(begins.keys() & (migrate.keys() if isinstance(migrate, Mapping) else ())):
        what, then = f"column {column!r} both begins and is migrated", "leave one of them out"
        yield Finding.of(Kind.DECLARATION, what, where, then, column=column)


def _sql(value: object) -> str | None:
    """A value as SQL; a text is SQL already. None if it cannot be written.

    >>> _sql(None), _sql(True), _sql(0), _sql("spent / orders"), _sql(date(2026, 1, 31))
    ('NULL', 'true', '0', 'spent / orders', "DATE '2026-01-31'")
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case int() | float() | Decimal():
            return str(value)
        case str():
            return value
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return None
