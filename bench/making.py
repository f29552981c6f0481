"""The records of the workload, made once from a fixed seed, and Coset's pipelines over them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.workload import WITHIN_SECONDS, Query, Topic, Workload
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.stores import store_at
from spark_jobs.engine.hashing import placement_hashes

SOURCE = "s3://landing/topics"
STORE = "s3://coset"
_SEED = 20261121
_READY = ".ready"


def make(workload: Workload) -> None:
    """Write the files unless they exist."""
    if not (workload.landed / _READY).exists():
        random = np.random.default_rng(_SEED)
        keys = pa.array([f"user-{key:016x}" for key in random.integers(0, 2**63, workload.keys).tolist()])
        hashes = placement_hashes(keys, "string")
        for topic in workload.topics:
            _land(workload, topic, keys, hashes, random)
        (workload.landed / _READY).touch()


def upload(workload: Workload) -> None:
    """Copy the files to the environment's S3 server unless they exist."""
    store = store_at(SOURCE)
    if store.head(_READY) is None:
        with ThreadPoolExecutor(4) as pool:
            files = workload.files()
            list(pool.map(lambda file: store.put(str(file.relative_to(workload.landed)), file.read_bytes()), files))
        store.put(_READY, b"")


def _land(workload: Workload, topic: Topic, keys: pa.Array, hashes: np.ndarray, random: np.random.Generator) -> None:
    chosen = random.integers(0, len(keys), topic.records)
    amounts = random.integers(0, 10_000, topic.records)
    times = np.sort(random.integers(1_700_000_000_000_000, 1_700_086_400_000_000, topic.records))
    for partition in range(topic.partitions):
        mine = np.flatnonzero(hashes[chosen] % topic.partitions == partition)
        folder = workload.landed / topic.name / f"partition={partition}"
        folder.mkdir(parents=True, exist_ok=True)
        offset = 0
        for rows in np.array_split(mine, topic.files):
            table = pa.table(
                {
                    "key": keys.take(pa.array(chosen[rows])),
                    "amount": amounts[rows],
                    "time": pa.array(times[rows], pa.timestamp("us", "UTC")),
                    "_offset": np.arange(offset, offset + len(rows)),
                }
            )
            pq.write_table(table, folder / f"{topic.name}+{partition}+{offset:010}.parquet", compression="zstd")
            offset += len(rows)


def pipeline_for(query: Query = Query.COUNTED) -> Pipeline:
    """The pipeline that answers a query."""
    bench = Pipeline("bench", source=SOURCE)
    views = bench.stream("views", key="key", partitions=8)
    clicks = bench.stream("clicks", key="key", partitions=12)
    match query:
        case Query.COUNTED:
            viewed = views.aggregate("count(*) AS views, sum(amount)::BIGINT AS viewed")
            clicked = clicks.aggregate("count(*) AS clicks, sum(amount)::BIGINT AS clicked")
            columns = "views.views, views.viewed, clicks.clicks, clicks.clicked"
            viewed.join(clicked, columns, how="full").write("activity")
        case Query.IN_TIME:
            pairs = views.join_within(
                clicks,
                "views.amount + clicks.amount AS amount",
                times=("time", "time"),
                within=timedelta(seconds=WITHIN_SECONDS),
                name="met",
            )
            pairs.aggregate("count(*) AS pairs, sum(amount)::BIGINT AS paired").write("activity")
        case _:
            assert_never(query)
    return bench
