"""`python -m bench.planning`: plan up to 1,000 streams of 1,000 partitions as 100,000 tasks, and show what it costs.

Each size is planned in a process of its own: processor seconds of each part, peak memory, size of the document.
To reach: seconds for each partition stay the same whatever the size, memory stays below 1 GiB.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from bench.measure import alone, measured
from coset.cli.output import Table, show
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import decode, digest, encode, pack, unpack
from partitioning.explain.explain import explain
from partitioning.model.offsets import Span
from partitioning.model.plan import Plan
from partitioning.model.streams import Column, Discovered, DiscoveredPartition, InputFile
from partitioning.packed_rows import PackedRows
from partitioning.planning.planner import plan_batch

T = TypeVar("T")

SIZES = (125, 250, 500, 1000)
PARTITIONS = 1000
TASKS = 100
GROUPS = 64
_COLUMNS = (Column("key", "VARCHAR"), Column("value", "BIGINT"), Column("_offset", "BIGINT"))
_SETTINGS = Settings.parse(scheme=f"tasks({TASKS})", groups=GROUPS)


@dataclass(frozen=True, slots=True)
class Figures:
    """One batch of one size: processor seconds of each part, bytes of memory, of the document, and compressed."""

    streams: int
    batch: int
    tasks: int
    read: float
    plan: float
    store: float
    explain: float
    memory: int
    document: int
    packed: int


def figures(streams: int, batch: int, folder: Path) -> Figures:
    """Plan a batch of this many streams after the previous one, whose stored plan is in `folder`, and store it
    there."""
    pipeline, columns = _pipeline(streams), {f"counts-{number}": _COLUMNS[:2] for number in range(streams)}
    discovered = _discovered(streams, batch + 1)
    with measured() as cost:
        before, read = _timed(lambda: _published(folder, batch - 1) if batch else None)
        plan, planned = _timed(
            lambda: plan_batch(
                pipeline,
                discovered,
                columns,
                batch=batch,
                parent=digest(before) if before else None,
                published=before,
                settings=_SETTINGS,
            )
        )
        assert plan is not None
        size, stored = _timed(lambda: _store(plan, folder))
        _, explained = _timed(lambda: explain(plan, before))
    tasks = sum(len(stage.tasks) for stage in plan.stages)
    packed = (folder / f"{batch}.json.gz").stat().st_size
    return Figures(streams, batch, tasks, read, planned, stored, explained, cost.memory, size, packed)


def _published(folder: Path, batch: int) -> Plan:
    return decode(Plan, unpack((folder / f"{batch}.json.gz").read_bytes(), "bench"), "bench")


def _store(plan: Plan, folder: Path) -> int:
    """Store the plan; the size of its document before it is compressed."""
    data = encode(plan)
    (folder / f"{plan.batch}.json.gz").write_bytes(pack(data))
    return len(data)


def main() -> int:
    argparse.ArgumentParser(prog="python -m bench.planning", description=__doc__).parse_args()
    with TemporaryDirectory() as folder:
        measured_sizes = [alone(figures, size, batch, Path(folder)) for size in SIZES for batch in (0, 1)]
    parts = ("read the last s", "plan s", "store s", "explain s", "µs for each partition")
    columns = ("stream partitions", "tasks", "batch", *parts, "peak MiB", "document MB", "compressed MB")
    show(Table("Planning", columns, map(_row, measured_sizes), (__doc__ or "").split("\n")[2:4]))
    return 0


def _row(figures: Figures) -> list[object]:
    partitions = figures.streams * PARTITIONS
    parts = [figures.read, figures.plan, figures.store, figures.explain]
    sizes = [figures.memory / 2**20, figures.document / 1e6, figures.packed / 1e6]
    return [partitions, figures.tasks, figures.batch, *parts, sum(parts) / partitions * 1e6, *sizes]


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = time.process_time()
    return work(), time.process_time() - started


def _pipeline(streams: int) -> Pipeline:
    pipeline = Pipeline("wide", source="s3://landing/topics")
    for number in range(streams):
        flow = pipeline.stream(f"stream-{number}", key="key", partitions=PARTITIONS)
        flow.aggregate("count(*) AS value").write(f"counts-{number}")
    return pipeline


def _discovered(streams: int, arrivals: int) -> list[Discovered]:
    """Streams whose partitions each have this many arrivals of one file; all but the last were read."""
    return [
        Discovered(name, _COLUMNS, PackedRows.of(DiscoveredPartition, _arrived(name, arrivals)))
        for number in range(streams)
        for name in [f"stream-{number}"]
    ]


def _arrived(stream: str, arrivals: int) -> Iterator[DiscoveredPartition]:
    for partition in range(PARTITIONS):
        *before, new = _files(stream, partition, arrivals)
        yield DiscoveredPartition(partition, (new,), Span(0, new.start) if before else None)


def _files(stream: str, partition: int, arrivals: int) -> tuple[InputFile, ...]:
    folder = f"s3://landing/topics/{stream}/partition={partition}"
    records = 900 + partition % 200
    return tuple(
        InputFile(
            f"{folder}/{stream}+{partition}+{start:010}.parquet",
            40 * records,
            md5(f"{stream} {partition} {start}".encode(), usedforsecurity=False).hexdigest(),
            start,
            start + records,
        )
        for start in range(0, arrivals * records, records)
    )


if __name__ == "__main__":
    sys.exit(main())
