"""What is usual, against the rule as one would work it out by hand: quartiles between ranks, in fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.model.figures import BEFORE, FEWEST, usual_from

VALUES = st.lists(st.none() | st.integers(-(10**9), 10**9) | st.floats(0, 1, allow_subnormal=False), max_size=70)


def by_hand(before: list[float | None]) -> tuple[Fraction, Fraction] | None:
    known = sorted(Fraction(value) for value in before[max(0, len(before) - 30) :] if value is not None)
    if len(known) < 5:
        return None

    def at(share: Fraction) -> Fraction:
        place = share * (len(known) - 1)
        below = int(place)
        above = min(below + 1, len(known) - 1)
        return known[below] + (place - below) * (known[above] - known[below])

    low, middle, high = at(Fraction(1, 4)), at(Fraction(1, 2)), at(Fraction(3, 4))
    wider = max(Fraction(3, 2) * (high - low), abs(middle) / 10)
    least = low - wider
    return (least if known[0] < 0 else max(Fraction(0), least)), high + wider


@given(VALUES)
def test_the_band_is_the_middle_half_widened_by_its_width_and_a_half_or_a_tenth(before: list[float | None]) -> None:
    found, expected = usual_from(before), by_hand(before)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found == pytest.approx(tuple(map(float, expected)), rel=1e-9, abs=1e-9)


@given(VALUES.filter(lambda before: usual_from(before) is not None))
def test_half_of_the_values_before_are_usual_and_the_band_does_not_depend_on_their_order(
    before: list[float | None],
) -> None:
    usual = usual_from(before)
    assert usual is not None
    known = [value for value in before[-BEFORE:] if value is not None]
    assert 2 * sum(usual[0] - 1e-9 <= value <= usual[1] + 1e-9 for value in known) >= len(known)
    assert usual_from(list(reversed(known))) == usual
    assert len(known) >= FEWEST
