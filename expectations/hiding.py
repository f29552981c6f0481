"""Hiding: what an answer of Great Expectations quotes of private columns, and of more offenders than are asked for."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.expectations.registry import get_expectation_impl

from expectations.judging import TableExpectation
from partitioning.model.private import MASK, mentions

# Counts, and the places of rows; all else of an answer is made of values.
_COUNTS = ("count", "percent", "index_list")
_LISTS = ("partial_unexpected_list", "partial_unexpected_counts")
_KEYS = {"key_columns", "key_column"}
_QUERIES = "unexpected_rows_expectation"


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
