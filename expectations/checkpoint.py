"""The checkpoint of a batch: Great Expectations judges its audit tables and the rows to publish."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
)
from great_expectations.core.result_format import ResultFormat
from great_expectations.exceptions.exceptions import GreatExpectationsError
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.registry import get_expectation_impl
from great_expectations.validator.validator import Validator
from msgspec import to_builtins

from coset.reports.site import Site
from coset.sources.counting import Counting, uncounted
from coset.sources.rows import BLOCK, Rows, each_row
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
    ExpectFewRecordsToBeSetAside,
    ExpectNoRecordToBeSetAside,
    ExpectOffsetsToBeCoveredExactlyOnce,
    ExpectRecordsToHaveKeys,
    ExpectRecordsToLieWhereTheirKeysHash,
    ExpectSetAsideRecordsToBeKept,
)
from expectations.docs import JudgedTable, Page, publish
from expectations.findings import Question, finding, is_error
from expectations.hiding import hide
from expectations.judging import TableExpectation
from expectations.misplaced import fitting
from expectations.notes import not_proved
from expectations.production import ExpectKeysToBeMigratedOnce, ExpectRowsToBeWrittenAsTheyWereMade
from expectations.ready_made import FigureExpectation
from expectations.table_rows import ExpectTablesToKeepTheirRows
from expectations.watermarks import ExpectWatermarksToFollow, ExpectWhatIsOverToBeGivenOnce
from partitioning.commands import Replan
from partitioning.documents.document import digest
from partitioning.errors import Finding, Refused
from partitioning.hashes import read_key
from partitioning.kinds import Kind
from partitioning.model.journal import JournalEntry
from partitioning.model.placement import is_known
from partitioning.model.plan import Plan, PlannedWrite, Stage
from partitioning.model.private import is_private
from partitioning.model.receipt import Receipt
from partitioning.model.verdict import Judged

# How pipelines call what Great Expectations calls otherwise.
_SEVERITIES = {"error": FailureSeverity.CRITICAL, "warning": FailureSeverity.WARNING}

# How audit tables call keys, whatever their column is called.
_KEY = ("key",)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence on a batch: the tables of `batches.auditing` and `batches.continuity`, the row counts of result
    tables from `batches.tables.table_rows`, and the figures from `batches.measuring` that ready-made expectations
    judge."""

    coverage: pd.DataFrame
    keys: pd.DataFrame
    violations: pd.DataFrame
    moved: pd.DataFrame
    produced: pd.DataFrame
    gaps: pd.DataFrame
    ends: pd.DataFrame
    remembered: pd.DataFrame
    tables: pd.DataFrame
    migrated: pd.DataFrame
    closed: pd.DataFrame
    watermarks: pd.DataFrame
    rows: Sequence[Mapping[str, object]] = ()
    figures: Sequence[Mapping[str, object]] = ()


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
    done: Sequence[JournalEntry] = (),
    counting: Counting = uncounted,
) -> Judgement:
    """Judge an attempt to run a batch.

    `outputs` has the rows of each result table with expectations of its own. Data Docs go to `site`, with
    what the `receipts` of its task groups say, and when parts of it were `done`. Rows of large tables are counted, once
    for each time that they are read.

    Raises Refused, with all findings, if an expectation of the pipeline is none that Great Expectations knows
    or the rows of a table are not given.
    """
    questions = [*_about_the_batch(plan, evidence), *_about_the_results(plan, outputs, evidence.figures)]
    answers = _answers(questions, counting)
    for question, answer in zip(questions, answers, strict=True):
        for result in answer.results:
            hide(result, question.private, plan.offenders if isinstance(plan.offenders, int) else None)
    fits = fitting((question.input, answer) for question, answer in zip(questions, answers, strict=True))
    unmet = [
        (is_error(result), finding(plan, question, result, evidence.keys, evidence.violations, fits))
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
        why.keys,
        receipts,
        warnings,
        done,
        evidence.figures,
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
                what = f"{text} is no expectation: {error}"
                then = (
                    'write it as {"type": "expect_…", "kwargs": {…}}, as Great Expectations names it, '
                    'with "severity": "warning" if it is only to be told, then ',
                    Replan(pipeline),
                )
                findings.append(
                    Finding.of(Kind.EXPECTATION_UNKNOWN, what, f"table {write.declared.table!r}", then, text=text)
                )
            else:
                expected.setdefault(write.declared.table, []).append(expectation)
    if findings:
        raise Refused(*findings)
    return expected


def _about_the_batch(plan: Plan, evidence: Evidence) -> Iterator[Question]:
    # A refused record is taken by no task, so the cause comes first.
    covered = [ExpectRecordsToHaveKeys(), ExpectOffsetsToBeCoveredExactlyOnce()]
    yield Question("Coverage", evidence.coverage, covered)
    if any(stream.declared.sets_aside for stream in plan.streams):
        few, kept = ExpectFewRecordsToBeSetAside(), ExpectSetAsideRecordsToBeKept()
        none = ExpectNoRecordToBeSetAside(severity=FailureSeverity.WARNING)
        yield Question("Set aside", evidence.coverage, [few, kept, none])
    yield Question("Continuity", evidence.ends, [ExpectBatchToContinueThePrevious(), ExpectGapsToBeExplained()])
    yield Question("Gaps", evidence.gaps, [ExpectGapsToBeEmpty()])
    yield Question("Remembered", evidence.remembered, [ExpectEndsToBeRemembered()])
    if len(evidence.watermarks):
        yield Question("Watermarks", evidence.watermarks, [ExpectWatermarksToFollow()])
    if len(evidence.tables):
        yield Question("Tables", evidence.tables, [ExpectTablesToHoldThePreviousBatch()])
    if evidence.rows:
        yield _about_rows(plan, pd.DataFrame(evidence.rows))
    yield Question("Placement", evidence.coverage, [ExpectRecordsToLieWhereTheirKeysHash()])
    if len(evidence.produced):
        yield Question("Production", evidence.produced, [ExpectRowsToBeWrittenAsTheyWereMade()])
    if len(evidence.migrated):
        yield Question("Migration", evidence.migrated, [ExpectKeysToBeMigratedOnce()])
    if len(evidence.closed):
        yield Question("Over in time", evidence.closed, [ExpectWhatIsOverToBeGivenOnce()])
    yield from _about_keys(plan, evidence)


def _about_keys(plan: Plan, evidence: Evidence) -> Iterator[Question]:
    for stage in plan.stages:
        if not stage.keeps_keys:
            continue
        compared = evidence.keys[evidence.keys["stage"] == stage.name]
        for inputs in _meeting(stage):
            shown = ["input", "partition", "offset"]
            meet = ExpectKeysToMeetInOneTask(key_columns=["key"], task_column="task", shown_columns=shown)
            which = "" if len(inputs) == len(stage.inputs) else f" in {' and '.join(inputs)}"
            keys = {read.placement.key for read in stage.inputs if read.name in inputs}
            yield Question(
                f"Keys of stage {stage.name}{which}",
                compared[compared["input"].isin(inputs)],
                [meet],
                private=_KEY if any(is_private(key, plan.private) for key in keys) else (),
            )
        for read in stage.inputs:
            if read.placement.key and is_known(read.placement.hash):
                rows = compared[compared["input"] == read.name]
                typed = rows.assign(key=[read_key(key, read.placement.key_format) for key in rows["key"]])
                placed = ExpectKeysToHashToTheirPartition(
                    key_column="key",
                    partition_column="partition",
                    partitions=read.placement.partitions,
                    key_format=str(read.placement.key_format.value),
                    hash=read.placement.hash,
                    shown_columns=["offset"],
                )
                private = _KEY if is_private(read.placement.key, plan.private) else ()
                title = f"Keys of {read.name} in stage {stage.name}"
                yield Question(title, typed, [placed], private=private, input=read.name)


def _about_rows(plan: Plan, rows: pd.DataFrame) -> Question:
    allowed = plan.allowed
    keep = ExpectTablesToKeepTheirRows(rows=allowed.rows, percent=allowed.percent)
    much = [row.table for row in each_row(rows) if allowed.is_too_much(row.before, row.after)]
    return Question("Rows of tables", rows, [keep], then=Replan(plan.pipeline, take_away=tuple(much)))


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


def result_title(table: str) -> str:
    """What a judgement calls the rows that a batch would publish to a table."""
    return f"Result table {table}"


def _about_the_results(
    plan: Plan, outputs: Mapping[str, Rows], figures: Sequence[Mapping[str, object]]
) -> Iterator[Question]:
    expected = user_expectations(plan.pipeline, plan.writes())
    if missing := sorted(set(expected) - set(outputs)):
        then = "hand over the rows that the batch would publish"
        raise Refused(
            *(
                Finding.of(Kind.PROOF, f"no rows of table {table!r} were given", plan.pipeline, then, table=table)
                for table in missing
            )
        )
    for stage in plan.stages:
        for write in stage.writes:
            if (table := write.declared.table) in expected:
                title = result_title(table)
                of_figures = [one for one in expected[table] if isinstance(one, FigureExpectation)]
                if of_rows := [one for one in expected[table] if not isinstance(one, FigureExpectation)]:
                    key = write.declared.key
                    yield Question(title, outputs[table], of_rows, stage.name, key, plan.private)
                if of_figures:
                    of_table = pd.DataFrame([row for row in figures if row["table"] == table])
                    yield Question(f"{title}, figures", of_table.astype({"as_of": "Int64"}), of_figures)


def _answers(questions: Sequence[Question], counting: Counting) -> list[ExpectationSuiteValidationResult]:
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
    config = _config(result)
    return json.dumps([config.type, config.kwargs], sort_keys=True, default=str)


def _config(result: ExpectationValidationResult) -> ExpectationConfiguration:
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
        _config(result).kwargs = plain["expectation_config"]["kwargs"]
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
            "expectation": _config(result).type,
            "kwargs": _config(result).kwargs,
            "severity": "error" if is_error(result) else "warning",
            "success": result.success,
            "result": result.result,
        }
        for question, answer in zip(questions, answers, strict=True)
        for result in answer.results
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
