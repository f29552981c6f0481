"""Changed queries: tables whose next rows come from other steps than their rows so far, and tables that get a column
which these rows lack.

What a step keeps is asked about by that step. Here it is about the steps behind it, and about those that keep nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from partitioning.model.graph import Graph, Op, Step, Write
from partitioning.model.kept_change import KeptChange
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.read_ends import Ends
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.streams import Column
from partitioning.planning.added_tables import has_taken
from partitioning.planning.kept_columns import kept_before, still_asked
from partitioning.planning.origins import (
    Change,
    Origins,
    StepOrigin,
    graph_of,
    items,
    over,
    said,
    told_changes,
    with_known_code,
)
from partitioning.planning.returned import Earlier, Holds, above, goes_on, with_streams
from partitioning.values import Value, replace

# A column, or all, without another value; and a name in an item whose own name is not seen.
_AS_IT_IS = re.compile(r'[\w."]+|([\w"]+\.)?\*(?!.*\bREPLACE\b).*', re.IGNORECASE | re.DOTALL)
_WORD = re.compile(r"\w+")


class ChangedQuery(Value, frozen=True):
    """A table whose query has `changes`: what changed, from what, to what; and `columns` that it did not have."""

    write: Write
    changes: tuple[Change, ...]
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        changed = map(said, self.changes)
        return "; ".join([*changed, *([f"it has no column {' and '.join(self.columns)} yet"] if self.columns else [])])


class Now(Value, frozen=True):
    """What is to be planned: the graph, the streams that it reads, and the columns of its tables. Of some streams
    records are `lost`."""

    graph: Graph
    streams: tuple[PlannedStream, ...]
    columns: Mapping[str, tuple[Column, ...]]
    lost: frozenset[str] = frozenset()


def changed_queries(
    now: Now,
    shown: Plan,
    ends: Ends,
    asked: Collection[str] = (),
    earlier: Earlier = lambda batch: None,
    *,
    steps_ask: bool = True,
) -> Iterator[ChangedQuery]:
    """The tables that would have rows of two queries now: those that a batch wrote, and those to come.

    `asked` are the steps that keep something, and that it is asked about for themselves, as about others that keep
    something if `steps_ask`. A stream that no batch read
    is no change, nor is one that was away and of which nothing is lost.
    """
    before, graph = with_known_code(graph_of(shown), now.graph)
    now = replace(now, graph=graph)
    were, there = Origins(before), {write.declared.table: write for write in shown.writes()}
    were_keeping = {step.name: step for step in before.steps if step.state}
    kept = were_keeping.keys()
    keeping = {step.name: step for step in now.graph.steps if step.state}

    def is_asked(was: StepOrigin, is_now: StepOrigin) -> bool:
        step = keeping.get(is_now.name)
        return steps_ask and step is not None and (step.name in asked or _kept_as_it_was(step, was, kept))

    def is_said(step: Step) -> bool:
        declared = still_asked(step, were_keeping.get(kept_before(step, kept)))
        return step.name in asked or declared != KeptChange()

    for write in now.graph.writes:
        old = there.get(write.table)
        same = old is not None and old.declared.mode is write.mode and write.mode.keeps
        if old is None or not same or not has_taken(now.graph, write, ends):
            continue
        changes = tuple[Change, ...]()
        columns = tuple(_new_columns(old, write, now, shown))
        if write.mode.by_key:
            above = (keeping[name] for name in now.graph.above(write.step) & keeping.keys())
            columns = () if any(is_said(step) for step in above) else columns
        else:
            known = _known(write, now.graph, shown, ends)
            was, is_now = were.of(old.declared.step), Origins(known).of(write.step)
            changes = tuple(told_changes(was, is_now, is_asked))
            if changes and goes_on(write.step, _writes(write), known, shown, earlier, ends, now.lost):
                continue
        if changes or columns:
            yield ChangedQuery(write, changes, columns)


def changed_since(now: Graph, shown: Plan) -> Iterator[Change]:
    """What changed in the queries of the tables that a plan's batch wrote, whether or not anything of it is asked."""
    before, graph = with_known_code(graph_of(shown), over(now, shown.streams))
    were, are = Origins(before), Origins(graph)
    there = {write.table: write.step for write in before.writes}
    for write in graph.writes:
        if write.table in there:
            yield from told_changes(were.of(there[write.table]), are.of(write.step))


def _kept_as_it_was(step: Step, was: StepOrigin, kept: Collection[str]) -> bool:
    """Whether it is told by what a step keeps that it gives the same rows. Distinct records do not keep how near they
    were."""
    return kept_before(step, kept) == was.name and step.op is not Op.DISTINCT


def _known(write: Write, now: Graph, shown: Plan, ends: Ends) -> Graph:
    """The graph without the streams that no batch has read, if what is left gives rows of the table too."""
    read = {stream.name for stream in shown.streams}
    known = {stream.name for stream in now.streams if stream.name in read or ends.stream(stream.name)}
    return with_streams(above(write.step, now), known) or now


def _writes(write: Write) -> Holds:
    """The graphs that write the step to the table."""
    return lambda graph: any((each.table, each.step) == (write.table, write.step) for each in graph.writes)


def _new_columns(old: PlannedWrite, write: Write, now: Now, shown: Plan) -> Iterator[str]:
    """The columns that a table gets, but for those that streams got and that are taken as they are: no record of before
    has a value in these. Of a stream that declares its columns, records may have had others all along."""
    had, names = {column.name for column in old.columns}, now.graph.above(write.step)
    known = {column.name for stream in shown.streams if stream.name in names for column in stream.columns}
    got = (stream for stream in now.streams if stream.name in names and not stream.declared.columns)
    come = {column.name for stream in got for column in stream.columns} - known
    made = {
        name
        for step in now.graph.steps
        if step.name in names
        for text in step.expressions[:1]
        for name, item in items(text).items()
        if not _AS_IT_IS.fullmatch(item)
        for name in (name, *_WORD.findall(name))
    }
    for column in now.columns.get(write.table, ()):
        if column.name not in had and (column.name not in come or column.name in made):
            yield column.name
