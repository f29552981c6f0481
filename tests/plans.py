"""Pipelines, arrivals and plans, and who takes which record by them, for tests of the core: no files, no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.model.plan import Plan, Stage
from partitioning.model.read_ends import Ends
from partitioning.model.reasons import GcdOf
from partitioning.model.schemes import COGROUP
from partitioning.model.statistics import Statistics
from partitioning.model.streams import Column, Discovered, DiscoveredPartition, InputFile
from partitioning.model.takes import Task, takes
from partitioning.model.task_engine import Engine
from partitioning.planning.planner import plan_batch
from partitioning.planning.returned import Earlier
from partitioning.planning.stages.draft import StateSnapshot

COLUMNS = (Column("tailnum", "VARCHAR"), Column("dep_delay", "DOUBLE"))
FILE_RECORDS = 100


def tails() -> Pipeline:
    """Flights in 12 partitions that meet planes in 8: the pipeline of the demo, without its select."""
    pipeline = Pipeline("tail_activity", source="s3://landing/topics")
    flights = pipeline.stream("flights", key="tailnum", partitions=12, null_keys="drop")
    planes = pipeline.table("planes", key="tailnum", partitions=8)
    flights.filter("dep_delay IS NOT NULL").join(planes, "flights.dep_delay", name="joined").write("tail_activity")
    return pipeline


def arrived(stream: str, ends: Sequence[int], beginning: int = 0) -> Discovered:
    """A stream whose partitions hold the offsets from `beginning` to `ends`, in files of a hundred, 10 bytes each."""
    return Discovered(stream, COLUMNS, tuple(_partition(number, beginning, end) for number, end in enumerate(ends)))


def plan_of(
    pipeline: Pipeline,
    found: Sequence[Discovered],
    *,
    batch: int = 0,
    parent: str | None = None,
    published: Plan | None = None,
    scheme: str | None = None,
    groups: int | None = None,
    limit: int | None = None,
    settings: Settings = DEFAULTS,
    statistics: Statistics | None = None,
    kept: StateSnapshot | None = None,
    ends: Ends | None = None,
    earlier: Earlier = lambda batch: None,
    engine: Engine | None = None,
    rows: Mapping[str, int] | None = None,
) -> Plan:
    """The plan of a batch that has something to do."""
    plan = plan_batch(
        pipeline,
        found,
        {write.table: COLUMNS for write in pipeline.writes},
        batch=batch,
        parent=parent,
        published=published,
        settings=Settings.parse(scheme=scheme, groups=groups, limit=limit, base=settings),
        statistics=statistics,
        kept=kept,
        ends=ends,
        earlier=earlier,
        engine=engine,
        rows=rows or {},
    )
    assert plan is not None
    return plan


def tails_found(flights: int = 250, planes: int = 100) -> list[Discovered]:
    """As many records in each partition of flights, and of planes."""
    return [arrived("flights", [flights] * 12), arrived("planes", [planes] * 8)]


def wide(tasks: int) -> Plan:
    """Flights and planes in as many partitions as there are tasks; each task has two partitions to read."""
    pipeline = Pipeline("tail_activity", source="s3://landing/topics")
    flights = pipeline.stream("flights", key="tailnum", partitions=tasks, null_keys="drop")
    planes = pipeline.table("planes", key="tailnum", partitions=tasks)
    flights.join(planes, "flights.dep_delay", name="joined").write("tail_activity")
    return plan_of(pipeline, [arrived("flights", [250] * tasks), arrived("planes", [100] * tasks)], groups=1)


def dealt_stage(name: str, cosets: int, owners: Sequence[tuple[int, ...]], cooling: tuple[int, ...] = ()) -> Stage:
    """A stage of which nothing matters but the residues that its tasks own."""
    tasks = tuple(Task(number, {}, owns=owned) for number, owned in enumerate(owners))
    return Stage(name, (), (), (), COGROUP, cosets, GcdOf((), cosets), given=False, tasks=tasks, cooling=cooling)


def takers(tasks: Sequence[Task], read: str, partition: int, h: int | None) -> list[int]:
    """The tasks that take a record in a partition of an input: with a key of hash h, or without one (None)."""
    return [task.task for task in tasks if takes(task, read, partition, h)]


def _partition(number: int, beginning: int, end: int) -> DiscoveredPartition:
    starts = range(beginning, end, FILE_RECORDS)
    files = ((start, min(start + FILE_RECORDS, end)) for start in starts)
    return DiscoveredPartition(
        number,
        tuple(
            InputFile(f"{number}+{start:010}.parquet", 10 * (stop - start), f"e{start}", start, stop)
            for start, stop in files
        ),
    )
