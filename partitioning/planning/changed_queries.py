"""Changed queries: tables whose next rows come from other steps than their rows so far, and tables that get a column
which these rows lack. Added tables, and findings on tables whose rows would not be those of their query.

State is asked about by its step. Here it is about the steps behind it, and about those that keep nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from partitioning.authoring.settings import Settings
from partitioning.commands import BackfillAsking, Command, PlanAsking, backfill_of
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.graph import Graph, KeptChange, Op, Step, Write
from partitioning.model.meaning import RowKind, meanings
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.read_ends import Ends
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.streams import Column
from partitioning.planning.kept_columns import kept_before, still_asked
from partitioning.planning.origins import (
    NAMES,
    Change,
    Origins,
    StepOrigin,
    over,
    said,
    step_of,
    told_changes,
    with_known_code,
)
from partitioning.planning.returned import Earlier, Holds, above, goes_on, with_streams
from partitioning.planning.step_texts import items
from partitioning.sections import many
from partitioning.values import Value, replace


class AddedTable(Value, frozen=True):
    """A table that lacks what comes of the records of earlier batches.

    It has `rows` if it was left out after a batch `wrote` it. `begin` are the steps behind it that keep something and
    have nothing yet. `renamed` is the table that the same was written to, which is written no more. A table that is
    `appended` to now was replaced by each batch before.
    """

    write: Write
    begin: tuple[str, ...] = ()
    rows: int = 0
    wrote: int | None = None
    renamed: str = ""
    appended: bool = False


def added_tables(
    now: Graph, published: Plan, ends: Ends, rows: Mapping[str, int], earlier: Earlier = lambda batch: None
) -> Iterator[AddedTable]:
    """The tables of a graph that the last published plan does not write, or replaces, and that would lack something.

    `rows` are the row counts of the tables that there are. A table that was left out lacks nothing if no record that
    it comes from was taken meanwhile.
    """
    before = published.graph
    kept = {step.name for step in before.steps if step.state}
    there, still = {write.table: write.mode for write in before.writes}, {write.table for write in now.writes}
    for write in now.writes:
        appended = write.mode.only_adds and write.table in there and not there[write.table].keeps
        if write.table in there and not appended:
            continue
        above = now.above(write.step)
        begin = tuple(
            step.name
            for step in now.steps
            if step.name in above and step.state and step.op is not Op.TABLE and not kept_before(step, kept)
        )
        wrote = _wrote(write, now, published, earlier) if write.table in rows and not appended else None
        if _is_whole(write, now, begin) or not has_taken(now, write, ends, wrote):
            continue
        left = (was for was in before.writes if was.table not in still)
        renamed = next((was.table for was in left if (was.step, was.mode) == (write.step, write.mode)), "")
        yield AddedTable(write, begin, rows.get(write.table, 0), wrote, renamed, appended)


def _is_whole(write: Write, now: Graph, begin: tuple[str, ...]) -> bool:
    """Whether the first batch gives all rows of a table: its rows are of now, or of that batch, or all are written from
    what a step keeps."""
    rows = meanings(now)[write.table].rows
    if write.mode.by_key:
        return rows is RowKind.ALL or write.step not in begin
    return not write.mode.keeps and (rows is RowKind.ALL or not begin)


def has_taken(now: Graph, write: Write, ends: Ends, since: int | None = None) -> bool:
    """Whether a batch, after the one that wrote the table last, took records that it comes from. Tables are read
    whole."""
    above = [stream for stream in now.streams if stream.name in now.above(write.step)]
    records = [stream for stream in above if not stream.table] or above
    known = (progress for stream in records if (progress := ends.stream(stream.name)))
    return any(end.end > 0 and end.batch > (-1 if since is None else since) for read in known for end in read.ends)


def _wrote(write: Write, now: Graph, published: Plan, earlier: Earlier) -> int | None:
    """The last batch that wrote the same to a table."""
    plan = earlier(published.batch)
    while plan is not None:
        before = plan.graph
        if was := next((each for each in before.writes if each.table == write.table), None):
            were, are = map(Origins, with_known_code(before, now))
            same = were.of(was.step).identity == are.of(write.step).identity
            return plan.batch if same else None
        plan = earlier(plan.batch)
    return None


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
    before, graph = with_known_code(shown.graph, now.graph)
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
    before, graph = with_known_code(shown.graph, over(now, shown.streams))
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


def unlike_queries(
    pipeline: str,
    now: Graph,
    published: Plan,
    settings: Settings,
    tables: Iterable[AddedTable | ChangedQuery],
    begun: frozenset[str] = frozenset(),
    asked: Collection[str] = (),
) -> Iterator[Finding]:
    """A finding on each of these tables that would not be its query and that the settings do not name. Whoever lets a
    step begin with nothing is asked about added tables with it: those steps are `begun`. A table may be named as a step
    that is `asked` about, too."""
    for each in tables:
        table, above = each.write.table, now.above(each.write.step)
        also = f", which answers for step {table!r} too" if table in asked and table not in above else ""
        match each:
            case AddedTable():
                named = settings.go_on if each.rows else settings.begin_anew
                found = None if table in named or begun & above else _lacks(pipeline, each, published, now, also)
            case ChangedQuery():
                # Whoever lets a step before it begin anew by that name has read of both.
                named = (*settings.go_on, *(above & {*settings.begin_anew}))
                found = None if table in named else _is_of_two(pipeline, each, published, now, also)
        if found is not None:
            yield found


def by_change(findings: Iterable[Finding], now: Graph) -> Iterator[Finding]:
    """The findings, those that one changed step has in several steps and tables as one, with all tables that it
    reaches."""
    found = dict[object, list[Finding]]()
    for each in findings:
        values = dict(each.about)
        change = tuple(str(values.get(name, "")) for name in ("noun", "was", "now_is"))
        found.setdefault(change if step_of(change[0]) else id(each), []).append(each)
    for some in found.values():
        yield some[0] if len(some) == 1 else _as_one(some, now)


def _as_one(found: Sequence[Finding], now: Graph) -> Finding:
    first = found[0]
    step = step_of(str(dict(first.about)["noun"]))
    reached = [repr(write.table) for write in now.writes if step in now.above(write.step)]
    change = next(each.what for each in found if each.kind is first.kind).partition(": it would have rows")[0]
    what = f"{change}, which reaches table{'s' * (len(reached) > 1)} {' and '.join(reached)}"
    return replace(
        first,
        what=what,
        where=f"{first.where}, and {many(len(found) - 1, 'more step or table', 'more steps and tables')}",
        next=(*first.steps, "; `--go-on` answers for the others too, `--begin-anew` for this one alone"),
        each=tuple(replace(each, what=what) for each in found),
    )


def _lacks(pipeline: str, added: AddedTable, published: Plan, now: Graph, also: str) -> Finding:
    table, step = added.write.table, added.write.step
    came = "what comes from this batch on, and nothing of the records of earlier batches"
    where = f"table {table!r}, which batch {published.batch} did not write"
    if added.appended:
        what, where = "each batch replaced it, and its rows lack what came of earlier ones", f"table {table!r}"
    elif added.rows:
        since = f" since batch {added.wrote}" if added.wrote is not None else ""
        what = f"it was left out{since}, and its {many(added.rows, 'row')} lack what came of the records meanwhile"
    else:
        what = f"the table is new, and would have only {came}"
    # What only writes the table has its name.
    if begin := [name for name in added.begin if not name.startswith(f"{table}.")]:
        what += f"; {' and '.join(begin)} would begin with nothing, too"
    back = f"write {step!r} to {added.renamed!r} again, as it does the same; or " if added.renamed else ""
    whole = _whole(pipeline, now, published)
    if added.appended:
        whole = ("keep its mode, or to have it whole, write to a table of another name",)
    asked = PlanAsking(pipeline, **({"go_on": table} if added.rows else {"begin_anew": table}))
    return Finding.of(
        Kind.TABLE_BEGINS,
        what,
        where,
        (back, *whole, "; or take it as it would be, by its name: ", asked, also),
        table=table,
        steps=list(added.begin),
        renamed=added.renamed,
    )


def _is_of_two(pipeline: str, changed: ChangedQuery, published: Plan, now: Graph, also: str) -> Finding:
    table, of_names = changed.write.table, all(noun.startswith(NAMES) for noun, _, _ in changed.changes)
    alone = changed.changes[0] if len(changed.changes) == 1 and not changed.columns else ()
    return Finding.of(
        Kind.TABLE_QUERY,
        f"{changed}: it would have rows of both queries",
        f"table {table!r}, as batch {published.batch} wrote it",
        (
            "name its columns otherwise; or " if of_names and not changed.columns else "change it back; or ",
            *_whole(pipeline, now, published),
            "; or keep its rows as they are, by its name: ",
            PlanAsking(pipeline, go_on=table),
            also,
        ),
        table=table,
        **dict(zip(("noun", "was", "now_is"), alone, strict=bool(alone))),
    )


def _whole(pipeline: str, now: Graph, published: Plan) -> tuple[str | Command, ...]:
    if rebuilt := rebuilt_by(pipeline, now, published):
        return (f"to have it whole, make it {rebuilt[0]}", *rebuilt[1:])
    return ("to have it whole, write it in a pipeline of its own",)


def rebuilt_by(pipeline: str, now: Graph, published: Plan | None) -> tuple[str | Command, ...]:
    """By which backfill a step gets what it would have kept. There is none if batches read other streams."""
    if published is None or {stream.name for stream in now.streams} != {each.name for each in published.streams}:
        return ()
    of = backfill_of(pipeline)
    return "by a backfill of all batches: ", BackfillAsking(of[0] if of else pipeline, 0, cascade=True)
