"""The specification of batches, checked by TLC: it holds, and without any one of its guards it does not.

Each guard names the code that is it: this file is run again when that changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coset.batches import planning, publication, sweeping
from coset.batches.backfills.swap import swaps
from coset.batches.tables import delta, exchanged
from partitioning.documents.ledger import Ledger
from tests.specification.tlc import states, tlc

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "promises.md"
INVARIANTS = ("Once", "Whole", "Judged", "Held", "GoesOn", "AsDecided")
ALWAYS = ("PlanStays", "VerdictStays")
LIVENESS = ("Progress", "SwapEnds")
FEW = {"Tables": frozenset((1, 2)), "LastBatch": 0, "Records": 1, "LastRun": 2, "Survivor": 1}
TWO = FEW | {"Actors": frozenset((1, 2)), "Crashes": 1, "Losses": 1}
ONE = FEW | {"Actors": frozenset((1,)), "LastBatch": 1, "Records": 2, "LastRun": 4, "Crashes": 1, "Losses": 1}
STILL = {"Crashes": 0, "Losses": 0}


@dataclass(frozen=True)
class Guarded:
    """A guard of the protocol, what fails without it, the code that is the guard, and how much is looked at."""

    guard: str
    fails: str
    code: Callable[..., Any]
    bounds: dict[str, object] = field(default_factory=dict)
    does: tuple[str, ...] = ()


GUARDS = [
    Guarded("plan-stays", "Whole", Ledger.put_plan, TWO | {"Records": 2, "Tables": frozenset((1,))}),
    Guarded("ends-of-published", "Whole", Ledger.published_before, ONE, ("abandon",)),
    Guarded("state-of-published", "GoesOn", planning.kept_by, ONE, ("abandon",)),
    Guarded("verdict-stays", "Judged", Ledger.put_verdict, TWO, ("refuse",)),
    Guarded("verdict-is-obeyed", "Judged", publication.publish, TWO, ("abandon",)),
    Guarded("verdict-names-the-run", "Judged", publication.decide, TWO, ("refuse",)),
    Guarded("decided-is-not-abandoned", "Judged", publication.abandon, ONE, ("abandon",)),
    Guarded("all-tables", "Whole", publication.publish, TWO),
    Guarded("log-is-asked", "Once", delta.newest_in, TWO),
    Guarded("commit-is-conditional", "Once", delta.carry_out, TWO),
    Guarded("named-files-stay", "Held", sweeping.sweep, TWO, ("clean",)),
    Guarded("open-batch-is-not-cleaned", "Held", sweeping.sweep, TWO, ("abandon", "clean")),
    Guarded("newer-swap-stays", "AsDecided", exchanged.exchange, TWO, ("swap",)),
    Guarded("open-batch-is-taken-over", "Progress", planning.take_up, TWO | STILL),
    Guarded("verdict-is-read-back", "Progress", Ledger.put_verdict, TWO | STILL),
    Guarded("swap-is-finished", "SwapEnds", swaps.finish, TWO | STILL | {"LastRun": 3}, ("swap",)),
]
TOGETHER = TWO | {"LastBatch": 1, "Records": 2, "LastRun": 3}


@pytest.mark.parametrize(
    "guarded",
    [pytest.param(each, id=each.guard, marks=[pytest.mark.long] * (each is not GUARDS[8])) for each in GUARDS],
)
def test_all_holds_with_a_guard_and_its_property_fails_without(guarded: Guarded, tmp_path: Path) -> None:
    liveness = guarded.fails in LIVENESS
    properties = (*ALWAYS, *[guarded.fails] * liveness)
    held = checked(tmp_path, guarded.bounds, guarded.does, "none", INVARIANTS, properties, liveness=liveness)
    assert "No error has been found." in held, held
    assert row_of(guarded, states(held)) in PAGE.read_text()
    alone = ((), (guarded.fails,)) if liveness else ((guarded.fails,), ())
    broken = checked(tmp_path, guarded.bounds, guarded.does, guarded.guard, *alone, liveness=liveness)
    told = "Temporal properties were violated." if liveness else f"Invariant {guarded.fails} is violated."
    assert told in broken, broken


@pytest.mark.long
def test_all_holds_while_batches_are_given_up_and_cleaned_behind(tmp_path: Path) -> None:
    held = checked(tmp_path, TOGETHER, ("abandon", "clean"), "none", INVARIANTS, ALWAYS, liveness=False)
    assert "No error has been found." in held, held
    assert f"{states(held):,} states" in PAGE.read_text()


def checked(
    folder: Path,
    bounds: dict[str, object],
    does: tuple[str, ...],
    dropped: str,
    invariants: tuple[str, ...],
    properties: tuple[str, ...],
    *,
    liveness: bool,
) -> str:
    """What TLC says of the specification without a guard."""
    asked = [f"SPECIFICATION {'Fair' if liveness else 'Spec'}"]
    asked += [*(f"INVARIANT {each}" for each in invariants), *(f"PROPERTY {each}" for each in properties)]
    return tlc("Batches", folder, asked, bounds | {"Does": frozenset(does), "Dropped": dropped})


def row_of(guarded: Guarded, number: int) -> str:
    """Its row on the page."""
    code = f"{guarded.code.__module__}.{guarded.code.__qualname__}"
    return f"| `{guarded.guard}` | `{guarded.fails}` | {number:,} | `{code}` |"
