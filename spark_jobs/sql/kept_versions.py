"""Kept versions: how rows that a step kept in other columns are read as rows of the columns that it keeps now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import duckdb

from coset.sources.databases import connect_to_ask, words_of
from coset.sources.evolution import common_type
from partitioning.errors import Finding, Refused, refuse
from partitioning.imports import imported
from partitioning.kinds import Kind
from partitioning.model.graph import ColumnChange, How, KeptChange, KeptVersion, Op, Step, quote
from partitioning.model.leaving import BATCH, GONE, TIME, state_columns
from partitioning.model.stage_inputs import StateInput
from partitioning.model.streams import Column
from partitioning.planning.kept_columns import without_earlier
from partitioning.values import replace
from spark_jobs.sql.database import described
from spark_jobs.sql.expressions import Rules, parse

Columns = tuple[Column, ...]

# Of these a pipeline has to say what is in a new column of old rows: a missing value is a wrong one.
_MUST_SAY = {Op.COMBINE, Op.PROCESS}


def read_as_now(read: StateInput, step: Step) -> StateInput:
    """The state input, with all its runs read as the columns that its step keeps now.

    Raises Refused with all findings if the pipeline does not say how a column becomes what it is now, or if an
    expression cannot be evaluated.
    """
    assert step.state
    now, before, declared = state_columns(step.state), read.columns, read.declared or KeptChange()
    if not before or (before == now and not declared.migrates):
        return replace(read, declared=None)
    findings: list[Finding] = []
    changes = tuple(_changes(read, step, now, findings))
    if not findings:
        findings.extend(_wrong(read, changes, now))
    refuse(findings)
    told = replace(read, changes=changes, declared=read.declared if changes else None)
    if declared.migrates:
        return told
    versions = [*read.versions, KeptVersion(before, ())]
    plain = len(versions)
    reading = projection(changes, now)
    made = tuple(replace(version, readings=(*version.readings, reading)) for version in versions)
    runs = tuple(replace(run, version=run.version or plain) for run in read.runs)
    return _without_unused(replace(told, columns=now, versions=made, runs=runs))


def changes_values(read: StateInput) -> bool:
    """Whether rows that were kept have other values now, not only null or no further ones."""
    return any(change.how is How.MIGRATED or change.sql not in {"", "NULL"} for change in read.changes)


def projection(changes: Sequence[ColumnChange], now: Sequence[Column]) -> str:
    """The SELECT list that makes rows in the columns of `now` of rows that were kept before."""
    made = {change.name: change.sql for change in changes if change.sql}
    return ", ".join(
        f"CAST({made.get(column.name, quote(column.name))} AS {column.type}) AS {quote(column.name)}" for column in now
    )


def _changes(read: StateInput, step: Step, now: Columns, findings: list[Finding]) -> Iterator[ColumnChange]:
    """What changes in each column. Demands on the pipeline about one go to `findings`."""
    findings.extend(_misnamed(read, now))
    declared, were = read.declared or KeptChange(), {column.name: column.type for column in read.columns}
    begins, migrate = dict(declared.begins), dict(declared.migrate)
    for column in now:
        name, kind, was = column.name, column.type, were.get(column.name, "")
        if name in migrate:
            yield ColumnChange(name, How.MIGRATED, was, kind, migrate[name])
        elif was == kind:
            continue
        elif declared.function:
            yield ColumnChange(name, How.MIGRATED, was, kind)
        elif not was and (name in begins or step.op not in _MUST_SAY):
            yield ColumnChange(name, How.BEGINS, "", kind, begins.get(name, "NULL"))
        elif was and common_type(was, kind) == kind:
            yield ColumnChange(name, How.WIDENED, was, kind)
        else:
            findings.append(_unsaid(read, column, was))
    kept = {column.name for column in now}
    yield from (ColumnChange(name, How.DROPPED, were[name]) for name in were if name not in kept)


def _misnamed(read: StateInput, now: Columns) -> Iterator[Finding]:
    """Columns of a declaration that are not kept, or that are what rows are found by."""
    declared, kept = read.declared or KeptChange(), {column.name for column in now}
    named = {column for column, _ in (*declared.begins, *declared.migrate)}
    for name in sorted(named & {read.placement.key, TIME.name, BATCH.name, GONE.name}):
        yield _finding(read, f"column {name} of what it kept cannot be made anew", "leave it out", name)
    for name in sorted(named - kept):
        then = f"name one that it keeps: {', '.join(sorted(kept - {BATCH.name, GONE.name}))}"
        yield _finding(read, f"it keeps no column {name}", then, name)


def _unsaid(read: StateInput, column: Column, was: str) -> Finding:
    """The finding that the pipeline has to say what becomes of a column, and how."""
    name, kind = column.name, column.type
    if not was:
        line = f'pipeline.changed("{read.step}", begins={{"{name}": None}}){without_earlier([name])}'
        then = f"say in the pipeline what is in it of rows kept before, with a value or None: {line}"
        return _finding(read, f"its column {name} {kind} is new, and no row kept has it", then, name)
    line = f'pipeline.changed("{read.step}", migrate={{"{name}": \'"{name}"\'}})'
    then = f"cast it to what it was, or say in the pipeline how rows kept before become so: {line}"
    return _finding(read, f"its column {name} is {kind} and was {was}, which may not fit", then, name)


def _wrong(read: StateInput, changes: Sequence[ColumnChange], now: Columns) -> Iterator[Finding]:
    """Why an expression cannot be evaluated on a row by itself, or a function not be called."""
    if read.declared and read.declared.function:
        try:
            imported(read.declared.function, f"change of step {read.step!r}")
        except Refused as refusal:
            yield from refusal.findings
    known = {column.name.lower() for column in read.columns}
    with connect_to_ask() as connection:
        rules = Rules(connection)
        listed = ", ".join(f"{quote(column.name)} {column.type}" for column in read.columns)
        connection.execute(f"CREATE TEMP TABLE kept_before ({listed})")
        types = {column.name: column.type for column in now}
        for change in (change for change in changes if change.sql):
            where = f"change of step {read.step!r}, column {change.name}: {change.sql}"
            try:
                broken = rules.broken(parse(connection, change.sql), aggregates=False, columns=known, relations=set())
                yield from (Finding.of(Kind.SQL, what, where, then, wrong=what) for what, then in broken.items())
                if not broken:
                    described(connection, f"SELECT CAST({change.sql} AS {types[change.name]}) FROM kept_before")
            except duckdb.Error as error:
                what = words_of(error)
                yield Finding.of(Kind.SQL, what, where, f"correct it; it kept {_names(read.columns)}", said=what)
            except Refused as refusal:
                yield from (replace(finding, where=where) for finding in refusal.findings)


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(column.name for column in columns if column not in {BATCH, GONE})


def _without_unused(read: StateInput) -> StateInput:
    """The input without the versions that no run has any more."""
    used = sorted({run.version for run in read.runs} - {0})
    numbers: Mapping[int, int] = {0: 0} | {version: number for number, version in enumerate(used, 1)}
    return replace(
        read,
        versions=tuple(read.versions[version - 1] for version in used),
        runs=tuple(replace(run, version=numbers[run.version]) for run in read.runs),
    )


def _finding(read: StateInput, what: str, then: str, column: str) -> Finding:
    where = f"state of {read.step}, left by batch {read.batch}"
    return Finding.of(Kind.STATE_CHANGED, what, where, then, column=column)
