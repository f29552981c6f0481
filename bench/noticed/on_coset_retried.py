"""Coset: the join under a random salt on Spark, while an executor is killed that has run some of its tasks."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pyarrow as pa

from bench.noticed.on_coset import published
from bench.noticed.on_spark_retried import KILLED, MASTER, SALTS, brief, kill_an_executor, wait_for
from bench.noticed.outcome import Outcome, Run
from bench.noticed.topics import KEY, PARTITIONS, Topics
from coset.batches import steps
from coset.batches.runners.spark import Spark
from demo.s3_server import set_for_a_while
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.imports import ALLOWED

_FOLDER = "COSET_NOTICED"
_TABLE = "paid"
_AT_ONCE = 2
_ORDERS = {KEY: "VARCHAR", "order_id": "BIGINT", "salt": "INTEGER"}
_COPIES = {KEY: "VARCHAR", "payment_id": "BIGINT", "salt": "INTEGER"}
_ROWS = {KEY: "VARCHAR", "salt": "INTEGER", "order_id": "BIGINT", "payment_id": "BIGINT"}


@contextmanager
def by_function() -> Iterator[Run]:
    """The salt is a Python function."""
    with set_for_a_while({ALLOWED: __package__ or ""}):
        yield _run


def pipeline(folder: Path) -> Pipeline:
    """The join by customer and salt."""
    made = Pipeline(_TABLE, source=str(folder / "topics"))
    orders = made.stream("orders", key=KEY, partitions=PARTITIONS).process(salted, _ORDERS, name="salted")
    payments = made.stream("payments", key=KEY, partitions=PARTITIONS).process(copied, _COPIES, name="copied")
    sides = (side.rekey((KEY, "salt"), name=f"{side.step}.rekeyed") for side in (orders, payments))
    left, right = sides
    joined = left.join(right, "order_id, payment_id", name="joined")
    joined.process(held, _ROWS, key=KEY, name="held").write(_TABLE)
    return made


def salted(orders: pa.Table) -> pa.Table:
    """Orders, each with a random salt."""
    salts = [random.randrange(SALTS) for _ in range(orders.num_rows)]
    return orders.select([KEY, "order_id"]).append_column("salt", pa.array(salts, pa.int32()))


def copied(payments: pa.Table) -> pa.Table:
    """Payments, each with every salt."""
    one = payments.select([KEY, "payment_id"])
    copies = (one.append_column("salt", pa.array([salt] * one.num_rows, pa.int32())) for salt in range(SALTS))
    return pa.concat_tables(copies)


def held(rows: pa.Table) -> pa.Table:
    """The rows as they are: of the first two tasks at once, of the others after an executor was killed."""
    folder = Path(os.environ[_FOLDER])
    if _begun(folder) >= _AT_ONCE:
        wait_for(folder, KILLED)
    return rows.select(list(_ROWS))


def _begun(folder: Path) -> int:
    """How many tasks had begun before, marked by files."""
    for number in count():
        try:
            (folder / f"done-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return number
    raise AssertionError


def _run(topics: Topics, folder: Path) -> Outcome:
    """Join, while an executor is killed. Raises AssertionError if it was not, or if Spark retried nothing."""
    topics.land(folder / "topics")
    ref, _ = steps.plan(pipeline(folder), str(folder / "store"), Settings(groups=1))
    settings = {
        "spark.executor.memory": "512m",
        **brief(),
        f"spark.executorEnv.{_FOLDER}": str(folder),
    }
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_an_executor, folder)
        rows = published(ref, folder, Spark(MASTER, settings=settings))
        killing.result()
    # The two that had begun last waited, one in each executor: one of them was begun again.
    assert len(list(folder.glob("done-*"))) > PARTITIONS
    return Outcome.of(rows, topics.joined)
