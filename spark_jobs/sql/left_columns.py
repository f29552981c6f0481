"""The columns that exchanges and results carry: those that the stages which read them use, and no others."""

from __future__ import annotations

from collections.abc import Mapping

from partitioning.model.graph import quote
from partitioning.model.leaving import step_left
from partitioning.model.plan import ExchangeInput, Input, Plan, ResultInput, Stage
from partitioning.model.streams import Column
from partitioning.values import replace
from spark_jobs.sql.check import PARTITION, columns_needed
from spark_jobs.sql.database import connect, create_views


def with_columns(plan: Plan) -> Plan:
    """The plan with the columns of whatever tasks leave for each other, by the SQL of its steps, which was checked."""
    if not plan.exchanges and not any(_left(read) for stage in plan.stages for read in stage.inputs):
        return plan
    available = _columns(plan)
    stages: list[Stage] = []
    # What a stage needs depends on what later ones need of it.
    left: dict[str, dict[str, Column]] = {}
    sources = {each.name: step_left(plan.stage(each.stage), each) for each in plan.exchanges}
    for stage in reversed(plan.stages):
        made = {step.name for step in stage.steps} | {read.step for read in stage.inputs}
        given = [column for write in stage.writes for column in write.columns]
        given += [column for step in made for column in left.get(step, {}).values()]
        inputs = tuple(
            _with_columns(read, stage, given, available[sources.get(read.name, read.step)]) for read in stage.inputs
        )
        for read in inputs:
            if isinstance(read, ExchangeInput | ResultInput):
                source = sources.get(read.name, read.step)
                left.setdefault(source, {}).update((column.name, column) for column in read.columns)
        stages.append(replace(stage, inputs=inputs))
    return replace(plan, stages=tuple(reversed(stages)))


def _left(read: Input) -> bool:
    return isinstance(read, ExchangeInput | ResultInput)


def _with_columns(read: Input, stage: Stage, given: list[Column], there: tuple[Column, ...]) -> Input:
    """An input with those of the columns `there` that the stage uses."""
    if not isinstance(read, ExchangeInput | ResultInput):
        return read
    needed = columns_needed(stage.steps, given, read.placement.key, there)
    # Rows that are only counted have to have something.
    return replace(read, columns=tuple(column for column in there if column.name in needed) or there[:1])


def _columns(plan: Plan) -> Mapping[str, tuple[Column, ...]]:
    """The columns of every stream and step."""
    columns = {stream.name: (*stream.columns, Column(PARTITION, "INTEGER")) for stream in plan.streams}
    columns |= {step.name: step.columns for stage in plan.stages for step in stage.steps if step.function}
    with connect() as connection:
        for name, known in columns.items():
            listed = ", ".join(f"{quote(column.name)} {column.type}" for column in known)
            connection.execute(f"CREATE TEMP TABLE {quote(name)} ({listed})")
        for step in (step for stage in plan.stages for step in stage.steps if not step.function):
            create_views(connection, [step])
            described = connection.execute(f"DESCRIBE {quote(step.name)}").fetchall()
            columns[step.name] = tuple(Column(name, kind) for name, kind, *_ in described)
    return columns
