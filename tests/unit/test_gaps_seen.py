"""Gaps that a reader notes, against a count of each offset."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from partitioning.model.offsets import Span
from spark_jobs.engine.gaps_seen import NAMED, Gaps

offsets = st.lists(st.integers(3, 40), unique=True).map(sorted)


@given(offsets, st.integers(1, 7))
def test_gaps_are_those_between_the_offsets_however_these_come(read: list[int], at_once: int) -> None:
    gaps = Gaps(3)
    for first in range(0, len(read), at_once):
        gaps.note(np.array(read[first : first + at_once], np.int64))
    absent = [offset for offset in range(3, 45) if offset not in read]
    starts = [offset for offset in absent if offset - 1 not in absent]
    ends = [offset + 1 for offset in absent if offset + 1 not in absent]
    seen = gaps.seen(45)
    assert list(seen.some) == [Span(start, end) for start, end in zip(starts, ends, strict=True)]
    assert seen.count == len(starts)


def test_of_many_gaps_some_from_all_over_are_named() -> None:
    gaps = Gaps(0)
    for first in range(1, 10_000, 1000):
        gaps.note(np.arange(first, first + 1000, 2))
    seen = gaps.seen(10_000)
    assert seen.count == 5000
    assert NAMED / 2 <= len(seen.some) <= NAMED + 1
    starts = [gap.start for gap in seen.some]
    assert starts[0] == 0
    assert max(np.diff(starts)) <= 2 * 10_000 / (NAMED / 2)
