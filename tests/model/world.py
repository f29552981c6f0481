"""The world of a model: the objects of the store, where each actor is, and what may still go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from tests.faults import PUT_NEW, Fault
from tests.model.recorded import Node, Recorded
from tests.model.server import WRITES, Objects, Request, Server

GO, CRASH, LANDS = "", "crash", "lands"
# What may become of a request that is carried out or not: its answer is lost, the store is busy, or it comes when its
# sender has gone on. Where an object is to be new boto3 may ask again and meet its own, or another may write it too.
LOST, BUSY, LATE = "after:lost", "before:503", "before:lost+1s"
AGAIN, CONTENDED = "after:412", "before:409"


class Move(NamedTuple):
    """One step of a schedule: whose turn it is, and what goes wrong if anything does."""

    actor: int
    what: str = GO


class State(NamedTuple):
    """Where all stands. An actor that crashed is nowhere. A request that is late is told by its number."""

    objects: Objects
    nodes: tuple[Node | None, ...]
    crashes: int
    faults: int
    late: tuple[Request, ...] = ()


@dataclass
class World:
    """Actors with their programs over what is stored at first, and how much may go wrong."""

    programs: Sequence[tuple[str, Callable[[], str]]]
    stored: dict[str, bytes]
    crashes: int = 0
    faults: int = 0
    # Whether the answers to what is only read may be lost too.
    reads: bool = False
    server: Server = field(default_factory=Server)

    def __post_init__(self) -> None:
        self.numbers = count()
        self.actors = [self.actor(name, program) for name, program in self.programs]

    def actor(self, name: str, program: Callable[[], str]) -> Recorded:
        return Recorded(name, program, self.server, self.numbers)

    def first(self) -> State:
        objects = self.server.having(self.stored)
        nodes = tuple(actor.begun(objects) for actor in self.actors)
        return State(objects, nodes, self.crashes, self.faults)

    def able(self, state: State) -> list[int]:
        """The actors that can go on, and -1 if a request may still arrive."""
        able = [number for number, node in enumerate(state.nodes) if node is not None and node.request is not None]
        return [*able, -1] if state.late else able

    def moves(self, state: State) -> Iterator[Move]:
        """All that may come next."""
        for number, node in enumerate(state.nodes):
            if node is None or node.request is None:
                continue
            yield Move(number)
            # What an actor only reads before it crashes makes no difference to others.
            if state.crashes and node.request.verb in WRITES:
                yield Move(number, CRASH)
            yield from (Move(number, fault) for fault in self._possible(state, node.request))
        yield from (Move(number, LANDS) for number in range(len(state.late)))

    def after(self, state: State, move: Move) -> State:
        """The state after a move. Raises KeyError if it is not possible."""
        number, what = move
        objects, nodes, crashes, faults, late = state
        if what == LANDS:
            objects, _ = self.server.act(objects, late[number])
            return State(objects, nodes, crashes, faults, late[:number] + late[number + 1 :])
        node = nodes[number]
        assert node is not None
        assert node.request is not None
        if what == CRASH:
            return state._replace(nodes=_with(nodes, number, None), crashes=crashes - 1)
        answer: Any
        if what == GO:
            objects, answer = self.server.act(objects, node.request)
        else:
            faults, answer = faults - 1, Fault.of(what)
            if answer.acts:
                objects, _ = self.server.act(objects, node.request)
            elif answer.delay:
                late = (*late, node.request)
        after = self.actors[number].after(node, answer, objects)
        return State(objects, _with(nodes, number, after), crashes, faults, late)

    def _possible(self, state: State, request: Request) -> Iterator[str]:
        if state.faults and request.verb in WRITES:
            yield from (LOST, BUSY, LATE)
            if request.verb == PUT_NEW:
                yield from (AGAIN, CONTENDED)
        elif state.faults and self.reads:
            yield LOST

    def alone(self, actor: Recorded, objects: Objects) -> Iterator[tuple[Objects, Node]]:
        """What is stored, and where an actor is, before it runs alone and after each of its requests, to its end."""
        node = actor.begun(objects)
        yield objects, node
        while node.request is not None:
            objects, answer = self.server.act(objects, node.request)
            node = actor.after(node, answer, objects)
            yield objects, node


def identity(state: State) -> tuple[Any, ...]:
    """What tells a state from others."""
    nodes = tuple(-1 if node is None else (node.ended or node.number) for node in state.nodes)
    return state.objects.number, nodes, state.crashes, state.faults, state.late


def _with(nodes: tuple[Node | None, ...], number: int, node: Node | None) -> tuple[Node | None, ...]:
    return (*nodes[:number], node, *nodes[number + 1 :])
