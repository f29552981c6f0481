"""The checkpoint of a batch: Great Expectations judges its audit tables and the rows to publish.

Its page also has notes on what was not proved.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
from msgspec import to_builtins

from coset.reports.site import Site
from coset.sources.counting import Counting, uncounted
from coset.sources.rows import Rows, each_row
from expectations.answers import answers_to, config_of, hide
from expectations.docs import JudgedTable, Page, publish
from expectations.findings import finding, fitting, is_error, with_ids
from expectations.questions import Evidence, Question, questions_on
from partitioning.documents.document import digest
from partitioning.errors import Finding
from partitioning.explain.missing import said
from partitioning.model.journal import JournalEntry
from partitioning.model.order import read_together
from partitioning.model.plan import OFFENDERS_TOLD, Plan
from partitioning.model.receipt import Receipt
from partitioning.model.verdict import Judged
from partitioning.sections import many


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
    questions = questions_on(plan, evidence, outputs)
    answers = answers_to(questions, counting)
    for question, answer in zip(questions, answers, strict=True):
        for result in answer.results:
            hide(result, question.private, None if plan.offenders == OFFENDERS_TOLD else plan.offenders)
    fits = fitting((question.input, answer) for question, answer in zip(questions, answers, strict=True))
    fits = with_ids(plan, fits, evidence.violations)
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


def _why(
    plan: Plan, coverage: pd.DataFrame, answers: Sequence[ExpectationSuiteValidationResult], failed: int
) -> Judged:
    asked = sum(len(answer.results) for answer in answers)
    of_streams = coverage[coverage["input"].isin([stream.name for stream in plan.streams])]
    read = of_streams.drop_duplicates(["input", "partition"])
    lost = sum(len(loss) for loss in plan.losses)
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
            "expectation": config_of(result).type,
            "kwargs": config_of(result).kwargs,
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


def not_proved(plan: Plan, tables: pd.DataFrame, gaps: pd.DataFrame, produced: pd.DataFrame) -> Iterator[str]:
    """What nobody checked, and why, a sentence each."""
    yield from _by_its_readers(plan)
    yield from _read_once(plan)
    if told := said(plan):
        yield f"{told} Nobody read them again."
    if unseen := sorted(set(plan.tables) - set(tables["table"])):
        yield (
            f"Whether {', '.join(unseen)} held the batch before was not looked at: it holds this very batch already "
            "or, if this is a backfill, later ones."
        )
    for row in each_row(gaps):
        name = f"{row.stream}-{row.partition}"
        if pd.isna(row.gaps):
            yield f"Where {name} has no records is not known: a task of an earlier version has read it."
        elif row.looked < row.gaps:
            yield (
                f"Of {name}, {row.looked:,} of {many(int(row.gaps), 'gap')} were looked into. That the others have no "
                "records is what those say who read it."
            )
    if uncounted := int((~produced["counted"].astype(bool)).sum()):
        yield (
            f"Whether {many(uncounted, 'output')} of tasks have all rows is what their writers say: a task of an "
            "earlier version did not count what was made."
        )


def _by_its_readers(plan: Plan) -> Iterator[str]:
    """If only readers know the offsets, there is nothing else to compare them with."""
    if by_readers := sorted(stream.name for stream in plan.streams if stream.declared.may_lack_offsets):
        yield (
            f"Which offsets of {', '.join(by_readers)} have a record is what those say who read them: there is nothing "
            "else to hold it against."
        )


def _read_once(plan: Plan) -> Iterator[str]:
    """Tasks that read together share one reader's figures."""
    tasks = Counter[str]()
    for group in plan.groups:
        for together in read_together(plan, group):
            if len(together) > 1:
                tasks[together[0].stage] += len(together)
    for stage, count in sorted(tasks.items()):
        yield (
            f"One reader read for several tasks of stage {stage} ({count:,} of them): what these say to have read "
            "agrees by construction. That each record was taken by one of them alone is proved."
        )
