"""Beginnings: the steps that cannot continue from their state, because the pipeline changed.

Such a step begins with nothing, or continues from rows that mean something else. It does either only if a user asked
for it by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from partitioning.authoring.settings import Settings
from partitioning.commands import Command, Forget, PlanAsking
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.graph import Graph, Op, Step, Write
from partitioning.model.plan import Plan
from partitioning.model.read_ends import NOTHING, Ends
from partitioning.model.sources import IcebergSource
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.streams import Column
from partitioning.model.task_engine import Engine, OtherAnswer
from partitioning.planning.changed_queries import (
    Now,
    added_tables,
    by_change,
    changed_queries,
    rebuilt_by,
    unlike_queries,
)
from partitioning.planning.kept_columns import changes_before, changes_itself, declaration, kept_before, still_asked
from partitioning.planning.origins import NAMES, NEW, Change, Origins, over, said, with_known_code
from partitioning.planning.returned import Earlier, goes_on, keeps
from partitioning.planning.watermarks import waits_changed
from partitioning.sections import many
from partitioning.values import Value

# The noun of a change of DuckDB's version, and how many other answers are told with it.
ENGINE = "engine"
_TOLD = 3


class Beginning(Value, frozen=True):
    """A step with state that cannot continue from it, and why.

    The step is new (perhaps the step `renamed` of the last batch) or has `changes`: what changed, from what, to what.
    It may be asked to continue only if the step `itself` is unchanged. `tables` are the tables computed from it. `ways`
    has the line that a pipeline can add for the step to continue, if there is one.
    """

    step: str
    tables: tuple[Write, ...]
    changes: tuple[Change, ...] = ()
    itself: bool = False
    renamed: str = ""
    ways: str = ""


class Settled(Value, frozen=True):
    """What users asked for: the steps that begin `anew`, and those that go `on` although a step before them changed. Of
    these, or by their own names, `tables` may not be their queries any more."""

    anew: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


def beginnings(now: Graph, before: Graph, written: Mapping[str, int | None]) -> Iterator[Beginning]:
    """The steps that cannot continue from the state of the steps `before`. `written` are the tables that have rows."""
    now, before = with_known_code(now, before)
    kept = {step.name: step for step in before.steps if step.state}
    were, are = Origins(before), Origins(now)
    for step in now.steps:
        if not step.state:
            continue
        tables = tuple(write for write in now.writes if write.table in written and step.name in now.above(write.step))
        if not (name := kept_before(step, kept)):
            # A step that keeps a table reads all of it first.
            if tables and step.op is not Op.TABLE:
                yield Beginning(step.name, tables, renamed=_renamed(step, now, kept, were, are))
            continue
        was = kept[name]
        itself, ways = (*changes_itself(was, step), *waits_changed(was, before, step, now)), declaration(was, step)
        changes = (*itself, *(() if still_asked(step, was).migrates else changes_before(was, step, were, are)))
        if changes:
            columns = [noun for noun, _, _ in itself] == ["columns"]
            yield Beginning(step.name, tables, changes, bool(itself), ways=ways if columns else "")


def mixing(now: Graph, before: Graph, engine: Engine | None) -> Iterator[Beginning]:
    """The steps that would continue from rows of another version of DuckDB, with other values of a function of theirs
    or of a step above."""
    if engine is None or not engine.mixing:
        return
    kept = {step.name: step for step in before.steps if step.state}
    for step in now.steps:
        name = kept_before(step, kept) if step.state else ""
        other = [each for each in engine.mixing if now.above(step.name) & set(each.used_by)]
        if name and other and not still_asked(step, kept[name]).migrates:
            change = (ENGINE, f"DuckDB {engine.was}", f"{engine}, where {told(other)}")
            tables = tuple(write for write in now.writes if step.name in now.above(write.step))
            yield Beginning(step.name, tables, (change,))


def told(answers: Sequence[OtherAnswer]) -> str:
    """What some answers were and are now, the first of them."""
    more = f"; and {len(answers) - _TOLD:,} more" if len(answers) > _TOLD else ""
    return f"{'; '.join(map(str, answers[:_TOLD]))}{more}"


def settled(
    pipeline: str,
    now: Graph,
    streams: Sequence[PlannedStream],
    published: Plan | None,
    settings: Settings,
    rows: Mapping[str, int] | None = None,
    ends: Ends = NOTHING,
    earlier: Earlier = lambda batch: None,
    engine: Engine | None = None,
    shown: Plan | None = None,
    columns: Mapping[str, tuple[Column, ...]] | None = None,
) -> Settled:
    """The steps that begin anew, and those that continue after a change before them, as the settings ask.

    `rows` are the row counts of the result tables, `columns` what they are to have. A step goes on unasked after
    streams above it were left out and are back, if nothing of them is lost, by their `ends` and the `earlier` plans.
    `engine` is what tasks are going to run in, `shown` the plan whose rows the tables have, if it is not `published`.
    Raises Refused, with all findings, if a step would do either unasked otherwise, or a table would not be its query.
    """
    now = over(now, streams)
    findings = [*_unknown(now, published, settings), *_misnamed(pipeline, now)]
    anew, on = list[str](), list[str]()
    # If a pipeline has published nothing, its table may have been another's.
    before = published.graph if published else Graph((), (), ())
    written: dict[str, int | None] = dict.fromkeys(write.table for write in before.writes)
    written |= rows or {}
    written = {table: count for table, count in written.items() if count != 0}
    mixed = {each.step: each for each in mixing(now, before, engine)}
    changed = {each.step: each for each in beginnings(now, before, written)}
    shown = shown or published
    added = tuple(added_tables(now, shown, ends, rows or {}, earlier)) if shown else ()
    accepted = {each.write.table for each in added}
    planned = Now(now, tuple(streams), columns or {}, _lost(settings))
    others = tuple(changed_queries(planned, shown, ends, changed, earlier)) if shown else ()
    # Whoever names one step or table that a change reaches was told of all of them.
    going = [each.changes for each in changed.values() if each.step in settings.go_on and not each.itself]
    going += [each.changes for each in others if each.write.table in settings.go_on]
    known = {change for changes in going for change in changes}
    for beginning in (mixed | changed).values():
        goes_on_too = beginning.step in settings.go_on or {*beginning.changes} <= known
        if goes_on_too and beginning.changes and not beginning.itself:
            on.append(beginning.step)
        elif beginning.step in settings.begin_anew or _asks_anew(beginning.step, now, before):
            anew.append(beginning.step)
        elif beginning.step in mixed or not (
            published and _is_whole_again(beginning, now, published, settings, ends, earlier)
        ):
            new = [each.write.table for each in added if beginning.step in now.above(each.write.step)]
            findings.extend(_findings(pipeline, beginning, published, now, streams, written, ends, new))
    kept = {step.name for step in before.steps if step.state}
    told = {*mixed, *changed}
    anew += [step.name for step in now.steps if step.name in kept - told and _asks_anew(step.name, now, before)]
    findings.extend(_not_kept_any_more(pipeline, streams, before, settings))
    # A user who lets a step begin with nothing for a table with rows is asked about the others too.
    begun = frozenset(name for name, each in changed.items() if name in anew or not each.changes)
    if shown:
        accepted |= {each.write.table for each in others}
        asked = (each for each in others if each.columns or not {*each.changes} <= known)
        findings.extend(unlike_queries(pipeline, now, shown, settings, (*added, *asked), begun, mixed | changed))
    if findings:
        raise Refused(*by_change(findings, now))
    named = (each for step, each in (mixed | changed).items() if step in {*anew, *on})
    accepted |= {write.table for each in named for write in each.tables}
    return Settled(tuple(anew), tuple(on), tuple(sorted(accepted)))


def _is_whole_again(
    beginning: Beginning, now: Graph, published: Plan, settings: Settings, ends: Ends, earlier: Earlier
) -> bool:
    """Whether what a step kept is right again, as streams above it are back."""
    if not beginning.changes or beginning.itself:
        return False
    return goes_on(beginning.step, keeps(beginning.step), now, published, earlier, ends, _lost(settings))


def _lost(settings: Settings) -> frozenset[str]:
    """The streams of which records were lost, as is accepted."""
    return frozenset(loss.partition.stream for loss in settings.accept_loss)


def _unknown(now: Graph, published: Plan | None, settings: Settings) -> Iterator[Finding]:
    keeping = {step.name for step in now.steps if step.state}
    tables = {write.table for write in now.writes}
    gone = {step.name for step in published.steps if step.state} if published else set()
    for setting, names in (("begin_anew", settings.begin_anew), ("go_on", settings.go_on)):
        for name in names:
            if name not in keeping | gone | tables:
                listed = ", ".join(sorted(keeping)) or "none does"
                what = f"there is no table {name!r}, and no step of that name that keeps state"
                then = f"name a table, or a step that does: {listed}"
                yield Finding.of(Kind.STATE_NONE, what, setting, then, step=name)


def _findings(
    pipeline: str,
    beginning: Beginning,
    published: Plan | None,
    now: Graph,
    streams: Sequence[PlannedStream],
    written: Mapping[str, int | None],
    ends: Ends,
    added: Sequence[str],
) -> Iterator[Finding]:
    name, last = beginning.step, f"batch {published.batch}" if published else ""
    above = now.above(name)
    from_start = not any(stream.name in above and ends.stream(stream.name) for stream in now.streams)
    told = [write for write in beginning.tables if write.table in written]
    each = [_outcome(write, name, written[write.table], from_start) for write in told]
    others = (table for table in added if table not in {write.table for write in told})
    each += [f"table {table!r}, which that batch did not write, would lack them too" for table in others]
    outcomes = "; ".join(each)
    rebuilt = rebuilt_by(pipeline, now, published)
    anew = ("ask for it by name: ", PlanAsking(pipeline, begin_anew=name))
    if not beginning.changes:
        back = ""
        if beginning.renamed:
            line = f'pipeline.changed("{name}", was="{beginning.renamed}")'
            back = (
                f"name it {beginning.renamed!r} again, as it does the same, "
                f"or say in the pipeline that it is that one: {line}; or "
            )
        made: tuple[str | Command, ...] = (back,)
        if rebuilt:
            made = (f"{back}make what it would have kept {rebuilt[0]}", *rebuilt[1:], "; or for a new beginning ")
        elif away := _away(name, now, published, ends):
            made = (f"{back}to keep its rows as they are, write to a table of another name; or ",)
            if _is_whole_if_read_again(away, now, published, streams, ends):
                forgets = [part for stream in away for part in (Forget(pipeline, stream), ", and ")]
                made = (f"{back}to have its rows whole, let the stream be read again from its start, ", *forgets)
        yield Finding.of(
            Kind.STATE_BEGINS,
            f"the step has no state yet and would begin with nothing; {outcomes}",
            f"step {name!r}, which {last} did not have" if last else f"step {name!r}, which no batch had",
            (*made, *anew),
            step=name,
            renamed=beginning.renamed,
            tables=[write.table for write in beginning.tables],
        )
        return
    step = next(step for step in now.steps if step.name == name)
    new_beginning: tuple[str | Command, ...] = ("; or for a new beginning ", *anew, f": {outcomes}" if outcomes else "")
    for noun, was, is_now in beginning.changes:
        declared = f", or say in the pipeline what becomes of what it kept: {beginning.ways}" if beginning.ways else ""
        then: tuple[str | Command, ...] = (
            f"change it back{declared}",
            *((f", or make what it kept anew {rebuilt[0]}", *rebuilt[1:]) if rebuilt else ()),
            *new_beginning,
        )
        back = f"install {was} again" if noun == ENGINE else "change it back"
        back = "name its columns otherwise" if noun.startswith(NAMES) else back
        back = "leave it out" if noun.startswith(NEW) else back
        if step.op is Op.TABLE and noun != ENGINE:
            then = _table_anew(step, now, rebuilt)
        elif not beginning.itself:
            on = PlanAsking(pipeline, go_on=name)
            right = "what it kept is still right"
            if any(each.op is Op.CHANGES and each.name in above for each in now.steps):
                right = "the steps make the same of earlier records as before"
            then = (
                f"{back}; if {right}, ask for that by name: ",
                on,
                *((f"; if not, make it anew {rebuilt[0]}", *rebuilt[1:]) if rebuilt else ()),
                *new_beginning,
            )
        yield Finding.of(
            Kind.STATE_CHANGED,
            said((noun, was, is_now)),
            f"state of {name}, left by {last}",
            then,
            noun=noun,
            was=was,
            now_is=is_now,
        )


def _away(step: str, now: Graph, published: Plan | None, ends: Ends) -> tuple[str, ...]:
    """The streams above a step, if earlier batches read each and the last one read none."""
    above = [stream for stream in now.streams if stream.name in now.above(step)]
    read = {stream.name for stream in published.streams} if published else set()
    known = all(ends.stream(stream.name) and stream.name not in read and not stream.table for stream in above)
    return tuple(stream.name for stream in above) if known else ()


def _is_whole_if_read_again(
    away: Sequence[str], now: Graph, published: Plan | None, streams: Sequence[PlannedStream], ends: Ends
) -> bool:
    """Whether all that was read of streams is still there, and nothing that comes from them would count it twice."""
    for stream in (stream for stream in streams if stream.name in away):
        for part in stream.partitions:
            known = ends.end(stream.name, part.partition)
            if known is not None and known.beginning < part.beginning:
                return False
    kept = {step.name for step in published.graph.steps if step.state} if published else set()
    names = [write.step for write in now.writes if write.mode.only_adds]
    names += [step.name for step in now.steps if step.state and kept_before(step, kept)]
    return not any(now.above(name) & set(away) for name in names)


def _table_anew(step: Step, now: Graph, rebuilt: Sequence[str | Command]) -> tuple[str | Command, ...]:
    """What to do about a kept table that changed. An Iceberg table is kept in each batch."""
    origins = (stream.origin for stream in now.streams if stream.name in step.inputs)
    if rebuilt and any(isinstance(origin, IcebergSource) for origin in origins):
        return (f"change it back, or make what it kept anew {rebuilt[0]}", *rebuilt[1:])
    return ("change it back, or leave kept= out for one batch: it begins anew then",)


def _outcome(write: Write, step: str, rows: int | None, from_start: bool) -> str:
    """What happens to a table if a step before it begins with nothing; all its streams may be read from their start."""
    has = f"table {write.table!r} has {'rows' if rows is None else many(rows, 'row')}"
    if write.mode.by_key and write.step == step:
        come = "of what its streams still have, read from their start" if from_start else "that come from now on"
        return f"{has} and would have only those of keys {come}"
    return f"{has}, and those to come would know nothing of {'what it has' if from_start else 'earlier batches'}"


def _not_kept_any_more(
    pipeline: str, streams: Sequence[PlannedStream], before: Graph, settings: Settings
) -> Iterator[Finding]:
    """Tables whose oldest records are only in state that the pipeline no longer reads, because the table is not kept
    now."""
    kept = {step.inputs[0]: step.name for step in before.steps if step.op is Op.TABLE}
    for stream in streams:
        step = kept.get(stream.name)
        if step is None or stream.declared.kept or not stream.declared.table or step in settings.begin_anew:
            continue
        for partition in stream.partitions:
            if partition.beginning > 0:
                what = (
                    f"the table is not kept any more, and its records before offset {partition.beginning:,} are in no "
                    "file: the latest of their keys would be lost"
                )
                where = f"{stream.name}-{partition.partition}"
                then = (
                    "declare it with kept=True again, or ask by name for what the files have: ",
                    PlanAsking(pipeline, begin_anew=step),
                )
                yield Finding.of(Kind.STATE_BEGINS, what, where, then, step=step, beginning=partition.beginning)


def _renamed(step: Step, now: Graph, kept: Mapping[str, Step], were: Origins, are: Origins) -> str:
    """The step of the last batch that did the same under a name that is not there any more."""
    there = {each.name for each in now.steps}
    for name, was in kept.items():
        if name not in there and not [*changes_itself(was, step), *changes_before(was, step, were, are)]:
            return name
    return ""


def _asks_anew(name: str, now: Graph, before: Graph) -> bool:
    """Whether the pipeline asks for a new beginning of a step, and has not had it yet."""
    steps, kept = ({step.name: step for step in graph.steps if step.state} for graph in (now, before))
    return bool(still_asked(steps[name], kept.get(kept_before(steps[name], kept))).anew)


def _misnamed(pipeline: str, now: Graph) -> Iterator[Finding]:
    """Steps that continue from a step that is still there."""
    keeping = {step.name for step in now.steps if step.state}
    for step in now.steps:
        if step.state and step.state.changed and step.state.changed.was in keeping:
            what = f"it cannot go on from what {step.state.changed.was} kept: that step is still there"
            then = "correct was=, or remove the other step"
            yield Finding.of(Kind.STATE_CHANGED, what, f"step {step.name!r} of {pipeline}", then, step=step.name)
