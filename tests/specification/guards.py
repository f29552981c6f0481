"""The guards of the protocol: what fails without each, and which code it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coset.batches import planning, publication, sweeping
from coset.batches.backfills import swaps
from coset.batches.tables import delta, exchanged
from partitioning.documents.ledger import Ledger

FEW = {"Tables": frozenset((1, 2)), "LastBatch": 0, "Records": 1, "LastRun": 2, "Survivor": 1}
TWO = FEW | {"Actors": frozenset((1, 2)), "Crashes": 1, "Losses": 1}
ONE = FEW | {"Actors": frozenset((1,)), "LastBatch": 1, "Records": 2, "LastRun": 4, "Crashes": 1, "Losses": 1}
STILL = {"Crashes": 0, "Losses": 0}


@dataclass(frozen=True)
class Guarded:
    """A guard of the protocol, what fails without it, the code that is the guard, and how much is looked at: so many
    states, within these bounds."""

    guard: str
    fails: str
    code: Callable[..., Any]
    states: int
    bounds: dict[str, object] = field(default_factory=dict)
    does: tuple[str, ...] = ()


GUARDS = [
    Guarded("plan-stays", "Whole", Ledger.put_plan, 10_999, TWO | {"Records": 2, "Tables": frozenset((1,))}),
    Guarded("ends-of-published", "Whole", Ledger.published_before, 2_372, ONE, ("abandon",)),
    Guarded("state-of-published", "GoesOn", planning.kept_by, 2_372, ONE, ("abandon",)),
    Guarded("verdict-stays", "Judged", Ledger.put_verdict, 11_359, TWO, ("refuse",)),
    Guarded("verdict-is-obeyed", "Judged", publication.publish, 6_581, TWO, ("abandon",)),
    Guarded("verdict-names-the-run", "Judged", publication.decide, 11_359, TWO, ("refuse",)),
    Guarded("decided-is-not-abandoned", "Judged", publication.abandon, 2_372, ONE, ("abandon",)),
    Guarded("all-tables", "Whole", publication.publish, 5_571, TWO),
    Guarded("log-is-asked", "Once", delta.newest_in, 5_571, TWO),
    Guarded("commit-is-conditional", "Once", delta.carry_out, 5_571, TWO),
    Guarded("named-files-stay", "Held", sweeping.sweep, 8_723, TWO, ("clean",)),
    Guarded("open-batch-is-not-cleaned", "Held", sweeping.sweep, 11_835, TWO, ("abandon", "clean")),
    Guarded("newer-swap-stays", "AsDecided", exchanged.exchange, 15_099, TWO, ("swap",)),
    Guarded("open-batch-is-taken-over", "Progress", planning.take_up, 781, TWO | STILL),
    Guarded("verdict-is-read-back", "Progress", Ledger.put_verdict, 781, TWO | STILL),
    Guarded("swap-is-finished", "SwapEnds", swaps.finish, 5_647, TWO | STILL | {"LastRun": 3}, ("swap",)),
]
TOGETHER = TWO | {"LastBatch": 1, "Records": 2, "LastRun": 3}
