"""Added tables: those that the last batch did not write, and that lack what comes of the records of earlier batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from partitioning.model.graph import Graph, Op, Write
from partitioning.model.meaning import RowKind, meanings
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Ends
from partitioning.planning.kept_columns import kept_before
from partitioning.planning.origins import Origins, graph_of, with_known_code
from partitioning.planning.returned import Earlier
from partitioning.values import Value


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
    before = graph_of(published)
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
        renamed = next((was.table for was in before.writes if was.table not in still and _alike(was, write)), "")
        yield AddedTable(write, begin, rows.get(write.table, 0), wrote, renamed, appended)


def _alike(was: Write, now: Write) -> bool:
    return (was.step, was.mode) == (now.step, now.mode)


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
        before = graph_of(plan)
        if was := next((each for each in before.writes if each.table == write.table), None):
            were, are = map(Origins, with_known_code(before, now))
            same = were.of(was.step).identity == are.of(write.step).identity
            return plan.batch if same else None
        plan = earlier(plan.batch)
    return None
