"""Plans of a backfill: of the ranges and files that a batch was planned with, by the pipeline and settings of now."""

from __future__ import annotations

from collections.abc import Mapping

from coset.batches.backfills.comparison.repaired import with_files_of_now
from coset.batches.backfills.swap.swaps import gone_on_from
from coset.batches.ends import ends_before
from coset.batches.history import replayed, statistics
from coset.batches.planning import kept_by, result_columns
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.commands import BackfillAsking
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.graph import Mode
from partitioning.model.offsets import OffsetRange
from partitioning.model.plan import Plan, PlannedStream
from partitioning.model.streams import Column
from partitioning.planning.planner import plan_arrived
from partitioning.values import replace
from spark_jobs.sql.left_columns import with_columns


def planned_again(
    pipeline: Pipeline, ledger: Ledger, batch: int, settings: Settings, *, repaired: bool = False
) -> Plan:
    """The plan of a batch in a backfill, whose ledger this is. Stores nothing.

    It reads the files of the stored plan, or those that hold its offsets now, if its input was `repaired`.
    What it goes on from is what the batch before it in the backfill left, or the one before the backfill. Raises
    Refused, with all findings, if the pipeline cannot be planned so, or does not read what the batch has read.
    """
    assert ledger.original is not None
    stored = ledger.original.plan(batch)
    assert stored is not None
    then = pipeline.with_partitions({stream.name: stream.declared.partitions for stream in stored.streams})
    ends = ends_before(ledger, batch)
    if repaired:
        stored = with_files_of_now(then, stored, ends, _lost(ledger.original))
    source, before = _goes_on_from(ledger, batch)
    plan = plan_arrived(
        then,
        _streams(then, stored),
        _columns(then, stored, ledger),
        batch=batch,
        parent=digest(before) if before else None,
        published=before,
        ends=ends,
        forgotten=stored.forgot,
        # What was lost then is lost now, and no gap that nobody explains.
        settings=replace(settings, accept_loss=stored.lost),
        statistics=statistics(Ledger(ledger.store, before.pipeline), before) if before else None,
        kept=kept_by(source, before) if before else None,
        named=ledger.pipeline,
        day_end=stored.day_end if isinstance(stored.day_end, int) else None,
    )
    planned = replace(with_columns(plan), pipeline=ledger.pipeline, starts=stored.starts, losses=stored.losses)
    # What the tables hold now is of later batches.
    return planned if source is ledger else _anew(planned)


def _columns(pipeline: Pipeline, stored: Plan, ledger: Ledger) -> Mapping[str, tuple[Column, ...]]:
    """The columns of the result tables. Raises Refused, as `result_columns`: of what a batch that was landed before a
    column came can do about it."""
    try:
        return result_columns(pipeline, replayed(stored), ledger.store)
    except Refused as refusal:
        raise Refused(*(_from_before(finding, pipeline.name, stored.batch) for finding in refusal.findings)) from None


def _from_before(finding: Finding, pipeline: str, batch: int) -> Finding:
    if finding.kind is not Kind.SQL_COLUMN:
        return finding
    landed = ("; or, if it came after that batch, begin at a later batch, or land its files with the column and ",)
    parts = finding.next if isinstance(finding.next, tuple) else (finding.next,)
    again = BackfillAsking(pipeline, batch, repaired=True)
    return replace(finding, where=f"{finding.where}, batch {batch}", next=(*parts, *landed, again))


def _lost(ledger: Ledger) -> list[OffsetRange]:
    """All offsets that published batches gave up for lost."""
    lost, plan = list[OffsetRange](), ledger.standing().published
    while plan is not None:
        lost.extend(plan.lost)
        plan = ledger.published_before(plan.batch)
    return lost


def _goes_on_from(ledger: Ledger, batch: int) -> tuple[Ledger, Plan | None]:
    """The published plan before a batch, and the ledger with its verdict: the backfill's own, or what counts now."""
    assert ledger.original is not None
    before = ledger.published_before(batch)
    if before is None:
        return ledger.original, None
    source = ledger
    if before.pipeline != ledger.pipeline:
        source = gone_on_from(ledger.store, ledger.original.pipeline, before.batch)
    return source, source.plan(before.batch)


def _anew(plan: Plan) -> Plan:
    """The plan with all rows of its upserted tables."""
    stages = (
        replace(
            stage,
            writes=tuple(replace(write, anew=write.declared.mode is Mode.UPSERT) for write in stage.writes),
        )
        for stage in plan.stages
    )
    return replace(plan, stages=tuple(stages))


def _streams(pipeline: Pipeline, stored: Plan) -> tuple[PlannedStream, ...]:
    """What the batch read, as it was planned. Raises Refused if the pipeline reads other streams now."""
    declared = {stream.name: stream for stream in pipeline.streams}
    read = {stream.name: stream for stream in stored.streams}
    findings = [
        Finding(
            Kind.BACKFILL_INPUT,
            f"stream {name!r} is read by {'the pipeline' if name in declared else f'batch {stored.batch}'} only",
            f"pipeline {pipeline.name!r}, batch {stored.batch}",
            "a backfill reads what its batches have read: give what is new another pipeline",
            about(name=name, batch=stored.batch),
        )
        for name in sorted(declared.keys() ^ read.keys())
    ]
    if findings:
        raise Refused(*findings)
    return tuple(replace(read[stream.name], declared=stream) for stream in pipeline.streams)
