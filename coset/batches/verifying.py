"""Verifying: whether a published table is its query, computed in another way than its batches were.

All records that published batches have taken go through the pipeline once more, as one batch without any state, in a
folder that goes away; its rows are held against those of the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import gcd
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coset.batches.attempt import Attempt
from coset.batches.backfills.comparison.compared_rows import compared, rows_of
from coset.batches.balances import balance
from coset.batches.code import with_code
from coset.batches.ends import known_after
from coset.batches.planning import result_columns
from coset.batches.ref import BatchRef
from coset.batches.result_rows import table_files
from coset.batches.runners.local import Local
from coset.batches.tables.first_rows import all_rows
from coset.sources.composite_keys import making_keys
from coset.sources.discovery import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.commands import Run
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Difference
from partitioning.model.composite_key import key_parts
from partitioning.model.gaps import covers
from partitioning.model.graph import Step, Write
from partitioning.model.meaning import Meaning, RowKind, meanings
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.placement import OPAQUE, Placement
from partitioning.model.plan import Plan, Stage, TaskGroup
from partitioning.model.planned_streams import PlannedPartition, PlannedStream
from partitioning.model.read_ends import NOTHING
from partitioning.model.streams import Discovered, DiscoveredPartition, Stream
from partitioning.model.watermarks import TimePassed
from partitioning.packed_rows import PackedRows
from partitioning.planning.arrivals import planned_range
from partitioning.planning.planner import plan_arrived
from partitioning.values import replace
from spark_jobs.engine.hashing import placement_hashes
from spark_jobs.sql.engines import engine
from spark_jobs.sql.left_columns import with_columns
from spark_jobs.tables.table_schema import RESIDUE, table_schema

_LINEAGE = frozenset({"_batch", "_task", RESIDUE})
_PART = re.compile(r"([1-9]\d{0,5})/([1-9]\d{0,5})")


@dataclass(frozen=True, slots=True)
class KeyPart:
    """The keys of which h(key) mod `of` is `residue`: one part of a table in so many, exact for these keys."""

    residue: int = 0
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> KeyPart:
        """The part that `3/16`, the third of sixteen, means. Raises Refused for anything else."""
        if (found := _PART.fullmatch(text)) and int(found[1]) <= int(found[2]):
            return cls(int(found[1]) - 1, int(found[2]))
        then = "write which of how many parts: 1/16 is the first of sixteen, 16/16 the last"
        raise Refused.of(Kind.ARGUMENT, f"{text!r} is no part of the keys", "--sample", then, sample=text)

    def __str__(self) -> str:
        return f"{self.residue + 1}/{self.of}"


ALL = KeyPart()


@dataclass(frozen=True, slots=True)
class Verified:
    """What became of a table: how the rows of its query differ from those that are published, `rows[0]` published; or
    why this cannot be said of it."""

    table: str
    batch: int
    means: Meaning
    found: Difference | str

    @property
    def difference(self) -> Difference | None:
        return None if isinstance(self.found, str) else self.found


def verify(pipeline: Pipeline, store: Store, tables: Collection[str] = (), part: KeyPart = ALL) -> Iterator[Verified]:
    """Hold published tables against their queries, over the records that published batches took: all, or these.

    A table whose rows are of a batch by what they are has no such query. Nothing is stored. Raises Refused if nothing
    is published yet, with each stream partition of which records are gone that batches took, and as a batch does.
    """
    ledger, means = Ledger(store, pipeline.name), meanings(pipeline.graph)
    published = ledger.standing().published
    if published is None:
        what = "it has published nothing yet, so there is nothing to verify"
        where = f"pipeline {pipeline.name!r}"
        raise Refused.of(Kind.BATCH_UNPUBLISHED, what, where, Run(pipeline.name), pipeline=pipeline.name)
    writes = [write for write in pipeline.writes if not tables or write.table in tables]
    flows = {write.table: pipeline.up_to(write.step, write.table) for write in writes}
    read = {stream.name: stream for only in flows.values() for stream in only.streams}
    taken = _Taken(ledger, published, discover(tuple(read.values()), NOTHING))
    with Local() as runner:
        for write in writes:
            why_not = _why_not(flows[write.table], write, means[write.table], taken)
            found = why_not or _verified(flows[write.table], write, store, taken, part, runner)
            if isinstance(found, Difference) and not found.same and ledger.standing().published != published:
                found = "another batch was published meanwhile: verify it again"
            yield Verified(write.table, published.batch, means[write.table], found)


def _why_not(only: Pipeline, write: Write, means: Meaning, taken: _Taken) -> str:
    """Why a table has no query over all records, or none that is computed here. Empty if it has."""
    if write.table not in taken.written:
        return "no batch has written it yet"
    if named := [step.name for step in only.steps if step.on_dataframes]:
        return f"{', '.join(named)} is a function on Spark's DataFrames, which is not run here"
    if means.rows is RowKind.OF_BATCH:
        return f"its rows are of a batch: {means.why} (step {means.step})"
    if changed := [stream.name for stream in only.streams if taken.changed_counts(stream)]:
        return f"the partition count of {', '.join(changed)} has changed since its first batch"
    return ""


def _verified(
    only: Pipeline, write: Write, store: Store, taken: _Taken, part: KeyPart, runner: Local
) -> Difference | str:
    """How a table differs from its query, or why this part of its keys cannot be told apart."""
    with TemporaryDirectory(prefix="coset-verify-") as place:
        scratch = store_at(f"file://{place}")
        ledger, plan = Ledger(scratch, only.name), _planned(only, scratch, taken)
        stage = next(stage for stage in plan.stages if stage.writes)
        placement = _placement(stage, write.key)
        if part.of > 1 and placement is None:
            return "nothing places its rows by its key, so no part of its keys can be taken"
        plan = ledger.put_plan(_sampled(plan, stage, placement, part))
        for group in plan.groups:
            runner.group(BatchRef.of(scratch, plan), group.group)
        files = table_files(Attempt.of_open(ledger, plan), write.table)
        made = rows_of([ledger.uri(file.path) for file in files], table_schema(plan.writes()[0]))
        with all_rows(store, write.table) as there, _taking(placement, part) as of_part:
            return compared(of_part(there), of_part(made), write.key, only.private)


def _planned(only: Pipeline, scratch: Store, taken: _Taken) -> Plan:
    """The plan of one batch that reads all that the published batches took, at their watermarks."""
    found = taken.discovered(only)
    streams = tuple(taken.stream(stream, each) for stream, each in zip(only.streams, found, strict=True))
    if gone := [finding for each in streams for finding in taken.gone(each)]:
        raise Refused(*gone)
    last = taken.published
    plan = plan_arrived(
        only,
        streams,
        result_columns(only, found, scratch),
        settings=Settings(groups=1, accept_loss=taken.lost),
        day_end=last.day_end if isinstance(last.day_end, int) else None,
        as_of=last.as_of if isinstance(last.as_of, int) else None,
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


class _Taken:
    """What published batches have taken of each stream, and what of it is there."""

    def __init__(self, ledger: Ledger, published: Plan, found: Sequence[Discovered]) -> None:
        self.published = published
        self._ends = known_after(ledger, published).ends
        self._found = {each.stream: each for each in found}
        known = balance(ledger, published)
        self.lost = tuple(each.offsets for each in known.lost)
        self.written = frozenset(known.written)
        self._first = {stream.name: stream for stream in _first_plan(ledger, published).streams}
        self._starts = {each.offsets.partition: each.offsets.end for each in known.skipped}

    def discovered(self, only: Pipeline) -> tuple[Discovered, ...]:
        return tuple(self._found[stream.name] for stream in only.streams)

    def changed_counts(self, stream: Stream) -> bool:
        was = self._first.get(stream.name)
        return was is not None and was.declared.partitions != stream.partitions

    def stream(self, stream: Stream, found: Discovered) -> PlannedStream:
        """A stream with all that was taken of it."""
        ranges = [self._range(stream, partition) for partition in found.partitions[: stream.partitions]]
        partitions = PackedRows.of(PlannedPartition, ranges)
        columns = found.columns, partitions, found.lacking, found.required, found.topic
        return PlannedStream(stream, *columns, untyped=found.untyped)

    def _range(self, stream: Stream, partition: DiscoveredPartition) -> PlannedPartition:
        start = self._start(stream, partition)
        end = self._ends.end(stream.name, partition.partition)
        return planned_range(partition, start, start, max(end.end if end else start, start))

    def _start(self, stream: Stream, partition: DiscoveredPartition) -> int:
        """The first offset that a batch took."""
        asked = self._starts.get(StreamPartition(stream.name, partition.partition))
        first = self._first.get(stream.name)
        known = first.partitions if first and (not stream.table or stream.kept) else ()
        start = next((each.start for each in known if each.partition == partition.partition), partition.beginning)
        return start if asked is None else asked

    def gone(self, stream: PlannedStream) -> Iterator[Finding]:
        """A finding for each partition of which records are gone that batches took."""
        for partition in () if stream.declared.may_lack_offsets else stream.partitions:
            first = partition.files[0].start if partition.files else partition.end
            lost = OffsetRange(StreamPartition(stream.name, partition.partition), partition.start, first)
            if first > partition.start and not any(covers(loss, lost) for loss in self.lost):
                what = f"the records with offsets [{lost.start:,},{lost.end:,}) are gone, which published batches took"
                then = "restore these files; without them nobody can say what a table over all records is to have"
                where = f"{lost.partition} in {stream.declared.source}"
                yield Finding.of(Kind.VERIFY_INPUT, what, where, then, start=lost.start, end=lost.end)


def _first_plan(ledger: Ledger, published: Plan) -> Plan:
    """The first published plan."""
    befores = (ledger.published_before(batch) for batch in range(1, published.batch + 1))
    return next((plan for plan in befores if plan is not None), published)


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
    placement: Placement | None, part: KeyPart
) -> Iterator[Callable[[pa.RecordBatchReader], pa.RecordBatchReader]]:
    """What takes the rows of a part of the keys, without the columns that say where they were made."""
    parts = key_parts(placement.key) if placement else ()
    with making_keys(parts) if parts else nullcontext(None) as composed:

        def residues(batch: pa.RecordBatch) -> np.ndarray:
            assert placement is not None
            keys = composed(batch) if composed else batch.column(placement.key)
            hashes = placement_hashes(keys, placement.key_format, placement.hash) % part.of
            return np.where(np.asarray(pc.is_valid(keys)), hashes, 0)

        def taken(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
            schema = pa.schema([field for field in rows.schema if field.name not in _LINEAGE])
            mine = (batch.filter(pa.array(residues(batch) == part.residue)) if part.of > 1 else batch for batch in rows)
            return pa.RecordBatchReader.from_batches(schema, (batch.select(schema.names) for batch in mine))

        yield taken
