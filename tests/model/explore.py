"""Exploring: every order of a world's steps, and schedules by chance where there are too many."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from tests.model import invariants
from tests.model.recorded import Node, Recorded
from tests.model.server import Objects
from tests.model.view import View
from tests.model.world import LANDS, Move, State, World, identity

Schedule = tuple[Move, ...]
# An actor alone is done after so many runs, each of which publishes a batch or finds nothing to do.
RUNS_ALONE = 5


class Violation(AssertionError):
    """An invariant is broken at the end of a schedule."""

    def __init__(self, invariant: str, what: str, schedule: Schedule) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant, self.what, self.schedule = invariant, what, schedule


@dataclass
class Judge:
    """Holds states, steps and ends against the invariants, each once."""

    world: World
    pipeline: str
    finisher: Callable[[], str]
    # What somebody alone may be told before being up to date, beside what was published.
    on_the_way: frozenset[str] = frozenset()
    _views: dict[int, View] = field(default_factory=dict)
    _broken: dict[int, tuple[str, str] | None] = field(default_factory=dict)
    _steps: dict[tuple[int, int], tuple[str, str] | None] = field(default_factory=dict)
    _ends: dict[int, tuple[str, str] | None] = field(default_factory=dict)

    def view(self, objects: Objects) -> View:
        if objects.number not in self._views:
            self._views[objects.number] = View(objects, self.pipeline)
        return self._views[objects.number]

    def broken(self, before: State, move: Move, after: State) -> tuple[str, str] | None:
        """The invariant that a step breaks, and how."""
        found = None
        if before.objects is not after.objects:
            found = self.changed(before.objects, after.objects) or self._ended(after.objects)
        node = after.nodes[move.actor] if move.what != "lands" else None
        if found is None and node is not None and node.ended:
            asked = list(invariants.AT_AN_END)
            if after.faults == self.world.faults:
                asked.append(invariants.i9_what_is_unknown_was_not_answered)
            said = (_first(each.__name__, each(node.ended)) for each in asked)
            told = invariants.i6_what_was_told_is_so(self.view(after.objects), node.ended)
            found = next(filter(None, said), None) or _first(invariants.i6_what_was_told_is_so.__name__, told)
        return found

    def changed(self, before: Objects, after: Objects) -> tuple[str, str] | None:
        """The invariant that a change of what is stored breaks, and how."""
        step = before.number, after.number
        if step not in self._steps:
            self._steps[step] = self._changed(before, after)
        return self._steps[step]

    def _changed(self, before: Objects, after: Objects) -> tuple[str, str] | None:
        name = "i7_what_is_written_once_stays"
        old, new = self.view(before), self.view(after)
        return _first(name, invariants.i7_what_is_written_once_stays(old, new)) or self._state(after)

    def _state(self, objects: Objects) -> tuple[str, str] | None:
        if objects.number not in self._broken:
            view = self.view(objects)
            found = (_first(each.__name__, each(view)) for each in invariants.IN_EVERY_STATE)
            self._broken[objects.number] = next(filter(None, found), None)
        return self._broken[objects.number]

    @cached_property
    def _last(self) -> list[Recorded]:
        return [self.world.actor(f"last{number}", self.finisher) for number in range(RUNS_ALONE)]

    def _ended(self, objects: Objects) -> tuple[str, str] | None:
        """What is wrong after all actors have stopped here, and another has run alone until there is nothing to do."""
        if objects.number not in self._ends:
            self._ends[objects.number] = self._alone(objects)
        return self._ends[objects.number]

    def alone(self, objects: Objects) -> Iterator[tuple[Objects, Node]]:
        """What is stored while somebody runs alone, again and again, until there is nothing to do."""
        for actor in self._last:
            steps = list(self.world.alone(actor, objects))
            yield from steps
            objects, node = steps[-1]
            if not node.ended.startswith("published") and node.ended not in self.on_the_way:
                break

    def _alone(self, objects: Objects) -> tuple[str, str] | None:
        name, steps = "i8_all_is_published_at_last", list(self.alone(objects))
        objects, told = steps[-1][0], [node.ended for _, node in steps if node.ended]
        wrong = self._state(objects)
        if wrong is None and told[-1] != "nothing to do":
            wrong = name, f"somebody who runs alone ends with {told}"
        return wrong or _first(name, invariants.i8_all_is_published_at_last(self.view(objects)))


def _first(name: str, found: Iterator[str]) -> tuple[str, str] | None:
    what = next(found, None)
    return None if what is None else (name, what)


@dataclass
class Explored:
    """What was looked at: states, the schedules that lead through them, and how actors ended."""

    states: int
    stored: int
    schedules: int
    runs: int
    ends: Counter[str]
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.states:,} states, {self.stored:,} contents of the store, {self.schedules:,} schedules; "
            f"the code ran {self.runs:,} times, {self.seconds:.1f} s of CPU"
        )


def every_order(world: World, judge: Judge) -> Explored:
    """Look at every schedule of a world, the shorter ones first. Raises Violation with a shortest one that breaks an
    invariant."""
    began, first = time.process_time(), world.first()
    known, came = {identity(first): 0}, list[tuple[int, Move] | None]([None])
    after, level, ends = list[list[int]](), [first], Counter[str]()
    while level:
        following = list[State]()
        for state in level:
            place, next_places = known[identity(state)], list[int]()
            for move in world.moves(state):
                then = world.after(state, move)
                if broken := judge.broken(state, move, then):
                    raise Violation(*broken, (*_way(came, place), move))
                name = identity(then)
                if name not in known:
                    known[name] = len(came)
                    came.append((place, move))
                    following.append(then)
                next_places.append(known[name])
            after.append(next_places)
            if not next_places:
                ends.update(node.ended if node else "crashed" for node in state.nodes)
        level = following
    runs = sum(actor.runs for actor in world.actors)
    return Explored(len(known), len(world.server), _schedules(after), runs, ends, time.process_time() - began)


def _way(came: Sequence[tuple[int, Move] | None], place: int) -> Schedule:
    """The moves that led to a state."""
    moves = list[Move]()
    while (step := came[place]) is not None:
        place, move = step
        moves.append(move)
    return tuple(moves[::-1])


def _schedules(after: Sequence[Sequence[int]]) -> int:
    """How many ways there are from the first state to an end. All ways to a state are equally long."""
    ways = [0] * len(after)
    for place in range(len(after) - 1, -1, -1):
        ways[place] = sum(ways[each] for each in after[place]) or 1
    return ways[0]


def by_chance(world: World, judge: Judge, random: Random) -> Schedule:
    """One schedule by chance, to its end. Raises Violation if it breaks an invariant."""
    state, schedule, actor = world.first(), list[Move](), 0
    while able := world.able(state):
        # An actor mostly goes on for a while, and little goes wrong.
        draw = random.random()
        if draw < 0.03 or able == [-1]:
            move = random.choice(list(world.moves(state)))
        else:
            actor = actor if actor in able and draw < 0.85 else max(0, random.choice(able))
            move = Move(actor) if actor in able else Move(0, LANDS)
        then = world.after(state, move)
        schedule.append(move)
        if broken := judge.broken(state, move, then):
            raise Violation(*broken, tuple(schedule))
        state = then
    return tuple(schedule)
