"""Polars alone, on the files on the local disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import assert_never

from bench.party import CORES, Run, emptied
from bench.workload import WITHIN_SECONDS, Query, Workload

# Polars reads it when it is imported.
os.environ["POLARS_MAX_THREADS"] = str(CORES)

import polars as pl


@contextmanager
def streaming(workload: Workload) -> Iterator[Run]:
    """Polars' streaming engine."""

    def side(topic: str) -> pl.LazyFrame:
        return pl.scan_parquet(str(workload.landed / topic / "*" / "*.parquet"), hive_partitioning=False)

    def run(number: int) -> tuple[list[str], int]:
        out = emptied(workload.results("polars")) / "all.parquet"
        asked = _asked(workload.query, side("views"), side("clicks"))
        asked.sink_parquet(out, compression="zstd", engine="streaming")
        return [str(out)], 0

    yield run


def _asked(query: Query, views: pl.LazyFrame, clicks: pl.LazyFrame) -> pl.LazyFrame:
    amount = pl.col("amount").sum()
    match query:
        case Query.COUNTED:
            viewed = views.group_by("key").agg(pl.len().alias("views"), amount.alias("viewed"))
            clicked = clicks.group_by("key").agg(pl.len().alias("clicks"), amount.alias("clicked"))
            return viewed.join(clicked, on="key", how="full", coalesce=True)
        case Query.IN_TIME:
            near = (pl.col("time") - pl.col("time_right")).abs() <= pl.duration(seconds=WITHIN_SECONDS)
            both = (pl.col("amount") + pl.col("amount_right")).sum()
            met = views.drop("_offset").join(clicks.drop("_offset"), on="key").filter(near)
            return met.group_by("key").agg(pl.len().alias("pairs"), both.alias("paired"))
        case _:
            assert_never(query)
