"""Answers: what Great Expectations says to the questions on a batch, which are judged in memory."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from great_expectations.validator.validator import Validator

from coset.sources.counting import Counting, uncounted
from coset.sources.rows import BLOCK, Rows
from expectations.by_block import is_of_each_row, seen_by, together
from expectations.judging import TableExpectation
from expectations.questions import Question


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
