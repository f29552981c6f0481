"""Findings: unmet expectations, in sentences for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from string import Template
from typing import Any

import pandas as pd
from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.registry import get_expectation_impl
from great_expectations.render.renderer.inline_renderer import InlineRenderer

from coset.sources.databases import connect_to_ask
from coset.sources.rows import Rows, each_row
from expectations import misplaced
from expectations.colocation import ExpectKeysToHashToTheirPartition, ExpectKeysToMeetInOneTask
from expectations.continuity import ExpectGapsToBeEmpty
from expectations.coverage import (
    CoverageExpectation,
    ExpectRecordsToHaveKeys,
    ExpectRecordsToLieWhereTheirKeysHash,
)
from expectations.judging import TableExpectation
from expectations.questions import Question
from expectations.ready_made import FigureExpectation
from partitioning.commands import BackfillAsking, Command, Records, Replan, Report, Run, backfill_of
from partitioning.errors import About, Finding, about
from partitioning.kinds import Kind
from partitioning.model.composite_key import canonical, key_columns
from partitioning.model.plan import Plan
from partitioning.model.private import MASK, is_private
from partitioning.model.receipt import Violation
from partitioning.model.streams import Stream


def finding(
    plan: Plan,
    question: Question,
    result: ExpectationValidationResult,
    keys: pd.DataFrame,
    violations: pd.DataFrame,
    fits: misplaced.Fits,
) -> Finding:
    """The finding for an unmet expectation, with the first offenders and the next step. `fits` has what explains where
    the keys of inputs lie."""
    failed = _exception(result)
    most = plan.offenders_told
    told = failed or _offenders(question, result, keys, violations, most)
    bad = result.result.get("unexpected_count") or 0
    if bad > most:
        told = [*told, f"and more: {bad:,} in all"]
    lines = "".join(f"\n    - {line}" for line in told)
    of_figure = issubclass(_class(result), FigureExpectation) and not failed
    return Finding(
        Kind.EXPECTATION_FAILS if failed else _kind(result),
        told[0] if of_figure else f"{question.title}, not met: {_sentence(result)}{lines}",
        f"batch {plan.batch} of {plan.pipeline}",
        tuple(_next(plan, question, result, misplaced.remedy(_misplaced(plan, question, result, violations), fits))),
        _about(question, result, violations),
    )


def _is_about_records(result: ExpectationValidationResult) -> bool:
    """Whether single records or rows do not meet it, which `coset records` finds."""
    kind = _class(result)
    if issubclass(kind, CoverageExpectation | ExpectKeysToMeetInOneTask | ExpectKeysToHashToTheirPartition):
        return True
    return bool(result.result.get("partial_unexpected_index_list"))


def _is_about_set_aside(kind: type[Expectation]) -> bool:
    """Whether only records that were set aside do not meet it."""
    return issubclass(kind, CoverageExpectation) and kind.violations == (Violation.SET_ASIDE,)


def is_error(result: ExpectationValidationResult) -> bool:
    """Whether a batch is not published if the expectation is not met."""
    return result.expectation_config is None or result.expectation_config.severity is not FailureSeverity.WARNING


def _next(plan: Plan, question: Question, result: ExpectationValidationResult, placed: str) -> Iterator[str | Command]:
    """What to do about it, first about records that are `placed` elsewhere, if there are any."""
    kind, of = _class(result), backfill_of(plan.pipeline)
    correct = placed or _remedy(plan, question, result) or "if the input or the pipeline is wrong, correct it"
    if of is None:
        yield from (Report(plan.pipeline, plan.batch), " shows it")
        if _is_about_records(result):
            yield from (", ", Records(plan.pipeline, plan.batch, _is_about_set_aside(kind)), " the records")
        yield "; "
    if not is_error(result):
        pipeline = of[0] if of else plan.pipeline
        again = BackfillAsking(pipeline, plan.batch, repaired=_is_about_set_aside(kind))
        yield from (f"{correct}, then ", again, " runs the batch again")
        return
    # A backfill reads newer files only if asked to.
    anew = Replan(plan.pipeline, repaired=issubclass(kind, ExpectGapsToBeEmpty))
    yield from (f"{correct}, then ", anew)
    if question.then:
        yield from ("; or, if they may go, ", question.then)
    if issubclass(kind, FigureExpectation):
        table, column = question.title.removeprefix("Result table ").removesuffix(", figures"), _column(result)
        about_it = f'type = "{_type(result)}"{f", kwargs = {{column = {json.dumps(column)}}}" if column else ""}'
        expect = f'[tables.{json.dumps(table)}]\n      expect = [{{{about_it}, severity = "warning"}}]'
        yield from (f"; or, if that is as it should be, write into a file of settings\n      {expect}\n    and ", anew)
        yield " with `--settings` and that file"
    yield from ("; ", Run(plan.pipeline), " tries the same plan again")


def _kind(result: ExpectationValidationResult) -> Kind:
    """The kind: of the proof, or of the pipeline's own expectations."""
    of_rows = issubclass(_class(result), FigureExpectation) or not issubclass(_class(result), TableExpectation)
    return Kind.EXPECTATION if of_rows else Kind.PROOF


def _about(question: Question, result: ExpectationValidationResult, violations: pd.DataFrame) -> About:
    """The expectation, its table, and the difference, apart from its wording."""
    assert result.expectation_config is not None
    kind, seen = _class(result), result.result
    values = {name: seen[name] for name in ("unexpected_count", "observed_value") if seen.get(name) is not None}
    unexpected = [str(value) for value in seen.get("partial_unexpected_list") or ()]
    if issubclass(kind, CoverageExpectation):
        broken = violations[violations["violation"].isin(kind.violations)].drop(columns="sentence")
        unexpected += [" ".join(map(str, row)) for row in broken.itertuples(index=False)]
    return about(
        **values, unexpected=unexpected, table=question.title, expectation=_type(result), column=_column(result)
    )


def _column(result: ExpectationValidationResult) -> str | None:
    assert result.expectation_config is not None
    column: str | None = result.expectation_config.kwargs.get("column")
    return column


def _type(result: ExpectationValidationResult) -> str:
    assert result.expectation_config is not None
    kind: str = result.expectation_config.type
    return kind


def _class(result: ExpectationValidationResult) -> type[Expectation]:
    return get_expectation_impl(_type(result))


def _remedy(plan: Plan, question: Question, result: ExpectationValidationResult) -> str:
    """The expectation's own advice, if any."""
    kind = _class(result)
    if issubclass(kind, ExpectKeysToMeetInOneTask):
        read = {each.name for stage in plan.stages if stage.name == question.stage for each in stage.inputs}
        return misplaced.apart(stream.declared for stream in plan.streams if stream.name in read)
    if not issubclass(kind, CoverageExpectation):
        return ""
    streams = [stream.declared for stream in plan.streams] if kind is ExpectRecordsToHaveKeys else []
    return "; ".join([kind.remedy, *misplaced.emptied(streams)])


def _misplaced(
    plan: Plan, question: Question, result: ExpectationValidationResult, violations: pd.DataFrame
) -> Iterator[Stream]:
    """The streams with records that do not lie where their keys hash. What lies so elsewhere, tasks left
    there."""
    kind, found = _class(result), set[str]()
    if issubclass(kind, ExpectKeysToHashToTheirPartition):
        found = {question.input}
    elif issubclass(kind, ExpectRecordsToLieWhereTheirKeysHash):
        found = set(violations[violations["violation"] == Violation.FOREIGN]["input"])
    return (stream.declared for stream in plan.streams if stream.name in found)


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
    why = (f"it cannot be evaluated: {one['exception_message']}" for one in infos if one.get("raised_exception"))
    return list(dict.fromkeys(why))


def _offenders(
    question: Question, result: ExpectationValidationResult, keys: pd.DataFrame, violations: pd.DataFrame, most: int
) -> list[str]:
    """The first offenders, in sentences, with key, partition and offset if known."""
    seen, kind = result.result, _class(result)
    if issubclass(kind, TableExpectation):
        told = [str(value) for value in seen.get("partial_unexpected_list", [])][:most]
        wanted = kind.violations if issubclass(kind, CoverageExpectation) else ()
        told += violations[violations["violation"].isin(wanted)]["sentence"].head(most).tolist()
        return told or ([str(seen.get("observed_value"))] if most else [])
    if "observed_value" in seen:
        return [f"observed: {seen['observed_value']}"]
    rows = seen.get("partial_unexpected_index_list") or []
    values = seen.get("partial_unexpected_list") or []
    # Only rows of result tables are judged by others' expectations.
    assert isinstance(question.rows, Rows)
    there = question.rows.at(rows[:most])
    shown = list(zip(rows, values, strict=False))[:most]
    return [f"{value!r} {_row(question, there[row], keys)}" for row, value in shown]


def _row(question: Question, row: Mapping[str, Any], keys: pd.DataFrame) -> str:
    """The origin of a result row: its key, its lineage columns, and where the audit saw that key first."""
    columns = key_columns(question.key or "")
    key = row[columns[0]] if len(columns) == 1 else _canonical([row[name] for name in columns])
    lineage = [f"{name} {value}" for name, value in row.items() if name.startswith("_")]
    seen = keys[(keys["stage"] == question.stage) & (keys["key"] == str(key))]
    places = [f"{record.input}-{record.partition} at offset {record.offset:,}" for record in each_row(seen)]
    known = "; ".join([", ".join(lineage)] * bool(lineage) + [f"its key is in {', '.join(places[:3])}"] * bool(places))
    said = MASK if is_private(question.key or "", question.private) else repr(key)
    return f"of key {said}" + f" ({known})" * bool(known)


def _canonical(values: Sequence[Any]) -> str:
    """The key of several columns with these values, as audit tables write it."""
    names = [f"part{number}" for number in range(len(values))]
    given = ", ".join(f"? AS {name}" for name in names)
    with connect_to_ask() as connection:
        ((made,),) = connection.execute(f"SELECT {canonical(names)} FROM (SELECT {given})", values).fetchall()
    return str(made)
