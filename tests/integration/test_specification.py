"""The specification of batches, checked by TLC: it holds, and without any one of its guards it does not.

Each guard imports the code that is it, so this file is run again when that changes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.specification.guards import GUARDS, TOGETHER, Guarded
from tests.specification.tlc import states, tlc

INVARIANTS = ("Once", "Whole", "Judged", "Held", "GoesOn", "AsDecided")
ALWAYS = ("PlanStays", "VerdictStays")
LIVENESS = ("Progress", "SwapEnds")


@pytest.mark.parametrize(
    "guarded",
    [pytest.param(each, id=each.guard, marks=[pytest.mark.long] * (each is not GUARDS[8])) for each in GUARDS],
)
def test_all_holds_with_a_guard_and_its_property_fails_without(guarded: Guarded, tmp_path: Path) -> None:
    liveness = guarded.fails in LIVENESS
    properties = (*ALWAYS, *[guarded.fails] * liveness)
    held = checked(tmp_path, guarded.bounds, guarded.does, "none", INVARIANTS, properties, liveness=liveness)
    assert "No error has been found." in held, held
    assert states(held) == guarded.states
    alone = ((), (guarded.fails,)) if liveness else ((guarded.fails,), ())
    broken = checked(tmp_path, guarded.bounds, guarded.does, guarded.guard, *alone, liveness=liveness)
    told = "Temporal properties were violated." if liveness else f"Invariant {guarded.fails} is violated."
    assert told in broken, broken


@pytest.mark.long
def test_all_holds_while_batches_are_given_up_and_cleaned_behind(tmp_path: Path) -> None:
    held = checked(tmp_path, TOGETHER, ("abandon", "clean"), "none", INVARIANTS, ALWAYS, liveness=False)
    assert "No error has been found." in held, held
    print(f"{states(held):,} states")


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
