"""Orders as tasks on a Spark server, one each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:  # tasks import this module, and the client's part of Spark would take them seconds
    from pyspark.sql.connect.session import SparkSession

_ORDERS = pa.schema([("task", pa.int32()), ("order", pa.binary())])
_ANSWERS = pa.schema([("task", pa.int32()), ("answer", pa.binary())])
# Spark splits the rows that a client sends into so many tasks, but never a row: so each gets a task of its own.
_TASKS = ("spark.sql.leafNodeDefaultParallelism", str(2**31 - 1))


def run_orders(spark: SparkSession, orders: Sequence[bytes], answer: Callable[[bytes], bytes]) -> Sequence[bytes]:
    """Run orders as one job: a task is sent its order and no other's. Their answers; raises what Spark raises."""
    spark.conf.set(*_TASKS)
    columns = [pa.array(range(len(orders)), pa.int32()), pa.array(orders, pa.binary())]
    sent = spark.createDataFrame(pa.Table.from_arrays(columns, schema=_ORDERS))
    answered = sent.mapInArrow(partial(_answers, answer), "task int, answer binary").toArrow()
    answers: Sequence[bytes] = answered.sort_by("task")["answer"].to_pylist()
    return answers


def cores_of(spark: SparkSession) -> int:
    """How many tasks the server runs at once, by its own settings; 2 if they do not say, as Spark itself takes it."""
    master = spark.conf.get("spark.master", "") or ""
    if match := re.fullmatch(r"local\[(\d+)\]", master):
        return int(match[1])
    if master == "local[*]":
        return os.cpu_count() or 1
    return int(spark.conf.get("spark.default.parallelism", None) or spark.conf.get("spark.cores.max", None) or 2)


def _answers(answer: Callable[[bytes], bytes], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        answers = [answer(order) for order in batch["order"].to_pylist()]
        yield pa.RecordBatch.from_arrays([batch["task"], pa.array(answers, pa.binary())], schema=_ANSWERS)
