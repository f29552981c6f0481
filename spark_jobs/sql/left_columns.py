"""The columns of files between tasks: of exchanges and results those that readers use, of state all of the step.
Columns that are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from coset.sources.databases import connect_to_ask
from coset.sources.file_columns import NULL_TYPE
from partitioning.errors import Finding, noting, refuse
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import Op, StateSpec, Step, quote
from partitioning.model.leaving import step_left
from partitioning.model.mark_columns import CHANGE
from partitioning.model.plan import Plan, PlannedWrite, Stage
from partitioning.model.stage_inputs import ExchangeInput, Input, ResultInput, StateInput
from partitioning.model.streams import Column
from partitioning.values import replace
from spark_jobs.sql.column_check import PARTITION
from spark_jobs.sql.database import create_state, create_views, described, null_columns
from spark_jobs.sql.expressions import Tree, columns_named, nodes, parse
from spark_jobs.sql.kept_versions import changes_values, read_as_now

Columns = tuple[Column, ...]


def with_columns(plan: Plan) -> Plan:
    """The plan with the columns of its exchanges, results and state. The SQL of its steps has been checked.

    Raises Refused with all findings if state of earlier batches cannot be read as the columns of now.
    """
    if not plan.exchanges and not any(_leaves(stage) for stage in plan.stages):
        return plan
    available, kept = _columns(plan)
    hidden = {PARTITION, *(stream.declared.offset for stream in plan.streams)}
    stages: list[Stage] = []
    findings: list[Finding] = []
    # Later stages decide which columns a stage has to output.
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
        inputs = tuple(_as_now(read, steps, findings) for read in inputs)
        stages.append(replace(stage, inputs=inputs, steps=steps, writes=_written_anew(stage.writes, inputs)))
    refuse(findings)
    return replace(plan, stages=tuple(reversed(stages)))


def _leaves(stage: Stage) -> bool:
    return any(isinstance(read, ResultInput) for read in stage.inputs) or any(step.state for step in stage.steps)


def _keeping(step: Step, stage: Stage, given: Sequence[Column], kept: Mapping[str, Columns], hidden: set[str]) -> Step:
    """A step with the columns of its state. A record's position in its stream is one only if a step uses it."""
    if not step.state or step.function:
        return step
    there = kept[step.name]
    key = step.state.placement.key if step.state.placement else step.key
    asked = columns_needed(stage.steps, given, key, there)
    columns = tuple(column for column in there if column.name not in hidden or column.name in asked)
    return replace(step, state=replace(step.state, columns=columns))


def _as_now(read: Input, steps: Iterable[Step], findings: list[Finding]) -> Input:
    """A state input, read as the columns that its step keeps now. Why it cannot be goes to `findings`."""
    if isinstance(read, StateInput):
        with noting(findings):
            return read_as_now(read, next(step for step in steps if step.name == read.step))
    return read


def _written_anew(writes: tuple[PlannedWrite, ...], inputs: Iterable[Input]) -> tuple[PlannedWrite, ...]:
    """The tables that a stage writes. An upserted one is written anew if rows that it holds are others now."""
    changed = {read.step for read in inputs if isinstance(read, StateInput) and changes_values(read)}
    return tuple(
        replace(write, anew=True) if write.declared.mode.by_key and write.declared.step in changed else write
        for write in writes
    )


def _with_columns(read: Input, stage: Stage, given: list[Column], there: Columns) -> Input:
    """An exchange or result with those of its columns `there` that the stage uses."""
    if not isinstance(read, ExchangeInput | ResultInput):
        return read
    needed = columns_needed(stage.steps, given, read.placement.key, there)
    # A row needs a column even if it is only counted.
    return replace(read, columns=tuple(column for column in there if column.name in needed) or there[:1])


def _columns(plan: Plan) -> tuple[Mapping[str, Columns], Mapping[str, Columns]]:
    """The columns of each stream and step, and of each step's state."""
    known = {stream.name: (*stream.columns, Column(PARTITION, "INTEGER")) for stream in plan.streams}
    known |= {step.name: step.columns for step in plan.steps if step.function}
    # Of state, all but its SQL may be other in each batch.
    made = (replace(step, state=StateSpec(step.state.sql) if step.state else None) for step in plan.steps)
    return _described(tuple(known.items()), tuple(step for step in made if not step.function))


@lru_cache(maxsize=100)
def _described(
    known: tuple[tuple[str, Columns], ...], steps: tuple[Step, ...]
) -> tuple[Mapping[str, Columns], Mapping[str, Columns]]:
    """The same: of these relations the columns are `known`, and the others are made by these steps in their order.

    A process that plans batch after batch asks once for a pipeline.
    """
    columns, kept = dict(known), dict[str, Columns]()
    with connect_to_ask() as connection:
        for name, listed in known:
            typed = ", ".join(f"{quote(column.name)} {column.type}" for column in listed)
            connection.execute(f"CREATE TEMP TABLE {quote(name)} ({typed})")
        for step in steps:
            create_state(connection, step)
            create_views(connection, [step])
            made = described(connection, quote(step.name))
            if step.state:
                kept[step.name] = described(connection, step.state.sql) if step.state.sql else made
            # A merge behind an exchange takes them as the others' type too.
            nulls = null_columns(connection, step.name)
            columns[step.name] = tuple(
                replace(column, type=NULL_TYPE) if column.name.lower() in nulls else column for column in made
            )
    return columns, kept


# These steps have the columns of their input.
PASSING = {Op.FILTER, Op.REKEY, Op.REPARTITION, Op.MERGE, Op.LATEST, Op.TABLE, Op.DISTINCT, Op.RECENT, Op.UPSERT}
PASSING |= {Op.CHANGES, Op.KEEP, Op.ROWS, Op.TO_STREAM}


def columns_needed(
    steps: tuple[Step, ...], given: Iterable[Column], key: str, columns: Sequence[Column]
) -> tuple[str, ...]:
    """Which `columns` of an input a stage uses: for its steps, for its `given` output columns, and the `key`.

    The order stays. A `*`, or a function that sees a whole input, needs all columns. A name counts for every input,
    whichever it is meant for, so the result may have a column too many and never one too few.
    """
    every = tuple(column.name for column in columns)
    # Of records that are duplicates of one time, distinct keeps the one whose columns are the least: of all columns.
    if _see_all(steps, [step for step in steps if step.function or step.op is Op.DISTINCT]):
        return every
    trees = _parse_all(steps)
    if any(node["class"] == "STAR" for node in nodes(trees)):
        return every
    named = {key.lower(), *(part.lower() for made in (key, *(step.key for step in steps)) for part in key_parts(made))}
    named.add(CHANGE)
    named.update(column.name.lower() for column in given)
    named.update(part.lower() for parts in columns_named(trees) for part in parts)
    return tuple(name for name in every if name.lower() in named)


def functions_see_all(steps: Sequence[Step]) -> bool:
    """Whether a function in a stage sees all columns of an input, because no step before it selects some."""
    return _see_all(steps, [step for step in steps if step.function])


def _see_all(steps: Sequence[Step], seeing: Iterable[Step]) -> bool:
    """Whether some of the steps see all columns of an input of the stage."""
    passing = {step.name: step.inputs for step in steps if step.op in PASSING}
    made = {step.name for step in steps}
    reached = {name for step in seeing for name in step.inputs}
    while grown := {name for passed in reached & passing.keys() for name in passing[passed]} - reached:
        reached |= grown
    return bool(reached - made)


@lru_cache(maxsize=64)
def _parse_all(steps: tuple[Step, ...]) -> list[Tree]:
    """The parse trees of all expressions. They are cached because each task of a stage asks for the same ones."""
    with connect_to_ask() as connection:
        return [parse(connection, text) for step in steps for text in step.expressions]
