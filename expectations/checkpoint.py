"""The checkpoint: one Great Expectations run over the audit tables of a batch and the rows it would publish."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import great_expectations as gx
import pandas as pd
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
)
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.exceptions import GreatExpectationsError
from great_expectations.expectations.registry import get_expectation_impl

from expectations.colocation import ExpectKeysToHashToTheirPartition, ExpectKeysToMeetInOneTask
from expectations.coverage import (
    ExpectBatchToContinueThePrevious,
    ExpectOffsetsToBeCoveredExactlyOnce,
    ExpectRecordsToHaveKeys,
    ExpectRecordsToLieWhereTheirKeysHash,
)
from expectations.docs import Page, Section, Site, publish
from expectations.findings import Question, finding
from expectations.judging import number
from partitioning.documents.document import digest
from partitioning.errors import Finding, Refused
from partitioning.hashes import read_key
from partitioning.model.placement import MURMUR2
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.schemes import MAX


@dataclass(frozen=True, slots=True)
class Judgement:
    """What Great Expectations found: `findings` has one for each expectation that is not met.

    `summary` is a sentence for the verdict and the report, `results` is everything as plain JSON data, `page`
    is the address of the batch's page in the Data Docs, if any were written.
    """

    success: bool
    summary: str
    findings: tuple[Finding, ...]
    results: Mapping[str, Any]
    page: str | None


def judge(
    plan: Plan,
    coverage: pd.DataFrame,
    keys: pd.DataFrame,
    violations: pd.DataFrame,
    outputs: Mapping[str, pd.DataFrame],
    *,
    attempt: int,
    site: Site | None = None,
) -> Judgement:
    """Judge an attempt to run a batch.

    `coverage`, `keys` and `violations` are the tables of `batches.audit`; `outputs` holds the rows of each
    result table of which the pipeline expects something. Data Docs are written to `site`.

    Raises Refused, with all findings, if an expectation of the pipeline is none that Great Expectations knows
    or the rows of a table are not given.
    """
    questions = [*_about_the_batch(plan, coverage, keys), *_about_the_results(plan, outputs)]
    answers = _ask(questions)
    findings = tuple(
        finding(plan, attempt, question, result, keys, violations)
        for question, answer in zip(questions, answers, strict=True)
        for result in answer.results
        if not result.success
    )
    success = all(answer.success for answer in answers)
    summary = _summary(plan, coverage, answers, len(findings))
    results = _plain(plan, attempt, summary, findings, questions, answers)
    sections = [Section(question.title, answer) for question, answer in zip(questions, answers, strict=True)]
    page = publish(site, plan, Page(attempt, success, summary, findings, coverage, sections)) if site else None
    return Judgement(success, summary, findings, results, page)


def user_expectations(writes: Sequence[PlannedWrite]) -> dict[str, list[Any]]:
    """The expectations on each result table that has some, as Great Expectations' own objects.

    Raises Refused, with all findings, for a type or an argument that Great Expectations does not know.
    """
    found: dict[str, list[Any]] = {}
    findings = []
    for write in writes:
        for text in write.declared.expectations:
            try:
                given = json.loads(text)
                kind = get_expectation_impl(given["type"])
                expectation = kind(**given.get("kwargs", {}), description=given.get("description"))
            except (GreatExpectationsError, KeyError, TypeError, ValueError) as error:
                findings.append(
                    Finding(
                        f"{text} is no expectation: {error}",
                        f"table {write.declared.table!r}",
                        'write it as {"type": "expect_…", "kwargs": {…}}, by the names of Great Expectations',
                    )
                )
            else:
                found.setdefault(write.declared.table, []).append(expectation)
    if findings:
        raise Refused(*findings)
    return found


def _about_the_batch(plan: Plan, coverage: pd.DataFrame, keys: pd.DataFrame) -> Iterator[Question]:
    yield Question(
        "Coverage",
        coverage,
        [ExpectOffsetsToBeCoveredExactlyOnce(), ExpectBatchToContinueThePrevious(), ExpectRecordsToHaveKeys()],
    )
    yield Question("Placement", coverage, [ExpectRecordsToLieWhereTheirKeysHash()])
    for stage in plan.stages:
        if stage.scheme == str(MAX):
            # It keeps no keys together.
            continue
        compared = keys[keys["stage"] == stage.name]
        shown = ["stream", "partition", "offset"]
        meet = ExpectKeysToMeetInOneTask(key_columns=["key"], task_column="task", shown_columns=shown)
        yield Question(f"Keys of stage {stage.name}", compared, [meet])
        for declared in (plan.stream(name).declared for name in stage.streams):
            if declared.placement == MURMUR2:
                rows = compared[compared["stream"] == declared.name]
                typed = rows.assign(key=[read_key(key, declared.key_format) for key in rows["key"]])
                placed = ExpectKeysToHashToTheirPartition(
                    key_column="key",
                    partition_column="partition",
                    partitions=declared.partitions,
                    key_format=declared.key_format,
                    shown_columns=["offset"],
                )
                yield Question(f"Keys of stream {declared.name}", typed, [placed])


def _about_the_results(plan: Plan, outputs: Mapping[str, pd.DataFrame]) -> Iterator[Question]:
    expected = user_expectations(plan.writes())
    if missing := sorted(set(expected) - set(outputs)):
        then = "hand over the rows that the batch would publish"
        raise Refused(*(Finding(f"no rows of table {table!r} were given", plan.pipeline, then) for table in missing))
    for stage in plan.stages:
        for write in stage.writes:
            if (table := write.declared.table) in expected:
                title = f"Result table {table}"
                yield Question(title, outputs[table], expected[table], stage.name, write.declared.key)


def _ask(questions: Sequence[Question]) -> list[ExpectationSuiteValidationResult]:
    """Run one checkpoint over all questions; the answers are in their order."""
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_pandas("batch")
    with tempfile.TemporaryDirectory(prefix="coset-check-") as folder:
        definitions = []
        for place, question in enumerate(questions):
            # A checkpoint hands one data frame to all its suites, so tables go through files.
            path = Path(folder) / f"{place}.parquet"
            question.frame.reset_index(drop=True).to_parquet(path)
            asset = source.add_parquet_asset(question.title, path=path)
            data = asset.add_batch_definition_whole_dataframe("all rows")
            suite = context.suites.add(gx.ExpectationSuite(question.title, expectations=list(question.expectations)))
            definition = gx.ValidationDefinition(name=question.title, data=data, suite=suite)
            definitions.append(context.validation_definitions.add(definition))
        checkpoint = context.checkpoints.add(
            gx.Checkpoint(name="batch", validation_definitions=definitions, result_format="SUMMARY")
        )
        answers = list(checkpoint.run().run_results.values())
    for answer in answers:
        for result in answer.results:
            # Great Expectations' own pages fail on some of pandas' values, such as pd.NA.
            result.result = result.to_json_dict()["result"]
    return answers


def _summary(
    plan: Plan, coverage: pd.DataFrame, answers: Sequence[ExpectationSuiteValidationResult], failed: int
) -> str:
    asked = sum(len(answer.results) for answer in answers)
    kept = "all" if not failed else f"{asked - failed:,} of"
    sampled = f" (one in {plan.key_sample:,})" if plan.key_sample > 1 else ""
    return (
        f"{number(plan.records, 'record')} in {number(len(coverage), 'stream partition')}, "
        f"{number(int(coverage['keys'].sum()), 'key')} compared{sampled}, {kept} {number(asked, 'expectation')} met"
    )


def _plain(
    plan: Plan,
    attempt: int,
    summary: str,
    findings: tuple[Finding, ...],
    questions: Sequence[Question],
    answers: Sequence[ExpectationSuiteValidationResult],
) -> dict[str, Any]:
    results = [
        {
            "table": question.title,
            "expectation": result["expectation_config"]["type"],
            "kwargs": result["expectation_config"]["kwargs"],
            "success": result["success"],
            "result": result["result"],
        }
        for question, answer in zip(questions, answers, strict=True)
        for result in answer.to_json_dict()["results"]
    ]
    document = {
        "pipeline": plan.pipeline,
        "batch": plan.batch,
        "attempt": attempt,
        "plan": digest(plan),
        "success": not findings,
        "summary": summary,
        "findings": [{"what": each.what, "where": each.where, "next": each.then} for each in findings],
        "results": results,
    }
    # JSON knows no NaN; Great Expectations may have some among the values.
    plain: dict[str, Any] = json.loads(json.dumps(document), parse_constant=lambda _: None)
    return plain
