"""Large result tables: judged in parts as they are judged whole, and never held whole."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import pyarrow as pa
import pytest

from coset.reports.site import Site
from coset.sources.counting import Counting, uncounted
from coset.sources.rows import Rows
from expectations import answers
from expectations.checkpoint import Judgement, judge
from tests.counts import Counts
from tests.evidence import batch, evidence
from tests.memory_store import MemoryStore

BLOCK = 7
NAMES = [f"N{number}" for number in range(30)]
TABLE = pa.table(
    {
        "tailnum": NAMES,
        "seats": pa.array([None if n in {3, 20} else 600 + n if n % 9 == 4 else n for n in range(30)], pa.int64()),
        "least": pa.array([n - (n % 10 == 9) * 40 for n in range(30)], pa.int64()),
        "at": pa.array([f"2026-01-{n + 1:02}" if n != 17 else "soon" for n in range(30)]),
        "nothing": pa.array([None] * 29 + ["x"], pa.string()),
        "_task": pa.array([n % 2 for n in range(30)], pa.int32()),
    }
)
SMALL = {"type": "comparison", "column": {"name": "least"}, "operator": "<", "parameter": 5}
EXPECTED: Sequence[tuple[str, dict[str, Any]]] = (
    ("column_values_to_be_between", {"column": "seats", "max_value": 500}),
    ("column_values_to_be_between", {"column": "seats", "max_value": 500, "mostly": 0.85}),
    ("column_values_to_be_between", {"column": "seats", "max_value": 500, "mostly": 0.9}),
    ("column_values_to_be_between", {"column": "seats", "max_value": 5, "row_condition": SMALL}),
    ("column_values_to_not_be_null", {"column": "seats"}),
    ("column_values_to_not_be_null", {"column": "seats", "mostly": 0.9}),
    ("column_values_to_be_null", {"column": "nothing"}),
    ("column_values_to_be_in_set", {"column": "tailnum", "value_set": NAMES[:25]}),
    ("column_values_to_match_regex", {"column": "nothing", "regex": "y"}),
    ("column_values_to_match_strftime_format", {"column": "at", "strftime_format": "%Y-%m-%d"}),
    ("column_value_lengths_to_be_between", {"column": "tailnum", "max_value": 2}),
    ("column_pair_values_a_to_be_greater_than_b", {"column_A": "seats", "column_B": "least", "or_equal": True}),
    ("select_column_values_to_be_unique_within_record", {"column_list": ["seats", "least"]}),
    ("column_values_to_be_unique", {"column": "least"}),
    ("column_values_to_be_increasing", {"column": "least"}),
    ("compound_columns_to_be_unique", {"column_list": ["tailnum", "_task"]}),
    ("column_mean_to_be_between", {"column": "seats", "max_value": 3}),
    ("column_max_to_be_between", {"column": "least", "max_value": 28}),
    ("column_unique_value_count_to_be_between", {"column": "tailnum", "max_value": 30}),
    ("column_values_to_be_of_type", {"column": "tailnum", "type_": "int"}),
    ("table_row_count_to_equal", {"value": 30}),
    ("table_row_count_to_equal", {"value": 7}),
    ("table_columns_to_match_set", {"column_set": TABLE.schema.names}),
    ("table_column_count_to_equal", {"value": 2}),
    ("column_to_exist", {"column": "seat"}),
    ("column_values_to_not_be_null", {"column": "seat"}),
    ("column_mean_to_be_between", {"column": "seat", "max_value": 3}),
    ("keys_to_meet_in_one_task", {"key_columns": ["tailnum"]}),
    ("keys_to_meet_in_one_task", {"key_columns": ["at"]}),
)


class Source:
    """The rows of the table, and how many were asked for at a time."""

    def __init__(self) -> None:
        self.read: list[tuple[int, tuple[str, ...]]] = []

    def rows(self) -> Rows:
        return Rows(TABLE.schema, len(TABLE), self._batches)

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self.read.append((len(TABLE), tuple(columns)))
        yield from TABLE.select(list(columns)).to_batches(max_chunksize=4)


def judged(
    rows: Rows, *expected: tuple[str, dict[str, Any]], site: Site | None = None, counting: Counting = uncounted
) -> Judgement:
    plan, seen = batch(*({"type": f"expect_{kind}", "kwargs": kwargs} for kind, kwargs in expected))
    return judge(plan, evidence(plan, seen), {"delays": rows}, attempt=0, site=site, counting=counting)


def of_the_table(judgement: Judgement) -> list[dict[str, Any]]:
    """The results on the table, as they have to be however it was judged.

    Great Expectations counts each missing value by itself, and whole numbers beside a missing one are floats to it.
    """
    results: list[dict[str, Any]] = [one for one in judgement.results["results"] if one["table"].startswith("Result")]
    for result in (one["result"] for one in results):
        if "partial_unexpected_list" in result:
            result["partial_unexpected_list"] = [shown(value) for value in result["partial_unexpected_list"]]
        if counted := result.get("partial_unexpected_counts"):
            counts = Counter[str]()
            for one in counted:
                counts[shown(one["value"])] += one["count"]
            result["partial_unexpected_counts"] = counts
    return sorted(results, key=lambda one: json.dumps([one["expectation"], one["kwargs"]], sort_keys=True))


def shown(value: Any) -> str:
    """A value, or several, in whole numbers."""
    return re.sub(r"\.0\b", "", str(value))


def said(judgement: Judgement) -> list[str]:
    """What the findings say, in whole numbers."""
    return sorted(shown(finding.what) for finding in judgement.findings)


@pytest.mark.parametrize("expected", EXPECTED[:2], ids=lambda expected: expected[0])
def test_in_parts_the_answer_is_that_on_the_whole(
    expected: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = judged(Source().rows(), expected)
    monkeypatch.setattr(answers, "BLOCK", BLOCK)
    parts = judged(Source().rows(), expected)
    assert of_the_table(parts) == of_the_table(whole)
    assert said(parts) == said(whole)


@pytest.mark.long
def test_all_at_once_too_and_the_page_shows_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = judged(Source().rows(), *EXPECTED)
    monkeypatch.setattr(answers, "BLOCK", BLOCK)
    parts = judged(Source().rows(), *EXPECTED, site=Site(tmp_path, MemoryStore()))
    assert of_the_table(parts) == of_the_table(whole)
    assert (parts.why, parts.success) == (whole.why, whole.success)
    assert said(parts) == said(whole)
    assert any("seats values must be less than" in page.read_text() for page in tmp_path.rglob("*.html"))


def test_what_is_not_about_each_row_sees_its_own_columns_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "BLOCK", BLOCK)
    source = Source()
    judged(
        source.rows(),
        ("column_mean_to_be_between", {"column": "seats", "max_value": 999}),
        ("keys_to_meet_in_one_task", {"key_columns": ["tailnum"]}),
        ("table_row_count_to_equal", {"value": 30}),
    )
    assert [columns for _, columns in source.read] == [("seats",), ("tailnum", "_task"), ("tailnum",)]


def test_great_expectations_is_never_given_more_than_a_block_of_what_is_about_each_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = []
    of_rows = Rows.frame

    def spy(rows: Rows) -> pd.DataFrame:
        frame = of_rows(rows)
        given.append(len(frame) if "seats" in frame.columns else 0)
        return frame

    monkeypatch.setattr(Rows, "frame", spy)
    monkeypatch.setattr(answers, "BLOCK", BLOCK)
    judged(Source().rows(), EXPECTED[0])
    assert [many for many in given if many] == [7, 7, 7, 7, 2]


def test_rows_of_large_tables_are_counted_as_often_as_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "BLOCK", BLOCK)
    counts, asked = Counts(), (EXPECTED[0], ("column_mean_to_be_between", {"column": "seats", "max_value": 999}))
    judged(Source().rows(), *asked, counting=counts)
    ((total, what, done),) = counts.told
    # The tables of the audit are larger than such a block too.
    assert (what, sum(done), done[-6:]) == ("rows judged", total, [7, 7, 7, 7, 2, 30])


def test_what_takes_no_time_is_not_counted() -> None:
    def counting(total: int, what: str) -> NoReturn:
        raise AssertionError((total, what))

    judged(Source().rows(), EXPECTED[0], counting=counting)
