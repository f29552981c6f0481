"""Planning: finds the batch to work on next, and stores its plan before anything runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from coset.batches import reported
from coset.batches.attempt import Attempt
from coset.batches.backfills.request import with_backfill
from coset.batches.backfills.swaps import finish, newest_shown, state_ledger, swaps
from coset.batches.code import as_run, changed_code, with_code
from coset.batches.ends import known_after
from coset.batches.history import statistics
from coset.batches.measuring import check_measurable
from coset.batches.pace import check_not_waiting
from coset.batches.progress import lag_of
from coset.batches.publication import transaction_version
from coset.batches.renamed_columns import misread
from coset.batches.tables.iceberg import check_followable
from coset.batches.tables.logs import Logs, check_storable, check_table
from coset.batches.tables.others import appended_again, check_untouched
from coset.batches.tables.table_rows import parts_held, rows_held
from coset.sources.discovery import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger, Standing
from partitioning.documents.receipts import locations
from partitioning.documents.store import Store
from partitioning.documents.stores import check_first_use
from partitioning.errors import Finding, Refused, noting, refuse
from partitioning.explain.explain import columns_to_come, idle_tasks
from partitioning.kinds import Kind
from partitioning.model.backfill import Swap
from partitioning.model.journal import JournalEntry, Lag, Part
from partitioning.model.plan import Plan, PlannedWrite, Stage
from partitioning.model.read_ends import NOTHING, Ends
from partitioning.model.reasons import BeforeMoving, HotRanges, Unifying
from partitioning.model.root_names import TABLES, taken_from_pipelines
from partitioning.model.streams import Column, Discovered
from partitioning.planning.changed_queries import changed_since
from partitioning.planning.origins import said
from partitioning.planning.partitioners.partitioners import notify
from partitioning.planning.planner import plan_batch
from partitioning.planning.stages.draft import StateSnapshot
from partitioning.sections import many
from spark_jobs.engine.occasions import now, occasion
from spark_jobs.sql.column_check import check_sql
from spark_jobs.sql.engines import engine
from spark_jobs.sql.left_columns import with_columns

T = TypeVar("T")

_TASKS_PER_RECORD = 100
_DAY, _MINUTE = 86_400 * 10**9, 60 * 10**9


@dataclass(frozen=True, slots=True)
class NextBatch:
    """The plan of the batch to work on, None if there is nothing to do, and a `sentence` about it. A new batch has the
    `lag` before it."""

    plan: Plan | None
    sentence: str
    lag: Lag | None = None


def take_up(pipeline: Pipeline, store: Store, settings: Settings = DEFAULTS, *, again: bool = False) -> NextBatch:
    """The batch to work on: the open batch with its stored plan, or else a new one, whose plan is stored.

    A half-done swap is finished first, because the batch may continue from its rows. A batch whose checks failed twice
    in the same way waits unless `again` is true. The settings apply to a new plan only. If several processes plan the
    same batch, the plan that is stored first counts. Raises Refused with all findings on landed files, expressions and
    result tables.
    """
    began = now()
    finish(store, pipeline.name)
    logs = Logs()
    standing = agreed(pipeline, store, logs)
    if not again and standing.open and standing.plan is not None and standing.verdict is None:
        check_not_waiting(Ledger(store, pipeline.name), standing.plan.batch)
    next_batch = _open(standing, settings) or _new(pipeline, store, standing, settings, logs)
    if next_batch.plan is None or next_batch.plan is standing.plan:
        return next_batch
    if standing.plan is None:
        check_first_use(store)
    ledger = Ledger(store, pipeline.name)
    stored = ledger.put_plan(next_batch.plan)
    if digest(stored) != digest(next_batch.plan):
        return NextBatch(stored, f"Another process planned batch {stored.batch} first; its plan is used")
    notify(stored, standing.published, pipeline, settings)
    ledger.put_journal_entry(JournalEntry(digest(stored), stored.batch, Part.PLAN, occasion(began), lag=next_batch.lag))
    reported.begun(ledger, stored)
    return NextBatch(stored, "; ".join([next_batch.sentence, *columns_to_come(stored)]))


def preview(pipeline: Pipeline, store: Store, settings: Settings = DEFAULTS) -> NextBatch:
    """What `take_up` would return. Stores nothing."""
    logs = Logs()
    standing = agreed(pipeline, store, logs)
    return _open(standing, settings) or _new(pipeline, store, standing, settings, logs)


def _open(standing: Standing, asked: Settings) -> NextBatch | None:
    """The open batch, None if there is none."""
    if not standing.open or standing.plan is None:
        return None
    return NextBatch(standing.plan, _taken_up_again(standing.plan, standing, asked))


def _new(pipeline: Pipeline, store: Store, standing: Standing, settings: Settings, logs: Logs) -> NextBatch:
    """Plan the batch after the last one."""
    pipeline = pipeline.expecting(settings.expectations)
    if standing.plan is None and (taken := taken_from_pipelines(pipeline.name)):
        raise Refused(taken)
    ledger = Ledger(store, pipeline.name)
    published, decided = standing.published, tuple(swaps(store, pipeline.name))
    if published is not None:
        # A backfill may have replaced the last published batch.
        ledger = state_ledger(store, pipeline.name, published.batch, decided)
        published = ledger.plan(published.batch)
    known = known_after(ledger, published, decided)
    discovered = discover(pipeline.streams, known.ends, settings.accept_loss)
    last = Attempt.published(ledger, published) if published else None
    shown = newest_shown(store, pipeline.name, published.batch, decided) if published else None
    again: tuple[Finding, ...] = ()
    try:
        results = result_columns(pipeline, discovered, store, logs, known.ends)
        again = (
            *appended_again(store, pipeline, discovered, known.ends, settings.starts, logs),
            *misread(pipeline, discovered, results, known.ends),
        )
        # This comes after the check of the owner: only in its own tables can a pipeline tell the changes of others.
        check_untouched(store, pipeline.name, pipeline.writes, logs)
        plan = plan_batch(
            pipeline,
            discovered,
            results,
            batch=standing.plan.batch + 1 if standing.plan else 0,
            parent=digest(standing.plan) if standing.plan else None,
            published=as_run(published, last),
            shown=as_run(shown, last),
            ends=known.ends,
            forgotten=known.forgotten,
            settings=settings,
            statistics=statistics(last) if last else None,
            locality=locations(store, published, last.receipts.values()) if published and last else None,
            kept=kept_by(ledger, published) if published else None,
            rows=rows_held(store, pipeline.writes, logs),
            parts=parts_held(store, pipeline.writes, logs),
            day_end=_not_before(published, end_of_day()),
            as_of=_minute(),
            earlier=lambda batch: _published_before(store, pipeline.name, batch, decided),
            engine=engine(pipeline.graph, [column for each in discovered for column in each.columns], published),
        )
    except Refused as refusal:
        raise with_backfill(Refused(*again, *refusal.findings), store, pipeline, discovered, known.ends) from None
    refuse(again)
    if plan is None:
        return NextBatch(None, _nothing_to_do(pipeline, shown, standing.published, discovered))
    plan = with_code(with_columns(plan))
    what = f"{many(plan.records, 'record')} in {many(len(plan.groups), 'task group')}"
    behind = lag_of(pipeline, known.ends, discovered, datetime.now(UTC))
    said = f"{what}{_far_too_many_tasks(plan)}{_going_on(plan, published, settings.begin_anew)}"
    return NextBatch(plan, f"Batch {plan.batch} is planned: {said}", behind)


def _going_on(plan: Plan, published: Plan | None, asked: Sequence[str]) -> str:
    """The end of a sentence on a plan: which steps were to begin anew and go on, as nothing of them has changed."""
    kept = {step.name for step in published.steps if step.state} if published else set[str]()
    on = [name for name in asked if name in kept and name not in plan.anew]
    if not on or plan.batch in plan.accepted.values():
        return ""
    line = f'pipeline.changed("{on[0]}", anew="why")'
    then = f"to begin anew, say `{line}` in the pipeline and replan the batch"
    return f"; nothing of {' and '.join(on)} changed, so what was kept goes on: {then}"


def _published_before(store: Store, pipeline: str, batch: int, decided: Iterable[Swap]) -> Plan | None:
    """The newest published plan before a batch, or that of the backfill whose rows and state count."""
    before = Ledger(store, pipeline).published_before(batch)
    return state_ledger(store, pipeline, before.batch, decided).plan(before.batch) if before else None


def end_of_day() -> int:
    """The end of this day in UTC, in microseconds. A day, not a moment, keeps plans of the same input equal."""
    return -(-time.time_ns() // _DAY) * _DAY // 1000


def _not_before(published: Plan | None, day_end: int | None) -> int | None:
    """The end of a day, and of no earlier one than the last batch went by: a clock that was set back would take the
    times of all new records for times of the future."""
    if published is None or day_end is None or published.day_end is None:
        return day_end
    return max(day_end, published.day_end)


def _minute() -> int:
    """This minute, in microseconds: what goes by it says so in its plan, and no clock is read after it."""
    return time.time_ns() // _MINUTE * _MINUTE // 1000


def kept_by(ledger: Ledger, published: Plan) -> StateSnapshot:
    """The state after a published batch."""
    verdict = ledger.verdict(published.batch)
    assert verdict is not None
    return StateSnapshot.by(verdict, digest(verdict))


def _far_too_many_tasks(plan: Plan) -> str:
    """A warning about far too many tasks. A quiet hour may have more tasks than records without one."""
    if (tasks := sum(len(stage.tasks) for stage in plan.stages)) < _TASKS_PER_RECORD * plan.records:
        return ""
    idle = sum(idle_tasks(plan, stage) for stage in plan.stages)
    return f"; {idle:,} of {many(tasks, 'task')} have nothing to do, so choose fewer" if idle else ""


def agreed(pipeline: Pipeline, store: Store, logs: Logs | None = None) -> Standing:
    """Where the pipeline stands. Raises Refused with all findings if its tables disagree with the ledger."""
    ledger, logs = Ledger(store, pipeline.name), logs or Logs()
    standing = ledger.standing()
    # During a publication some tables have the batch and some do not.
    while not (standing.open and standing.verdict is not None):
        held = {write.table: transaction_version(store, pipeline.name, write.table, logs) for write in pipeline.writes}
        findings = disagreements(pipeline.name, standing.published, held, store.root)
        if not findings:
            break
        # Another process may have published meanwhile, which changes the standing.
        logs.again()
        before, standing = standing, ledger.standing()
        if standing == before:
            raise Refused(*findings)
    return standing


def disagreements(
    pipeline: str, published: Plan | None, held: Mapping[str, int | None], root: str
) -> tuple[Finding, ...]:
    """Findings on tables whose newest batch is not that of the pipeline's last published plan."""
    newest = published.batch if published else None
    written = set(published.tables) if published else set()
    findings = []
    for table, batch in held.items():
        where = f"table {table!r} and the plans under {root}"
        if batch is not None and (newest is None or batch > newest):
            what = f"the table holds batch {batch}, but the ledger's last published batch is {_name(newest)}"
            then = (
                f"verdicts are missing: restore `{pipeline}/` from a newer backup; or, for each table, "
                f"restore its folder `{TABLES}{table}` from the backup that `{pipeline}/` is from"
            )
            findings.append(Finding.of(Kind.TABLE_AHEAD, what, where, then, table=table, batch=batch, published=newest))
        elif table in written and batch != newest:
            what = f"the ledger says that batch {newest} is published, but the table holds {_name(batch)}"
            then = (
                f"it was replaced or rolled back: restore its folder `{TABLES}{table}` from a newer backup; "
                f"or restore `{pipeline}/` from the backup that the table is from"
            )
            findings.append(
                Finding.of(Kind.TABLE_BEHIND, what, where, then, table=table, batch=batch, published=newest)
            )
    return tuple(findings)


def result_columns(
    pipeline: Pipeline,
    discovered: tuple[Discovered, ...],
    store: Store,
    logs: Logs | None = None,
    ends: Ends = NOTHING,
) -> Mapping[str, tuple[Column, ...]]:
    """The columns of each result table.

    Raises Refused with all findings if a table cannot hold their types, has other columns already, or belongs to
    another pipeline. Columns that others have renamed behind `ends` are named instead where they are why.
    """
    results = check_sql(pipeline, discovered)
    findings: list[Finding] = []
    for write in pipeline.writes:
        with noting(findings):
            planned = PlannedWrite(write, results[write.table])
            check_storable(planned)
            check_followable(planned)
            check_measurable(planned, pipeline.private)
            check_table(store, planned, pipeline.name, logs)
    if findings:
        raise Refused(*misread(pipeline, discovered, results, ends, findings))
    return results


def _taken_up_again(plan: Plan, standing: Standing, asked: Settings) -> str:
    if standing.verdict is not None:
        sentence = f"Batch {plan.batch} is decided but not yet published: its publication continues"
        return sentence + ignored(plan, asked)
    sentence = f"Batch {plan.batch} is open: it continues as it was planned"
    if changed := changed_code(plan):
        sentence = f"{sentence}, with other code of {' and '.join(changed)} than when it was planned"
    told = ignored(plan, asked)
    return f"{sentence}{told}: replan the batch to have them" if told else sentence


def ignored(plan: Plan, asked: Settings) -> str:
    """The end of a sentence on a stored plan: which settings are requested and ignored, as it has others."""
    requested = " and ".join(_differing(plan, asked))
    return f"; the stored plan is used, the requested {requested} ignored" if requested else ""


def _differing(plan: Plan, asked: Settings) -> list[str]:
    """The names of requested settings that the plan does not have, as far as a plan shows it."""
    tasks = Counter(stage.wave for stage in plan.stages for _ in stage.tasks)
    groups = Counter(group.wave for group in plan.groups)
    longest = max(
        (part.records for stream in plan.streams if not stream.declared.table for part in stream.partitions), default=0
    )
    accepted = plan.accepted.keys()
    differs = {
        "scheme": any(wanted != stage.scheme for stage, wanted in _given(plan, asked.schemes, asked.scheme)),
        "partitioner": any(
            str(wanted) != stage.partitioner for stage, wanted in _given(plan, asked.partitioners, None)
        ),
        "groups": any(min(asked.groups, tasks[wave]) != groups[wave] for wave in tasks),
        "grouper": asked.grouper != plan.grouper,
        "limit": asked.limit is not None and longest > asked.limit,
        "take-away": not set(asked.allowance.named) <= set(plan.allowance.named),
        "begin-anew": not set(asked.begin_anew) <= {*plan.anew, *accepted},
        "go-on": not set(asked.go_on) <= {*plan.on, *accepted},
    }
    return [what for what, yes in differs.items() if yes]


def _given(plan: Plan, named: Mapping[str, T], for_all: T | None) -> Iterator[tuple[Stage, T]]:
    """The stages that a setting applies to, with its value: by the stage's name, a step's name, or for all.

    No setting applies to stages that only move or combine records.
    """
    for stage in (stage for stage in plan.stages if not isinstance(stage.why, BeforeMoving | Unifying | HotRanges)):
        names = (stage.name, *(step.name for step in stage.steps))
        wanted = next((named[name] for name in names if name in named), for_all)
        if wanted is not None:
            yield stage, wanted


def _nothing_to_do(
    pipeline: Pipeline, shown: Plan | None, published: Plan | None, discovered: Sequence[Discovered]
) -> str:
    if published is None:
        return f"Nothing to do: {nothing_yet(discovered)}"
    committed = sum(
        partition.end - partition.beginning
        for stream in published.streams
        for partition in stream.partitions
        if not stream.declared.table or all(other.declared.table for other in published.streams)
    )
    since = f"Nothing to do: no new records since batch {published.batch}"
    if not any(stream.declared.sparse for stream in published.streams):
        since = f"{since} (all {committed:,} landed records are committed)"
    changed = dict.fromkeys(map(said, changed_since(pipeline.graph, shown or published)))
    waits = [f"new records go by the pipeline as it is now: {', and '.join(changed)}"] if changed else []
    return "; ".join([since, *waits, *_looked_into(discovered)])


def nothing_yet(discovered: Sequence[Discovered]) -> str:
    """That no records have arrived, and what was looked at. Nothing is published yet."""
    if any(partition.files for found in discovered for partition in found.partitions):
        return "no records have arrived behind the offsets from which the first batch is to read"
    return "; ".join(["no records have arrived yet", *_looked_into(discovered)])


def _looked_into(discovered: Sequence[Discovered]) -> Iterator[str]:
    """What was looked at of each stream, and passed over, where files have no records."""
    for found in discovered:
        if twice := {double.path for partition in found.partitions for double in partition.doubles}:
            yield f"passed over, as their records were read: {many(len(twice), 'file')} of {found.stream}"
        if found.looked.empty:
            yield f"{many(found.looked.empty, 'file')} of {found.stream} had none"
            if found.looked.hidden:
                hidden = many(found.looked.hidden, "object")
                yield f"passed over by their names: {hidden} of {found.stream}"
            if found.looked.beside:
                yield f"passed over: what of {found.stream} lies beside its folders partition=<n>/"


def _name(batch: int | None) -> str:
    return "none" if batch is None else f"batch {batch}"
