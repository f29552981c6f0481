"""Recorded code: what a program asks next, by the answers that it was given until then.

A program of the model is told everything by answers, so the same answers always lead to the same next request. The real
code runs only where it was never yet: it is begun anew, given the answers again, and then goes on alone to its end.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

from partitioning.errors import CosetError
from tests.model import seams
from tests.model.server import Objects, Request, Server

# No program of the model asks so often by itself.
ENDLESS = 400


class Node:
    """A program after some answers: what it asks next, or what it ended with."""

    __slots__ = ("answer", "children", "ended", "number", "parent", "request")

    def __init__(self, number: int, parent: Node | None = None, answer: Any = None) -> None:
        self.number, self.parent, self.answer = number, parent, answer
        self.request: Request | None = None
        self.ended = ""
        self.children: dict[Any, Node] = {}

    def history(self) -> list[tuple[Node, Any]]:
        """What was asked until here, with the answers, the first at first."""
        found, node = list[tuple[Node, Any]](), self
        while node.parent is not None:
            found.append((node.parent, node.answer))
            node = node.parent
        return found[::-1]


class Endless(BaseException):
    """A program asks on and on."""


class Otherwise(BaseException):
    """A program asked something else than it did before, after the same answers."""


class Recorded:
    """A program of an actor, and all that it is known to do."""

    def __init__(self, name: str, program: Callable[[], str], server: Server, numbers: Iterator[int]) -> None:
        self.name, self.runs = name, 0
        self._program, self._server, self._numbers = program, server, numbers
        self.root = Node(next(numbers))

    def begun(self, objects: Objects) -> Node:
        """Before its first request."""
        if self.root.request is None and not self.root.ended:
            self._run([], objects)
        return self.root

    def after(self, node: Node, answer: Any, objects: Objects) -> Node:
        """What comes after an answer. If nobody knows, it goes on from these objects, alone, as far as it goes."""
        if answer not in node.children:
            self._run([*node.history(), (node, answer)], objects)
        return node.children[answer]

    def _run(self, given: list[tuple[Node, Any]], objects: Objects) -> None:
        now, place = self.root, 0

        def ask(request: Request) -> Any:
            nonlocal now, place, objects
            node = now
            if node.request is None:
                node.request = request
            elif node.request != request:
                raise Otherwise(f"{self.name}: {node.request!r}, then {request!r}")
            if place < len(given):
                answer = given[place][1]
            else:
                objects, answer = self._server.act(objects, request)
            if (place := place + 1) > ENDLESS:
                raise Endless
            if answer not in node.children:
                node.children[answer] = Node(next(self._numbers), node, answer)
            now = node.children[answer]
            return answer

        self.runs += 1
        seams.enter(self.name, ask)
        ended = _outcome(self._program)
        assert now.request is None or isinstance(now.request, Request)
        if now.request is not None:
            raise Otherwise(f"{self.name}: {now.request}, then it ended with {ended}")
        now.ended = ended


def _outcome(program: Callable[[], str]) -> str:
    try:
        return program()
    except CosetError as error:
        return f"{type(error).__name__}: {', '.join(sorted({finding.kind.value for finding in error.findings}))}"
    except Endless:
        return "endless"
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"broke: {type(error).__name__}: {error}, in {frame.name}: {frame.line}"
