"""The columns of what tasks leave: those that the stages use which read it, and of state all that a step may give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.graph import Step, quote
from partitioning.model.leaving import state_columns, step_left
from partitioning.model.plan import ExchangeInput, Input, Plan, ResultInput, Stage, StateInput
from partitioning.model.streams import Column
from partitioning.values import replace
from spark_jobs.sql.column_check import PARTITION, columns_needed
from spark_jobs.sql.database import connect_to_ask, create_state, create_views

Columns = tuple[Column, ...]


def with_columns(plan: Plan) -> Plan:
    """The plan with the columns of whatever tasks leave for each other, by the SQL of its steps, which was checked.

    Raises Refused, with all findings, if what a step kept in earlier batches has other columns.
    """
    if not plan.exchanges and not any(_leaves(stage) for stage in plan.stages):
        return plan
    available, kept = _columns(plan)
    hidden = {PARTITION, *(stream.declared.offset for stream in plan.streams)}
    stages: list[Stage] = []
    findings: list[Finding] = []
    # What a stage needs depends on what later ones need of it.
    left: dict[str, dict[str, Column]] = {}
    sources = {each.name: step_left(plan.stage(each.stage), each) for each in plan.exchanges}
    for stage in reversed(plan.stages):
        made = {step.name for step in stage.steps} | {read.step for read in stage.inputs}
        given = [column for write in stage.writes for column in write.columns]
        given += [column for step in made for column in left.get(step, {}).values()]
        steps = tuple(_keeping(step, stage, given, kept, hidden) for step in stage.steps)
        given += [column for step in steps if step.state for column in step.state.columns]
        inputs = tuple(
            _with_columns(read, stage, given, available[sources.get(read.name, read.step)]) for read in stage.inputs
        )
        for read in inputs:
            if isinstance(read, ExchangeInput | ResultInput):
                source = sources.get(read.name, read.step)
                left.setdefault(source, {}).update((column.name, column) for column in read.columns)
        inputs = tuple(_grown(read, steps) for read in inputs)
        findings.extend(_changed(steps, inputs))
        stages.append(replace(stage, inputs=inputs, steps=steps))
    if findings:
        raise Refused(*findings)
    return replace(plan, stages=tuple(reversed(stages)))


def _leaves(stage: Stage) -> bool:
    return any(isinstance(read, ResultInput) for read in stage.inputs) or any(step.state for step in stage.steps)


def _keeping(step: Step, stage: Stage, given: Sequence[Column], kept: Mapping[str, Columns], hidden: set[str]) -> Step:
    """A step with the columns that it keeps: a record's place in its stream only if it is asked for."""
    if not step.state or step.function:
        return step
    there = kept[step.name]
    key = step.state.placement.key if step.state.placement else step.key
    asked = columns_needed(stage.steps, given, key, there)
    columns = tuple(column for column in there if column.name not in hidden or column.name in asked)
    return replace(step, state=replace(step.state, columns=columns))


def _kept(steps: Iterable[Step]) -> Mapping[str, set[Column]]:
    return {step.name: set(state_columns(step.state)) for step in steps if step.state}


def _grown(read: Input, steps: Iterable[Step]) -> Input:
    """What was kept, all of it to be left anew if the step keeps more columns now, so that all runs have the same."""
    if not isinstance(read, StateInput) or not read.columns or _kept(steps)[read.step] <= set(read.columns):
        return read
    return replace(read, runs=tuple(replace(run, merged=True) for run in read.runs))


def _changed(steps: Iterable[Step], inputs: Iterable[Input]) -> Iterable[Finding]:
    for read in inputs:
        if isinstance(read, StateInput) and set(read.columns) - _kept(steps)[read.step]:
            changed = _kept(steps)[read.step] ^ set(read.columns)
            listed = ", ".join(sorted(f"{column.name} {column.type}" for column in changed))
            yield Finding(
                Kind.STATE_CHANGED,
                f"its columns are not those of this batch: {listed}",
                f"state of {read.step}, left by batch {read.batch}",
                "cast them to what they were, or give the step another name and ask for that with --begin-anew",
                about(listed=listed),
            )


def _with_columns(read: Input, stage: Stage, given: list[Column], there: Columns) -> Input:
    """An input with those of the columns `there` that the stage uses."""
    if not isinstance(read, ExchangeInput | ResultInput):
        return read
    needed = columns_needed(stage.steps, given, read.placement.key, there)
    # Rows that are only counted have to have something.
    return replace(read, columns=tuple(column for column in there if column.name in needed) or there[:1])


def _columns(plan: Plan) -> tuple[Mapping[str, Columns], Mapping[str, Columns]]:
    """The columns of every stream and step, and those of what steps keep."""
    columns = {stream.name: (*stream.columns, Column(PARTITION, "INTEGER")) for stream in plan.streams}
    columns |= {step.name: step.columns for stage in plan.stages for step in stage.steps if step.function}
    kept: dict[str, Columns] = {}
    with connect_to_ask() as connection:
        for name, known in columns.items():
            listed = ", ".join(f"{quote(column.name)} {column.type}" for column in known)
            connection.execute(f"CREATE TEMP TABLE {quote(name)} ({listed})")

        def described(sql: str) -> Columns:
            return tuple(Column(name, kind) for name, kind, *_ in connection.execute(f"DESCRIBE {sql}").fetchall())

        for step in (step for stage in plan.stages for step in stage.steps if not step.function):
            create_state(connection, step)
            create_views(connection, [step])
            columns[step.name] = described(quote(step.name))
            if step.state:
                kept[step.name] = described(step.state.sql) if step.state.sql else columns[step.name]
    return columns, kept
