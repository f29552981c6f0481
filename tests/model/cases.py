"""The cases: who works on one pipeline at once, after what, and how much may go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from partitioning.model.backfill import SwapKind
from tests.model import programs
from tests.model.explore import Judge
from tests.model.programs import PIPELINE, abandon, arrive, backfill, clean, run, swap
from tests.model.seams import PREFIX
from tests.model.server import Objects
from tests.model.world import World

Program = Callable[[], str]
TWO = partial(run, tables=2)
_FIRST = (partial(arrive, 2, 1), run)


@dataclass(frozen=True)
class Case:
    """Programs that run at once, after those of `before` have run alone, one after the other.

    `last` is what somebody runs when all others have stopped, and what may be told `on_the_way`. There are files `left`
    that no document names, and the store has an id unless it is not `known`.
    """

    name: str
    at_once: tuple[Program, ...]
    before: tuple[Program, ...] = (*_FIRST, partial(arrive, 3, 2))
    last: Program = run
    left: tuple[str, ...] = ()
    known: bool = True
    on_the_way: frozenset[str] = frozenset()

    @property
    def tables(self) -> int:
        """How many tables the pipeline has."""
        return 2 if self.last is TWO else 1

    def world(self, crashes: int = 0, faults: int = 0, *, reads: bool = False) -> tuple[World, Judge]:
        """A world of this case in which so many actors may crash and so many answers be lost."""
        *_, (_, last) = self.begun()
        actors = [("abcdef"[number], program) for number, program in enumerate(self.at_once)]
        world = World(actors, last.by_key, crashes, faults, reads)
        return world, Judge(world, PIPELINE, self.last, self.on_the_way)

    def begun(self) -> Iterator[tuple[Program, Objects]]:
        """What is stored after each request of the programs of `before`, and the program."""
        stored = {
            **({f"{PREFIX}store-id": b"model"} if self.known else {}),
            **{f"{PREFIX}{key}": b"{}" for key in self.left},
        }
        for number, program in enumerate(self.before):
            alone = World([(f"before{number}", program)], stored)
            steps = list(alone.alone(alone.actors[0], alone.server.having(stored)))
            yield from ((program, objects) for objects, _ in steps)
            last, node = steps[-1]
            assert not node.ended.startswith(("broke", "Refused")), node.ended
            stored = last.by_key


_BACKFILLED = (partial(arrive, 2, 1), TWO, partial(backfill, tables=2))
_BACKFILLED_TWICE = (*_BACKFILLED, partial(backfill, tables=2, number=1))
_FAILING = partial(run, failing=1)
# Files of a run that was killed.
_LEFT = tuple(f"tables/t0/data/plan-{batch}/attempt-0-killed/events-0.parquet" for batch in (0, 1))
_CASES = (
    Case("two run", (run, run)),
    Case("two run the first batch", (run, run), before=(partial(arrive, 2, 1),)),
    Case("two begin a store", (run, run), before=(partial(arrive, 2, 1),), known=False),
    Case("two run, two tables", (TWO, TWO), before=(partial(arrive, 2, 1), TWO, partial(arrive, 3, 2)), last=TWO),
    Case("the checks fail once", (_FAILING, _FAILING), last=_FAILING, on_the_way=frozenset({"Refused: batch.unrun"})),
    Case("one gives up", (run, abandon)),
    Case("records arrive", (run, run, partial(arrive, 4, 4))),
    Case("one cleans", (run, clean), left=_LEFT),
    Case("one cleans, one gives up", (run, clean, abandon), left=_LEFT),
    Case("one swaps", (TWO, partial(swap)), before=(*_BACKFILLED, partial(arrive, 3, 2)), last=TWO),
    Case("two swap", (partial(swap), partial(swap)), before=_BACKFILLED, last=TWO),
    Case("one swaps, one takes back", (partial(swap), partial(swap, SwapKind.UNDO)), before=_BACKFILLED, last=TWO),
    Case("one swaps, one cleans", (partial(swap), partial(clean, tables=2)), before=_BACKFILLED, last=TWO),
    Case(
        "two backfills are put in place", (partial(swap), partial(swap, number=1)), before=_BACKFILLED_TWICE, last=TWO
    ),
    Case("three run", (run, run, run)),
    Case("all at once", (run, partial(arrive, 4, 4), abandon, clean, run), left=_LEFT),
    Case(
        "all at once, two backfills",
        (TWO, partial(swap, SwapKind.UNDO), partial(swap, number=1), partial(clean, tables=2), abandon),
        before=(*_BACKFILLED_TWICE, partial(swap), partial(arrive, 3, 2)),
        last=TWO,
    ),
)
CASES = {case.name: case for case in _CASES}

__all__ = ["CASES", "Case", "programs"]
