"""Rows side by side, in whatever order."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest

from coset.batches.compared_rows import compared, nearly
from partitioning.model.backfill import Difference


def rows(**columns: list[object]) -> pa.RecordBatchReader:
    return pa.table(columns).to_reader()


def against(before: dict[str, list[object]], now: dict[str, list[object]], key: str = "k") -> Difference:
    return compared(rows(**before), rows(**now), key)


def test_rows_are_compared_whatever_their_order_and_how_often_they_are_there() -> None:
    found = against({"k": ["a", "b", "b"], "v": [1, 2, 3]}, {"v": [3, 1, 2], "k": ["b", "a", "b"]})
    assert (found.rows, found.keys, found.first) == ((3, 3), 0, ())
    assert found.digests[0] == found.digests[1]
    found = against({"k": ["a"], "v": [1]}, {"k": ["a", "a"], "v": [1, 1]})
    assert (found.rows, found.keys) == ((1, 2), 1)
    assert found.first == (("a", "", '{"k":"a","v":1}'),)
    assert against({"k": ["a", "b"]}, {"k": ["a", "b"], "v": pa.array([None, 2]).to_pylist()}).keys == 1
    assert against({"v": [1, 2]}, {"v": [1, 3]}, key="").keys == 2
    nothing = pa.schema([("k", pa.string())]).empty_table()
    assert compared(nothing.to_reader(), nothing.to_reader(), "k").keys == 0


@pytest.mark.parametrize(
    ("before", "now", "keys"),
    [
        ([1.0], [1.0 + 2**-52], 1),
        ([0.0], [-0.0], 1),
        ([math.nan], [math.nan], 0),
        ([None], [math.nan], 1),
        ([0.1 + 0.2], [0.3], 1),
    ],
    ids=["the last bit", "signs of zero", "none twice", "null and none", "another sum"],
)
def test_floats_are_equal_bit_for_bit(before: list[object], now: list[object], keys: int) -> None:
    assert against({"k": ["a"], "v": before}, {"k": ["a"], "v": now}).keys == keys


@pytest.mark.parametrize(
    ("before", "now", "keys"),
    [
        ([0.1 + 0.2, 5.0], [0.3, 5.0], 0),
        ([5.0, 0.1 + 0.2, math.nan], [math.nan, 0.3, 5.0], 0),
        ([5.5e-17], [0.0], 0),
        ([1e12], [1e12 + 0.001], 0),
        ([0.0], [-0.0], 0),
        ([0.1 + 0.2, 5.0], [0.3, 5.001], 1),
        ([math.inf], [1e300], 1),
        ([1e300], [math.inf], 1),
        ([math.inf], [-math.inf], 1),
        ([None], [0.0], 1),
        ([0.1 + 0.2], [0.3, 0.3], 1),
    ],
)
@pytest.mark.parametrize("key", ["k", "", "v"])
def test_sums_in_another_order_are_nearly_the_same(
    before: list[object], now: list[object], keys: int, key: str
) -> None:
    were, are = (rows(k=["a"] * len(values), n=[1] * len(values), v=values) for values in (before, now))
    found = nearly(were, are, key)
    assert (found.same, found.keys > 0) == (not keys, bool(keys)) if key != "v" else found.same <= (not keys)
    if len(before) == len(now):
        # Of floating-point columns alone, too.
        assert nearly(rows(v=before), rows(v=now), "").same == (not keys)


def test_keys_that_differ_are_shown_with_all_their_rows() -> None:
    keys = [f"key-{number}" for number in range(9)]
    found = against({"k": list(keys), "v": [0] * 9}, {"k": list(keys), "v": [1] * 9})
    assert found.keys == 9
    assert found.first[:1] == (("key-0", '{"k":"key-0","v":0}', '{"k":"key-0","v":1}'),)
    assert len(found.first) == 5
    found = against({"k": ["a", "a"], "v": [1, 2]}, {"k": ["a"], "v": [3]})
    assert found.first_columns == found.first == (("a", '{"k":"a","v":1}; {"k":"a","v":2}', '{"k":"a","v":3}'),)
    found = against({"a": ["x", "y"], "b": [1, 1], "v": [1, 2]}, {"a": ["x", "y"], "b": [1, 1], "v": [1, 3]}, "(a, b)")
    assert (found.keys, [key for key, *_ in found.first]) == (1, ['["y",1]'])


def test_people_are_shown_the_columns_that_differ() -> None:
    text = '"}; {"'
    found = against(
        {"k": ["a", "b"], "v": [1, 2], "w": [0.0, 0.5], "l": [[1], [2]], "t": [text, text]},
        {"k": ["a", "c"], "v": [1, 2], "w": [-0.0, 0.5], "l": [[1, 3], [2]], "t": [text, text]},
    )
    whole = f"l [2], t {json.dumps(text)}, v 2, w 0.5"
    assert found.first_columns == (
        ("a", "l [1], w 0.0", "l [1,3], w -0.0"),
        ("b", f'k "b", {whole}', "no row"),
        ("c", "no row", f'k "c", {whole}'),
    )


def test_names_that_differ_in_case_are_of_one_column() -> None:
    found = against({"k": ["a", "b"], "v": [1, 2]}, {"k": ["a", "b"], "V": [1, 3]})
    assert found.keys == 1
