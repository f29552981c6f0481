"""What steps keep from batch to batch: what of their columns is another now, and whether a step may go on from it, or a
table from the rows that it has, although streams above it were left out for a while.

What is dropped is dropped; types are compared once they are known (`spark_jobs.sql.kept_versions`).

Returned streams: whether a step may go on from what it kept, or a table from the rows that it has, although streams
above it were left out for a while. The end of a stream that is left out is remembered, and it is read from there when
it is back. What a step kept is then that of all records again, if each batch since did the same with the streams that
it did read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta

from partitioning.model.graph import Graph, KeptChange, Op, Step, list_items, quote
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Ends
from partitioning.model.streams import Column
from partitioning.planning.origins import (
    Change,
    Origins,
    alike,
    graph_of,
    items,
    told_changes,
    with_known_code,
)
from partitioning.values import replace

# The rows that a step with a time keeps have the values of its expressions in these columns.
IDENTITY = "@identity"
_COLUMN = re.compile(r'\w+|"[^"]+"')
_TIMES = re.compile(r"to_microseconds\(([0-9]+)\)")
_WINDOW = re.compile(rf"time_bucket\({_TIMES.pattern}, CAST\(\((.+)\) AS TIMESTAMP\)\)", re.DOTALL)


def columns_of(step: Step) -> str:
    """The columns that a step keeps, or the expressions that they depend on, as the pipeline says it."""
    if step.function and step.state:
        return ", ".join(f"{column.name} {column.type}" for column in step.state.columns)
    return ", ".join(step.expressions)


def windows_of(step: Step) -> str | None:
    """The windows by which a step keeps records, as the pipeline says it; None if it keeps them by no windows.

    >>> of = ("time_bucket(to_microseconds(3600000000), CAST((seen) AS TIMESTAMP))",)
    >>> windows_of(Step("hours.s", Op.RECENT, ("s",), "", of, "k"))
    '1:00:00 of seen'
    >>> windows_of(Step("prices", Op.RECENT, ("s",), "", (*of, "gone"), "k"))
    """
    window = _WINDOW.fullmatch(step.expressions[0]) if step.op is Op.RECENT else None
    more = step.expressions[1:]
    corrected, gap = (list(map(_TIMES.fullmatch, some)) for some in (more[: len(more) % 2], more[1:][-1:]))
    # Versions may have a time that is written like a window, and what deletes them beside it.
    if window is None or None in (*corrected, *gap):
        return None
    every, time = window.groups()
    later = "".join(f", corrected for {_time(each)}" for each in corrected if each)
    apart = "".join(f", in sessions with a gap of {_time(each)}" for each in gap if each)
    return f"{timedelta(microseconds=int(every))} of {time}{later}{apart}"


def _time(matched: re.Match[str]) -> timedelta:
    return timedelta(microseconds=int(matched[1]))


def undeclared(before: Step, now: Step) -> tuple[str, ...]:
    """The columns whose old rows cannot be read as new ones, as the pipeline does not say how."""
    asked = still_asked(now, before)
    if asked.function:
        return ()
    said = {column for column, _ in (*asked.begins, *asked.migrate)}
    migrated = {column for column, _ in asked.migrate}
    added, other = _differing(before, now)
    return (*(name for name in added if name not in said), *(name for name in other if name not in migrated))


def declaration(before: Step, now: Step) -> str:
    """The line that says of all columns how old rows are read as new ones. Empty if none can."""
    added, other = _differing(before, now)
    if any(name in _UNREADABLE for name in other):
        return ""
    begins = f"begins={{{', '.join(f'{_quoted(name)}: None' for name in added)}}}" if added else ""
    olds = ((name, _identity(before, now) if name == IDENTITY else _old(name)) for name in other)
    migrate = f"migrate={{{', '.join(f'{_quoted(name)}: {old}' for name, old in olds)}}}" if other else ""
    given = ", ".join(["", *filter(None, (begins, migrate))])
    return f'pipeline.changed("{now.name}"{given})'


# What stands for an expression that no column of the kept rows has the value of.
_WHOLE, _TIME = "rows", "@time"
_UNREADABLE = {_WHOLE, _TIME}


def _differing(before: Step, now: Step) -> tuple[list[str], list[str]]:
    """The added columns, and those that are made in another way."""
    was, is_now = _made(before), _made(now)
    added = [name for name in is_now if name not in was]
    return added, [name for name in is_now if name in was and not alike(was[name], is_now[name])]


def _made(step: Step) -> Mapping[str, str]:
    """The kept columns of a step, by name, each with its expression."""
    texts = step.expressions
    match step.op:
        case Op.COMBINE:
            return items(texts[0])
        case Op.PROCESS:
            # Types are compared once they are known.
            return {column.name: "" for column in _declared(step)}
        case Op.DISTINCT:
            return {IDENTITY: texts[0], _TIME: texts[1]}
        case Op.RECENT:
            return {_TIME: ", ".join(texts)}
        case _:
            return {_WHOLE: ", ".join(texts)}


def _declared(step: Step) -> tuple[Column, ...]:
    return step.state.columns if step.state else ()


def _identity(before: Step, now: Step) -> str:
    """The SQL of the identity as it was kept, as text in Python. Before 0.3.0 each of several expressions was a column,
    and the last one the identity."""
    *columns, _ = list_items(before.expressions[0])
    if columns and now.expressions[0] == f"({before.expressions[0]})" and all(map(_COLUMN.fullmatch, columns)):
        return repr(f"({', '.join([*columns, quote(IDENTITY)])})")
    return _old(IDENTITY)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '\\"') + '"'


def _old(name: str) -> str:
    """The SQL of the column as it was kept, as text in Python."""
    return _quoted(name) if name.isidentifier() else repr(f'"{name}"')


def kept_before(step: Step, before: Collection[str]) -> str:
    """The name of the step that it continues from, among those `before`; empty if there is none."""
    if step.name in before:
        return step.name
    was = step.state.changed.was if step.state and step.state.changed else ""
    return was if was in before else ""


def still_asked(now: Step, before: Step | None) -> KeptChange:
    """What is declared of a step and was not carried out in the last plan, in which it was the step `before`."""
    if not now.state or now.state.changed is None:
        return KeptChange()
    return now.state.changed.since((before.state.changed if before.state else None) if before else None)


# The newest published plan before a batch, if there is one.
Earlier = Callable[[int], Plan | None]
# Whether a graph keeps the rows of a step, in its state or in a table.
Holds = Callable[[Graph], bool]


def keeps(step: str) -> Holds:
    """The graphs in which a step has state."""
    return lambda graph: any(each.name == step and each.state for each in graph.steps)


def goes_on(
    step: str, holds: Holds, now: Graph, published: Plan, earlier: Earlier, ends: Ends, lost: Collection[str]
) -> bool:
    """Whether all records that batches took of the streams above a step are in the rows that a graph `holds` of it,
    and all others are still to be read: from `ends` on, and of no stream that `lost` some.

    It is not known of what goes by times: those of a stream may have passed while it was away.
    """
    now = above(step, now)
    streams = {stream.name for stream in now.streams}
    away = streams - {stream.name for stream in published.streams}
    if not away or away & set(lost) or any(_goes_by_times(each) for each in now.steps):
        return False
    unseen, plan = streams, published
    while _did_the_same(plan, step, holds, now):
        back = unseen & {stream.name for stream in plan.streams}
        unseen -= back
        if not all(_goes_on_there(plan, name, ends) for name in back & away):
            return False
        before = earlier(plan.batch) if unseen and step not in (plan.anew or ()) else None
        if before is None:
            return not unseen
        plan = before
    return False


def above(step: str, graph: Graph) -> Graph:
    """The part of a graph that a step's rows come from, with the step at its end."""
    names = graph.above(step)
    streams = tuple(stream for stream in graph.streams if stream.name in names)
    return replace(graph, streams=streams, steps=tuple(each for each in graph.steps if each.name in names), writes=())


def _goes_by_times(step: Step) -> bool:
    return step.state is not False and (step.state.microseconds > 0 or step.state.waits is not None)


def _did_the_same(plan: Plan, step: str, holds: Holds, now: Graph) -> bool:
    """Whether a plan has the step, with the same above it, but for streams that the plan does not read."""
    was, then = graph_of(plan), with_streams(now, {stream.name for stream in plan.streams})
    if then is None or not holds(was):
        return False
    was, then = with_known_code(was, then)
    return Origins(was).of(step).identity == Origins(then).of(step).identity


def with_streams(graph: Graph, read: Collection[str]) -> Graph | None:
    """The graph with these streams alone. None if what is left of it would do something else."""
    there, steps = set(read), list[Step]()
    for step in graph.steps:
        inputs = tuple(name for name in step.inputs if name in there)
        if len(inputs) < len(step.inputs) and (step.state or (inputs and step.op is not Op.MERGE)):
            return None
        if inputs:
            there.add(step.name)
            steps.append(replace(step, inputs=inputs))
    if not steps or steps[-1].name != graph.steps[-1].name:
        return None
    return replace(graph, steps=tuple(steps), writes=())


def _goes_on_there(plan: Plan, stream: str, ends: Ends) -> bool:
    """Whether a stream is read on from where a plan has read it to."""
    known = ((ends.end(stream, each.partition), each.end) for each in plan.stream(stream).partitions)
    return all(end is not None and end.end == read for end, read in known)


def changes_before(was: Step, now: Step, were: Origins, are: Origins) -> Iterator[Change]:
    """Changes that do not show in the state itself: in the records before the step, and in its function."""
    if were.called(was) != are.called(now):
        yield "function", were.called(was), are.called(now)
    yield from told_changes(were.of_inputs(was), are.of_inputs(now))


def changes_itself(before: Step, now: Step) -> Iterator[Change]:
    """The old and new text of the step, as far as its state depends on it and the pipeline does not say what becomes of
    that."""
    for noun, was, is_now in (
        ("operation", before.op.value, now.op.value),
        ("key", f"{before.key} ({before.key_format})", f"{now.key} ({now.key_format})"),
        ("expiry", _expiry(before), _expiry(now)),
    ):
        if was != is_now:
            yield noun, was, is_now
    if before.op is now.op and undeclared(before, now):
        windows = windows_of(before), windows_of(now)
        if windows[0] and windows[1]:
            yield "windows", windows[0], windows[1]
        else:
            yield "columns", columns_of(before), columns_of(now)


def _expiry(step: Step) -> str:
    """When keys expire."""
    if not step.state or not step.state.of_lives:
        return "none"
    return f"{timedelta(microseconds=step.state.microseconds)} after {step.expressions[-1]}"
