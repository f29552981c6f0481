"""What the published rows of a result table are together, once its records have come in several batches.

A table is its query if cutting the same records into other batches gives the same rows. Some tables are not, by what
they are: rows of a batch. Others are not, because a step takes the changed rows of a batch for all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import assert_never

from partitioning.model.graph import Graph, Mode, Op, Step, Write, gives_expired
from partitioning.values import Value


class RowKind(StrEnum):
    """What the rows are that a flow has in a batch."""

    RECORDS = "records"
    """Each row once, in one of the batches."""
    NEWEST = "newest"
    """The newest row of each key that came: it takes the place of an earlier one."""
    ALL = "all"
    """All rows of now, also of keys that did not come."""
    OF_BATCH = "of a batch"
    """Rows that depend on which records came in one batch."""
    PARTLY = "partly"
    """Newest rows, of which some are missing, or which say nothing of the rows whose place they take."""


class Meaning(Value, frozen=True):
    """What a flow's rows are and, unless they are its query, the step because of which they are not, why, and what to
    write instead. Rows of a batch may add up, where they are combined, to what all records give."""

    rows: RowKind
    step: str = ""
    why: str = ""
    instead: str = ""
    adds_up: bool = False

    @property
    def is_query(self) -> bool:
        """Whether the rows of all batches together are the flow's query."""
        return self.rows in {RowKind.RECORDS, RowKind.NEWEST, RowKind.ALL}


def meanings(graph: Graph) -> Mapping[str, Meaning]:
    """What the rows of each result table are."""
    steps = {step.name: step for step in graph.steps}
    found = {stream.name: Meaning(RowKind.ALL if stream.table else RowKind.RECORDS) for stream in graph.streams}
    for step in graph.steps:
        found[step.name] = _of(step, [found[name] for name in step.inputs], steps)
    return {write.table: _of_table(write, found[write.step], steps) for write in graph.writes}


def _of_table(write: Write, flow: Meaning, steps: Mapping[str, Step]) -> Meaning:
    """What the rows of a table are to which those of a flow are written."""
    if flow.rows is RowKind.PARTLY:
        return flow
    match write.mode:
        case Mode.APPEND if flow.rows in {RowKind.NEWEST, RowKind.ALL}:
            return Meaning(RowKind.OF_BATCH, write.step, "each batch appends the rows of its keys as they are then")
        case Mode.REPLACE if flow.rows is not RowKind.ALL:
            return Meaning(RowKind.OF_BATCH, flow.step or write.step, "mode replace keeps the rows of the last batch")
        case Mode.UPSERT if flow.rows is RowKind.RECORDS:
            return Meaning(
                RowKind.OF_BATCH, write.step, "of a key that comes again only the row of its last batch stays"
            )
        case Mode.UPSERT if flow.rows is RowKind.ALL and not _is_of_a_table(write.step, steps):
            why = "a key that has no row any more keeps the row that it had"
            return Meaning(RowKind.PARTLY, write.step, why, "write it with mode='replace'")
    return flow


def _is_of_a_table(name: str, steps: Mapping[str, Step]) -> bool:
    """Whether a step has just the rows of a table, of which none goes that the step does not tell."""
    step = steps.get(name)
    return step is None or step.op is Op.TABLE or (step.op is Op.UPSERT and _is_of_a_table(step.inputs[0], steps))


def _of(step: Step, before: Sequence[Meaning], steps: Mapping[str, Step]) -> Meaning:
    """What a step makes of its inputs."""
    in_time = any(name in steps and steps[name].op is Op.RECENT for name in step.inputs)
    match step.op:
        case Op.TABLE:
            return Meaning(RowKind.ALL)
        case Op.LATEST:
            return _made(step, before, RowKind.NEWEST)
        case Op.COMBINE | Op.PROCESS if step.state:
            return _made(step, before, RowKind.NEWEST if step.op is Op.COMBINE else RowKind.RECORDS)
        case Op.DISTINCT | Op.RECENT:
            return _made(step, before, RowKind.RECORDS)
        case Op.AGGREGATE if any(_gives_again(steps.get(name)) for name in step.inputs):
            return Meaning(RowKind.OF_BATCH, step.name, "a window is given again with the records that came late")
        case Op.AGGREGATE | Op.JOIN if in_time:
            return _made(step, before, RowKind.RECORDS)
        case Op.PARTIAL:
            return before[0] if before[0].rows is not RowKind.NEWEST else _made(step, before, RowKind.RECORDS)
        case Op.MERGE | Op.AGGREGATE | Op.COGROUP | Op.COMBINE | Op.JOIN:
            return _of_several(step, before)
        case Op.FILTER | Op.SELECT | Op.REKEY | Op.REPARTITION | Op.UPSERT | Op.PROCESS | Op.SPARK:
            return _passed(step, before, steps)
        case _:
            assert_never(step.op)


def _passed(step: Step, before: Sequence[Meaning], steps: Mapping[str, Step]) -> Meaning:
    """What a step gives that looks at each row alone."""
    one = next((each for each in before if not each.is_query), before[0])
    if step.op is Op.UPSERT and len(before) > 1:
        # It gets the keys of what filters leave out, too.
        return Meaning(RowKind.NEWEST) if before[-1].is_query else before[-1]
    if step.op is Op.FILTER and gives_expired(step, steps):
        return Meaning(RowKind.RECORDS)
    if one.rows is RowKind.NEWEST and step.op is Op.REKEY:
        why = "the row of a key goes to another place, and the row that it takes the place of stays"
        return Meaning(RowKind.PARTLY, step.name, why, "publish the newest rows, and group them where they are read")
    if one.rows is RowKind.NEWEST and step.op in {Op.FILTER, Op.PROCESS, Op.SPARK}:
        why = "a key whose newest row it leaves out is not told, so the row before stays"
        return Meaning(
            RowKind.PARTLY, step.name, why, "publish the newest rows, and leave rows out where they are read"
        )
    return one


def _gives_again(step: Step | None) -> bool:
    """Whether windows of these records are corrected by those that come late."""
    return bool(step and step.state and step.state.waits is not None and step.state.microseconds > step.state.waits)


def _made(step: Step, before: Sequence[Meaning], rows: RowKind) -> Meaning:
    """The rows that a step makes of records; of rows that take the place of others it would count both."""
    for each in before:
        combined = step.op is Op.COMBINE and each.adds_up
        if each.rows is RowKind.PARTLY or (each.rows is RowKind.OF_BATCH and not combined):
            return each
        if each.rows in {RowKind.NEWEST, RowKind.ALL}:
            why = "it gets rows that take the place of others, and counts both"
            return Meaning(RowKind.PARTLY, step.name, why, "give it the records that these rows are made of")
    return Meaning(rows)


def _of_several(step: Step, before: Sequence[Meaning]) -> Meaning:
    """What a merge, an aggregate or a join makes of the rows that it gets in one batch."""
    kinds = {each.rows for each in before}
    if partly := next((each for each in before if each.rows is RowKind.PARTLY), None):
        return partly
    if kinds == {RowKind.ALL} or (kinds == {RowKind.RECORDS} and step.op is Op.MERGE):
        return before[0]
    if RowKind.NEWEST in kinds and kinds <= {RowKind.NEWEST, RowKind.ALL}:
        why = "it gets the newest rows of the keys that came, and takes them for those of all keys"
        return Meaning(RowKind.PARTLY, step.name, why, "publish what it gets, and let who reads it do this")
    match step.op:
        case Op.JOIN:
            return Meaning(RowKind.OF_BATCH, step.name, "it joins what comes in one batch")
        case Op.MERGE:
            return next(
                (each for each in before if each.step), Meaning(RowKind.OF_BATCH, step.name, "it merges rows of now")
            )
        case _:
            why = "it has a row for each batch in which a key comes"
            of_batch = next((each for each in before if each.rows is RowKind.OF_BATCH), None)
            return of_batch or Meaning(RowKind.OF_BATCH, step.name, why, adds_up=True)
