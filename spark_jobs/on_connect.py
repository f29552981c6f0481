"""Runs pieces of work on a Spark Connect server, each as a task."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:  # tasks import this module, and importing Spark's client takes seconds
    from pyspark.sql.connect.session import SparkSession

_ORDERS = pa.schema([("task", pa.int32()), ("order", pa.binary())])
_ANSWERS = pa.schema([("task", pa.int32()), ("answer", pa.binary())])
# Spark cuts the rows that a client sends into this many tasks. As it cuts no row, each row is a task.
_TASKS = ("spark.sql.leafNodeDefaultParallelism", str(2**31 - 1))


def run_orders(spark: SparkSession, orders: Sequence[bytes], answer: Callable[[bytes], bytes]) -> Sequence[bytes]:
    """Run `orders` as one Spark job with a task for each, and return their answers. Raises Spark's own errors."""
    spark.conf.set(*_TASKS)
    columns = [pa.array(range(len(orders)), pa.int32()), pa.array(orders, pa.binary())]
    sent = spark.createDataFrame(pa.Table.from_arrays(columns, schema=_ORDERS))
    answered = sent.mapInArrow(partial(_answers, answer), "task int, answer binary").toArrow()
    answers: Sequence[bytes] = answered.sort_by("task")["answer"].to_pylist()
    return answers


def cores_of(spark: SparkSession) -> int:
    """How many tasks the server runs at once, by its settings. The default is 2, as in Spark."""
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
