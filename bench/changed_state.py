"""`python -m bench.changed_state`: what it costs to change what a step keeps of many keys, and that keys expire.

The first batch has all keys; it is also what a rebuild from the first batch runs. The others have ten thousand each:
one after which nothing changed, one with a new column that begins as 0, and one in which all rows are migrated by an
expression. Then two such batches each without `keep=`, with it while none expires, and with it when one key in a
hundred does. In one process, without Spark, from and to a folder; with the proof and the checks of Great Expectations.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.measure import measured
from coset.batches.interpreter import run_batch, silently
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.steps import plan
from coset.cli.output import Table, show
from coset.sources.landing import land_rows
from partitioning.authoring.pipeline import Pipeline
from partitioning.model.artefact import Role
from partitioning.sections import size
from tests.running import task_receipts

_PARTITIONS = 8
_TOUCHED = 10_000
_AMOUNT, _ORDERS = "sum(amount)::BIGINT AS amount", "sum(orders)::BIGINT AS orders"
_COUNTED = f"{_AMOUNT}, count(*) AS orders"
_HOUR = timedelta(hours=1)
Change = tuple[str, Pipeline, pa.Table]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.changed_state", description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    keys, rows = parser.parse_args().keys, []
    with tempfile.TemporaryDirectory() as temp:
        for name, pipeline, landed in chain(changes(Path(temp, "changes"), keys), _expiring(Path(temp), keys)):
            land_rows(pipeline.streams[0], landed, "rows")
            with measured() as cost:
                ref, said = plan(pipeline, f"file://{temp}/store")
                assert ref is not None, said
                with Local(processes=1, memory="4GB") as runner:
                    run_batch(ref, runner, Path(temp, "docs"), silently)
            rows.append((name, f"{cost.cpu:.1f}", f"{cost.wall:.1f}", _written(ref)))
    show(Table(f"Changes of what is kept of {keys:,} keys", ("", "CPU s", "wall s", "state written"), rows))
    return 0


def changes(folder: Path, keys: int) -> Iterator[Change]:
    """What each batch is called, its pipeline, and what arrives before it."""
    for batch, (name, pipeline) in enumerate(_changes(folder)):
        users, random = _users(batch, keys)
        amount = pa.array(random.integers(0, 1000, len(users)))
        yield name, pipeline, pa.table({"user": _named(users), "amount": amount})


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
    orders.aggregate(parts).combine(columns, running=True, name="totals").to_stream().write("totals")
    return pipeline


def _expiring(folder: Path, keys: int) -> Iterator[Change]:
    """Of the first batch, one key in a hundred is two hours older than the others."""
    for number, (keep, what) in enumerate(((None, "no keep="), (3 * _HOUR, "none expires"), (_HOUR, "1 % expires"))):
        more: dict[str, Any] = {} if keep is None else {"time": "seen", "keep": keep}
        pipeline = Pipeline(f"kept-{number}", source=folder / f"topics-{number}")
        records = pipeline.stream("a", key="user", partitions=_PARTITIONS, time="seen").select("1::BIGINT AS n, seen")
        totals = records.combine("sum(n)::BIGINT AS n, max(seen) AS seen", running=True, name="totals", **more)
        totals.to_stream().write(f"kept-{number}")
        if more:
            totals.expired(name="ended").write(f"ended-{number}")
        for batch in range(2):
            users, _ = _users(batch, keys)
            seconds = np.where((users % 100 == 0) & (batch == 0), 0, 7_200)
            seen = {"seen": pa.array(seconds * 10**6, pa.timestamp("us"))}
            yield (
                f"{what}: {f'{_TOUCHED:,}' if batch else 'all'} keys",
                pipeline,
                pa.table({"user": _named(users)} | seen),
            )


def _users(batch: int, keys: int) -> tuple[np.ndarray, np.random.Generator]:
    random = np.random.default_rng(batch)
    return (random.integers(0, keys, _TOUCHED) if batch else np.arange(keys)), random


def _named(users: np.ndarray) -> pa.Array:
    return pa.array(np.char.add("user-", users.astype("U8")).tolist())


def _written(ref: BatchRef) -> str:
    """The rows and bytes of state that a batch wrote."""
    files = [file for task in task_receipts(ref) for file in task.left(Role.STATE)]
    return f"{sum(file.records for file in files):,} rows, {size(sum(file.size for file in files))}"


if __name__ == "__main__":
    raise SystemExit(main())
