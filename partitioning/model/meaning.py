"""What the published rows of a result table are together, once its records have come in several batches.

A table is its query if cutting the same records into other batches gives the same rows. Some tables are not, by what
they are: rows of a batch. Others are not, because a step takes the changed rows of a batch for all rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from partitioning.model.graph import Graph, Join, Op, Step, Write, gives_expired
from partitioning.model.streams import Stream
from partitioning.model.table_mode import CHANGE_TYPE, CHANGELOG, GOES
from partitioning.values import Value, replace

# Calls in a list of columns that make several rows of one.
_UNNESTS = re.compile(r"\b(?:unnest|unlist|generate_subscripts|regexp_split_to_table)\s*\(", re.IGNORECASE)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")


class RowKind(StrEnum):
    """What the rows are that a flow has in a batch."""

    RECORDS = "records"
    """Each row once, in one of the batches."""
    NEWEST = "newest"
    """The newest row of each key that came: it takes the place of an earlier one."""
    CHANGES = "changes"
    """Rows that come and rows that go, each with how often."""
    ALL = "all"
    """All rows of now, also of keys that did not come."""
    OF_BATCH = "of a batch"
    """Rows that depend on which records came in one batch."""
    PARTLY = "partly"
    """Newest rows, of which some are missing, or which say nothing of the rows whose place they take."""


class Meaning(Value, frozen=True):
    """What a flow's rows are and, unless they are its query, the step because of which they are not, why, and what to
    write instead.

    Rows of a batch may add up, where they are combined, to what all records give. Of the newest rows, those of some
    keys may be left out. Rows that change may be `several` of a key. Rows of a batch may be `asked` for by name:
    to_stream().
    """

    rows: RowKind
    step: str = ""
    why: str = ""
    instead: str = ""
    adds_up: bool = False
    leaves_out: bool = False
    several: bool = False
    asked: bool = False

    @property
    def is_query(self) -> bool:
        """Whether the rows of all batches together are the flow's query."""
        return self.rows in {RowKind.RECORDS, RowKind.NEWEST, RowKind.CHANGES, RowKind.ALL}

    @property
    def changes(self) -> bool:
        """Whether rows of a batch take the place of earlier ones."""
        return self.rows in {RowKind.NEWEST, RowKind.CHANGES}


def meanings(graph: Graph) -> Mapping[str, Meaning]:
    """What the rows of each result table are."""
    steps = {step.name: step for step in graph.steps}
    found = {stream.name: of_stream(stream) for stream in graph.streams}
    for step in graph.steps:
        found[step.name] = of_step(step, [found[name] for name in step.inputs], steps)
    return {write.table: of_table(write, found[write.step], steps) for write in graph.writes}


def of_stream(stream: Stream) -> Meaning:
    """What the rows of a stream are."""
    return Meaning(RowKind.ALL if stream.table else RowKind.RECORDS)


def of_table(write: Write, flow: Meaning, steps: Mapping[str, Step]) -> Meaning:
    """What the rows of a table are to which those of a flow are written."""
    if flow.rows is RowKind.PARTLY:
        return flow
    if flow.leaves_out and write.mode.by_key:
        return Meaning(RowKind.PARTLY, flow.step, flow.why, "publish the newest rows, and leave rows out behind")
    if write.step in steps and is_log(steps[write.step]):
        return flow
    if write.mode.only_adds and (flow.changes or flow.rows is RowKind.ALL):
        return Meaning(RowKind.OF_BATCH, write.step, "each batch appends the rows of its keys as they are then")
    if not write.mode.keeps and flow.rows is not RowKind.ALL:
        return Meaning(RowKind.OF_BATCH, flow.step or write.step, f"mode {write.mode} keeps the rows of the last batch")
    if write.mode.by_key and flow.rows is RowKind.RECORDS:
        return Meaning(RowKind.OF_BATCH, write.step, "of a key that comes again only the row of its last batch stays")
    if write.mode.by_key and flow.rows is RowKind.ALL and not _is_of_a_table(write.step, steps):
        why = "a key that has no row any more keeps the row that it had"
        return Meaning(RowKind.PARTLY, write.step, why, "write it with mode='replace'")
    return flow


def is_log(step: Step) -> bool:
    """Whether a step gives what comes and what goes as rows of a changelog."""
    return step.op is Op.TO_STREAM and f"'{GOES}' END AS {CHANGE_TYPE} FROM (" in step.sql


def mode_of(write: Write, steps: Mapping[str, Step]) -> str:
    """The mode of a table as users call it."""
    step = steps.get(write.step)
    return CHANGELOG if step and is_log(step) else write.mode


def of_one_batch(means: Meaning, steps: Iterable[Step]) -> bool:
    """Whether rows that these steps make are of one batch's records alone, and of tables as they were then."""
    keeping = any(step.state and step.op not in {Op.TABLE, Op.UPSERT} for step in steps)
    return means.rows is RowKind.OF_BATCH and not keeping


def _is_of_a_table(name: str, steps: Mapping[str, Step]) -> bool:
    """Whether a step has just the rows of a table, of which none goes that the step does not tell."""
    step = steps.get(name)
    return step is None or step.op is Op.TABLE or (step.op is Op.UPSERT and _is_of_a_table(step.inputs[0], steps))


def of_step(step: Step, before: Sequence[Meaning], steps: Mapping[str, Step]) -> Meaning:
    """What a step makes of its inputs."""
    found = _of_step(step, before, steps)
    return replace(found, several=True) if not step.function and any(map(unnests, step.expressions)) else found


def unnests(columns: str) -> bool:
    """Whether a list of columns makes several rows of one. Subqueries are refused anyway.

    >>> unnests("a, unnest(list(b)) AS b"), unnests("'unnest(' AS b")
    (True, False)
    """
    return bool(_UNNESTS.search(_QUOTED.sub("", columns)))


def _of_step(step: Step, before: Sequence[Meaning], steps: Mapping[str, Step]) -> Meaning:
    if step.op in {Op.CHANGES, Op.KEEP, Op.ROWS} or before[0].rows is RowKind.CHANGES:
        kept = any(name in steps and steps[name].op is Op.ROWS for name in step.inputs)
        return _of_kept(step, before) if kept else _of_changes(step, before)
    in_time = any(name in steps and steps[name].op is Op.RECENT for name in step.inputs)
    match step.op:
        case Op.TABLE:
            return Meaning(RowKind.ALL)
        case Op.TO_STREAM:
            return _as_records(step, before[0])
        case Op.LATEST | Op.COMBINE | Op.PROCESS if step.state:
            return _made(step, before, RowKind.RECORDS if step.op is Op.PROCESS else RowKind.NEWEST)
        case Op.AGGREGATE if any(_gives_again(steps.get(name)) for name in step.inputs):
            return Meaning(RowKind.OF_BATCH, step.name, "a window is given again with the records that came late")
        case Op.DISTINCT | Op.RECENT | Op.PARTIAL:
            of_batch = step.op is Op.PARTIAL and not before[0].changes
            return before[0] if of_batch else _made(step, before, RowKind.RECORDS)
        case Op.AGGREGATE | Op.JOIN if in_time:
            return _made(step, before, RowKind.RECORDS)
        case Op.LATEST | Op.MERGE | Op.AGGREGATE | Op.COGROUP | Op.COMBINE | Op.JOIN:
            return _of_several(step, before)
        case Op.FILTER | Op.SELECT | Op.REKEY | Op.REPARTITION | Op.UPSERT | Op.PROCESS | Op.SPARK:
            return _passed(step, before, steps)


def _of_kept(step: Step, before: Sequence[Meaning]) -> Meaning:
    """What a step makes of all rows of the keys that changed: all that it has of these keys, or none."""
    several = step.op is Op.AGGREGATE and len(step.expressions) > 1
    if step.op is Op.JOIN:
        # Rows that a further condition keeps apart come from a full join each alone, once for each side.
        apart = len(step.expressions) > 1 and f" {Join.FULL.sql} " in step.sql
        several = apart or any(each.several for each in before)
    why = "a key that has no row any more is not told"
    return Meaning(RowKind.NEWEST, step.name, why, leaves_out=True, several=several)


def _of_changes(step: Step, before: Sequence[Meaning]) -> Meaning:
    """What a step makes of what comes and goes: changes again, but for those that end it."""
    several = any(each.several for each in before)
    match step.op:
        case Op.CHANGES:
            return Meaning(RowKind.CHANGES, several=several or before[0].rows is RowKind.RECORDS)
        case Op.REKEY | Op.MERGE if len(before) > 1 or step.op is Op.REKEY:
            return Meaning(RowKind.CHANGES, several=True)
        case Op.PARTIAL:
            return Meaning(RowKind.OF_BATCH, step.name, "it has a row for each batch", adds_up=True)
        case Op.UPSERT:
            return Meaning(RowKind.NEWEST, several=several)
        case Op.TO_STREAM:
            return Meaning(RowKind.CHANGES) if is_log(step) else _as_records(step, before[0])
        case _:
            return Meaning(RowKind.CHANGES, several=several)


def _as_records(step: Step, flow: Meaning) -> Meaning:
    """The rows of each batch, taken as records: what they are together depends on how records were cut into batches."""
    if flow.rows is RowKind.RECORDS:
        return replace(flow, asked=True)
    return Meaning(RowKind.OF_BATCH, step.name, "it takes the rows that each batch gives for records", asked=True)


def _passed(step: Step, before: Sequence[Meaning], steps: Mapping[str, Step]) -> Meaning:
    """What a step gives that looks at each row alone."""
    one = next((each for each in before if not each.is_query), before[0])
    if step.op is Op.UPSERT and len(before) > 1:
        # It gets the keys of what filters leave out, too.
        return Meaning(RowKind.NEWEST, several=one.several) if before[-1].is_query else before[-1]
    if step.op is Op.FILTER and gives_expired(step, steps):
        return Meaning(RowKind.RECORDS) if one.is_query else replace(one, adds_up=False)
    if one.rows is RowKind.NEWEST and step.op is Op.REKEY:
        why = "the row of a key goes to another place, and the row that it takes the place of stays"
        return Meaning(RowKind.PARTLY, step.name, why, "publish the newest rows, and group them where they are read")
    if one.rows is RowKind.NEWEST and step.op in {Op.FILTER, Op.PROCESS}:
        return replace(
            one,
            step=step.name,
            why="a key whose newest row it leaves out is not told, so the row before stays",
            leaves_out=True,
        )
    if one.changes and step.op is Op.SPARK:
        why = "a function on DataFrames says nothing of the rows that go"
        return Meaning(RowKind.PARTLY, step.name, why, "give it the rows of each batch as records: to_stream()")
    # Of sums of which some are left out, or others made, nobody knows what they add up to.
    return replace(one, adds_up=one.adds_up and step.op in {Op.REKEY, Op.REPARTITION})


def _gives_again(step: Step | None) -> bool:
    """Whether windows of these records are corrected by those that come late."""
    return bool(step and step.state and step.state.waits is not None and step.state.microseconds > step.state.waits)


def _made(step: Step, before: Sequence[Meaning], rows: RowKind) -> Meaning:
    """The rows that a step makes of records; of rows that take the place of others it would count both."""
    for each in before:
        # Lives of keys go by the times of records, of which a batch's sums have only the last.
        of_lives = bool(step.state and step.state.of_lives)
        combined = step.op is Op.COMBINE and each.adds_up and not of_lives
        if each.rows is RowKind.PARTLY or (each.rows is RowKind.OF_BATCH and not combined):
            return replace(each, adds_up=False)
        if each.changes or each.rows is RowKind.ALL:
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
    if any(each.changes for each in before) and kinds <= {RowKind.NEWEST, RowKind.CHANGES, RowKind.ALL}:
        why = "it gets the newest rows of the keys that came, and takes them for those of all keys"
        return Meaning(RowKind.PARTLY, step.name, why, "publish what it gets, and let who reads it do this")
    match step.op:
        case Op.JOIN:
            return Meaning(RowKind.OF_BATCH, step.name, "it joins what comes in one batch")
        case Op.MERGE:
            of_batch = next((each for each in before if each.rows is RowKind.OF_BATCH), None)
            merged = of_batch or Meaning(RowKind.OF_BATCH, step.name, "it merges rows of now")
            return replace(merged, adds_up=all(each.adds_up or each.rows is RowKind.RECORDS for each in before))
        case _:
            why = "it has a row for each batch in which a key comes"
            of_batch = next((each for each in before if each.rows is RowKind.OF_BATCH), None)
            return of_batch or Meaning(RowKind.OF_BATCH, step.name, why, adds_up=len(step.expressions) == 1)
