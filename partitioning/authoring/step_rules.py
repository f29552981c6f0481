"""Checks of steps: why flows cannot be re-keyed, combined or written. Changes of what a step keeps: checked, and as
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from partitioning.errors import Finding, about, noting, refuse
from partitioning.imports import import_path
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import Join, KeptChange, Missing, Op, Step
from partitioning.model.meaning import RowKind
from partitioning.model.placement import KeyFormat
from partitioning.model.table_mode import CHANGELOG, Mode, Updates
from partitioning.model.watermarks import Late
from partitioning.numbers import DAYS
from partitioning.values import replace

if TYPE_CHECKING:
    from partitioning.authoring.changing_steps import ChangingSteps
    from partitioning.authoring.step_output import StepOutput


def bad_key(key: str, key_format: str, where: str) -> Iterator[Finding]:
    """Findings for a new key column."""
    if not key:
        what = "'' cannot be the key column"
        yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, where, "name the column that holds the key", key=key)
    if key_format not in tuple(KeyFormat):
        what = f"unknown key format {key_format!r}"
        yield Finding.of(Kind.DECLARATION, what, where, f"use one of {', '.join(KeyFormat)}", key_format=key_format)


def no_key(flow: StepOutput, where: str) -> Finding:
    """The finding that a flow needs a key for this."""
    return Finding.of(Kind.KEYS_DO_NOT_MEET, f"{flow.step} has no key", where, "rekey it first", step=flow.step)


def unfinished(op: Op | None, flows: Sequence[StepOutput]) -> Iterator[Finding]:
    """The finding that a partial flow must be combined first, since its number of rows depends on the number of
    tasks."""
    for flow in flows:
        if flow.unfinished and op is not Op.COMBINE:
            what = f"{flow.step} is partial: it has a row per key of each task"
            then = "combine it first"
            yield Finding.of(Kind.DECLARATION, what, f"{op or 'write'} of {_and(flows)}", then, step=flow.step)


def cannot_meet(op: Op, how: str, flows: Sequence[StepOutput]) -> Iterator[Finding]:
    """Why `op`, a join of the kind `how` or another, cannot combine flows."""
    where = f"{op} of {_and(flows)}"
    if how not in tuple(Join):
        yield Finding.of(Kind.DECLARATION, f"unknown join {how!r}", where, f"use {', '.join(Join)}", how=how)
    if len(flows) == 1 and op is not Op.SPARK:
        yield Finding.of(Kind.DECLARATION, f"there is nothing to {op} with", where, "name another flow", op=op)
    yield from unfinished(op, flows)
    if op is Op.MERGE:
        yield from _unlike(flows, where)
    else:
        yield from (no_key(flow, where) for flow in flows if not flow.key)
        if len({len(key_parts(flow.key)) for flow in flows if flow.key}) > 1:
            listed = "; ".join(f"{flow.step}: {flow.key}" for flow in flows)
            what = f"their keys have different numbers of columns ({listed})"
            several = next(parts for flow in flows if (parts := key_parts(flow.key)))
            then = f"rekey them alike, as rekey({several!r})"
            yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, where, then, listed=listed)
        # A function gets flows by position, not by name.
        aliases = [flow.alias.lower() for flow in flows if op is not Op.SPARK]
        for alias in sorted({alias for alias in aliases if aliases.count(alias) > 1}):
            what = f"SQL cannot tell the flows apart: two are named {alias!r}"
            yield Finding.of(Kind.NAME, what, where, "give the step before one of them a name=", alias=alias)


def cannot_keep(flow: StepOutput, op: str, *times: Mapping[str, timedelta]) -> Iterator[Finding]:
    """Why a flow's records cannot be kept by key for these times (by name; of each mapping at least as long as the one
    before)."""
    where = f"{op} of {flow.step}"
    if not flow.key:
        yield no_key(flow, where)
    for name, time in (each for some in times for each in some.items()):
        if time <= timedelta(0):
            yield Finding.of(Kind.DECLARATION, f"{name} is {time}", where, "give a time above 0", name=name, time=time)
        elif finding := DAYS.finding(math.ceil(time / timedelta(days=1)), where):
            yield replace(
                finding, what=f"{name} in days: {finding.what}", about=about(name=name, **dict(finding.about))
            )
    for (name, time), (longer, most) in (pair for some in times for pair in pairwise(some.items())):
        if most < time:
            what, then = f"{longer} is {most}, {name} is {time}", f"keep for as long as {name}, or longer"
            yield Finding.of(Kind.DECLARATION, what, where, then, longer=longer, most=most, name=name, time=time)


def cannot_expire(
    flow: StepOutput, op: Op, time: str | None, keep: timedelta | None, ahead: timedelta, *, running: bool
) -> Iterator[Finding]:
    """Why the keys of a flow cannot expire."""
    where = f"{op} of {flow.step}"
    if time is None and keep is None:
        return
    if time is None or keep is None:
        what, then = ("keep= says for how long, and nothing since when", "say with time= when a record happened")
        if keep is None:
            what, then = ("time= says when a record happened, and nothing for how long it is kept", "say it with keep=")
        if keep is None and op is Op.LATEST:
            then = (
                f"give as the first argument what says which record is later, as latest({time!r}), and leave time= out"
            )
            then = f"{then}; where keys are to expire, add keep="
        yield Finding.of(Kind.DECLARATION, what, where, then, time=time, keep=keep)
        if op is Op.LATEST:
            return
    if not running:
        what = "it is not running, so it keeps nothing that could expire"
        yield Finding.of(Kind.DECLARATION, what, where, "add running=True, or leave time= and keep= out", op=op)
    if flow.unfinished:
        what = f"{flow.step} is partial: a row of it is of records of any time"
        yield Finding.of(Kind.DECLARATION, what, where, "combine the records themselves", step=flow.step)
    yield from cannot_keep(flow, op, {"ahead": ahead}, {} if keep is None else {"keep": keep})
    yield from _cannot_be_over([flow], where)


def cannot_be_given_alone(flows: Sequence[StepOutput], keep: timedelta | None) -> Iterator[Finding]:
    """Why no record of these flows can be given alone by a join."""
    where = f"{Op.JOIN} of {_and(flows)}"
    if keep is not None:
        what = f"keep is {keep}, and a record that is given alone is kept for twice within"
        yield Finding.of(Kind.DECLARATION, what, where, "leave keep= out", keep=keep)
    yield from _cannot_be_over(flows, where)


def cannot_close(
    flow: StepOutput, every: timedelta, gap: timedelta | None, late: str, keep: timedelta | None, ahead: timedelta
) -> Iterator[Finding]:
    """Why a flow's windows cannot be given when they close, with this policy for late records."""
    where = f"windows of {flow.step}"
    yield from unfinished(Op.AGGREGATE, [flow])
    lengths = {"every": every} if gap is None else {"gap": gap, "every": every}
    yield from cannot_keep(flow, "windows", lengths, {"ahead": ahead}, {} if keep is None else {"keep": keep})
    yield from _cannot_be_over([flow], where)
    if late not in tuple(Late):
        what = f"unknown policy {late!r} for late records"
        yield Finding.of(Kind.DECLARATION, what, where, f"use {', '.join(Late)}", late=late)
    elif late == Late.CORRECT and gap is not None:
        what = "a late record may join two sessions, and of a row that was given nothing is taken back"
        yield Finding.of(Kind.DECLARATION, what, where, 'use late="drop" or "set aside", or leave gap= out', gap=gap)
    elif late == Late.CORRECT and keep is None:
        what = "a window is corrected for as long as its records are kept, and nothing says how long that is"
        yield Finding.of(Kind.DECLARATION, what, where, "say it with keep=", late=late)
    elif late != Late.CORRECT and keep is not None:
        what = f"keep is {keep}, and records are kept no longer than their window is open"
        then = f"leave keep= out, or use late={Late.CORRECT.value!r}"
        yield Finding.of(Kind.DECLARATION, what, where, then, keep=keep)
    if late == Late.SET_ASIDE:
        for stream in flow.pipeline.streams_of(flow.step):
            if not stream.table and not stream.sets_aside:
                what = f"stream {stream.name!r} sets no record aside, so a late one would stop the batch"
                then = 'declare it with bad_records="set aside"'
                yield Finding.of(Kind.DECLARATION, what, where, then, stream=stream.name)
        for step in _moving(flow):
            what = f"step {step.name!r} moves records, and behind it nobody knows whose they are, to set one aside"
            yield Finding.of(Kind.DECLARATION, what, where, 'use late="drop" or "correct"', step=step.name)


def _moving(flow: StepOutput) -> Iterator[Step]:
    """The steps before a flow's end after which records may lie elsewhere."""
    behind = {flow.step}
    for step in reversed(flow.pipeline.steps):
        if step.name in behind:
            behind.update(step.inputs)
            if step.rekeys or step.op in {Op.REPARTITION, Op.COMBINE, Op.SPARK}:
                yield step


def _cannot_be_over(flows: Sequence[StepOutput], where: str) -> Iterator[Finding]:
    """Why nobody would know that the time of these flows' records is over."""
    for flow in flows:
        streams = flow.pipeline.streams_of(flow.step)
        timed = [stream for stream in streams if not stream.table]
        for stream in timed:
            if not stream.time:
                what = f"stream {stream.name!r} does not say when its records happened, so none is ever over"
                yield Finding.of(Kind.DECLARATION, what, where, "declare it with time=", stream=stream.name)
        if not timed:
            what = f"{flow.step} comes from tables only, which have no times"
            yield Finding.of(Kind.DECLARATION, what, where, "declare one as a stream", step=flow.step)


def cannot_be_valid(flows: Sequence[StepOutput], missing: str, deletes: str | None) -> Iterator[Finding]:
    """Why nobody would know what is given for a record's version."""
    where = f"{Op.JOIN} of {_and(flows)}"
    if missing not in tuple(Missing):
        then = f"use {', '.join(Missing)}"
        yield Finding.of(Kind.DECLARATION, f"unknown missing {missing!r}", where, then, missing=missing)
    if deletes is not None and not deletes.strip():
        then = "name a condition over the versions, or leave it out"
        yield Finding.of(Kind.DECLARATION, "deletes is empty", where, then, deletes=deletes)


def cannot_write(flow: ChangingSteps, table: str, mode: str, deletes: str | None, updates: str) -> Iterator[Finding]:
    """Why a flow cannot be written to a table in that mode."""
    where = f"write of {flow.step} to table {table!r}"
    if any(write.table == table for write in flow.pipeline.writes):
        what = f"table {table!r} is written twice"
        yield Finding.of(Kind.NAME, what, flow.pipeline.name, "write each table once", table=table)
    yield from unfinished(None, [flow])
    if mode not in (modes := (*Mode, CHANGELOG)):
        yield Finding.of(Kind.DECLARATION, f"unknown mode {mode!r}", where, f"use {', '.join(modes)}", mode=mode)
    if mode == Mode.UPSERT and not flow.key:
        yield no_key(flow, where)
    if mode != Mode.UPSERT and deletes is not None:
        then = f"leave deletes out, or use mode={Mode.UPSERT.value!r}"
        yield Finding.of(Kind.DECLARATION, f"mode {str(mode)!r} deletes nothing", where, then, mode=mode)
    if updates not in tuple(Updates):
        then = f"use {', '.join(Updates)}"
        yield Finding.of(Kind.DECLARATION, f"unknown updates {updates!r}", where, then, updates=updates)
    if mode != Mode.UPSERT and updates == Updates.BESIDE:
        then = f"leave updates out, or use mode={Mode.UPSERT.value!r}"
        yield Finding.of(Kind.DECLARATION, f"mode {str(mode)!r} updates no rows", where, then, mode=mode)
    yield from _is_not_its_query(flow, mode, where)


def _is_not_its_query(flow: ChangingSteps, mode: str, where: str) -> Iterator[Finding]:
    """Why a table would not hold what the flow says over all records."""
    means, what, then = flow.means, "", ""
    of_batch = "to_stream() before the write takes the rows of each batch as records, if that is meant"
    if means.rows is RowKind.PARTLY:
        what, then = f"{means.step}: {means.why}", means.instead
    elif mode == Mode.UPSERT and not (means.changes or means.rows is RowKind.ALL or means.asked or flow.tells_rows):
        what = f"of a key that comes again in {flow.step} only the row of its last batch would stay"
        total = "take the latest of each key, or a running total: combine(…, running=True)"
        then = f"{total}; {of_batch} and no batch has a key twice"
    elif mode == Mode.UPSERT and means.rows is RowKind.ALL and not flow.tells_rows:
        what = f"{flow.step} has all its rows in each batch, and a key that has none any more would keep the row it had"
        then = f"use mode={Mode.REPLACE.value!r}"
    elif means.rows is RowKind.RECORDS and mode == Mode.REPLACE and not means.asked:
        what = f"records of {flow.step} come once, and each batch would take away those of the batches before it"
        then = f"use mode={Mode.APPEND.value!r}; {of_batch}"
    elif means.several and mode == Mode.UPSERT:
        what = f"{flow.step} may have several rows of a key, and an upserted table has one for each"
        then = f"aggregate them or take the latest of each key, or use mode={CHANGELOG!r}"
    elif means.changes and mode in {Mode.APPEND, Mode.REPLACE}:
        what = f"rows of {flow.step} take the place of earlier ones, which mode {str(mode)!r} would leave or lose"
        then = f"use mode={Mode.UPSERT.value!r}, or mode={CHANGELOG!r} for what comes and goes; {of_batch}"
    elif means.rows is RowKind.ALL and mode == Mode.APPEND:
        what = f"{flow.step} has all its rows in each batch, which would append them again"
        then = f"use mode={Mode.REPLACE.value!r}; {of_batch}"
    elif mode == CHANGELOG and means.rows is not RowKind.RECORDS and not flow._gives_changes:
        what = f"nobody knows what goes of {flow.step}: its rows are {means.rows}"
        then = "write the latest or a running total of it"
    if what:
        yield Finding.of(Kind.DECLARATION, what, where, then, step=flow.step, mode=mode)


def cannot_take_changes(flow: ChangingSteps, op: str) -> Iterator[Finding]:
    """Why a step cannot take rows of which some take the place of others."""
    if flow.means.changes:
        what = f"rows of {flow.step} take the place of earlier ones, and {op} does not take those back"
        then = f"give it the records that they are made of, or take what each batch gives: to_stream() before {op}"
        yield Finding.of(Kind.DECLARATION, what, f"{op} of {flow.step}", then, step=flow.step)


def cannot_change(flow: ChangingSteps, where: str) -> Iterator[Finding]:
    """Why nobody knows what goes of a flow that meets others that change."""
    if flow.means.rows is RowKind.ALL:
        (stream, *_) = flow.pipeline.streams_of(flow.step)
        what, then = f"each batch reads table {stream.name!r} whole", "declare it with kept=True"
        if stream.kept:
            what = f"each batch makes {flow.step} anew of all rows of table {stream.name!r}"
            then = f"leave that table under its own key, {stream.key}, and rekey what it meets"
        what += ", so that nobody knows which of its rows changed"
        yield Finding.of(Kind.DECLARATION, what, where, then, table=stream.name)
    else:
        what = f"rows of {flow.step} are {flow.means.rows}, and it meets rows that take the place of earlier ones"
        then = "take the latest or a running total of it before, or give to_stream() of the rows that change"
        if flow.means.rows is RowKind.RECORDS:
            then = f"take all of them that ever come, {flow.alias}.kept(), or {then}"
        yield Finding.of(Kind.DECLARATION, what, where, then, step=flow.step)


def cannot_keep_all(flow: ChangingSteps) -> Iterator[Finding]:
    """Why a flow has no records that could be kept."""
    if flow.means.rows is not RowKind.RECORDS:
        what = f"rows of {flow.step} are {flow.means.rows}, not records"
        then = "leave kept() out: rows that change are kept by what needs them"
        if not flow.means.changes:
            then = "take kept() of the records that they are made of"
        yield Finding.of(Kind.DECLARATION, what, f"kept of {flow.step}", then, step=flow.step)


def _unlike(flows: Sequence[StepOutput], where: str) -> Iterator[Finding]:
    if len({flow.step for flow in flows}) < len(flows):
        what = "a flow is merged with itself"
        yield Finding.of(Kind.DECLARATION, what, where, "name each flow once", flows=[flow.step for flow in flows])
    if len({(flow.key, flow.key_format) for flow in flows}) > 1:
        listed = ", ".join(f"{flow.step}: {flow.key or 'none'} ({flow.key_format})" for flow in flows)
        what = f"flows to merge have different keys ({listed})"
        yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, where, "rekey them alike", listed=listed)


def _and(flows: Sequence[StepOutput]) -> str:
    return " and ".join(flow.step for flow in flows)


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
        with noting(findings):
            function = import_path(migrate, where)
    refuse(findings)
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
