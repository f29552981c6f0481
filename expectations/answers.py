"""Answers: what Great Expectations says to the questions on a batch, and what is hidden of it: private columns, and
more offenders than are asked for.

Great Expectations judges data frames in memory. A table of up to one block is judged whole. Of a larger one, row
expectations are judged block by block, others on the columns that they name.
"""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pandas as pd
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
)
from great_expectations.core.result_format import ResultFormat
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.registry import get_expectation_impl
from great_expectations.validator.validator import Validator

from coset.sources.counting import Counting, uncounted
from coset.sources.rows import BLOCK, Rows
from expectations.judging import TableExpectation
from expectations.questions import Question
from partitioning.model.private import MASK, mentions

# Counts, and the places of rows; all else of an answer is made of values.
_COUNTS = ("count", "percent", "index_list")
_LISTS = ("partial_unexpected_list", "partial_unexpected_counts")
_KEYS = {"key_columns", "key_column"}
_QUERIES = "unexpected_rows_expectation"


def answers_to(questions: Sequence[Question], counting: Counting) -> list[ExpectationSuiteValidationResult]:
    """The answers to all questions, in their order. Tables of more than a block are judged in parts, and counted."""
    total = sum(_count(question) * _times_read(question) for question in questions if _is_large(question))
    with (counting if total else uncounted)(total, "rows judged") as done:
        return [_ask_in_parts(question, done) if _is_large(question) else _ask(question) for question in questions]


def _is_large(question: Question) -> bool:
    return _count(question) > BLOCK


def _count(question: Question) -> int:
    return question.rows.count if isinstance(question.rows, Rows) else len(question.rows)


def _times_read(question: Question) -> int:
    by_row = sum(map(is_of_each_row, question.expectations))
    return len(question.expectations) - by_row + bool(by_row)


def _ask_in_parts(question: Question, done: Callable[[int], None]) -> ExpectationSuiteValidationResult:
    """The answer on a large table: row expectations by block, the rest on the columns that they name. A data frame is
    judged as it is."""
    asked, rows = question.expectations, question.rows
    if not isinstance(rows, Rows):
        answer = _ask(question)
        done(len(rows) * _times_read(question))
        return answer
    by_row = list(filter(is_of_each_row, asked))
    parts: dict[str, dict[int, ExpectationValidationResult]] = {}
    start = 0
    for block in seen_by(by_row, rows).blocks(BLOCK) if by_row else ():
        answer = _ask(replace(question, rows=block, expectations=by_row))
        for result in answer.results:
            parts.setdefault(_asked(result), {})[start] = result
        start += block.count
        done(block.count)
        # Great Expectations' objects of a block refer to it in a cycle.
        gc.collect()
    results = [together(blocks) for blocks in parts.values()]
    for expectation in asked:
        if expectation not in by_row:
            seen = seen_by([expectation], rows)
            results.extend(_ask(replace(question, rows=seen, expectations=[expectation])).results)
            done(rows.count)
    return _answer(question, results)


def _asked(result: ExpectationValidationResult) -> str:
    """Which expectation an answer belongs to, for any block."""
    config = config_of(result)
    return json.dumps([config.type, config.kwargs], sort_keys=True, default=str)


def config_of(result: ExpectationValidationResult) -> ExpectationConfiguration:
    """The expectation that was asked."""
    config = result.expectation_config
    assert config is not None
    return config


def _ask(question: Question) -> ExpectationSuiteValidationResult:
    """Judge the rows of a question, which are held in memory.

    Nobody asks for these rows or this suite again, so neither is in a data source or store of Great Expectations: to
    fingerprint and keep them, and to check there for changes, takes longer than judging.
    """
    frame = question.rows.frame() if isinstance(question.rows, Rows) else question.rows
    ours = [one.answer(question.title, frame) for one in question.expectations if isinstance(one, TableExpectation)]
    others = [one for one in question.expectations if not isinstance(one, TableExpectation)]
    return _answer(question, [*ours, *(_answers_of_others(question.title, frame, others) if others else ())])


def _answers_of_others(
    title: str, frame: pd.DataFrame, others: Sequence[Expectation]
) -> list[ExpectationValidationResult]:
    """The answers to Great Expectations' own expectations."""
    validator = Validator(PandasExecutionEngine(batch_data_dict={title: frame}))
    validator.metrics_calculator.show_progress_bars = False
    asked = [expectation.configuration for expectation in others]
    results: list[ExpectationValidationResult] = validator.graph_validate(
        validator.process_expectations_for_validation(asked), {"result_format": ResultFormat.SUMMARY.value}
    )
    for result in results:
        # Great Expectations' own pages fail on some of pandas' values, such as pd.NA.
        plain: Any = result.to_json_dict()
        result.result = plain["result"]
        config_of(result).kwargs = plain["expectation_config"]["kwargs"]
    return results


def _answer(question: Question, results: list[ExpectationValidationResult]) -> ExpectationSuiteValidationResult:
    met = sum(bool(result.success) for result in results)
    statistics = {
        "evaluated_expectations": len(results),
        "successful_expectations": met,
        "unsuccessful_expectations": len(results) - met,
        "success_percent": 100 * met / len(results),
    }
    return ExpectationSuiteValidationResult(met == len(results), results, question.title, statistics=statistics)


def hide(result: ExpectationValidationResult, private: Collection[str], most: int | None) -> None:
    """Mask what an answer quotes of private columns, and cut its lists of offenders to so many."""
    config = result.expectation_config
    assert config is not None
    if private and (config.type == _QUERIES or mentions(json.dumps(config.kwargs, default=str), private)):
        if issubclass(get_expectation_impl(config.type), TableExpectation):
            sentences = result.result.get("partial_unexpected_list") or []
            besides = {name: value for name, value in config.kwargs.items() if name not in _KEYS}
            of_keys = not mentions(json.dumps(besides, default=str), private)
            hidden = [_sentence(each) if of_keys else MASK for each in sentences]
            result.result = {**result.result, "partial_unexpected_list": hidden}
        else:
            result.result = {name: _value(name, value) for name, value in result.result.items()}
        result.exception_info = _raised(result.exception_info)
    if most is not None:
        result.result = {
            name: value[:most] if name in _LISTS and value else value for name, value in result.result.items()
        }


def _sentence(sentence: str) -> str:
    """Which keys these are goes before where they are."""
    _, told, where = sentence.rpartition(" is in ")
    return f"{MASK}{told}{where}" if told else MASK


def _value(name: str, value: Any) -> Any:
    if value is None or (name.endswith(_COUNTS) and name != "partial_unexpected_counts"):
        return value
    if name == "partial_unexpected_list":
        return [MASK] * len(value)
    return [] if isinstance(value, list) else MASK


def _raised(info: Any) -> Any:
    """What an expectation raised, without the message."""
    if not isinstance(info, dict):
        return info
    if "raised_exception" not in info:
        return {name: _raised(inner) for name, inner in info.items()}
    hidden = {"exception_message": "its message may quote a private column", "exception_traceback": "it is not shown"}
    return info | hidden if info["raised_exception"] else info


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
