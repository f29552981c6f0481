"""Columns: what a document draws together comes back as it was, and what does not fit is an error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.documents.stored_columns import from_columns, to_columns
from partitioning.values import Value


class File(Value, frozen=True):
    path: str
    size: int


class Part(Value, frozen=True):
    number: int
    name: str
    end: int
    files: tuple[File, ...]


PARTS = st.builds(
    Part,
    st.integers(0, 5),
    st.text(max_size=2),
    st.integers(),
    st.lists(st.builds(File, st.text(max_size=4), st.integers(0, 3)), max_size=3).map(tuple),
)


@given(st.lists(PARTS, max_size=6).map(tuple))
def test_rows_come_back_as_they_were(rows: tuple[Part, ...]) -> None:
    assert from_columns(Part, to_columns(Part, rows)) == rows


def test_numbers_in_a_row_and_common_beginnings_are_stored_once() -> None:
    rows = [Part(n, str(n), 7, (File(f"topics/flights/{n}.parquet", 10 * n),)) for n in range(1000)]
    fields = to_columns(Part, rows)["fields"]
    assert fields["number"] == {"first": 0, "step": 1}
    assert fields["end"] == {"first": 7, "step": 0}
    assert fields["files"]["counts"] == {"first": 1, "step": 0}
    assert fields["files"]["rows"]["fields"]["size"] == {"first": 0, "step": 10}
    assert fields["files"]["rows"]["fields"]["path"]["prefix"] == "topics/flights/"


GOOD = to_columns(Part, [Part(0, "a", 1, ()), Part(4, "ab", 5, (File("a", 1),))])


@pytest.mark.parametrize(
    "spoiled",
    [
        GOOD | {"count": 3},
        GOOD | {"count": "2"},
        {"count": 2, "fields": GOOD["fields"] | {"number": {"prefix": "1", "rest": ["", "0"]}}},
        {"count": 2, "fields": GOOD["fields"] | {"name": {"first": 0, "step": 1}}},
        GOOD | {"more": 1},
        {"count": 2, "fields": {name: GOOD["fields"][name] for name in ("number", "name", "end")}},
        {"count": 2, "fields": GOOD["fields"] | {"number": {"first": 0}}},
        {"count": 2, "fields": GOOD["fields"] | {"number": {"first": 0, "step": "1"}}},
        {"count": 2, "fields": GOOD["fields"] | {"number": [1]}},
    ],
)
def test_what_does_not_fit_is_an_error(spoiled: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        from_columns(Part, spoiled)
