"""Findings on tables whose rows would not be those of their query, as the pipeline changed: added ones, and those that
rows are appended to by another query."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from partitioning.authoring.settings import Settings
from partitioning.commands import BackfillAsking, Command, PlanAsking, backfill_of
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.graph import Graph
from partitioning.model.plan import Plan
from partitioning.planning.added_tables import AddedTable
from partitioning.planning.changed_queries import ChangedQuery
from partitioning.planning.origins import NAMES, step_of
from partitioning.sections import many
from partitioning.values import replace


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
