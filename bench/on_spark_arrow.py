"""PySpark's cogrouped functions on Arrow tables, on buckets of keys: a call for each key would cost far more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from bench.on_spark import asked_of_spark
from bench.party import Run
from bench.workload import WITHIN_SECONDS, Query, Workload

_BUCKETS = 64


@contextmanager
def cogrouped(workload: Workload) -> Iterator[Run]:
    """`cogroup().applyInArrow` after a shuffle of all records."""
    with asked_of_spark(workload, {}, answer=_answer) as run:
        yield run


def _answer(query: Query, views: DataFrame, clicks: DataFrame) -> DataFrame:
    bucket = f.pmod(f.hash("key"), f.lit(_BUCKETS))
    left, right = (each.withColumn("bucket", bucket).groupBy("bucket") for each in (views, clicks))
    columns = ", ".join(f"{name} long" for name in query.columns[1:])
    match query:
        case Query.COUNTED:
            function = _counted
        case Query.IN_TIME:
            function = _in_time
        case _:
            raise ValueError(query)
    return left.cogroup(right).applyInArrow(function, f"key string, {columns}")


def _counted(views: pa.Table, clicks: pa.Table) -> pa.Table:
    sums = [("amount", "count"), ("amount", "sum")]
    viewed = views.group_by("key").aggregate(sums).rename_columns(["key", "views", "viewed"])
    clicked = clicks.group_by("key").aggregate(sums).rename_columns(["key", "clicks", "clicked"])
    return viewed.join(clicked, "key", join_type="full outer")


def _in_time(views: pa.Table, clicks: pa.Table) -> pa.Table:
    names = ["key", "amount", "time"]
    met = views.select(names).join(clicks.select(names), "key", join_type="inner", right_suffix="_clicked")
    apart = pc.abs(pc.subtract(*(met[name].cast(pa.int64()) for name in ("time", "time_clicked"))))
    met = met.filter(pc.less_equal(apart, WITHIN_SECONDS * 1_000_000))
    both = pa.table({"key": met["key"], "amount": pc.add(met["amount"], met["amount_clicked"])})
    paired = both.group_by("key").aggregate([("amount", "count"), ("amount", "sum")])
    return paired.rename_columns(["key", "pairs", "paired"])
