"""Planning: from where a pipeline stands to the batch to work on next. Its plan is stored before anything runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from coset.batches.backfills.swap.swaps import finish, gone_on_from
from coset.batches.ends import known_after
from coset.batches.history import statistics
from coset.batches.publication import transaction_version
from coset.batches.tables.logs import Logs, check_storable, check_table
from coset.batches.tables.others import check_untouched
from coset.batches.tables.owners import Owner
from coset.batches.tables.table_rows import rows_held
from coset.batches.waiting import waits_for
from coset.sources.discovery import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.commands import Replan, Run
from partitioning.documents import locations
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger, Standing
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused, about
from partitioning.explain.explain import idle_tasks
from partitioning.kinds import Kind
from partitioning.model.plan import Plan, PlannedWrite, Stage
from partitioning.model.reasons import BeforeMoving, Unifying
from partitioning.model.streams import Column, Discovered
from partitioning.planning.partitioners.partitioners import notify
from partitioning.planning.planner import plan_batch
from partitioning.planning.stages.step_states import StateSnapshot
from partitioning.sections import many
from spark_jobs.sql.column_check import check_sql
from spark_jobs.sql.left_columns import with_columns

T = TypeVar("T")

_TASKS_PER_RECORD = 100
_DAY = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class NextBatch:
    """The batch to work on, None if there is nothing to do; `sentence` says how that came about."""

    plan: Plan | None
    sentence: str


def take_up(pipeline: Pipeline, store: Store, settings: Settings = DEFAULTS, *, again: bool = False) -> NextBatch:
    """The batch to work on, its plan stored: the open batch as it was planned, else a new one.

    A swap that somebody left half done is finished first: the batch may go on from it.
    A batch whose checks failed twice in the same way waits, unless it is asked for `again`: it would fail once more.
    The settings are for a new plan only. If others plan the same batch at the same time, the
    plan that was stored first is everybody's. Raises Refused, with all findings, if the landed files, an
    expression or the result tables are not as they have to be.
    """
    finish(store, pipeline.name)
    logs = Logs()
    standing = _standing(pipeline, store, logs)
    if not again and standing.open and standing.plan is not None and standing.verdict is None:
        _check_not_waiting(Ledger(store, pipeline.name), standing.plan.batch)
    next_batch = _open(standing, settings) or _new(pipeline, store, standing, settings, logs)
    if next_batch.plan is None or next_batch.plan is standing.plan:
        return next_batch
    stored = Ledger(store, pipeline.name).put_plan(next_batch.plan)
    if digest(stored) != digest(next_batch.plan):
        return NextBatch(stored, f"Batch {stored.batch} was planned by another process first; its plan counts")
    notify(stored, standing.published, pipeline, settings)
    return NextBatch(stored, next_batch.sentence)


def preview(pipeline: Pipeline, store: Store, settings: Settings = DEFAULTS) -> NextBatch:
    """What `take_up` would give, without storing anything."""
    logs = Logs()
    standing = _standing(pipeline, store, logs)
    return _open(standing, settings) or _new(pipeline, store, standing, settings, logs)


def _check_not_waiting(ledger: Ledger, batch: int) -> None:
    """Raise Refused, with what the checks said, if the batch waits."""
    if wrong := waits_for(ledger, batch):
        where = f"batch {batch} of {ledger.pipeline}, {ledger.attempt(batch)} attempts"
        once_more = Run(ledger.pipeline, again=True)
        then = ("correct it, then ", Replan(ledger.pipeline), "; ", once_more, " tries the same plan")
        waits = "the batch waits, its checks fail in the same way"
        raise Refused(
            *(
                Finding(
                    Kind.BATCH_WAITS,
                    f"{waits}: {found.what}",
                    where,
                    then,
                    about(**dict(found.about) | {"waits_for": found.kind, "at": found.where}),
                )
                for found in wrong
            )
        )


def _open(standing: Standing, asked: Settings) -> NextBatch | None:
    """The open batch, None if there is none."""
    if not standing.open or standing.plan is None:
        return None
    return NextBatch(standing.plan, _taken_up_again(standing.plan, standing, asked))


def _new(pipeline: Pipeline, store: Store, standing: Standing, settings: Settings, logs: Logs) -> NextBatch:
    """The batch after those that there are, newly planned."""
    ledger = Ledger(store, pipeline.name)
    published = standing.published
    if published is not None:
        # A backfill may have taken the place of the batch that was published last.
        ledger = gone_on_from(store, pipeline.name, published.batch)
        published = ledger.plan(published.batch)
    known = known_after(ledger, published)
    discovered = discover(pipeline.streams, known.ends, settings.accept_loss)
    results = result_columns(pipeline, discovered, store, logs)
    # Only of a table of its own can a pipeline say what is others' doing.
    check_untouched(store, pipeline.name, pipeline.writes, logs)
    plan = plan_batch(
        pipeline,
        discovered,
        results,
        batch=standing.plan.batch + 1 if standing.plan else 0,
        parent=digest(standing.plan) if standing.plan else None,
        published=published,
        ends=known.ends,
        forgotten=known.forgotten,
        settings=settings,
        statistics=statistics(ledger, published) if published else None,
        locality=locations.read(store, published) if published else None,
        kept=kept_by(ledger, published) if published else None,
        rows=rows_held(store.root, pipeline.writes, logs),
        day_end=_day_end(),
    )
    if plan is None:
        return NextBatch(None, _nothing_to_do(standing.published))
    plan = with_columns(plan)
    what = f"{many(plan.records, 'record')} in {many(len(plan.groups), 'task group')}"
    return NextBatch(plan, f"Batch {plan.batch} is planned: {what}{_far_too_many_tasks(plan)}")


def _day_end() -> int:
    """The end of this day in UTC, in microseconds: plans of one day are the same, and say by which clock they go."""
    return -(-time.time_ns() // _DAY) * _DAY // 1000


def kept_by(ledger: Ledger, published: Plan) -> StateSnapshot:
    """The state that a published batch left."""
    verdict = ledger.verdict(published.batch)
    assert verdict is not None
    return StateSnapshot.by(verdict, digest(verdict))


def _far_too_many_tasks(plan: Plan) -> str:
    """A warning for a slip of the hand; a quiet hour has more tasks than records as well."""
    if (tasks := sum(len(stage.tasks) for stage in plan.stages)) < _TASKS_PER_RECORD * plan.records:
        return ""
    idle = sum(idle_tasks(plan, stage) for stage in plan.stages)
    return f"; {idle:,} of {many(tasks, 'task')} have nothing to do, so choose fewer" if idle else ""


def _standing(pipeline: Pipeline, store: Store, logs: Logs) -> Standing:
    """Where the pipeline stands. Raises Refused, with all findings, if its tables stand elsewhere."""
    ledger, root = Ledger(store, pipeline.name), store.root
    standing = ledger.standing()
    # While a publication is not finished, some tables have the batch and some have not.
    while not (standing.open and standing.verdict is not None):
        held = {write.table: transaction_version(root, pipeline.name, write.table, logs) for write in pipeline.writes}
        findings = disagreements(standing.published, held, root)
        if not findings:
            break
        # Another process may have published meanwhile; its verdict was there before.
        before, standing = standing, ledger.standing()
        if standing == before:
            raise Refused(*findings)
    return standing


def disagreements(published: Plan | None, held: Mapping[str, int | None], root: str) -> tuple[Finding, ...]:
    """What is wrong if tables hold these batches and `published` is the last published plan."""
    newest = published.batch if published else None
    written = {write.declared.table for write in published.writes()} if published else set()
    findings = []
    for table, batch in held.items():
        where = f"table {table!r} and the plans under {root}"
        if batch is not None and (newest is None or batch > newest):
            what = f"the table holds batch {batch}, but by the ledger the last published is {_name(newest)}"
            findings.append(
                Finding(
                    Kind.TABLE_AHEAD,
                    what,
                    where,
                    "restore the pipeline's folder from a backup: verdicts are missing",
                    about(table=table, batch=batch, published=newest),
                )
            )
        elif table in written and batch != newest:
            what = f"the ledger says that batch {newest} is published, but the table holds {_name(batch)}"
            findings.append(
                Finding(
                    Kind.TABLE_BEHIND,
                    what,
                    where,
                    "restore the table from a backup: it was replaced or rolled back",
                    about(table=table, batch=batch, published=newest),
                )
            )
    return tuple(findings)


def result_columns(
    pipeline: Pipeline, discovered: tuple[Discovered, ...], store: Store, logs: Logs | None = None
) -> Mapping[str, tuple[Column, ...]]:
    """The columns of each result table, all of them of types that a table can hold, and those that it has already.

    Raises Refused, with all findings, if they are not, or a table is another pipeline's.
    """
    results, owner = check_sql(pipeline, discovered), Owner.here(store, pipeline.name)
    findings: list[Finding] = []
    for write in pipeline.writes:
        try:
            planned = PlannedWrite(write, results[write.table])
            check_storable(planned)
            check_table(store.root, planned, owner, logs)
        except Refused as refusal:
            findings.extend(refusal.findings)
    if findings:
        raise Refused(*findings)
    return results


def _taken_up_again(plan: Plan, standing: Standing, asked: Settings) -> str:
    if standing.verdict is not None:
        return f"Batch {plan.batch} is decided but its publication is not finished: it is taken up again"
    sentence = f"Batch {plan.batch} is open: it is taken up again as it was planned"
    differing = _differing(plan, asked)
    requested = " and ".join(differing)
    return f"{sentence}; the stored plan is used, the requested {requested} ignored" if differing else sentence


def _differing(plan: Plan, asked: Settings) -> list[str]:
    """What was asked for and is otherwise in the plan, as far as a plan shows it."""
    tasks = Counter(stage.wave for stage in plan.stages for _ in stage.tasks)
    groups = Counter(group.wave for group in plan.groups)
    longest = max(
        (part.records for stream in plan.streams if not stream.declared.table for part in stream.partitions),
        default=0,
    )
    differs = {
        "scheme": any(wanted != stage.scheme for stage, wanted in _given(plan, asked.schemes, asked.scheme)),
        "partitioner": any(
            str(wanted) != stage.partitioner for stage, wanted in _given(plan, asked.partitioners, None)
        ),
        "groups": any(min(asked.groups, tasks[wave]) != groups[wave] for wave in tasks),
        "grouper": asked.grouper != plan.grouper,
        "limit": asked.limit is not None and longest > asked.limit,
        "take-away": not set(asked.allowance.named) <= set(plan.allowed.named),
    }
    return [what for what, yes in differs.items() if yes]


def _given(plan: Plan, named: Mapping[str, T], for_all: T | None) -> Iterator[tuple[Stage, T]]:
    """The stages for which something is given, by their name or that of a step, else for all.

    Those that only move or combine on the way are never given anything.
    """
    for stage in (stage for stage in plan.stages if not isinstance(stage.why, BeforeMoving | Unifying)):
        names = (stage.name, *(step.name for step in stage.steps))
        wanted = next((named[name] for name in names if name in named), for_all)
        if wanted is not None:
            yield stage, wanted


def _nothing_to_do(published: Plan | None) -> str:
    if published is None:
        return "Nothing to do: no records have arrived yet"
    committed = sum(
        partition.end - partition.beginning
        for stream in published.streams
        for partition in stream.partitions
        if not stream.declared.table or all(other.declared.table for other in published.streams)
    )
    since = f"no new records since batch {published.batch}"
    if any(stream.declared.sparse for stream in published.streams):
        return f"Nothing to do: {since}"
    return f"Nothing to do: {since} (all {committed:,} landed records are committed)"


def _name(batch: int | None) -> str:
    return "none" if batch is None else f"batch {batch}"
