"""Findings: unmet expectations, in sentences for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

import pandas as pd
from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.registry import get_expectation_impl
from great_expectations.render.renderer.inline_renderer import InlineRenderer

from expectations.continuity import ExpectGapsToBeEmpty
from expectations.coverage import CoverageExpectation
from expectations.judging import TableExpectation
from expectations.rows import Rows
from partitioning.commands import Command, Replan, Report, Run, backfill_of
from partitioning.errors import About, Finding, about
from partitioning.kinds import Kind
from partitioning.model.plan import Plan

OFFENDERS_TOLD = 5


@dataclass(frozen=True, slots=True)
class Question:
    """A table, an expectation on it, the columns that identify a row, and a further next step if it is not met."""

    title: str
    rows: Rows
    expectations: Sequence[Any]
    stage: str | None = None
    key: str | None = None
    then: Command | None = None


def finding(
    plan: Plan,
    attempt: int,
    question: Question,
    result: ExpectationValidationResult,
    keys: pd.DataFrame,
    violations: pd.DataFrame,
) -> Finding:
    """The finding for an unmet expectation, with the first offenders and the next step."""
    failed = _exception(result)
    told = failed or _offenders(question, result, keys, violations)
    bad = result.result.get("unexpected_count") or 0
    if bad > OFFENDERS_TOLD:
        told = [*told, f"and more: {bad:,} in all"]
    lines = "".join(f"\n    - {line}" for line in told)
    correct = _remedy(result) or "if the input or the pipeline is wrong, correct it"
    see = () if backfill_of(plan.pipeline) else (Report(plan.pipeline, plan.batch), " shows it; ")
    # A backfill reads newer files only if asked to.
    anew = Replan(plan.pipeline, repaired=issubclass(_class(result), ExpectGapsToBeEmpty))
    again = (Run(plan.pipeline), f" tries the same plan again; {correct}, then ", anew)
    return Finding(
        Kind.EXPECTATION_FAILS if failed else _kind(result),
        f"{question.title}, not met: {_sentence(result)}{lines}",
        f"batch {plan.batch} of {plan.pipeline}",
        (*see, *again, *(("; or, if they may go, ", question.then) if question.then else ())),
        _about(question, result, violations),
    )


def _kind(result: ExpectationValidationResult) -> Kind:
    """The kind: of the proof, or of the pipeline's own expectations."""
    return Kind.PROOF if issubclass(_class(result), TableExpectation) else Kind.EXPECTATION


def _about(question: Question, result: ExpectationValidationResult, violations: pd.DataFrame) -> About:
    """What was expected of which table, and what differs, apart from its wording."""
    assert result.expectation_config is not None
    kind, seen = _class(result), result.result
    values = {name: seen[name] for name in ("unexpected_count", "observed_value") if seen.get(name) is not None}
    unexpected = [str(value) for value in seen.get("partial_unexpected_list") or ()]
    if issubclass(kind, CoverageExpectation):
        broken = violations[violations["violation"].isin(kind.violations)].drop(columns="sentence")
        unexpected += [" ".join(map(str, row)) for row in broken.itertuples(index=False)]
    return about(
        **values,
        unexpected=unexpected,
        table=question.title,
        expectation=result.expectation_config.type,
        column=result.expectation_config.kwargs.get("column"),
    )


def _class(result: ExpectationValidationResult) -> type[Expectation]:
    assert result.expectation_config is not None
    return get_expectation_impl(result.expectation_config.type)


def _remedy(result: ExpectationValidationResult) -> str:
    """The expectation's own advice, if any."""
    kind = _class(result)
    return kind.remedy if issubclass(kind, CoverageExpectation) else ""


def _sentence(result: ExpectationValidationResult) -> str:
    """The expectation, as Great Expectations words it."""
    config = result.expectation_config
    assert config is not None
    if config.description:
        return f"{config.description.rstrip('.')}."
    value = InlineRenderer(render_object=config).get_rendered_content()[0].value
    values = {name: _number(param["value"]) for name, param in (value.params or {}).items()}
    return f"{Template(value.template or config.type).safe_substitute(values).rstrip('.')}."


def _number(value: Any) -> Any:
    """Great Expectations makes 500 from JSON a 500.0."""
    return f"{value:,.15g}" if isinstance(value, int | float) and not isinstance(value, bool) else value


def _exception(result: ExpectationValidationResult) -> list[str]:
    """Why the expectation could not be evaluated, if so."""
    info = result.exception_info or {}
    infos = [info] if "raised_exception" in info else list(info.values())
    return [f"it cannot be evaluated: {one['exception_message']}" for one in infos if one.get("raised_exception")]


def _offenders(
    question: Question, result: ExpectationValidationResult, keys: pd.DataFrame, violations: pd.DataFrame
) -> list[str]:
    """The first offenders, in sentences, with key, partition and offset if known."""
    seen, kind = result.result, _class(result)
    if issubclass(kind, TableExpectation):
        told = [str(value) for value in seen.get("partial_unexpected_list", [])][:OFFENDERS_TOLD]
        wanted = kind.violations if issubclass(kind, CoverageExpectation) else ()
        told += violations[violations["violation"].isin(wanted)]["sentence"].head(OFFENDERS_TOLD).tolist()
        return told or [str(seen.get("observed_value"))]
    if "observed_value" in seen:
        return [f"observed: {seen['observed_value']}"]
    rows = seen.get("partial_unexpected_index_list") or []
    values = seen.get("partial_unexpected_list") or []
    there = question.rows.at(rows[:OFFENDERS_TOLD])
    shown = list(zip(rows, values, strict=False))[:OFFENDERS_TOLD]
    return [f"{value!r} {_row(question, there[row], keys)}" for row, value in shown]


def _row(question: Question, row: Mapping[str, Any], keys: pd.DataFrame) -> str:
    """The origin of a result row: its key, its lineage columns, and where the audit saw that key first."""
    key = row[question.key or ""]
    lineage = [f"{name} {value}" for name, value in row.items() if name.startswith("_")]
    seen = keys[(keys["stage"] == question.stage) & (keys["key"] == str(key))]
    places = [f"{record.input}-{record.partition} at offset {record.offset:,}" for record in seen.itertuples()]
    known = "; ".join([", ".join(lineage)] * bool(lineage) + [f"its key is in {', '.join(places[:3])}"] * bool(places))
    return f"of key {key!r}" + f" ({known})" * bool(known)
