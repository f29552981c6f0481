"""Where a pipeline stands: committed and latest offsets, lag, and what an open batch still needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain

from msgspec import to_builtins

from coset.batches.attempt import Attempt
from coset.batches.backfills.swaps import Half, finish, half, in_force, newest_shown
from coset.batches.continuity import reached
from coset.batches.ends import Known, known_after
from coset.batches.history import expired
from coset.batches.pace import waits_for, warned
from coset.batches.progress import progress
from coset.batches.result_rows import count_aside
from coset.batches.tables.others import stopping
from coset.batches.tables.table_rows import parts_held
from coset.batches.verifications import verified_samples
from coset.cli import pipelines
from coset.cli.other_stores import to_begin
from coset.cli.output import Answer, Block, Table
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Records, Replan, Report, Run
from partitioning.documents.ledger import Ledger, Standing
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Refused
from partitioning.explain.watermarks import (
    MarkedBatch,
    Period,
    coming,
    waiting_section,
    watermarks_section,
    when_section,
)
from partitioning.model.graph import Graph
from partitioning.model.offsets import StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import End, Ends
from partitioning.model.table_parts import Upkeep
from partitioning.model.verdict import Outcome, Verdict
from partitioning.planning.flow_times import FlowTimes
from partitioning.planning.watermarks import with_watermarks
from partitioning.sections import MOST_ROWS, duration, many


def standing(named: str, root: str, when: Period | None = None) -> Answer:
    """Where the pipeline stands, what is wrong with the landed files or stops batches at result tables, and when the
    rows of a time come."""
    return _standing(pipelines.load(named), root, when)


def all_standing(root: str, when: Period | None = None) -> Answer:
    """Where each pipeline of the project stands, what is wrong with any of them, and when the rows of a time come."""
    found = pipelines.of_project()
    stand = [_standing(each, root, when) for each in found.values() if isinstance(each, Pipeline)]
    errors = [*(each for each in found.values() if isinstance(each, Refused)), *(each.wrong for each in stand)]
    findings = [finding for error in errors if error for finding in error.findings]
    text = chain.from_iterable(each.text for each in stand) if found else [pipelines.none_of_project()]
    return Answer([each.value for each in stand], text, Refused(*findings) if findings else None)


def _standing(pipeline: Pipeline, root: str, when: Period | None = None) -> Answer:
    ledger = Ledger(store_at(root), pipeline.name)
    stands = ledger.standing()
    known = known_after(ledger, stands.published)
    unread = list(not_read(pipeline, known.ends))
    batch, needs, then = newest(ledger, stands)
    stopped = _finished(ledger.store, pipeline.name)
    wrong = stopping(ledger.store, pipeline.name, pipeline.writes)
    now = progress(pipeline, known.ends, datetime.now(UTC), wrong)
    graph, upcoming = _next(pipeline, ledger, stands)
    exchanged = in_force(ledger.store, pipeline.name).exchanged()
    visible = newest_shown(ledger.store, pipeline.name, stands.published.batch) if stands.published else None
    written = {write.table for write in pipeline.writes}
    accepted = {table: batch for table, batch in (visible.accepted if visible else {}).items() if table in written}
    aside = count_aside(ledger, stands.published) if stands.published else None
    over = expired(ledger, stands.published) if stands.published else None
    verified = verified_samples(ledger, [write.table for write in pipeline.writes])
    held = parts_held(ledger.store, pipeline.writes)
    value = {
        "pipeline": pipeline.name,
        "newest": {"batch": stands.plan.batch, "open": stands.open, "needs": list(needs)} if stands.plan else None,
        "published": stands.published.batch if stands.published else None,
        "set_aside": aside,
        "expired": over,
        "verified": to_builtins(verified),
        "tables": {table: to_builtins(parts) for table, parts in held.items()},
        "accepted": accepted,
        "backfilled": exchanged,
        "half": stopped.plain if stopped else None,
        "partitions": [asdict(one) | {"partition": str(one.partition)} for one in now.partitions],
        "watermarks": to_builtins(upcoming.marks),
        "waiting": to_builtins(list(FlowTimes(graph, upcoming.marks).given())),
        "not_read": [
            {"partition": str(partition), "committed": end.end, "batch": end.batch} for partition, end in unread
        ],
        "forgotten": map(str, known.forgotten),
        "findings": pipelines.told(now.wrong.findings) if now.wrong else [],
    }
    rows = [
        (
            str(one.partition),
            _known(one.committed, "none yet"),
            _known(one.latest, "unknown"),
            _known(one.lag, "unknown"),
            duration(one.lag_seconds) if one.lag and one.lag_seconds is not None else "",
        )
        for one in now.partitions
    ]
    gone = [one.gone for one in now.partitions if one.gone]
    total = f"Lag: {_known(now.lag, 'unknown')} in {len(rows)} stream partitions"
    waited = f", the oldest for {duration(now.lag_seconds)}" if now.lag_seconds else ""
    if stopped:
        needs.append(f"Backfill {stopped.swap.backfill} is {stopped}.")
        then = f"Next: {pipelines.shown().line(Run(ledger.pipeline))}"
    undecided = stopped.swap.batches if stopped else ()
    again = [f"Readers see batch {n} as {name} gives it." for n, name in exchanged.items() if n not in undecided]
    if aside and stands.published:
        shows = pipelines.shown().line(Records(ledger.pipeline, stands.published.batch, set_aside=True))
        again.append(f"Batch {stands.published.batch} set {many(aside, 'record')} aside: {shows}")
    if over and stands.published:
        again.append(f"Batch {stands.published.batch} let {many(over, 'key')} expire.")
    if verified:
        again += [f"Table {write.table}: {verified.get(write.table, 'never verified')}." for write in pipeline.writes]
    again += [said for table, said in (visible.as_asked if visible else {}).items() if table in accepted]
    again += [str(Upkeep.of(table, parts)) for table, parts in held.items()]
    notes = [
        batch,
        *needs,
        *([then] if then else []),
        *again,
        *gone,
        *_told_of_ends(unread, known),
        f"{total}{waited}.",
    ]
    columns = ("stream partition", "committed", "latest", "lag", "for")
    shown: list[Block] = [Table(f"Pipeline {pipeline.name}", columns, rows, notes)]
    sections = [*watermarks_section(upcoming.marks, graph), *waiting_section(graph, upcoming)]
    if when:
        published = stands.published
        came = MarkedBatch(f"batch {published.batch}", published.watermarks) if published else None
        value["when"] = to_builtins(found := list(coming(graph, when, came, upcoming)))
        sections.append(when_section(when, found, came, upcoming))
    return Answer(value, [*shown, *sections], now.wrong)


def _next(pipeline: Pipeline, ledger: Ledger, stands: Standing) -> tuple[Graph, MarkedBatch]:
    """The next batch, or the one that is open, and the watermarks by which its steps go if no partition falls idle."""
    if stands.plan and stands.open:
        return stands.plan.graph, MarkedBatch(f"batch {stands.plan.batch}", stands.plan.watermarks)
    marks = reached(ledger, stands.published, pipeline.streams)
    number = stands.plan.batch + 1 if stands.plan else 0
    return with_watermarks(pipeline.graph, marks, stands.published), MarkedBatch(f"batch {number}", marks)


def _finished(store: Store, pipeline: str) -> Half | None:
    """Finish a swap that somebody left half done; what is half done still, if whoever asks may not write."""
    try:
        finish(store, pipeline)
    except CosetError:
        return half(store, pipeline)
    return None


def newest(ledger: Ledger, standing: Standing) -> tuple[str, list[str], str | None]:
    """The newest batch in a sentence, what it still needs, and the next command if it needs something."""
    plan = standing.plan
    if plan is None:
        new = to_begin(ledger.pipeline, ledger.store.root)
        return "No batch was planned yet.", [], f"Next: {pipelines.shown().line(Run(ledger.pipeline), *new)}"
    if not standing.open and standing.commit and standing.verdict:
        return f"Batch {plan.batch} is published{_warned(ledger, plan, standing.verdict)}.", [], None
    if not standing.open:
        return f"Batch {plan.batch} was given up.", [], None
    if standing.verdict is None and (wrong := waits_for(ledger, plan.batch)):
        needs = [
            "It waits: the checks of its last two attempts failed in the same way.",
            *(line for finding in wrong for line in finding.what.split("\n")),
        ]
        return (
            f"Batch {plan.batch} is open.",
            needs,
            pipelines.shown().says(("Next: correct it, then ", Replan(ledger.pipeline))),
        )
    return (
        f"Batch {plan.batch} is open.",
        list(_needs(ledger, standing, plan)),
        f"Next: {pipelines.shown().line(Run(ledger.pipeline))}",
    )


def _warned(ledger: Ledger, plan: Plan, verdict: Verdict) -> str:
    """That a published batch has warnings, in the words of its pages."""
    if not (warnings := len(warned(ledger, plan.batch, verdict.attempt))):
        return ""
    return f": {Outcome.PROVED.of(warnings)}, see {pipelines.shown().line(Report(ledger.pipeline, plan.batch))}"


def _needs(ledger: Ledger, standing: Standing, plan: Plan) -> Iterator[str]:
    if standing.verdict is not None:
        yield f"It is decided ({standing.verdict.decision}); its publication is not finished."
        return
    attempt = Attempt.of_open(ledger, plan)
    if attempt.number:
        yield f"The checks of attempt {attempt.number - 1} failed; attempt {attempt.number} is next."
    if missing := attempt.missing:
        yield f"Still to run: {len(missing)} of {len(plan.groups)} task groups ({', '.join(map(str, missing))})."
    else:
        yield "All task groups have run; it is not checked yet."


def _known(value: int | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:,}"


def not_read(pipeline: Pipeline, ends: Ends) -> Iterator[tuple[StreamPartition, End]]:
    """The stream partitions that batches have read, and that the pipeline does not have any more."""
    counts = {stream.name: stream.partitions for stream in pipeline.streams}
    for read in ends.streams:
        for end in read.ends:
            if end.partition >= counts.get(read.name, 0):
                yield StreamPartition(read.name, end.partition), end


def _told_of_ends(unread: Sequence[tuple[StreamPartition, End]], known: Known) -> Iterator[str]:
    """What is not read any more, and what is forgotten, in sentences."""
    for partition, end in unread[:MOST_ROWS]:
        yield f"Not read any more: {partition}, committed up to offset {end.end:,} by batch {end.batch}."
    if len(unread) > MOST_ROWS:
        yield f"Not read any more: {many(len(unread) - MOST_ROWS, 'stream partition')} more."
    yield from (f"{one}." for one in known.forgotten)
