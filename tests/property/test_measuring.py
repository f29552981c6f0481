"""Figures of result tables, and what is usual of them, against the same figures by Python over all rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coset.batches.measuring import values
from coset.sources.rows import Rows
from partitioning.model.figures import BEFORE, FEWEST, usual_from
from partitioning.model.graph import Write
from partitioning.model.measures import Measure, MeasureKind
from partitioning.model.plan import PlannedWrite
from partitioning.model.streams import Column
from tests.examples import examples

DAY = 86_400 * 10**6
AS_OF = 1_795_514_400 * 10**6
COLUMNS = {"k": "VARCHAR", "whole": "BIGINT", "part": "DOUBLE", "money": "DECIMAL(18,2)", "seen": "TIMESTAMP"}
TYPES = {
    "k": pa.string(),
    "whole": pa.int64(),
    "part": pa.float64(),
    "money": pa.decimal128(18, 2),
    "seen": pa.timestamp("us"),
}
WRITE = PlannedWrite(
    Write("paid", "each", "k", lineage=False, expectations=()), tuple(Column(*each) for each in COLUMNS.items())
)
MEASURES = (
    Measure(MeasureKind.ROWS), Measure(MeasureKind.KEYS), Measure(MeasureKind.NULLS, "whole"),
    Measure(MeasureKind.NULLS, "k || ''"), Measure(MeasureKind.LATEST, "seen"), Measure(MeasureKind.SUM, "whole"),
    Measure(MeasureKind.SUM, "part"), Measure(MeasureKind.SUM, "money"),
)  # fmt: skip
row = st.tuples(
    st.none() | st.sampled_from("abcdef"),
    st.none() | st.integers(-(2**62), 2**62),
    st.none() | st.floats(-1e9, 1e9),
    st.none() | st.decimals(-(10**9), 10**9, places=2),
    st.none() | st.integers(AS_OF - 400 * DAY, AS_OF + 3 * DAY),
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(row, max_size=8), max_size=5))
def test_figures_are_those_of_all_rows(batches: list[list[tuple[Any, ...]]]) -> None:
    rows = [each for batch in batches for each in batch]
    found = dict(values(AS_OF, WRITE, MEASURES, _streamed(batches)))
    keys, whole, part, money, seen = ([each[place] for each in rows] for place in range(5))
    none = Fraction(sum(each is None for each in whole), len(rows)) if rows else None
    assert found[MEASURES[0]] == len(rows)
    assert found[MEASURES[1]] == len({each for each in keys if each is not None})
    assert found[MEASURES[2]] == (None if none is None else pytest.approx(float(none)))
    assert (found[MEASURES[3]] is None) == (not rows)
    assert found[MEASURES[4]] == max((each for each in seen if each is not None and each <= AS_OF + DAY), default=None)
    for measure, column in zip(MEASURES[5:], (whole, part, money), strict=True):
        known = [Fraction(each) for each in column if each is not None]
        total = found[measure]
        assert (total is None) == (not known)
        if total is not None:
            most = float(max(map(abs, known)))
            assert float(total) == pytest.approx(float(sum(known)), rel=1e-12, abs=1e-14 * most * len(known))
    if found[MEASURES[5]] is not None and abs(exact := sum(each for each in whole if each is not None)) < 2**63:
        assert found[MEASURES[5]] == exact


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_what_is_no_number_is_no_sum(number: float) -> None:
    rows = _streamed([[("a", 1, number, None, None)]])
    assert dict(values(AS_OF, WRITE, MEASURES, rows))[MEASURES[6]] is None


def _streamed(batches: Sequence[Sequence[tuple[Any, ...]]]) -> Rows:
    schema = pa.schema(list(TYPES.items()))
    made = [
        pa.record_batch(
            [
                pa.array([_time(value) if name == "seen" else value for value in column], kind)
                for (name, kind), column in zip(
                    TYPES.items(), zip(*batch, strict=True) if batch else [()] * len(TYPES), strict=True
                )
            ],
            schema=schema,
        )
        for batch in batches
    ]

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return iter(each.select(list(columns)) for each in made)

    return Rows(schema, sum(map(len, made)), read)


def _time(value: Any) -> datetime | None:
    return None if value is None else datetime(1970, 1, 1) + value * datetime.resolution  # noqa: DTZ001


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
