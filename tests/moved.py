"""Pipelines whose records move between tasks, planned and published over a few streams."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

import pyarrow as pa

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from tests import asked_of_duckdb
from tests.landed import land_table

# Keys that all have, keys that only some have, and records without a key.
RECORDS = {
    "views": pa.table(
        {
            "k": [f"key-{n % 67}" if n % 50 else None for n in range(300)],
            "page": [f"page-{n * 11 % 23}" if n % 37 else None for n in range(300)],
            "v": list(range(300)),
        }
    ),
    "clicks": pa.table(
        {
            "k": [f"key-{n % 83 + 20}" for n in range(250)],
            "page": [f"page-{n % 17}" for n in range(250)],
            "v": [n * 7 % 100 for n in range(250)],
        }
    ),
    "sales": pa.table(
        {
            "shop": [f"shop-{n % 9}" for n in range(40)],
            "k": [f"key-{n * 5 % 71}" if n % 13 else None for n in range(40)],
            "v": list(range(40)),
        }
    ),
}
KEYS = {"views": "k", "clicks": "k", "sales": "shop"}
PARTITIONS = {"views": 8, "clicks": 6, "sales": 4}
Build = Callable[..., Flow]


def planned_over(store: Store, build: Build) -> Pipeline:
    """The pipeline, over streams that have landed."""
    source = f"{store.root}/topics"
    pipeline = Pipeline("moved", source=source)
    streams = signature(build).parameters
    for name in streams:
        land_table(RECORDS[name], name, source, key=KEYS[name], partitions=PARTITIONS[name])
    declared = (
        pipeline.stream(name, key=KEYS[name], partitions=PARTITIONS[name], null_keys="own task") for name in streams
    )
    build(*declared).to_stream().write("t")
    return pipeline


def direct(sql: str) -> list[asked_of_duckdb.Row]:
    return asked_of_duckdb.direct(sql, **RECORDS)
