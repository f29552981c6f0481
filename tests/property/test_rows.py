"""Rows held by columns behave as the tuple of the same rows, which is the oracle."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.packed_rows import EqualSteps, PackedRows
from partitioning.values import Value


class File(Value, frozen=True):
    path: str
    end: int


class Held(Value, frozen=True):
    number: int
    name: str
    files: tuple[File, ...]
    start: int | None = None


# Numbers in a row, numbers at random and numbers that no array holds; names with and without a common beginning.
NUMBERS = st.integers(-3, 3) | st.integers(-(2**70), 2**70)
NAMES = st.text("ab/é", max_size=4)
FILES = st.lists(st.builds(File, NAMES, NUMBERS), max_size=3).map(tuple)
ROWS = st.lists(st.builds(Held, NUMBERS, NAMES, FILES, st.none() | st.integers(0, 2)), max_size=6).map(tuple)


@given(ROWS, st.slices(6))
def test_rows_are_read_as_the_tuple_is(rows: tuple[Held, ...], part: slice) -> None:
    held = PackedRows.of(Held, iter(rows))
    assert (tuple(held), len(held), bool(held)) == (rows, len(rows), bool(rows))
    assert [held[place] for place in range(-len(rows), len(rows))] == list(rows + rows)
    assert held[part] == rows[part]
    assert list(reversed(held)) == list(reversed(rows))


@given(ROWS, ROWS)
def test_rows_equal_what_the_tuple_equals(rows: tuple[Held, ...], others: tuple[Held, ...]) -> None:
    held = PackedRows.of(Held, rows)
    assert [held, rows] == [rows, held]
    assert (hash(held), repr(held)) == (hash(rows), repr(rows))
    for other in (others, PackedRows.of(Held, others)):
        assert (held == other) == (rows == others)


@given(ROWS)
def test_columns_that_are_put_together_again_are_the_same(rows: tuple[Held, ...]) -> None:
    held = PackedRows.of(Held, rows)
    assert PackedRows.of(Held, held) is held
    assert PackedRows.of(Held, held[:]).columns == held.columns
    assert pickle.loads(pickle.dumps(held)) == rows


def test_rows_of_two_classes_differ() -> None:
    class Other(Value, frozen=True):
        path: str
        end: int

    assert PackedRows.of(File, [File("a", 1)]) != PackedRows.of(Other, [Other("a", 1)])
    assert PackedRows.of(File, ()) == ()


def test_a_place_that_is_none_is_an_error() -> None:
    held = PackedRows.of(File, [File("a", 1), File("b", 2)])
    for place in (2, -3):
        with pytest.raises(IndexError):
            held[place]


def test_a_long_row_of_numbers_and_names_takes_little() -> None:
    """A million rows as tuples take 150 MB and more."""
    held = PackedRows.of(File, (File(f"topics/flights/{number:07}", 25 * number) for number in range(10_000)))
    assert held.columns["end"] == EqualSteps(0, 25, 10_000)
    assert sum(len(pickle.dumps(column)) for column in held.columns.values()) < 120_000
