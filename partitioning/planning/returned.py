"""Returned streams: whether a step may go on from what it kept, or a table from the rows that it has, although streams
above it were left out for a while.

The end of a stream that is left out is remembered, and it is read from there when it is back. What a step kept is then
that of all records again, if each batch since did the same with the streams that it did read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from partitioning.model.graph import Graph, Op, Step
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Ends
from partitioning.planning.origins import Origins, with_known_code
from partitioning.values import replace

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
        before = earlier(plan.batch) if unseen and step not in plan.anew else None
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
    was, then = plan.graph, with_streams(now, {stream.name for stream in plan.streams})
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
