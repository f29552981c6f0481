"""`python -m bench.changed_state`: what it costs to change what a step keeps of ten million keys.

The first batch has all keys; it is also what a rebuild from the first batch runs. The others have ten thousand each:
one after which nothing changed, one with a new column that begins as 0, and one in which all rows are migrated by an
expression. In one process, without Spark, from and to a folder; with the proof and the checks of Great Expectations.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.table import Table

from bench.measure import measured
from coset.batches.interpreter import run_batch
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.steps import plan
from coset.cli.output import console
from coset.sources.landing import land_rows
from partitioning.authoring.pipeline import Pipeline
from partitioning.model.artefact import Role
from partitioning.sections import size

_PARTITIONS = 8
_TOUCHED = 10_000
_AMOUNT, _ORDERS = "sum(amount)::BIGINT AS amount", "sum(orders)::BIGINT AS orders"
_COUNTED = f"{_AMOUNT}, count(*) AS orders"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.changed_state", description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    keys = parser.parse_args().keys
    table = Table(title=f"Changes of what is kept of {keys:,} keys")
    for name in ("", "CPU s", "wall s", "state written"):
        table.add_column(name, justify="left" if not name else "right")
    with tempfile.TemporaryDirectory() as temp:
        for name, pipeline, rows in changes(Path(temp), keys):
            land_rows(pipeline.streams[0], rows, "rows")
            with measured() as cost:
                ref = run_whole(pipeline, Path(temp))
            table.add_row(name, f"{cost.cpu:.1f}", f"{cost.wall:.1f}", written(ref))
    console(stderr=False).print(table)
    return 0


def changes(folder: Path, keys: int) -> Iterator[tuple[str, Pipeline, pa.Table]]:
    """What each batch is called, its pipeline, and what arrives before it."""
    for batch, (name, pipeline) in enumerate(_changes(folder)):
        random = np.random.default_rng(batch)
        users = random.integers(0, keys, _TOUCHED) if batch else np.arange(keys)
        named = pa.array(np.char.add("user-", users.astype("U8")).tolist())
        yield name, pipeline, pa.table({"user": named, "amount": pa.array(random.integers(0, 1000, len(users)))})


def _changes(folder: Path) -> Iterator[tuple[str, Pipeline]]:
    yield "all keys, as in a rebuild", _pipeline(folder, _AMOUNT, _AMOUNT)
    yield f"{_TOUCHED:,} keys", _pipeline(folder, _AMOUNT, _AMOUNT)
    begins = _pipeline(folder, _COUNTED, f"{_AMOUNT}, {_ORDERS}")
    begins.changed("totals", begins={"orders": 0})
    yield f"{_TOUCHED:,} keys, a column begins", begins
    migrates = _pipeline(folder, _COUNTED, f"{_AMOUNT}, {_ORDERS}")
    migrates.changed("totals", migrate={"amount": "amount * 100"})
    yield f"{_TOUCHED:,} keys, all rows are migrated", migrates


def _pipeline(folder: Path, parts: str, columns: str) -> Pipeline:
    pipeline = Pipeline("totals", source=folder / "topics")
    orders = pipeline.stream("a", key="user", partitions=_PARTITIONS)
    orders.aggregate(parts).combine(columns, running=True, name="totals").write("totals")
    return pipeline


def run_whole(pipeline: Pipeline, folder: Path) -> BatchRef:
    """Run and publish a batch in one process."""
    ref, said = plan(pipeline, f"file://{folder}/store")
    assert ref is not None, said
    with Local(processes=1, memory="4GB") as runner:
        run_batch(ref, runner, folder / "docs", _silently)
    return ref


def written(ref: BatchRef) -> str:
    """The rows and bytes of state that a batch wrote."""
    ledger, planned = ref.load()
    receipts = [ledger.receipt(planned.batch, 0, group.group) for group in planned.groups]
    files = [file for one in receipts if one for task in one.tasks for file in task.left(Role.STATE)]
    return f"{sum(file.records for file in files):,} rows, {size(sum(file.size for file in files))}"


@contextmanager
def _silently(_: str) -> Iterator[list[str]]:
    yield []


if __name__ == "__main__":
    raise SystemExit(main())
