"""`python -m bench.in_time`: what it costs to change what is kept of many keys, and to join two streams in time.

Of Coset: running totals of all keys, which is also what a rebuild runs; batches of some keys, after which nothing
changed, with a new column that begins as 0, and with all totals migrated by an expression; two batches each without
`keep=`, with it while none expires, and with it when one key in a hundred does; a left join of ads with clicks, of
which one in a hundred never comes, in two batches: one that brings both, and one without a record that gives what found
no partner. Structured Streaming counts and joins the same, its state in RocksDB; it cannot migrate or rebuild a state,
but by a query that begins again. Both run in one process and from and to the disk, Coset with its proof and the checks
of Great Expectations. With `--page` the figures go into that page.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.figures import put
from bench.measure import Cost, measured
from bench.state import session
from coset.batches.interpreter import run_batch, silently
from coset.batches.runners.local import Local
from coset.batches.steps import plan
from coset.sources.landing import land_rows
from partitioning.authoring.pipeline import Pipeline
from partitioning.sections import size

_PARTITIONS = 8
# One of so many ads has no click.
_ALONE = 100
_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)
_NOON = datetime.fromisoformat("2026-01-05 12:00")
_LAST = 10_000
_TOUCHED = 10_000
_AMOUNT, _ORDERS = "sum(amount)::BIGINT AS amount", "sum(orders)::BIGINT AS orders"
_COUNTED = f"{_AMOUNT}, count(*) AS orders"
Row = tuple[str, float, float, int]
Change = tuple[str, Pipeline, pa.Table]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.in_time", description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temp:
        parts = (part(Path(temp), asked.keys) for part in (_totals, _joins, _spark))
        for row in chain.from_iterable(parts):
            rows.append(row)
            print(_line(row), flush=True)
    if asked.page:
        load = f"{os.getloadavg()[0]:.0f}"
        said = f"{asked.keys:,} keys, {os.cpu_count()} cores with a load of {load} while it ran:"
        head = ("| | CPU s | wall s | written |", "| --- | --: | --: | --: |")
        put(asked.page, "python -m bench.in_time", (said, "", *head, *map(_line, rows)))
    return 0


def _line(row: Row) -> str:
    name, cpu, wall, written = row
    return f"| {name} | {cpu:.1f} | {wall:.1f} | {size(written)} |"


def _row(name: str, cost: Cost, written: int) -> Row:
    return name, cost.cpu, cost.wall, written


def _totals(folder: Path, keys: int) -> Iterator[Row]:
    for name, pipeline, rows in chain(changes(folder / "totals", keys), _expiring(folder / "totals", keys)):
        land_rows(pipeline.streams[0], rows, "rows")
        yield _batch(f"Coset: {name}", pipeline, folder / "totals")


def changes(folder: Path, keys: int) -> Iterator[Change]:
    """What each batch is called, its pipeline, and what arrives before it."""
    for batch, (name, pipeline) in enumerate(_changes(folder)):
        users, random = _users(batch, keys)
        amount = pa.array(random.integers(0, 1000, len(users)))
        yield name, pipeline, pa.table({"user": _named("user-", users), "amount": amount})


def _changes(folder: Path) -> Iterator[tuple[str, Pipeline]]:
    yield "running totals of all keys, as in a rebuild", _pipeline(folder, _AMOUNT, _AMOUNT)
    yield f"totals of {_TOUCHED:,} keys", _pipeline(folder, _AMOUNT, _AMOUNT)
    begins = _pipeline(folder, _COUNTED, f"{_AMOUNT}, {_ORDERS}")
    begins.changed("totals", begins={"orders": 0})
    yield f"totals of {_TOUCHED:,} keys, a column begins", begins
    migrates = _pipeline(folder, _COUNTED, f"{_AMOUNT}, {_ORDERS}")
    migrates.changed("totals", migrate={"amount": "amount * 100"})
    yield f"totals of {_TOUCHED:,} keys, all totals are migrated", migrates


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
            name = f"{what}: {f'{_TOUCHED:,}' if batch else 'all'} keys"
            yield name, pipeline, pa.table({"user": _named("user-", users)} | seen)


def _users(batch: int, keys: int) -> tuple[np.ndarray, np.random.Generator]:
    random = np.random.default_rng(batch)
    return (random.integers(0, keys, _TOUCHED) if batch else np.arange(keys)), random


def _named(prefix: str, numbers: np.ndarray) -> pa.Array:
    return pa.array(np.char.add(prefix, numbers.astype("U8")).tolist())


def _joins(folder: Path, keys: int) -> Iterator[Row]:
    pipeline = Pipeline("pairs", source=folder / "pairs" / "topics")
    ads, clicks = (
        pipeline.stream(name, key="ad", partitions=_PARTITIONS, time="seen", late=_MINUTE) for name in ("ads", "clicks")
    )
    columns, times = "ads.seen, clicks.seen AS clicked", ("ads.seen", "clicks.seen")
    joined = ads.join_within(clicks, columns, times=times, within=30 * _MINUTE, how="left", name="joined")
    joined.write("joined")
    for name, some in (("both streams come", _records(keys)), ("both pass the time", _last())):
        for stream, rows in zip(pipeline.streams, some, strict=True):
            land_rows(stream, rows, "rows")
        yield _batch(f"Coset: left join, {name}", pipeline, folder / "pairs")
    yield _batch("Coset: left join, a batch without records gives what is alone", pipeline, folder / "pairs")


def _batch(name: str, pipeline: Pipeline, folder: Path) -> Row:
    before = _there(folder / "store")
    with measured() as cost:
        ref, said = plan(pipeline, f"file://{folder}/store")
        assert ref is not None, said
        with Local(processes=1, memory="4GB") as runner:
            run_batch(ref, runner, None, silently)
    return _row(name, cost, _new(folder / "store", before))


def _records(keys: int) -> tuple[pa.Table, pa.Table]:
    """All ads, and clicks on all but one in a hundred, one to ten minutes later."""
    random = np.random.default_rng(0)
    every = np.arange(keys)
    clicked = every[every % _ALONE != 0]
    return _of(every, np.zeros(keys, np.int64)), _of(clicked, random.integers(1, 10, len(clicked)))


def _last() -> tuple[pa.Table, pa.Table]:
    """Records of both a day later, in all partitions."""
    many = np.arange(_LAST)
    return (_of(-1 - many, np.full(_LAST, 1440)),) * 2


def _of(numbers: np.ndarray, minutes: np.ndarray) -> pa.Table:
    seen = np.datetime64(_NOON, "us") + minutes.astype("timedelta64[m]")
    return pa.table({"ad": _named("ad-", numbers), "seen": pa.array(seen, pa.timestamp("us"))})


def _spark(folder: Path, keys: int) -> Iterator[Row]:
    """The same totals and the same join, each in a query that is stopped after each batch, as Coset is."""
    with session() as spark:
        users = spark.readStream.schema("user string, amount long").parquet(str(_made(folder / "users")))
        pq.write_table(next(iter(changes(folder / "unused", keys)))[2], folder / "users" / "0.parquet")
        totals = users.groupBy("user").agg(f.sum("amount").alias("amount"))
        yield _query("Structured Streaming: running totals of all keys", totals, "update", folder / "of-totals")
        joined = _joined(spark, folder)
        for batch, (name, some) in enumerate((("both streams come", _records(keys)), ("both pass the time", _last()))):
            for stream, rows in zip(("ads", "clicks"), some, strict=True):
                pq.write_table(rows, folder / stream / f"{batch}.parquet")
            told = name if batch == 0 else f"{name}, and what is alone is given"
            yield _query(f"Structured Streaming: left join, {told}", joined, "append", folder / "of-pairs")


def _joined(spark: SparkSession, folder: Path) -> DataFrame:
    def read(name: str) -> DataFrame:
        rows = spark.readStream.schema("ad string, seen timestamp").parquet(str(_made(folder / name)))
        return rows.withWatermark("seen", "1 minute").select(
            f.col("ad").alias(f"{name}_ad"), f.col("seen").alias(f"{name}_seen")
        )

    near = (
        "ads_ad = clicks_ad AND clicks_seen BETWEEN ads_seen - INTERVAL 30 MINUTES AND ads_seen + INTERVAL 30 MINUTES"
    )
    return read("ads").join(read("clicks"), f.expr(near), "left")


def _query(name: str, rows: DataFrame, mode: str, folder: Path) -> Row:
    before = _there(folder)
    with measured() as cost:
        made = rows.writeStream.outputMode(mode)
        to = made.format("noop") if mode == "update" else made.format("parquet").option("path", f"{folder}/rows")
        running = to.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
        running.awaitTermination()
    return _row(name, cost, _new(folder, before))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _there(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def _new(folder: Path, before: set[Path]) -> int:
    """The bytes of new files."""
    return sum(path.stat().st_size for path in _there(folder) - before)


if __name__ == "__main__":
    raise SystemExit(main())
