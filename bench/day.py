"""`python -m bench.day`: what a day of many batches costs, reckoned from what `bench.scale` counted of small ones.

It also opens a result table with as many files as such days leave, because a table's log is read as a whole.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from bench.measure import alone, measured
from coset.cli.output import Table, show
from coset.sources.s3 import storage_options


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests to S3, by their prices."""

    reads: float
    writes: float
    lists: float


@dataclass(frozen=True, slots=True)
class Counted:
    """The requests of a batch of so many tasks in so many groups, as `bench.scale` prints them."""

    tasks: int
    groups: int
    requests: Requests


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars, as Amazon listed them for us-east-1 on 2026-11-25. A processor is a vCPU of an m7i."""

    read: float = 0.0004 / 1000
    write: float = 0.005 / 1000
    list: float = 0.005 / 1000
    processor_hour: float = 0.0504


@dataclass(frozen=True, slots=True)
class Day:
    """A day: bytes of landed files, and the batches, tasks and groups that read them. A task has one file in each."""

    bytes: float = 10e12
    tasks: int = 10_000
    batches: int = 24
    groups: int = 1_000
    row_group: float = 128e6


# The first batch of `python -m bench.scale --tasks … --groups … --batches 1`, on 2026-11-26.
COUNTED = (
    Counted(40, 40, Requests(226, 140, 14)),
    Counted(100, 10, Requests(256, 140, 14)),
    Counted(1_000, 100, Requests(2_326, 1_220, 23)),
)
# CPU seconds: of the work with its proof, for each byte of landed files (15 million records of `make bench`); what a
# task costs beside that, in its process and in the driver (`bench.scale` with 10,000 tasks); what submitting an
# application of Spark's costs.
WORK, TASK, DRIVER, SUBMIT = 3.81 / 279e6, 0.048, 0.012, 10.0


# So many more reads a landed file of more than 4 MiB takes, with one row group: its size and etag, twice, and the
# footer and the row group apart.
_LARGE = 4


def fitted(counted: Sequence[Counted] = COUNTED) -> tuple[Requests, Requests, Requests]:
    """The requests of any batch, of each group, and of each task: by three batches that were counted."""
    sizes = np.array([[1, one.groups, one.tasks] for one in counted], float)
    seen = np.array([[getattr(one.requests, field.name) for field in fields(Requests)] for one in counted], float)
    batch, group, task = (Requests(*map(float, row)) for row in np.linalg.solve(sizes, seen))
    return batch, group, task


def requests(tasks: int, groups: int, row_groups: int = 0) -> Requests:
    """The requests of a batch. A task fetches its file as a whole; a large one by row groups."""
    beside = row_groups - 1 + _LARGE if row_groups else 0
    parts = [*zip(fitted(), (1, groups, tasks), strict=True), (Requests(1, 0, 0), tasks * beside)]
    return Requests(*(sum(getattr(one, field.name) * n for one, n in parts) for field in fields(Requests)))


def reckoned(day: Day, prices: Prices) -> list[tuple[str, str, str, str]]:
    """Rows of what a batch and a day ask for, and of what a day costs."""
    file = day.bytes / day.batches / day.tasks
    asked = requests(day.tasks, day.groups, int(-(-file // day.row_group)))
    seconds = {
        "CPU s of the work itself, with its proof": day.bytes / day.batches * WORK,
        "CPU s to start and end tasks": day.tasks * TASK,
        "CPU s to plan, judge and publish, in one process": day.tasks * DRIVER,
        "CPU s to submit each group by itself": day.groups * SUBMIT,
    }
    rows = [("bytes of a file", f"{file / 1e6:,.1f} MB", f"{day.bytes / 1e12:,.1f} TB", "")]
    for name, price in (("reads", prices.read), ("writes", prices.write), ("lists", prices.list)):
        count = getattr(asked, name)
        rows.append((name, f"{count:,.0f}", f"{count * day.batches:,.0f}", f"{count * day.batches * price:,.2f} $"))
    for name, spent in seconds.items():
        money = spent * day.batches / 3600 * prices.processor_hour
        rows.append((name, f"{spent:,.0f}", f"{spent * day.batches:,.0f}", f"{money:,.2f} $"))
    return rows


COLUMNS = ("what", "a batch", "a day", "money a day")


def main() -> int:
    """Show what a day costs, and what it is to open a table with the files of some days."""
    parser = argparse.ArgumentParser(description=__doc__)
    day, prices = Day(), Prices()
    for default in (asdict(day), asdict(prices)):
        for name, value in default.items():
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    asked = vars(parser.parse_args())
    day = Day(**{field.name: asked[field.name] for field in fields(day)})
    prices = Prices(**{field.name: asked[field.name] for field in fields(prices)})
    title = f"{day.batches} batches a day, {day.tasks:,} tasks in {day.groups:,} groups each"
    show(Table(title, COLUMNS, reckoned(day, prices)))
    with TemporaryDirectory() as folder:
        row = _table_of(Path(folder) / "table", day)
    show(Table("A table with the files of a day", ("files", "log", "memory to open it", "seconds"), [row]))
    return 0


def _table_of(where: Path, day: Day) -> tuple[str, ...]:
    """What it is to open a table to which each task of each batch has added a file, in a process of its own."""
    made = DeltaTable.create(
        where, Schema.from_arrow(pa.schema([("n", pa.int64())])), storage_options=storage_options()
    )
    for batch in range(day.batches):
        files: list[AddAction | RemoveAction] = [
            AddAction(
                f"data/plan-{batch}/attempt-0-0123abcd/views-{task}.parquet", 1000, {}, 0, True, '{"numRecords":9}'
            )
            for task in range(day.tasks)
        ]
        made.create_write_transaction(files, "append", made.schema())
    opened_in, seconds = alone(_open, where)
    log = sum(file.stat().st_size for file in where.rglob("*.json"))
    return f"{day.batches * day.tasks:,}", f"{log / 1e6:,.0f} MB", f"{opened_in / 1e6:,.0f} MB", f"{seconds:.1f}"


def _open(where: Path) -> tuple[int, float]:
    """The memory and the seconds that it takes."""
    with measured() as before:
        pass
    with measured() as cost:
        DeltaTable(where)
    return cost.memory - before.memory, cost.wall


if __name__ == "__main__":
    raise SystemExit(main())
