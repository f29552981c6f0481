"""Polars alone, on the files on the local disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.party import CORES, Left, Run, emptied
from bench.workload import WITHIN_SECONDS, Query, Workload

# Polars reads it when it is imported.
os.environ["POLARS_MAX_THREADS"] = str(CORES)

import polars as pl


@contextmanager
def streaming(workload: Workload) -> Iterator[Run]:
    """Polars' streaming engine."""

    def run(number: int, at: Workload) -> Callable[[], Left]:
        out = emptied(at.results) / "all.parquet"
        folders = [at.landed / topic.name for topic in at.topics]
        sides = [pl.scan_parquet(str(folder / "*" / "*.parquet"), hive_partitioning=False) for folder in folders]
        asked = _asked(at.query, sides[0], sides[-1])
        asked.sink_parquet(out, compression="zstd", engine="streaming")
        return lambda: Left([str(out)])

    yield run


def _asked(query: Query, left: pl.LazyFrame, right: pl.LazyFrame) -> pl.LazyFrame:
    match query:
        case Query.COUNTED | Query.BY_RECORDS:
            clicked = _counted(right, "clicks", "clicked")
            return _counted(left, "views", "viewed").join(clicked, on="key", how="full", coalesce=True)
        case Query.IN_TIME:
            near = (pl.col("time") - pl.col("time_right")).abs() <= pl.duration(seconds=WITHIN_SECONDS)
            both = (pl.col("amount") + pl.col("amount_right")).sum()
            met = left.drop("_offset").join(right.drop("_offset"), on="key").filter(near)
            return met.group_by("key").agg(pl.len().alias("pairs"), both.alias("paired"))
        case Query.MERGED:
            return _counted(pl.concat([each.select("key", "amount") for each in (left, right)]))
        case Query.HOT | Query.BY_SHARE:
            return _counted(left)
        case Query.HOT_JOINED:
            worth = (pl.col("amount") * pl.col("rate")).alias("worth")
            return left.join(right, on="key").select("key", "event", worth)
        case _:
            raise ValueError(query)


def _counted(records: pl.LazyFrame, count: str = "records", total: str = "amount") -> pl.LazyFrame:
    return records.group_by("key").agg(pl.len().alias(count), pl.col("amount").sum().alias(total))
