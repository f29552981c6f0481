"""`python -m bench.discovery`: what it costs to find what is new among many landed files.

It starts an S3 server and lands files of one stream in it. It measures discovery in a process of its own: with nothing
published, with all but the newest files published, and with all of them.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.asked import BUCKET, SOURCE, file_of, land_views
from bench.measure import alone, measured
from coset.cli.output import Table, show
from coset.sources.landed import discover
from demo.s3_server import served
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.document import decode, encode
from partitioning.documents.stores import store_at
from partitioning.model.plan import Plan
from partitioning.model.read_ends import NOTHING
from partitioning.model.streams import Column, Discovered, DiscoveredPartition, InputFile
from partitioning.planning.planner import plan_batch
from partitioning.sections import size

PARTITIONS = 8
RECORDS = 10
COLUMNS = (Column("member", "VARCHAR"), Column("_offset", "BIGINT"))
# Reading all of more takes too long.
MOST_UNREAD = 50_000


@dataclass(frozen=True, slots=True)
class Figures:
    """One discovery: files found to read, seconds, and bytes of memory, added and total."""

    files: int
    seconds: float
    memory: int
    peak: int


def pipeline() -> Pipeline:
    made = Pipeline("counted", source=SOURCE)
    made.stream("views", key="member", partitions=PARTITIONS).aggregate("count(*) AS views").write("counted")
    return made


def figures(published: Path | None) -> Figures:
    """Discover what is new after the plan in this file."""
    plan = decode(Plan, published.read_bytes(), str(published)) if published else None
    with measured() as nothing:
        pass
    with measured() as cost:
        (found,) = discover(pipeline().streams, plan.ends if plan else NOTHING)
    files = sum(len(partition.files) for partition in found.partitions)
    return Figures(files, cost.wall, cost.memory - nothing.memory, cost.memory)


def main() -> int:
    """Land, measure, show the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000, help="so many files are landed")
    parser.add_argument("--new", type=int, default=100, help="so many of them after the last batch")
    asked = parser.parse_args()
    with TemporaryDirectory() as folder, served(Path(folder) / "s3", (BUCKET,)):
        _compare(asked.files, asked.new, Path(folder))
    return 0


def _compare(files: int, new: int, folder: Path) -> None:
    _land(0, files - new)
    (folder / "before.json").write_bytes(encode(_after(files - new)))
    _land(files - new, files)
    (folder / "after.json").write_bytes(encode(_after(files)))
    cases: dict[str, Path | None] = {
        f"all but {new:,} files": folder / "before.json",
        "all files": folder / "after.json",
    }
    if files <= MOST_UNREAD:
        cases = {"nothing": None, **cases}
    rows = []
    for case, plan in cases.items():
        took = alone(figures, plan)
        rows.append((case, f"{took.files:,}", f"{took.seconds:.1f}", size(took.memory), size(took.peak)))
    columns = ("published", "files to read", "seconds", "memory", "with libraries")
    show(Table(f"{files:,} files in {PARTITIONS} partitions", columns, rows))


def _after(files: int) -> Plan:
    """The plan of a batch that read the last of this many files in each partition, after batches that read the
    others."""
    store, partitions = store_at(SOURCE), []
    for number in range(files - PARTITIONS, files):
        partition, start = _place(number)
        entry = store.head(file_of(partition, start))
        assert entry is not None
        last = InputFile(f"{SOURCE}/{entry.key}", entry.size, entry.etag, start, start + RECORDS)
        partitions.append(DiscoveredPartition(partition, (last,)))
    found = Discovered("views", COLUMNS, tuple(sorted(partitions, key=lambda one: one.partition)))
    plan = plan_batch(pipeline(), [found], {"counted": COLUMNS[:1]})
    assert plan is not None
    return plan


def _land(first: int, end: int) -> None:
    def land(number: int) -> None:
        partition, start = _place(number)
        land_views(partition, start, [f"member-{offset % 7}" for offset in range(start, start + RECORDS)])

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(land, range(first, end)))


def _place(number: int) -> tuple[int, int]:
    """The partition and the first offset of a file."""
    return number % PARTITIONS, number // PARTITIONS * RECORDS


if __name__ == "__main__":
    sys.exit(main())
