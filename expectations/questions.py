"""Questions: which expectations a batch has to meet, each beside the table that it judges."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from great_expectations.exceptions.exceptions import GreatExpectationsError
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.registry import get_expectation_impl

from coset.sources.rows import Rows, each_row
from expectations import continuity, coverage, production
from expectations.colocation import ExpectKeysToHashToTheirPartition, ExpectKeysToMeetInOneTask
from expectations.ready_made import FigureExpectation
from partitioning.commands import Command, Replan
from partitioning.errors import Finding, Refused, refuse
from partitioning.hashes import read_key
from partitioning.kinds import Kind
from partitioning.model.placement import is_known
from partitioning.model.plan import Plan, PlannedWrite, Stage
from partitioning.model.private import is_private

# How pipelines call what Great Expectations calls otherwise.
_SEVERITIES = {"error": FailureSeverity.CRITICAL, "warning": FailureSeverity.WARNING}

# How audit tables call keys, whatever their column is called.
_KEY = ("key",)


@dataclass(frozen=True, slots=True)
class Question:
    """A table, as rows that are read or as a data frame that is there, expectations on it, the stage and key of its
    rows, its private columns, a further next step if one is not met, and the input that its rows are of, if it is one.
    """

    title: str
    rows: Rows | pd.DataFrame
    expectations: Sequence[Any]
    stage: str | None = None
    key: str | None = None
    private: Collection[str] = ()
    then: Command | None = None
    input: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence on a batch: the tables of `batches.auditing` and `batches.continuity`, the row counts of result
    tables, and how they add up, from `batches.tables.table_rows`, how those behind rows that change differ from their
    queries, from `batches.kept_queries`, and the figures from `batches.measuring` that ready-made expectations
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
    balanced: Sequence[Mapping[str, object]] = ()
    queries: Sequence[Mapping[str, object]] = ()
    figures: Sequence[Mapping[str, object]] = ()


def questions_on(plan: Plan, evidence: Evidence, outputs: Mapping[str, Rows]) -> list[Question]:
    """What a batch is asked: of its audit tables, and of the `outputs`, the rows that it would publish to each table.

    Raises Refused, with all findings, for an expectation of the pipeline that Great Expectations does not know, and for
    rows that are not given.
    """
    return [*_about_the_batch(plan, evidence), *_about_the_results(plan, outputs, evidence.figures)]


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
    refuse(findings)
    return expected


def _about_the_batch(plan: Plan, evidence: Evidence) -> Iterator[Question]:
    # A refused record is taken by no task, so the cause comes first.
    covered = [coverage.ExpectRecordsToHaveKeys(), coverage.ExpectOffsetsToBeCoveredExactlyOnce()]
    yield Question("Coverage", evidence.coverage, covered)
    if any(stream.declared.sets_aside for stream in plan.streams):
        few, kept = coverage.ExpectFewRecordsToBeSetAside(), coverage.ExpectSetAsideRecordsToBeKept()
        none = coverage.ExpectNoRecordToBeSetAside(severity=FailureSeverity.WARNING)
        yield Question("Set aside", evidence.coverage, [few, kept, none])
    yield Question(
        "Continuity",
        evidence.ends,
        [continuity.ExpectBatchToContinueThePrevious(), continuity.ExpectGapsToBeExplained()],
    )
    yield Question("Gaps", evidence.gaps, [continuity.ExpectGapsToBeEmpty()])
    yield Question("Remembered", evidence.remembered, [continuity.ExpectEndsToBeRemembered()])
    if len(evidence.watermarks):
        yield Question("Watermarks", evidence.watermarks, [continuity.ExpectWatermarksToFollow()])
    if len(evidence.tables):
        yield Question("Tables", evidence.tables, [continuity.ExpectTablesToHoldThePreviousBatch()])
    if evidence.rows:
        yield _about_rows(plan, pd.DataFrame(evidence.rows))
    if evidence.balanced:
        yield Question("Balance of tables", _balances(evidence.balanced), [production.ExpectRowsOfTablesToBalance()])
    if evidence.queries:
        held = pd.DataFrame(evidence.queries, columns=["table", "rows", "unseen", "key", "there", "right"])
        yield Question("Queries of tables", held, [production.ExpectTablesToBeTheirQueries()])
    yield Question("Placement", evidence.coverage, [coverage.ExpectRecordsToLieWhereTheirKeysHash()])
    if len(evidence.produced):
        yield Question("Production", evidence.produced, [production.ExpectRowsToBeWrittenAsTheyWereMade()])
    if len(evidence.migrated):
        yield Question("Migration", evidence.migrated, [production.ExpectKeysToBeMigratedOnce()])
    if len(evidence.closed):
        yield Question("Over in time", evidence.closed, [continuity.ExpectWhatIsOverToBeGivenOnce()])
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
                stage.name,
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


def _balances(rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    known = dict.fromkeys(("partition", "before", "gone", "come", "after"), "Int64")
    return pd.DataFrame(rows, columns=["table", *known, "others", "wrong", "unheld"]).astype(known)


def _about_rows(plan: Plan, rows: pd.DataFrame) -> Question:
    allowed = plan.allowance
    keep = production.ExpectTablesToKeepTheirRows(rows=allowed.rows, percent=allowed.percent)
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
        # What it kept of a key meets what comes of it.
        kept = reaching.get(step.name, frozenset[str]())
        reaching[step.name] = kept.union(*(reaching.get(name, ()) for name in step.inputs))
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
