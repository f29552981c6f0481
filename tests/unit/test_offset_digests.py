"""Digests of offsets: ranges by a closed form, records by compiled code, both as the definition says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.model.receipt import BASE, MODULUS, offset_digest, range_digest
from spark_jobs.engine.offset_digests import digest_of

# Of 2^61 - 2.
PRIME_FACTORS = (2, 3, 5, 7, 11, 13, 31, 41, 61, 151, 331, 1321)

near = st.integers(0, 200)
anywhere = st.integers(0, 2**62)
picked = st.lists(st.tuples(near | anywhere, st.booleans()), max_size=40)
# Offsets as they come: runs, with what is left to other tasks between them.
runs = st.tuples(anywhere, st.lists(st.booleans(), max_size=300)).map(
    lambda run: [(run[0] + place, chosen) for place, chosen in enumerate(run[1])]
)


def summed(offsets: Sequence[int]) -> int:
    return sum(map(offset_digest, offsets)) % MODULUS


def test_the_base_is_a_primitive_root_so_that_no_two_offsets_have_the_same_part() -> None:
    rest = MODULUS - 1
    for prime in PRIME_FACTORS:
        while rest % prime == 0:
            rest //= prime
        assert pow(BASE, (MODULUS - 1) // prime, MODULUS) != 1
    assert rest == 1


@given(anywhere, st.integers(0, 300))
def test_the_digest_of_a_range_is_the_sum_of_its_offsets_digests(start: int, length: int) -> None:
    assert range_digest(start, start + length) == summed(range(start, start + length))


@given(st.lists(anywhere, min_size=3, max_size=3).map(sorted))
def test_the_digests_of_two_parts_of_a_range_add_up(ends: list[int]) -> None:
    start, middle, end = ends
    assert range_digest(start, end) == (range_digest(start, middle) + range_digest(middle, end)) % MODULUS


@given(picked | runs)
def test_what_is_compiled_gives_what_is_defined(records: list[tuple[int, bool]]) -> None:
    offsets, chosen = [offset for offset, _ in records], [flag for _, flag in records]
    found = digest_of(np.array(offsets, np.int64)[np.array(chosen, np.bool_)])
    assert int(found) == summed([offset for offset, flag in records if flag])


@pytest.mark.parametrize("step", [1, 2, 8, 63, 1000, 1023, 1024, 1025, 2**20 - 1, 2**20, 2**20 + 1])
def test_so_it_does_of_each_so_manieth_record(step: int) -> None:
    offsets = 70_001 + step * np.arange(5_000)
    assert int(digest_of(offsets)) == summed(offsets.tolist())


def test_the_largest_offsets_do_not_overflow() -> None:
    offsets = [2**63 - 2, 0, 2**63 - 3]
    assert int(digest_of(np.array(offsets))) == summed(offsets)


@given(st.integers(0, 2**40), st.integers(2, 2**40), st.data())
def test_a_lost_offset_whose_place_another_took_is_always_seen(start: int, length: int, data: st.DataObject) -> None:
    inside = st.integers(start, start + length - 1)
    lost = data.draw(inside)
    twice = data.draw(inside.filter(lambda offset: offset != lost))
    found = range_digest(start, start + length) - offset_digest(lost) + offset_digest(twice)
    assert found % MODULUS != range_digest(start, start + length)


@given(st.integers(0, 2**40), st.lists(st.integers(0, 3), min_size=2, max_size=200))
def test_offsets_lost_and_doubled_in_any_pattern_are_seen(start: int, times: list[int]) -> None:
    found = sum(many * offset_digest(start + place) for place, many in enumerate(times)) % MODULUS
    assert (found == range_digest(start, start + len(times))) == (set(times) == {1})
