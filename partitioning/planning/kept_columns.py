"""Kept columns: the step that another goes on from, its columns with another meaning now, by the text of the pipeline,
and those that it does not decide about.

What is dropped is dropped; types are compared once they are known (`spark_jobs.sql.kept_versions`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta

from partitioning.model.graph import KeptChange, Op, Step, list_items, quote
from partitioning.planning.origins import Change, Origins, told_changes
from partitioning.planning.step_texts import alike, items

# The rows that a step with a time keeps have the values of its expressions in these columns.
IDENTITY = "@identity"
_COLUMN = re.compile(r'\w+|"[^"]+"')
_WINDOW = re.compile(r"time_bucket\(to_microseconds\(([0-9]+)\), CAST\(\((.+)\) AS TIMESTAMP\)\)", re.DOTALL)


def columns_of(step: Step) -> str:
    """The columns that a step keeps, or the expressions that they depend on, as the pipeline says it."""
    if step.function and step.state:
        return ", ".join(f"{column.name} {column.type}" for column in step.state.columns)
    return ", ".join(step.expressions)


def windows_of(step: Step) -> str | None:
    """The windows by which a step keeps records, as the pipeline says it; None if it keeps them by no windows.

    >>> from partitioning.model.graph import StateSpec
    >>> of = ("time_bucket(to_microseconds(3600000000), CAST((seen) AS TIMESTAMP))",)
    >>> keeps = StateSpec("SELECT …", 3_899_999_999, waits=3_599_999_999)
    >>> windows_of(Step("hours.s", Op.RECENT, ("s",), "", of, "k", state=keeps))
    '1:00:00 of seen, corrected for 0:05:00'
    >>> windows_of(Step("prices", Op.RECENT, ("s",), "", (*of, "gone"), "k", state=StateSpec("SELECT …", newest=True)))
    """
    # Versions may have a time that is written like a window.
    if step.op is not Op.RECENT or not step.state or step.state.waits is None:
        return None
    window = _WINDOW.fullmatch(step.expressions[0])
    return f"{timedelta(microseconds=int(window[1]))} of {window[2]}{step.state.closing}" if window else None


def undeclared(before: Step, now: Step) -> tuple[str, ...]:
    """The columns whose old rows cannot be read as new ones, as the pipeline does not say how."""
    asked = still_asked(now, before)
    if asked.function:
        return ()
    said = {column for column, _ in (*asked.begins, *asked.migrate)}
    migrated = {column for column, _ in asked.migrate}
    added, other = _differing(before, now)
    return (*(name for name in added if name not in said), *(name for name in other if name not in migrated))


def declaration(before: Step, now: Step) -> str:
    """The line that says of all columns how old rows are read as new ones, and what it costs. Empty if none can."""
    added, other = _differing(before, now)
    if any(name in _UNREADABLE for name in other):
        return ""
    begins = f"begins={{{', '.join(f'{_quoted(name)}: None' for name in added)}}}" if added else ""
    olds = ((name, _identity(before, now) if name == IDENTITY else _old(name)) for name in other)
    migrate = f"migrate={{{', '.join(f'{_quoted(name)}: {old}' for name, old in olds)}}}" if other else ""
    given = ", ".join(["", *filter(None, (begins, migrate))])
    return f'pipeline.changed("{now.name}"{given}){without_earlier(added)}'


def without_earlier(columns: Sequence[str]) -> str:
    """What it costs that columns begin with a value."""
    takes = "takes" if len(columns) == 1 else "take"
    return f", by which {' and '.join(columns)} {takes} no earlier record" if columns else ""


# What stands for an expression that no column of the kept rows has the value of.
_WHOLE, _TIME = "rows", "@time"
_UNREADABLE = {_WHOLE, _TIME}


def _differing(before: Step, now: Step) -> tuple[list[str], list[str]]:
    """The added columns, and those that are made in another way."""
    was, is_now = _made(before), _made(now)
    added = [name for name in is_now if name not in was]
    return added, [name for name in is_now if name in was and not alike(was[name], is_now[name])]


def _made(step: Step) -> Mapping[str, str]:
    """The kept columns of a step, by name, each with its expression."""
    texts = step.expressions
    match step.op:
        case Op.COMBINE:
            return items(texts[0])
        case Op.PROCESS:
            # Types are compared once they are known.
            return {column.name: "" for column in (step.state.columns if step.state else ())}
        case Op.DISTINCT:
            return {IDENTITY: texts[0], _TIME: texts[1]}
        case Op.RECENT:
            return {_TIME: ", ".join(texts)}
        case _:
            return {_WHOLE: ", ".join(texts)}


def _identity(before: Step, now: Step) -> str:
    """The SQL of the identity as it was kept, as text in Python. Before 0.3.0 each of several expressions was a column,
    and the last one the identity."""
    *columns, _ = list_items(before.expressions[0])
    if columns and now.expressions[0] == f"({before.expressions[0]})" and all(map(_COLUMN.fullmatch, columns)):
        return repr(f"({', '.join([*columns, quote(IDENTITY)])})")
    return _old(IDENTITY)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '\\"') + '"'


def _old(name: str) -> str:
    """The SQL of the column as it was kept, as text in Python."""
    return _quoted(name) if name.isidentifier() else repr(f'"{name}"')


def kept_before(step: Step, before: Collection[str]) -> str:
    """The name of the step that it continues from, among those `before`; empty if there is none."""
    if step.name in before:
        return step.name
    was = step.state.changed.was if step.state and step.state.changed else ""
    return was if was in before else ""


def still_asked(now: Step, before: Step | None) -> KeptChange:
    """What is declared of a step and was not carried out in the last plan, in which it was the step `before`."""
    if not now.state or now.state.changed is None:
        return KeptChange()
    return now.state.changed.since((before.state.changed if before.state else None) if before else None)


def changes_before(was: Step, now: Step, were: Origins, are: Origins) -> Iterator[Change]:
    """Changes that do not show in the state itself: in the records before the step, and in its function."""
    if were.called(was) != are.called(now):
        yield "function", were.called(was), are.called(now)
    yield from told_changes(were.of_inputs(was), are.of_inputs(now))


def changes_itself(before: Step, now: Step) -> Iterator[Change]:
    """The old and new text of the step, as far as its state depends on it and the pipeline does not say what becomes of
    that."""
    for noun, was, is_now in (
        ("operation", before.op.value, now.op.value),
        ("key", f"{before.key} ({before.key_format})", f"{now.key} ({now.key_format})"),
        ("expiry", _expiry(before), _expiry(now)),
    ):
        if was != is_now:
            yield noun, was, is_now
    if before.op is now.op and undeclared(before, now):
        windows = windows_of(before), windows_of(now)
        if windows[0] and windows[1]:
            yield "windows", windows[0], windows[1]
        else:
            yield "columns", columns_of(before), columns_of(now)


def _expiry(step: Step) -> str:
    """When keys expire."""
    if not step.state or not step.state.of_lives:
        return "none"
    return f"{timedelta(microseconds=step.state.microseconds)} after {step.expressions[-1]}"
