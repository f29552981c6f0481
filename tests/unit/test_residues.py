"""Residues of hashes: a product says what a division says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs.engine.residues import all_among, among, is_one_of, residues, rows_among, rows_by_residue, rows_of

NARROW, WIDE = np.dtype(np.uint32), np.dtype(np.uint64)


@st.composite
def cases(draw: st.DrawFn, most: int) -> tuple[int, int, int, int]:
    """A modulus, the first residue, how many, and a hash that is near one of their ends or anywhere."""
    modulus = draw(st.integers(1, 40) | st.integers(1, most))
    first = draw(st.integers(0, modulus - 1))
    many = draw(st.integers(1, modulus - first) | st.just(1))
    near = draw(st.sampled_from([first - 1, first, first + many - 1, first + many])) % modulus
    beside = near + modulus * draw(st.integers(0, (most - near) // modulus))
    return modulus, first, many, draw(st.just(beside) | st.integers(0, most))


def says(case: tuple[int, int, int, int], kind: np.dtype) -> bool:
    modulus, first, many, h = case
    return bool(among(kind.type(h), residues(modulus, first, many, kind)))


@given(cases(2**32 - 1))
@example((1, 0, 1, 2**32 - 1))
@example((2**32 - 1, 2**32 - 2, 1, 2**32 - 2))
def test_narrow_hashes_are_told_by_a_product(case: tuple[int, int, int, int]) -> None:
    modulus, first, many, h = case
    assert says(case, NARROW) == (first <= h % modulus < first + many)
    assert residues(modulus, first, many, NARROW).by_product == (many < modulus)


@given(cases(2**64 - 1))
def test_wide_hashes_are_told_too(case: tuple[int, int, int, int]) -> None:
    modulus, first, many, h = case
    assert says(case, WIDE) == (first <= h % modulus < first + many)


@given(st.integers(2**32, 2**62), st.integers(0, 2**32 - 1), st.data())
def test_a_modulus_may_be_larger_than_any_hash(modulus: int, h: int, data: st.DataObject) -> None:
    many = data.draw(st.integers(1, modulus))
    assert says((modulus, 0, many, h), NARROW) == (h < many)


@pytest.mark.parametrize("owned", [(3,), (0, 3, 5), ()])
def test_one_of_several_residues(owned: tuple[int, ...]) -> None:
    ascending = np.array(owned, np.uint64)
    assert [residue for residue in range(7) if is_one_of(np.uint64(residue), ascending)] == list(owned)


hashes_of_a_batch = st.tuples(st.sampled_from([NARROW, WIDE]), st.lists(st.integers(0, 50) | st.integers(0, 2**32 - 1)))


@given(hashes_of_a_batch, st.integers(1, 60), st.data())
def test_the_rows_of_a_range_of_residues(batch: tuple[np.dtype, list[int]], modulus: int, data: st.DataObject) -> None:
    kind, hashes = batch
    first = data.draw(st.integers(0, modulus - 1))
    many = data.draw(st.integers(1, modulus - first))
    asked = np.array(hashes, kind), residues(modulus, first, many, kind)
    expected = [row for row, h in enumerate(hashes) if first <= h % modulus < first + many]
    assert rows_among(*asked).tolist() == expected
    assert all_among(*asked) == (len(expected) == len(hashes))


@given(hashes_of_a_batch, st.integers(1, 60), st.sets(st.integers(0, 59)))
def test_the_rows_of_each_residue(batch: tuple[np.dtype, list[int]], modulus: int, some: set[int]) -> None:
    kind, hashes = batch
    rows, begins = rows_by_residue(np.array(hashes, kind), kind.type(modulus))
    assert (begins[0], begins[modulus]) == (0, len(hashes))
    for residue in range(modulus):
        found = rows[begins[residue] : begins[residue + 1]].tolist()
        assert found == [row for row, h in enumerate(hashes) if h % modulus == residue]
    chosen = sorted(residue for residue in some if residue < modulus)
    found = rows_of(chosen, rows, begins).tolist()
    assert found == [row for row, h in enumerate(hashes) if h % modulus in chosen]
