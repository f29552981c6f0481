"""Flow times: the event time before which all rows of a flow have come, by its streams' watermarks, and the partition
that holds it back.

A step that gives its rows once their time is over, or again, has rows to come that are older than what it goes by. What
follows it goes by the earliest time that such a row may have.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache

from partitioning.model.graph import Graph, Op, Step, alive_of, waiting
from partitioning.model.watermarks import Watermark
from partitioning.planning.step_texts import items, near
from partitioning.values import Value, replace

# Windows begin at multiples of their length from here, Monday, 3 January 2000, in microseconds.
_MONDAY = 946_857_600 * 10**6
# Later than all times of records.
_FAR = 2**61
WINDOW_END = "window_end"
# A time that is a column, alone or in the start of its window.
_COLUMN = re.compile(
    r"""(?:time_bucket\(to_microseconds\(\d+\), CAST\(\()?(?:[\w."]*\.)?"?(\w+)"?(?:\) AS TIMESTAMP\)\))?"""
)
_AS = re.compile(r"""(?:[\w."]*\.)?"?(\w+)"?(?: AS \S+)?""", re.IGNORECASE)
# Steps that hand on all columns of the rows that they are given.
_HANDS_ON = {Op.FILTER, Op.REKEY, Op.REPARTITION, Op.MERGE, Op.DISTINCT}


class Why(StrEnum):
    """Why rows of a step may be older than what it goes by: it gives windows of that length, again for so long, waits
    for partners or versions, or joins what is so far apart; or a stream without records is so far behind."""

    EVERY = "every"
    KEEP = "keep"
    WITHIN = "within"
    WAIT = "wait"
    BEHIND = "behind"


class Less(Value, frozen=True):
    """By how many microseconds rows of a step may be older than what it goes by."""

    step: str
    why: Why
    microseconds: int


class FlowTime(Value, frozen=True):
    """Up to which time all rows of a flow have come, None if that is not known.

    It is the watermark of the `stream` that holds it back, `less` what the steps on the way take off. A flow that
    `yields` has no new records: it is so far behind those that have some, at most.
    """

    time: int | None
    stream: str
    less: tuple[Less, ...] = ()
    yields: int | None = None

    def later(self, step: str, why: Why, microseconds: int) -> FlowTime:
        """That of a step whose rows may be older by so much. It holds rows that are still to come, so it yields to
        none."""
        time = None if self.time is None else self.time - microseconds
        less = (*self.less, Less(step, why, microseconds)) if microseconds else self.less
        return FlowTime(time, self.stream, less)


class GivenTimes(Value, frozen=True):
    """What a step gives in a batch: what happened before one time was over `before` it, and before another it is `now`.

    That is so many microseconds after the watermark, and is `kept` for longer. All rows are `there` up to a time then.
    """

    step: str
    waits: int
    kept: int
    before: int | None
    now: int | None
    there: FlowTime
    of_keys: bool


class FlowTimes:
    """The times of all flows of a graph, by the watermarks of its streams."""

    def __init__(self, graph: Graph, marks: Sequence[Watermark]) -> None:
        self._graph = graph
        self._steps = {step.name: step for step in graph.steps}
        self._tables = {stream.name for stream in graph.streams if stream.table}
        self._marks = {mark.stream: mark for mark in marks}
        # Both sides of a join in time.
        self._sides = {
            name: tuple(self._steps[each] for each in step.inputs)
            for step in graph.steps
            for name in step.inputs
            if step.op is Op.JOIN and name in self._steps and self._steps[name].op is Op.RECENT
        }
        self._known = cache(self._found)

    def of(self, name: str) -> FlowTime | None:
        """That of a stream or step; None if one of its streams says no times, or it has only tables.

        A key that lives is there with each of its records; others are once it has expired.
        """
        if not self._says([name]):
            return None
        step = self._steps.get(name)
        while step and step.op is Op.UPSERT:
            step = self._steps.get(step.inputs[0])
        if step and step.name == alive_of(step.inputs[0]):
            return self.before(self._steps[step.inputs[0]])
        return self._known(name, "")

    def given(self) -> Iterator[GivenTimes]:
        """The times of the rows of waiting steps, if the graph has their watermarks."""
        for step in self._steps.values():
            # Both sides of a join that wait do so alike.
            side = next((self._steps[name] for name in waiting(step, self._steps)), None)
            if side and side.state and (there := self.of(step.name)):
                passed, shortest = side.state.watermark, side.state.shortest
                longer = side.state.microseconds - (side.state.waits or 0)
                before, now = (
                    None if time is None else time - shortest
                    for time in ((passed.before, passed.now) if passed else (None, None))
                )
                yield GivenTimes(self._shown(step), shortest, longer, before, now, there, side.state.of_lives)

    def before(self, step: Step) -> FlowTime | None:
        """The flow time that decides how long a step keeps its rows. A record waits for versions only, and for both
        flows of other joins."""
        sides = self._sides.get(step.name, (step,))
        if not self._says([side.name for side in sides]):
            return None
        versions = [side for side in sides if side.state and side.state.newest and side is not step]
        of_versions = _slowest(self._into(versions))
        if of_versions and of_versions.yields is None:
            return of_versions
        return _slowest(self._into(sides))

    def _into(self, sides: Sequence[Step]) -> Iterator[FlowTime]:
        """Those of all flows that steps are given."""
        for side in sides:
            yield from self._given(side, _time_of(side))

    def _given(self, step: Step, column: str) -> Iterator[FlowTime]:
        yield from (flow for name in step.inputs if (flow := self._known(name, column)) is not None)

    def _found(self, name: str, column: str) -> FlowTime | None:
        """That of a flow of which the time is asked that stands in a column; any of the row's, if it has no name."""
        if name in self._tables:
            return None
        if (step := self._steps.get(name)) is None:
            mark = self._marks.get(name)
            return FlowTime(mark.time, name, (), mark.yields) if mark else FlowTime(None, name)
        inputs = [self._steps[each] for each in step.inputs if each in self._steps]
        if (sides := self._sides.get(step.inputs[0])) and step.op is Op.JOIN:
            return self._joined(step, sides)
        if step.op is Op.AGGREGATE and waiting(step, self._steps):
            return self._in_windows(step, inputs[0], column)
        if step.state and step.state.of_lives:
            flow = self.before(step)
            return flow and flow.later(self._shown(step), Why.KEEP, step.state.microseconds)
        return _slowest(self._given(step, _handed_on(step, column)))

    def _joined(self, step: Step, sides: Sequence[Step]) -> FlowTime | None:
        name, waits = (
            self._shown(step),
            [side.state.waits for side in sides if side.state and side.state.waits is not None],
        )
        one, other = sides
        if other.state and other.state.newest:
            # What has come waits for versions, and gets no older.
            flows = [
                *self._into([one]),
                *([over.later(name, Why.WAIT, waits[0])] if (over := self.before(one)) else []),
            ]
            return _slowest(flows)
        flow = _slowest(self._into(sides))
        return flow and flow.later(name, Why.WITHIN, max(waits, default=near(step) or 0))

    def _in_windows(self, step: Step, side: Step, column: str) -> FlowTime | None:
        assert side.state
        assert side.state.waits is not None
        flow, every = self.before(side), side.state.waits + 1
        if flow is None:
            return None
        flow = flow.later(self._shown(step), Why.KEEP, side.state.microseconds - side.state.waits)
        # Windows that end by then were given.
        if column == WINDOW_END or flow.time is None:
            return flow
        return flow.later(self._shown(step), Why.EVERY, (flow.time - _MONDAY) % every)

    def _shown(self, step: Step) -> str:
        """The name that a user has given to a step."""
        then = (each for each in self._steps.values() if each.op is Op.FILTER and each.inputs == (step.name,))
        return next((each.name for each in then if step.name.startswith(f"{each.name}.")), step.name)

    def _says(self, names: Sequence[str]) -> bool:
        """Whether all streams that steps come from say their times, and there are any."""
        streams = frozenset[str]().union(*map(self._graph.above, names)) - self._steps.keys() - self._tables
        return bool(streams) and streams <= self._marks.keys()


def needed(graph: Graph, step: str, time: int, marks: Sequence[Watermark]) -> Mapping[str, int]:
    """The watermarks that streams need for all rows of a step before a time to have come, as the times of flows say if
    all others have come far. Streams for which it does not wait are left out: those that yield, unless all do."""
    firm = [mark for mark in marks if mark.yields is None] or list(marks)

    def have_come(stream: str, at: int) -> bool:
        reached = {mark.stream: _FAR if mark.stream != stream else at for mark in firm}
        given = [Watermark(each, time, (time,), (None,)) for each, time in reached.items()]
        flow = FlowTimes(graph, [*given, *(mark for mark in marks if mark.stream not in reached)]).of(step)
        return flow is not None and flow.time is not None and flow.time >= time

    def least(stream: str) -> int:
        return time + bisect_left(range(_FAR - time), True, key=lambda more: have_come(stream, time + more))

    return {mark.stream: least(mark.stream) for mark in firm if not have_come(mark.stream, time - 1)}


def _slowest(flows: Iterable[FlowTime]) -> FlowTime | None:
    """The earliest. Those that yield count as far as they may be behind the others; if all do, as they are."""
    known = list(flows)
    firm = [flow for flow in known if flow.yields is None]
    first = min(firm or known, key=_order, default=None)
    if first is None or first.time is None or not firm:
        return first
    held = [
        max(first.later(flow.stream, Why.BEHIND, flow.yields), flow, key=_order)
        for flow in known
        if flow.yields is not None
    ]
    return replace(min(first, *held, key=_order), yields=None) if held else first


def _order(flow: FlowTime) -> tuple[bool, int]:
    return flow.time is not None, flow.time or 0


def _time_of(step: Step) -> str:
    """The column in which the time of a step's rows stands, if it is one."""
    found = _COLUMN.fullmatch(step.expressions[step.state.own_time]) if step.state else None
    return found[1].lower() if found else ""


def _handed_on(step: Step, column: str) -> str:
    """The input column that a step hands on as this one, if it is known."""
    if not column or (step.op in _HANDS_ON and column != step.key.lower()):
        return column
    if step.op is Op.SELECT:
        found = _AS.fullmatch(
            {name.lower().strip('"'): sql for name, sql in items(step.expressions[0]).items()}.get(column, "")
        )
        return found[1].lower() if found else ""
    return ""
