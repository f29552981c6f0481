"""Lasting faults: one actor never gets well, and all others have to get on beside it.

It goes on where it stopped as a zombie does, or crashes again and again, or one of its verbs is never carried out. It
is begun anew each time. Whoever is well has to publish all that arrived within `WITHIN` requests, however often it is
refused by name on the way: more is a livelock.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import cycle, product
from typing import NamedTuple

from tests.faults import DELETE, GET, HEAD, LIST, PUT, PUT_NEW, Fault
from tests.model import invariants, programs
from tests.model.cases import Case, Program
from tests.model.explore import Judge, Violation
from tests.model.recorded import Node, Recorded
from tests.model.server import WRITES, Objects
from tests.model.world import BUSY, CONTENDED

# Nobody who is well asks so often until there is nothing to do, even if another publishes between any two requests.
WITHIN = 200
DENIED = "before:403"
# The invariants that only a lasting fault breaks.
GETS_ON, ENDS = "i8_one_gets_on_beside_a_bad_one", "i9_who_is_ill_ends_too"


class Ill(NamedTuple):
    """What is wrong with an actor for good. It is let on for so many requests after each request of the others."""

    program: Program
    # It crashes after so many writes.
    crashes: int = 0
    # What each request that it meets is told.
    fault: Fault | None = None
    pace: int = 1

    @property
    def denied(self) -> bool:
        return self.fault is not None and self.fault.what == DENIED

    def __str__(self) -> str:
        wrong = f"crashes after {self.crashes} writes" if self.crashes else f"meets {self.fault}"
        function = self.program.func if isinstance(self.program, partial) else self.program
        return f"{function.__name__} {wrong if self.crashes or self.fault else 'comes back'}, {self.pace} at once"


def ills(case: Case) -> Iterator[Ill]:
    """All that may be wrong with one of a case's actors."""
    for program in dict.fromkeys(program for program in case.at_once if _goes_on(program)):
        for pace in (1, 7):
            yield Ill(program, pace=pace)
            yield from (Ill(program, crashes, pace=pace) for crashes in range(1, 10))
        told = [*product((DENIED,), (GET, HEAD, LIST, PUT, PUT_NEW, DELETE)), (CONTENDED, PUT_NEW), (BUSY, PUT)]
        yield from (Ill(program, fault=Fault.of(f"{what} {operation} .")) for what, operation in told)


def _goes_on(program: Program) -> bool:
    """Whether a process may do so again and again: what is given up each time it is planned is never published."""
    function = program.func if isinstance(program, partial) else program
    return function in (programs.run, programs.clean, programs.swap)


class _Acting:
    """An actor that is begun anew, under another name, whenever it ends."""

    def __init__(self, name: str, judge: Judge, program: Program) -> None:
        self._actors = cycle([judge.world.actor(f"{name}{number}", program) for number in range(4)])
        self._act = judge.world.server.act
        self.actor: Recorded
        self.node: Node | None = None
        self.wrote, self.denied = 0, False

    def step(self, objects: Objects, ill: Ill | None = None) -> tuple[Objects, str]:
        """One request. What is stored then, and what it ended with if it ended."""
        if self.node is None:
            self.actor, self.wrote = next(self._actors), 0
            self.node = self.actor.begun(objects)
        request = self.node.request
        assert request is not None
        answer: object = ill.fault if ill and ill.fault and ill.fault.meets(request.verb, request.key) else None
        self.denied = ill is not None and answer is not None and ill.denied
        if answer is None:
            objects, answer = self._act(objects, request)
        self.wrote += request.verb in WRITES
        if ill and ill.crashes and self.wrote == ill.crashes:
            self.node = None
            return objects, ""
        self.node = self.actor.after(self.node, answer, objects)
        ended = self.node.ended
        if ended:
            self.node = None
        return objects, ended


def beside(judge: Judge, ill: Ill) -> int:
    """How many requests somebody who is well takes, beside one who is ill, until all is published. Raises Violation."""
    well, other = _Acting("well", judge, judge.finisher), _Acting("ill", judge, ill.program)
    objects, ended, asked, more = judge.world.first().objects, "", 0, WITHIN
    while ended != programs.UP_TO_DATE:
        if (asked := asked + 1) > WITHIN:
            raise Violation(GETS_ON, f"{ill}: not all is published after {WITHIN} requests", ())
        objects, ended = _judged(judge, ill, objects, well, None)
        for _ in range(ill.pace):
            objects, _ = _judged(judge, ill, objects, other, ill)
    _refuse(ill, "i8_all_is_published_at_last", invariants.i8_all_is_published_at_last(judge.view(objects)))
    # Who is ill comes to an end too.
    while other.node is not None:
        if (more := more - 1) < 0:
            raise Violation(ENDS, f"{ill}: it asks on and on", ())
        objects, _ = _judged(judge, ill, objects, other, ill)
    return asked


def _judged(judge: Judge, ill: Ill, before: Objects, acting: _Acting, is_ill: Ill | None) -> tuple[Objects, str]:
    objects, ended = acting.step(before, is_ill)
    if broken := judge.changed(before, objects):
        raise Violation(broken[0], f"{ill}: {broken[1]}", ())
    asked = [*invariants.AT_AN_END]
    if acting.denied:
        asked.append(invariants.i9_who_is_denied_is_told_so)
    for invariant in asked:
        _refuse(ill, invariant.__name__, invariant(ended))
    return objects, ended


def _refuse(ill: Ill, name: str, found: Iterator[str]) -> None:
    for what in found:
        raise Violation(name, f"{ill}: {what}", ())
