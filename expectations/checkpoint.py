"""The checkpoint of a batch: Great Expectations judges its audit tables and the rows to publish."""

from __future__ import annotations

import gc
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import great_expectations as gx
import pandas as pd
import pyarrow as pa
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
)
from great_expectations.core.result_format import ResultFormat
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.datasource.fluent.pandas_datasource import PandasDatasource
from great_expectations.exceptions.exceptions import GreatExpectationsError
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.registry import get_expectation_impl
from great_expectations.validator.v1_validator import Validator
from msgspec import to_builtins

from coset.reports.site import Site
from expectations.by_block import is_of_each_row, seen_by, together
from expectations.colocation import ExpectKeysToHashToTheirPartition, ExpectKeysToMeetInOneTask
from expectations.continuity import (
    ExpectBatchToContinueThePrevious,
    ExpectEndsToBeRemembered,
    ExpectGapsToBeEmpty,
    ExpectGapsToBeExplained,
    ExpectTablesToHoldThePreviousBatch,
)
from expectations.coverage import (
    ExpectOffsetsToBeCoveredExactlyOnce,
    ExpectRecordsToHaveKeys,
    ExpectRecordsToLieWhereTheirKeysHash,
)
from expectations.docs import JudgedTable, Page, publish
from expectations.findings import Question, finding
from expectations.notes import not_proved
from expectations.production import ExpectRowsToBeWrittenAsTheyWereMade
from expectations.rows import BLOCK, Rows
from expectations.table_rows import ExpectTablesToKeepTheirRows
from partitioning.commands import Replan
from partitioning.documents.document import digest
from partitioning.errors import Finding, Refused, about
from partitioning.hashes import read_key
from partitioning.kinds import Kind
from partitioning.model.placement import MURMUR2
from partitioning.model.plan import Plan, PlannedWrite, Stage
from partitioning.model.receipt import Receipt
from partitioning.model.verdict import Judged

# How pipelines call what Great Expectations calls otherwise.
_SEVERITIES = {"error": FailureSeverity.CRITICAL, "warning": FailureSeverity.WARNING}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence on a batch: the tables of `batches.audit` and `batches.continuity`, and the row counts of result
    tables from `batches.tables.table_rows`."""

    coverage: pd.DataFrame
    keys: pd.DataFrame
    violations: pd.DataFrame
    moved: pd.DataFrame
    produced: pd.DataFrame
    gaps: pd.DataFrame
    ends: pd.DataFrame
    remembered: pd.DataFrame
    tables: pd.DataFrame
    rows: Sequence[Mapping[str, object]] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement: `findings` has one for each expectation that is not met, `warnings` one for each such whose
    severity is a warning. Only findings keep a batch from being published.

    `why` has the figures for the verdict and the report, `results` is everything as plain JSON data, `page`
    is the address of the batch's page in the Data Docs, if any were written.
    """

    success: bool
    why: Judged
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    results: Mapping[str, Any]
    page: str | None


def judge(
    plan: Plan,
    evidence: Evidence,
    outputs: Mapping[str, Rows],
    *,
    attempt: int,
    site: Site | None = None,
    receipts: Sequence[Receipt] = (),
) -> Judgement:
    """Judge an attempt to run a batch.

    `outputs` has the rows of each result table with expectations of its own. Data Docs go to `site`, with
    what the `receipts` of its task groups say.

    Raises Refused, with all findings, if an expectation of the pipeline is none that Great Expectations knows
    or the rows of a table are not given.
    """
    questions = [*_about_the_batch(plan, evidence), *_about_the_results(plan, outputs)]
    answers = _answers(questions)
    unmet = [
        (_is_error(result), finding(plan, attempt, question, result, evidence.keys, evidence.violations))
        for question, answer in zip(questions, answers, strict=True)
        for result in answer.results
        if not result.success
    ]
    findings, warnings = (tuple(found for is_error, found in unmet if is_error is wanted) for wanted in (True, False))
    success = not findings
    why = _why(plan, evidence.coverage, answers, len(unmet))
    notes = tuple(not_proved(plan, evidence.tables, evidence.gaps, evidence.produced))
    results = _plain(plan, attempt, str(why), findings, questions, answers)
    results |= {"not proved": notes, "warnings": to_builtins(warnings)}
    sections = [JudgedTable(question.title, answer) for question, answer in zip(questions, answers, strict=True)]
    page = Page(
        attempt,
        success,
        str(why),
        why.records,
        findings,
        notes,
        evidence.coverage,
        evidence.moved,
        sections,
        receipts,
        warnings,
    )
    return Judgement(success, why, findings, warnings, results, publish(site, plan, page) if site else None)


def user_expectations(pipeline: str, writes: Sequence[PlannedWrite]) -> dict[str, list[Any]]:
    """The pipeline's expectations on each result table, as Great Expectations' objects.

    Raises Refused, with all findings, for a type or an argument that Great Expectations does not know.
    """
    expected: dict[str, list[Any]] = {}
    findings = []
    for write in writes:
        for text in write.declared.expectations:
            try:
                stated = json.loads(text)
                kind = get_expectation_impl(stated["type"])
                severity = _SEVERITIES[stated.get("severity", "error")]
                expectation = kind(**stated.get("kwargs", {}), description=stated.get("description"), severity=severity)
            except (GreatExpectationsError, KeyError, TypeError, ValueError) as error:
                findings.append(
                    Finding(
                        Kind.EXPECTATION_UNKNOWN,
                        f"{text} is no expectation: {error}",
                        f"table {write.declared.table!r}",
                        (
                            'write it as {"type": "expect_…", "kwargs": {…}}, as Great Expectations names it, '
                            'with "severity": "warning" if it is only to be told, then ',
                            Replan(pipeline),
                        ),
                        about(text=text),
                    )
                )
            else:
                expected.setdefault(write.declared.table, []).append(expectation)
    if findings:
        raise Refused(*findings)
    return expected


def _is_error(result: ExpectationValidationResult) -> bool:
    """Whether a batch is not published if the expectation is not met."""
    return result.expectation_config is None or result.expectation_config.severity is not FailureSeverity.WARNING


def _about_the_batch(plan: Plan, evidence: Evidence) -> Iterator[Question]:
    # A refused record is taken by no task, so the cause comes first.
    covered = [ExpectRecordsToHaveKeys(), ExpectOffsetsToBeCoveredExactlyOnce()]
    yield Question("Coverage", _rows(evidence.coverage), covered)
    yield Question("Continuity", _rows(evidence.ends), [ExpectBatchToContinueThePrevious(), ExpectGapsToBeExplained()])
    yield Question("Gaps", _rows(evidence.gaps), [ExpectGapsToBeEmpty()])
    yield Question("Remembered", _rows(evidence.remembered), [ExpectEndsToBeRemembered()])
    if len(evidence.tables):
        yield Question("Tables", _rows(evidence.tables), [ExpectTablesToHoldThePreviousBatch()])
    if evidence.rows:
        yield _about_rows(plan, pd.DataFrame(evidence.rows))
    yield Question("Placement", _rows(evidence.coverage), [ExpectRecordsToLieWhereTheirKeysHash()])
    if len(evidence.produced):
        yield Question("Production", _rows(evidence.produced), [ExpectRowsToBeWrittenAsTheyWereMade()])
    for stage in plan.stages:
        if not stage.keeps_keys:
            continue
        compared = evidence.keys[evidence.keys["stage"] == stage.name]
        for inputs in _meeting(stage):
            shown = ["input", "partition", "offset"]
            meet = ExpectKeysToMeetInOneTask(key_columns=["key"], task_column="task", shown_columns=shown)
            which = "" if len(inputs) == len(stage.inputs) else f" in {' and '.join(inputs)}"
            yield Question(
                f"Keys of stage {stage.name}{which}", _rows(compared[compared["input"].isin(inputs)]), [meet]
            )
        for read in stage.inputs:
            if read.placement.key and read.placement.hash == MURMUR2:
                rows = compared[compared["input"] == read.name]
                typed = rows.assign(key=[read_key(key, read.placement.key_format) for key in rows["key"]])
                placed = ExpectKeysToHashToTheirPartition(
                    key_column="key",
                    partition_column="partition",
                    partitions=read.placement.partitions,
                    key_format=str(read.placement.key_format.value),
                    shown_columns=["offset"],
                )
                yield Question(f"Keys of {read.name} in stage {stage.name}", _rows(typed), [placed])


def _about_rows(plan: Plan, rows: pd.DataFrame) -> Question:
    allowed = plan.allowed
    keep = ExpectTablesToKeepTheirRows(rows=allowed.rows, percent=allowed.percent)
    much = [row.table for row in rows.itertuples() if allowed.is_too_much(row.before, row.after)]
    return Question("Rows of tables", _rows(rows), [keep], then=Replan(plan.pipeline, take_away=tuple(much)))


def _meeting(stage: Stage) -> list[tuple[str, ...]]:
    """The inputs whose records meet by key in some step of a stage, grouped by step.

    Other inputs may be placed otherwise, or by two partition counts; their equal keys need not meet.
    """
    reaching: dict[str, frozenset[str]] = {}
    for read in stage.inputs:
        # A stream with some moved partitions is two inputs.
        reaching[read.step] = reaching.get(read.step, frozenset()) | {read.name}
    for step in stage.steps:
        reaching[step.name] = frozenset[str]().union(*(reaching.get(name, ()) for name in step.inputs))
    met = {reaching[step.name] for step in stage.steps if step.keyed}
    widest = [inputs for inputs in met if inputs and not any(inputs < others for others in met)]
    return sorted(tuple(read.name for read in stage.inputs if read.name in inputs) for inputs in widest)


def _about_the_results(plan: Plan, outputs: Mapping[str, Rows]) -> Iterator[Question]:
    expected = user_expectations(plan.pipeline, plan.writes())
    if missing := sorted(set(expected) - set(outputs)):
        then = "hand over the rows that the batch would publish"
        raise Refused(
            *(
                Finding(Kind.PROOF, f"no rows of table {table!r} were given", plan.pipeline, then, about(table=table))
                for table in missing
            )
        )
    for stage in plan.stages:
        for write in stage.writes:
            if (table := write.declared.table) in expected:
                title = f"Result table {table}"
                yield Question(title, outputs[table], expected[table], stage.name, write.declared.key)


def _rows(frame: pd.DataFrame) -> Rows:
    return Rows.of(pa.Table.from_pandas(frame, preserve_index=False))


def _answers(questions: Sequence[Question]) -> list[ExpectationSuiteValidationResult]:
    """The answers to all questions, in their order. Tables of more than a block are judged in parts."""
    small = iter(_ask([question for question in questions if question.rows.count <= BLOCK]))
    return [_ask_in_parts(question) if question.rows.count > BLOCK else next(small) for question in questions]


def _ask_in_parts(question: Question) -> ExpectationSuiteValidationResult:
    """The answer on a large table: row expectations by block, the rest on the columns that they name."""
    by_row = [expectation for expectation in question.expectations if is_of_each_row(expectation)]
    parts: dict[str, dict[int, ExpectationValidationResult]] = {}
    start = 0
    for block in seen_by(by_row, question.rows).blocks(BLOCK) if by_row else ():
        (answer,) = _ask([replace(question, rows=block, expectations=by_row)])
        for result in answer.results:
            parts.setdefault(_asked(result), {})[start] = result
        start += block.count
        # Great Expectations' objects of a block refer to it in a cycle.
        gc.collect()
    results = [together(blocks) for blocks in parts.values()]
    for expectation in question.expectations:
        if expectation not in by_row:
            rows = seen_by([expectation], question.rows)
            (answer,) = _ask([replace(question, rows=rows, expectations=[expectation])])
            results.extend(answer.results)
    met = sum(bool(result.success) for result in results)
    statistics = {
        "evaluated_expectations": len(results),
        "successful_expectations": met,
        "unsuccessful_expectations": len(results) - met,
        "success_percent": 100 * met / len(results),
    }
    return ExpectationSuiteValidationResult(met == len(results), results, question.title, statistics=statistics)


def _asked(result: ExpectationValidationResult) -> str:
    """Which expectation an answer belongs to, for any block."""
    config = result.expectation_config
    assert config is not None
    arguments = {name: value for name, value in config.kwargs.items() if name != "batch_id"}
    return json.dumps([config.type, arguments], sort_keys=True, default=str)


def _ask(questions: Sequence[Question]) -> list[ExpectationSuiteValidationResult]:
    """Judge all questions in one context. Answers keep their order.

    Nobody runs these suites again, so they are in none of the context's stores: storing them, and checking there for
    changes, takes longer than judging.
    """
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = PandasDatasource(name="batch")
    with tempfile.TemporaryDirectory(prefix="coset-check-") as folder:
        for place, question in enumerate(questions):
            path = Path(folder) / f"{place}.parquet"
            question.rows.save(path)
            source.add_parquet_asset(question.title, path=path)
        for asset in source.assets:
            asset.add_batch_definition_whole_dataframe("all rows")
        # The context rewrites all of its settings whenever a source gets an asset.
        source = context.data_sources.add_pandas(source)
        answers = [_answer(source, question) for question in questions]
    for answer in answers:
        for result in answer.results:
            # Great Expectations' own pages fail on some of pandas' values, such as pd.NA.
            plain: Any = result.to_json_dict()["result"]
            result.result = plain
    return answers


def _answer(source: PandasDatasource, question: Question) -> ExpectationSuiteValidationResult:
    rows = source.get_asset(question.title).get_batch_definition("all rows")
    suite = gx.ExpectationSuite(question.title, expectations=list(question.expectations))
    return Validator(rows, result_format=ResultFormat.SUMMARY).validate_expectation_suite(suite)


def _why(
    plan: Plan, coverage: pd.DataFrame, answers: Sequence[ExpectationSuiteValidationResult], failed: int
) -> Judged:
    asked = sum(len(answer.results) for answer in answers)
    of_streams = coverage[coverage["input"].isin([stream.name for stream in plan.streams])]
    read = of_streams.drop_duplicates(["input", "partition"])
    lost = sum(len(loss) for loss in plan.lost)
    return Judged(
        _records(plan, read), len(read), int(coverage["keys"].sum()), plan.key_sample, asked, asked - failed, lost
    )


def _records(plan: Plan, read: pd.DataFrame) -> int:
    """How many records there were, by the plan or, where it does not know, by their readers."""
    by_readers = read.groupby("input")["planned"].sum()
    return sum(
        sum(partition.records for partition in stream.partitions)
        if stream.declared.counted_by_plan
        else int(by_readers[stream.name])
        for stream in plan.streams
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
        for result in _json(answer)["results"]
    ]
    document = {
        "pipeline": plan.pipeline,
        "batch": plan.batch,
        "attempt": attempt,
        "plan": digest(plan),
        "success": not findings,
        "summary": summary,
        "findings": to_builtins(findings),
        "results": results,
    }
    # JSON has no NaN; the values may.
    plain: dict[str, Any] = json.loads(json.dumps(document), parse_constant=lambda _: None)
    return plain


def _json(answer: Any) -> Any:
    """An answer of Great Expectations as plain data; its method is not typed."""
    return answer.to_json_dict()
