"""Verifying: whether a published table is its query, computed in another way than its batches were.

All records that published batches have taken go through the pipeline once more, as one batch without any state, in a
folder that goes away; its rows are held against those of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from math import gcd, lcm
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coset.batches.accepted_rows import accepted_in, rows_accepted, with_rows
from coset.batches.attempt import Attempt
from coset.batches.backfills.swaps import half, newest_shown
from coset.batches.code import with_code
from coset.batches.compared_rows import nearly, netted, rows_of
from coset.batches.pace import OpenBecause, open_because
from coset.batches.planning import result_columns
from coset.batches.ref import BatchRef
from coset.batches.result_rows import table_files
from coset.batches.runners.local import Local
from coset.batches.tables.batch_versions import version_of_batch
from coset.batches.tables.first_rows import all_rows
from coset.batches.taken import AllTaken, as_taken, by_all_schemas
from coset.batches.verified import ALL, KeyPart, Verified
from coset.sources.discovery import discover
from coset.sources.landed_keys import making_keys
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.commands import Replan, Run, Then, VerifyAsking
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.backfill import Difference
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import Op, Step, Write
from partitioning.model.meaning import Meaning, RowKind, is_log, meanings, of_one_batch
from partitioning.model.offsets import OffsetRange
from partitioning.model.placement import OPAQUE, Placement, each_of
from partitioning.model.plan import Plan, Stage, TaskGroup
from partitioning.model.read_ends import NOTHING
from partitioning.model.schemes import Scheme, tasks
from partitioning.model.watermarks import TimePassed
from partitioning.planning.origins import Origins, over, said, told_changes, with_known_code
from partitioning.planning.planner import plan_arrived
from partitioning.values import replace
from spark_jobs.engine.hashing import placement_hashes
from spark_jobs.sql.engines import engine
from spark_jobs.sql.left_columns import with_columns
from spark_jobs.tables.table_schema import RESIDUE, table_schema

# Holds the rows of a table against the right ones, by key, beside the private columns.
Compare = Callable[[pa.RecordBatchReader, pa.RecordBatchReader, str, Collection[str]], Difference]

_LINEAGE = frozenset({"_batch", "_task", RESIDUE})
# A plan of more tasks would take longer than what it saves.
_MOST_TASKS = 1024


def verify(
    pipeline: Pipeline,
    store: Store,
    tables: Collection[str] = (),
    part: KeyPart | Callable[[str], KeyPart] = ALL,
    as_of: int | None = None,
    compare: Compare = nearly,
) -> Iterator[Verified]:
    """Hold published tables against their queries, over the records that published batches took: all, or these.

    What is held is a part of the keys, the same or one for each table; as it is now, or as the batch `as_of` published
    it, over the records up to that batch's ends.

    A table whose rows are of a batch by what they are has no such query, unless each batch replaces them: then it is
    one over that batch's records. Nothing is stored. Raises Refused if nothing
    is published yet, and, after all tables of which something can be said, with each stream partition of which records
    are gone that batches took, and as a batch does.
    """
    ledger, means = Ledger(store, pipeline.name), meanings(pipeline.graph)
    published, newest = _published(ledger, as_of)
    pipeline = by_all_schemas(pipeline, ledger, published)
    writes = [write for write in pipeline.writes if not tables or write.table in tables]
    flows = {write.table: pipeline.up_to(write.step, write.table) for write in writes}
    read = {stream.name: stream for only in flows.values() for stream in only.streams}
    shown = (newest_shown(store, ledger.pipeline, published.batch) if as_of is None else None) or published
    discovered = discover(tuple(read.values()), replace(NOTHING, pipeline=pipeline.name))
    there = [as_taken(ledger, published, each) for each in discovered]
    taken, refused = AllTaken(ledger, published, there), list[Finding]()
    with Local() as runner:
        for write in writes:
            mine = part if isinstance(part, KeyPart) else part(write.table)
            version: int | None = None
            since, replaces = 0, replaces_one_batch(pipeline, write, means[write.table])
            accepted: Sequence[int] = ()
            found: Difference | str = _why_not(flows[write.table], write, means[write.table], taken, replaces=replaces)
            try:
                if not found and as_of is not None:
                    version = version_of_batch(ledger, write.table, taken.written[write.table], newest)
                if not found:
                    last = published.batch if replaces else 0
                    since = _since(flows[write.table], write, means[write.table], taken, last)
                    accepted, whole = accepted_in(ledger, pipeline, write, version)
                    only = flows[write.table]
                    found = _verified(only, write, store, taken, mine, runner, version, since, accepted, compare)
                    if not whole and isinstance(found, Difference) and not found.same:
                        found = "somebody accepted what others changed in it, and which rows these are cannot be told"
            except Refused as refusal:
                refused += (finding for finding in refusal.findings if finding not in refused)
                continue
            if isinstance(found, Difference) and not found.same and as_of is None and _has_moved(ledger, published):
                found = "a batch or a backfill was about to be published: verify it again"
            wrong = isinstance(found, Difference) and not found.same
            reasons = tuple(_reasons(shown, flows[write.table], write)) if wrong else ()
            known = found, mine, version, since, reasons, replaces, max(accepted, default=-1)
            yield Verified(write.table, published.batch, means[write.table], *known)
    refuse(refused)


def _published(ledger: Ledger, as_of: int | None) -> tuple[Plan, int]:
    """The plan of the batch that was published last, or of the one that is asked for, and the number of the last.
    Raises Refused if there is none."""
    published, where = (standing := ledger.standing()).published, f"pipeline {ledger.pipeline!r}"
    if published is None:
        what = "it has published nothing yet, so there is nothing to verify"
        then: Then = Run(ledger.pipeline)
        if standing.plan and (why := open_because(ledger, standing)):
            what = f"{what}: batch {standing.plan.batch} is open ({why})"
            then = ("correct it, then ", Replan(ledger.pipeline)) if why is OpenBecause.WAITS else then
        raise Refused.of(Kind.BATCH_UNPUBLISHED, what, where, then, pipeline=ledger.pipeline)
    if as_of is None or as_of == published.batch:
        return published, published.batch
    plan = ledger.plan(as_of) if ledger.published(as_of) else None
    if plan is None:
        what = f"batch {as_of} is not published; the newest that is published is batch {published.batch}"
        before = ledger.published_before(as_of) if as_of < published.batch else published
        then = ("name one that is: ", VerifyAsking(ledger.pipeline, as_of=(before or published).batch))
        raise Refused.of(Kind.BATCH_UNPUBLISHED, what, where, then, batch=as_of)
    return plan, published.batch


def _reasons(shown: Plan, only: Pipeline, write: Write) -> Iterator[str]:
    """What is known of why a table may differ: it was asked for by its name, or its query is another than it was."""
    if (batch := shown.accepted.get(write.table)) is not None:
        yield f"it may differ since batch {batch}, as asked for by its name"
    yield from by_arrival(only.steps)
    steps = {each.declared.table: each.declared.step for each in shown.writes()}
    if write.table in steps:
        before, after = map(Origins, with_known_code(shown.graph, over(only.graph, shown.streams)))
        was, now = before.of(steps[write.table]), after.of(write.step)
        changes = [said(change) for change in told_changes(was, now)]
        if not changes and was.identity != now.identity:
            changes = ["its steps give other columns"]
        yield from (f"since batch {shown.batch} {change}" for change in changes)


def by_arrival(steps: Iterable[Step]) -> Iterator[str]:
    """Which steps keep records because they came first; of all records at once they would keep the earliest."""
    for step in steps:
        if step.op is Op.DISTINCT:
            of_alike = f"of records that are alike step {step.name} keeps the first to come"
            yield f"{of_alike}, which may not be the earliest, and forgets it by time"


def replaces_one_batch(pipeline: Pipeline, write: Write, means: Meaning) -> bool:
    """Whether a table has the rows that its last batch makes of that batch's records, and no others."""
    above = pipeline.graph.above(write.step)
    return not write.mode.keeps and of_one_batch(means, (step for step in pipeline.steps if step.name in above))


def _since(only: Pipeline, write: Write, means: Meaning, taken: AllTaken, since: int) -> int:
    """The batch from which on a table, whose rows are of no batch before `since`, can be held against its query: that
    one if no record is gone.

    Raises Refused with what is gone if rows of then may depend on it, or do not say of which batch they are.
    """
    if not (lost := taken.lost(only, since)):
        return since
    first = taken.first_whole(lost)
    stateless = means.rows is RowKind.RECORDS and not any(step.state for step in only.steps)
    if first is None or not (stateless and write.lineage and write.mode.only_adds):
        raise Refused(*_gone(only, lost, first))
    return first


def _gone(only: Pipeline, lost: Sequence[OffsetRange], first: int | None) -> Iterator[Finding]:
    """A finding for each partition of which records are gone that batches took."""
    source = {stream.name: stream.source for stream in only.streams}
    then = "restore these files; without them nobody can say what a table over all records is to have"
    if first is not None:
        then = (
            f"{then}. Of batch {first} and those after it all records are there: from there on tables with "
            "`lineage=True` are verified of which each row is of one record"
        )
    for each in lost:
        what = f"the records with offsets [{each.start:,},{each.end:,}) are gone, which published batches took"
        where = f"{each.partition} in {source[each.partition.stream]}"
        yield Finding.of(Kind.VERIFY_INPUT, what, where, then, start=each.start, end=each.end)


def _has_moved(ledger: Ledger, published: Plan) -> bool:
    """Whether tables may have rows of another batch, or only some of those that were decided."""
    now = ledger.standing()
    decided = now.verdict is not None and now.open
    return now.published != published or decided or half(ledger.store, ledger.pipeline) is not None


def _why_not(only: Pipeline, write: Write, means: Meaning, taken: AllTaken, *, replaces: bool) -> str:
    """Why a table has no query over all records, or none that is computed here. Empty if it has."""
    if write.table not in taken.written:
        return "no batch has written it yet"
    if named := [step.name for step in only.steps if step.on_dataframes]:
        return f"{', '.join(named)} is a function on Spark's DataFrames, which is not run here"
    if replaces:
        if (wrote := taken.written[write.table]) != taken.published.batch:
            return f"batch {wrote} wrote it last, which is not the last one"
    elif means.rows is RowKind.OF_BATCH:
        return f"its rows are of a batch: {means.why} (step {means.step})"
    if changed := [stream.name for stream in only.streams if taken.changed_counts(stream)]:
        return f"the partition count of {', '.join(changed)} has changed since its first batch"
    if several := [stream.name for stream in only.streams if stream.table and len(each_of(stream.hash)) > 1]:
        return f"keys of {', '.join(several)} had other schemas, so a latest record may lie in either of two partitions"
    return ""


def _verified(
    only: Pipeline,
    write: Write,
    store: Store,
    taken: AllTaken,
    part: KeyPart,
    runner: Local,
    version: int | None,
    since: int,
    accepted: Sequence[int],
    compare: Compare,
) -> Difference | str:
    """How the rows of a table, those `since` a batch, differ from its query, but for what was `accepted` of others; or
    why this part of its keys cannot be told apart."""
    with TemporaryDirectory(prefix="coset-verify-") as place:
        scratch = store_at(f"file://{place}")
        ledger, plan = Ledger(scratch, only.name), _planned(only, scratch, taken, since)
        stage = _writing(plan)
        placement = _placement(stage, write.key)
        if part.of > 1 and placement is None:
            return "nothing places its rows by its key, so no part of its keys can be taken"
        if scheme := _finer(stage, part):
            plan = _planned(only, scratch, taken, since, {stage.name: scheme})
            stage = _writing(plan)
        plan = ledger.put_plan(_sampled(plan, stage, placement, part))
        for group in plan.groups:
            runner.group(BatchRef.of(scratch, plan), group.group)
        files = table_files(Attempt.of_open(ledger, plan), write.table)
        made = rows_of([ledger.uri(file.path) for file in files], table_schema(plan.writes()[0]))
        added = _LINEAGE - {column.name for column in plan.writes()[0].columns}
        of_table = since if write.mode.only_adds else 0
        with published_rows(only, write, store, version, of_table) as there, _taking(placement, part, added) as of_part:
            gone, come = rows_accepted(store, write, accepted, since, of_part)
            of_now, of_query = with_rows(of_part(there), gone), with_rows(of_part(made), come)
            found = compare(of_now, of_query, write.key, only.private)
            published, query = (rows - sum(map(len, gone)) for rows in found.rows)
            return replace(found, rows=(published, query))


@contextmanager
def published_rows(
    pipeline: Pipeline, write: Write, store: Store, version: int | None = None, since: int = 0
) -> Iterator[pa.RecordBatchReader]:
    """The rows of a table as `all_rows`; of a changelog those that have come and not gone."""
    step = pipeline.step_of(write.step)
    with (
        all_rows(store, write.table, version, since) as rows,
        netted(rows) if step and is_log(step) else nullcontext(rows) as left,
    ):
        yield left


def _writing(plan: Plan) -> Stage:
    """The stage that writes the only table."""
    return next(stage for stage in plan.stages if stage.writes)


def _finer(stage: Stage, part: KeyPart) -> Scheme | None:
    """The scheme by which the tasks of a part take no other records. None if they do not anyway, or cannot."""
    count = lcm(stage.cosets, part.of)
    is_placed = all(read.placement.hash != OPAQUE for read in stage.inputs)
    can_be = is_placed and stage.keeps_keys and not stage.partitioner and count <= _MOST_TASKS
    return tasks(count) if can_be and count > stage.cosets else None


def _planned(
    only: Pipeline, scratch: Store, taken: AllTaken, since: int, schemes: Mapping[str, Scheme] = MappingProxyType({})
) -> Plan:
    """The plan of one batch that reads all that the published batches took since one, at their watermarks."""
    found, last = taken.discovered(only), taken.published
    streams = tuple(taken.stream(stream, since) for stream in only.streams)
    plan = plan_arrived(
        only,
        streams,
        result_columns(only, found, scratch),
        settings=Settings(groups=1, accept_loss=taken.accepted, schemes=schemes),
        day_end=last.day_end,
        as_of=last.as_of,
        engine=engine(only.graph, [column for each in found for column in each.columns], None),
    )
    passed = {
        step.name: step.state.watermark.now
        for stage in last.stages
        for step in stage.steps
        if step.state and step.state.watermark
    }
    stages = (replace(stage, steps=tuple(_passing(step, passed) for step in stage.steps)) for stage in plan.stages)
    return with_code(with_columns(replace(plan, stages=tuple(stages))))


def _passing(step: Step, passed: Mapping[str, int | None]) -> Step:
    """The step, as if the watermark of the last batch had passed at once."""
    if not step.state or step.name not in passed:
        return step
    return replace(step, state=replace(step.state, watermark=TimePassed(None, passed[step.name])))


def _placement(stage: Stage, key: str) -> Placement | None:
    """How the keys of a table are hashed where its rows are made. None if that is not known."""
    placements = [read.placement for read in stage.inputs]
    found = next((each for each in placements if each.key == key), None)
    return found if found and found.hash != OPAQUE else None


def _sampled(plan: Plan, stage: Stage, placement: Placement | None, part: KeyPart) -> Plan:
    """The plan without the tasks that have no key of the part. Those that own no keys may have any."""
    if part.of == 1 or placement is None:
        return plan
    step = gcd(stage.cosets, part.of)
    mine = {
        task.task
        for task in stage.tasks
        if not task.owns or any(owned % step == part.residue % step for owned in task.owns)
    }
    groups = (_only(group, stage, mine) for group in plan.groups)
    return replace(plan, groups=tuple(group for group in groups if group.tasks))


def _only(group: TaskGroup, stage: Stage, mine: set[int]) -> TaskGroup:
    return replace(group, tasks=tuple(ref for ref in group.tasks if ref.stage != stage.name or ref.task in mine))


@contextmanager
def _taking(
    placement: Placement | None, part: KeyPart, added: Collection[str]
) -> Iterator[Callable[[pa.RecordBatchReader], pa.RecordBatchReader]]:
    """What takes the rows of a part of the keys, without the columns that Coset `added`."""
    parts = key_parts(placement.key) if placement else ()
    with making_keys(parts) if parts else nullcontext(None) as composed:

        def residues(batch: pa.RecordBatch) -> np.ndarray:
            assert placement is not None
            keys = composed(batch) if composed else batch.column(placement.key)
            hashes = placement_hashes(keys, placement.key_format, placement.hash) % part.of
            return np.where(np.asarray(pc.is_valid(keys)), hashes, 0)

        def taken(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
            schema = pa.schema([field for field in rows.schema if field.name not in added])
            mine = (batch.filter(pa.array(residues(batch) == part.residue)) if part.of > 1 else batch for batch in rows)
            return pa.RecordBatchReader.from_batches(schema, (batch.select(schema.names) for batch in mine))

        yield taken
