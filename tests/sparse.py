"""A stream with missing offsets, landed in a store, and a pipeline that counts its records."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.store import Store
from partitioning.model.plan import Plan
from tests.landed import land_file
from tests.running import next_batch, run_and_publish

# What is landed of the only partition: two files with gaps in them, and one between them.
FIRST, SECOND = [0, 1, 4, 5, 9], [12, 13, 14, 20]


def counted(store: Store, offsets: str = "sparse", partitions: int = 1) -> Pipeline:
    made = Pipeline("counted", source=f"{store.root}/topics")
    views = made.stream("views", key="ad", partitions=partitions, offsets=offsets)
    views.aggregate("count(*) AS views, sum(n)::BIGINT AS n").write("counted")
    return made


def land(store: Store, offsets: list[int], keys: list[str] | None = None, partition: int = 0) -> str:
    ads = keys or [f"N{offset}" for offset in offsets]
    table = pa.table({"ad": ads, "n": pa.array(offsets, pa.int64())})
    return land_file(table, "views", f"{store.root}/topics", partition, offsets[0], offsets=offsets)


def planned(store: Store, made: Pipeline, settings: Settings = DEFAULTS) -> Plan:
    plan = preview(made, store, settings).plan
    assert plan is not None
    return plan


def published(store: Store, made: Pipeline, docs: Path, settings: Settings = DEFAULTS) -> BatchRef:
    ref = next_batch(made, store.root, settings)
    run_and_publish(ref, docs)
    return ref
