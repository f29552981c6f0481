"""Schedules as text, played again, and made smaller: `a*18 b*4 a!crash` are eighteen requests of a, four of b, and the
end of a before its next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, groupby

from tests.model.cases import CASES
from tests.model.explore import Judge, Schedule, Violation
from tests.model.recorded import ENDLESS
from tests.model.world import CRASH, LANDS, Move, World

_TURN = re.compile(r"([a-f])(?:\*([0-9]+))?(?:!(\S+))?|lands-([0-9])")
Turn = tuple[Move, int]


def turns(schedule: Iterable[Move]) -> list[Turn]:
    """The moves of a schedule, with how often each comes one after the other."""
    return [(move, len(list(alike))) for move, alike in groupby(schedule)]


def text_of(schedule: Iterable[Move]) -> str:
    """A schedule in words."""
    return " ".join(_said(move, times) for move, times in turns(schedule))


def _said(move: Move, times: int) -> str:
    if move.what == LANDS:
        return " ".join([f"lands-{move.actor}"] * times)
    return "abcdef"[move.actor] + (f"!{move.what}" if move.what else f"*{times}")


def moves_in(text: str) -> Iterator[Move]:
    """The moves that a text says."""
    for word in text.split():
        match = _TURN.fullmatch(word)
        assert match, word
        actor, times, what, late = match.groups()
        if late is not None:
            yield Move(int(late), LANDS)
        else:
            yield from [Move("abcdef".index(actor), what or "")] * int(times or 1)


def played(case: str, schedule: str) -> Violation | None:
    """What a schedule of a case breaks, or all that are left when they go on after it, one after the other."""
    moves = list(moves_in(schedule))
    world, judge = _world(case, moves)
    done = _done(world, judge, moves)
    if isinstance(done, tuple):
        assert done == tuple(moves), f"{text_of(moves[len(done) :])} is not possible after {text_of(done)}"
        going_on = (Move(actor) for actor in range(len(world.actors)) for _ in range(ENDLESS))
        done = _done(world, judge, chain(moves, going_on))
    return done if isinstance(done, Violation) else None


def shrunk(case: str, found: Violation) -> Violation:
    """A schedule with fewer turns that breaks the same invariant."""
    (world, judge), smaller = _world(case, found.schedule), True
    while smaller:
        smaller = False
        for schedule in _smaller(found.schedule):
            again = _done(world, judge, schedule)
            if isinstance(again, Violation) and again.invariant == found.invariant and _less(again, found):
                found, smaller = again, True
                break
    return found


def _world(case: str, moves: Iterable[Move]) -> tuple[World, Judge]:
    """A world in which as much may go wrong as in these moves."""
    wrong = [move.what for move in moves if move.what not in ("", LANDS)]
    crashes = wrong.count(CRASH)
    return CASES[case].world(crashes, len(wrong) - crashes, reads=True)


def _done(world: World, judge: Judge, moves: Iterable[Move]) -> Violation | Schedule:
    """What breaks first, or those of the moves that were possible."""
    state, done = world.first(), list[Move]()
    for move in moves:
        if move not in world.moves(state):
            continue
        then = world.after(state, move)
        done.append(move)
        if broken := judge.broken(state, move, then):
            return Violation(*broken, tuple(done))
        state = then
    return tuple(done)


def _less(one: Violation, other: Violation) -> bool:
    return _size(one.schedule) < _size(other.schedule)


def _size(schedule: Schedule) -> tuple[int, int, int]:
    """How many turns a schedule has, how much goes wrong in it, and how long it is."""
    return len(turns(schedule)), sum(bool(move.what) for move in schedule), len(schedule)


def _smaller(schedule: Schedule) -> Iterator[list[Move]]:
    """Schedules with less of it: without some turns, with less that goes wrong, or with two turns put together."""
    parts = turns(schedule)
    for size in (8, 4, 2, 1):
        for at in range(0, len(parts), size):
            yield _moves(parts[:at] + parts[at + size :])
    for at, (move, _) in enumerate(parts):
        if move.what:
            yield _moves([*parts[:at], (Move(move.actor), 1), *parts[at + 1 :]])
        for later in range(at + 1, len(parts)):
            if parts[later][0] == move:
                between, rest = parts[at + 1 : later], parts[later + 1 :]
                both = (move, parts[at][1] + parts[later][1])
                yield _moves([*parts[:at], both, *between, *rest])
                yield _moves([*parts[:at], *between, both, *rest])
                break
    for at, (move, times) in enumerate(parts):
        if times > 1:
            yield _moves([*parts[:at], (move, times // 2), *parts[at + 1 :]])
            yield _moves([*parts[:at], (move, times - 1), *parts[at + 1 :]])


def _moves(parts: Iterable[Turn]) -> list[Move]:
    return [move for move, times in parts for _ in range(times)]


def as_test(case: str, found: Violation) -> str:
    """A violation as a test to paste."""
    name = re.sub(r"\W+", "_", f"{found.invariant} when {case}")
    return (
        f"def test_{name}() -> None:\n"
        f"    # {' '.join(found.what.split())}\n"
        f"    with seams():\n"
        f'        assert played("{case}", "{text_of(found.schedule)}") is None\n'
    )
