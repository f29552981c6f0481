"""Large result tables: row expectations are judged block by block, others on the columns that they name.

Great Expectations judges data frames in memory. A table of up to one block is judged whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from great_expectations.core.expectation_validation_result import ExpectationValidationResult

from coset.sources.rows import Rows
from expectations.judging import TableExpectation

# Great Expectations' expectations whose answer for a row depends on that row alone.
_OF_EACH_ROW = frozenset(
    {
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_pair_values_to_be_equal",
        "expect_column_pair_values_to_be_in_set",
        "expect_column_value_lengths_to_be_between",
        "expect_column_value_lengths_to_equal",
        "expect_column_values_to_be_between",
        "expect_column_values_to_be_dateutil_parseable",
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_be_json_parseable",
        "expect_column_values_to_be_null",
        "expect_column_values_to_match_json_schema",
        "expect_column_values_to_match_regex",
        "expect_column_values_to_match_regex_list",
        "expect_column_values_to_match_strftime_format",
        "expect_column_values_to_not_be_in_set",
        "expect_column_values_to_not_be_null",
        "expect_column_values_to_not_match_regex",
        "expect_column_values_to_not_match_regex_list",
        "expect_multicolumn_sum_to_equal",
        "expect_multicolumn_values_to_be_equal",
        "expect_select_column_values_to_be_unique_within_record",
    }
)
# Expectations on column names, which every block has.
_OF_COLUMNS = frozenset(
    {
        "expect_column_to_exist",
        "expect_table_column_count_to_be_between",
        "expect_table_column_count_to_equal",
        "expect_table_columns_to_match_ordered_list",
        "expect_table_columns_to_match_set",
    }
)
_OF_ROW_COUNT = frozenset({"expect_table_row_count_to_be_between", "expect_table_row_count_to_equal"})
_COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list")
_SHOWN = 20


def is_of_each_row(expectation: Any) -> bool:
    """Whether an expectation may be judged block by block, and the answers merged by `together`."""
    return expectation.expectation_type in _OF_EACH_ROW | _OF_COLUMNS


def seen_by(expectations: Iterable[Any], rows: Rows) -> Rows:
    """The rows with the columns that expectations read: those that they name, or all if unknown."""
    everything = list(rows.schema.names)
    named = [_seen(expectation, everything) for expectation in expectations]
    seen = set(chain.from_iterable(named))
    return rows.select([name for name in everything if name in seen]) if all(named) else rows


def _seen(expectation: Any, everything: Sequence[str]) -> Sequence[str]:
    """The columns that an expectation reads; none if unknown."""
    if expectation.expectation_type in _OF_ROW_COUNT:
        return everything[:1]
    named = expectation.needs() if isinstance(expectation, TableExpectation) else _named(expectation)
    conditional = getattr(expectation, "row_condition", None)
    return named if not conditional and set(named) <= set(everything) else []


def _named(expectation: Any) -> list[str]:
    """The columns that one of Great Expectations' own expectations names. Others may read any."""
    if not type(expectation).__module__.startswith("great_expectations.expectations.core."):
        return []
    arguments = [getattr(expectation, name, None) or [] for name in _COLUMN_ARGUMENTS]
    return [name for value in arguments for name in ([value] if isinstance(value, str) else value)]


def together(blocks: Mapping[int, ExpectationValidationResult]) -> ExpectationValidationResult:
    """The answer for all rows, merged from those of the blocks, which come by first row.

    If it is not about rows, or failed on a block, the answer is the first bad one, or any.
    """
    answers = list(blocks.values())
    whole = next((answer for answer in answers if not answer.success), answers[0])
    if odd := [answer for answer in answers if "element_count" not in answer.result]:
        return next((answer for answer in odd if not answer.success), whole)
    seen = [answer.result for answer in answers]
    elements, unexpected = (sum(one[name] for one in seen) for name in ("element_count", "unexpected_count"))
    missing = sum(one.get("missing_count") or 0 for one in seen)
    places = [
        place + start
        for start, answer in blocks.items()
        for place in answer.result.get("partial_unexpected_index_list") or []
    ]
    values = [value for one in seen for value in one.get("partial_unexpected_list") or []][:_SHOWN]
    judged = elements - missing
    assert whole.expectation_config is not None
    mostly = whole.expectation_config.kwargs.get("mostly", 1)
    whole.success = judged == 0 or (judged - unexpected) / judged >= mostly
    whole.result = {
        **whole.result,
        "element_count": elements,
        "unexpected_count": unexpected,
        "unexpected_percent": _percent(unexpected, judged),
        "partial_unexpected_list": values,
        "partial_unexpected_counts": _counts(one.get("partial_unexpected_counts") or [] for one in seen),
        "partial_unexpected_index_list": places[:_SHOWN],
    }
    if "missing_count" in seen[0]:
        whole.result |= {
            "missing_count": missing,
            "missing_percent": _percent(missing, elements),
            "unexpected_percent_total": _percent(unexpected, elements),
            "unexpected_percent_nonmissing": _percent(unexpected, judged),
        }
    return whole


def _percent(part: int, whole: int) -> float:
    return part / whole * 100 if whole else 0.0


def _counts(parts: Iterable[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """How often each value occurs, most frequent first. Values may be lists."""
    values: dict[str, Any] = {}
    counts: Counter[str] = Counter()
    for counted in chain.from_iterable(parts):
        name = json.dumps(counted["value"], sort_keys=True, default=str)
        values.setdefault(name, counted["value"])
        counts[name] += counted["count"]
    return [{"value": values[name], "count": many} for name, many in counts.most_common(_SHOWN)]
