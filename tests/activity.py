"""Views and clicks that are landed, planned and run by the kernel, task by task, and what that left."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coset.sources.landed import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import decode, digest, digest_of, encode
from partitioning.documents.store import Store
from partitioning.model.order import Order, order_of
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import MODULUS, Artefact, PartitionReceipt, Role, TaskReceipt, offset_digest
from partitioning.planning.planner import plan_batch
from spark_jobs.engine.kernel import Ran, run_orders
from spark_jobs.sql.column_check import check_sql
from tests.landed import land_table

VIEWS = pa.table({"k": [f"key-{n % 97}" for n in range(1500)], "v": list(range(1500))})
CLICKS = pa.table({"k": [f"key-{n % 131}" for n in range(900)], "c": [n * 7 % 100 for n in range(900)]})


def activity(source: str, lineage: bool = False, **options: Any) -> Pipeline:
    """Views and clicks, counted and summed by key, and met in a full join."""
    pipeline = Pipeline("activity", source=source)
    views = pipeline.stream("views", key="k", partitions=8, **options)
    clicks = pipeline.stream("clicks", key="k", partitions=12, **options)
    left = views.aggregate("count(*) AS views, sum(v) AS v")
    right = clicks.aggregate("count(*) AS clicks, sum(c) AS c")
    left.join(right, "views.views, views.v, clicks.clicks, clicks.c", how="full").write("activity", lineage=lineage)
    return pipeline


def land(source: str, views: pa.Table = VIEWS, clicks: pa.Table = CLICKS) -> None:
    """Land the records of both streams, each partition in two files."""
    land_table(views, "views", source, key="k", partitions=8, files=2)
    land_table(clicks, "clicks", source, key="k", partitions=12, files=2)


def plan_for(
    pipeline: Pipeline, scheme: str | None = None, limit: int | None = None, after: Plan | None = None
) -> Plan:
    """The plan of a batch over all that is landed, through its bytes."""
    found = discover(pipeline.streams)
    plan = plan_batch(
        pipeline,
        found,
        check_sql(pipeline, found),
        published=after,
        settings=Settings.parse(scheme=scheme, limit=limit),
    )
    assert plan is not None
    return decode(Plan, encode(plan), "a plan")


def order_for(plan: Plan, store: Store, stage: str, task: int = 0) -> Order:
    """The order as it is sent: through its bytes."""
    order = order_of(plan, digest(plan), TaskRef(stage, task), 0, store.root, {})
    return decode(Order, encode(order), "an order")


def run_all(plan: Plan, store: Store, memory: str = "1GB") -> list[TaskReceipt]:
    """Run every task of a plan."""
    return [ran.receipt for ran in ran_all(plan, store, memory)]


def ran_all(plan: Plan, store: Store, memory: str = "1GB") -> list[Ran]:
    """The same with the keys that each task sampled."""
    orders = [order_for(plan, store, stage.name, task.task) for stage in plan.stages for task in stage.tasks]
    return [ran for order in orders for ran in run_orders([order], memory=memory)]


def rows_of(store: Store, receipts: Sequence[TaskReceipt], table: str) -> list[tuple[object, ...]]:
    """The rows that tasks left for a table."""
    return list(
        chain.from_iterable(zip(*each.to_pydict().values(), strict=True) for each in files_of(store, receipts, table))
    )


def files_of(store: Store, receipts: Sequence[TaskReceipt], table: str) -> list[pa.Table]:
    """The files that tasks left for a table."""
    found = []
    for artefact in chain.from_iterable(receipt.left(Role.TABLE) for receipt in receipts):
        if artefact.name == table:
            assert artefact.path.startswith(f"tables/{table}/data/")
            found.append(_artefact(store, artefact))
    return found


def _artefact(store: Store, artefact: Artefact) -> pa.Table:
    """The rows of a file, which is as the receipt says."""
    entry, data = store.head(artefact.path), store.get(artefact.path)
    assert entry is not None
    assert data is not None
    assert (entry.size, entry.etag) == (artefact.size, artefact.etag)
    assert (len(data), digest_of(data)) == (artefact.size, artefact.digest)
    rows = pq.read_table(io.BytesIO(data))
    assert len(rows) == artefact.records
    return rows


def receipts_of(receipts: Sequence[TaskReceipt], stream: str) -> dict[int, list[PartitionReceipt]]:
    """What the tasks say of a stream, by partition."""
    found: dict[int, list[PartitionReceipt]] = {}
    for receipt in chain.from_iterable(each.partitions for each in receipts):
        if receipt.input == stream:
            found.setdefault(receipt.partition, []).append(receipt)
    return found


def assert_proved(plan: Plan, receipts: Sequence[TaskReceipt]) -> None:
    """Each planned offset taken or dropped by exactly one task, and nothing that offends."""
    for stream in plan.streams:
        for number, seen in receipts_of(receipts, stream.name).items():
            planned = plan.stream(stream.name).range(number)
            assert {each.read for each in seen} == {len(planned)}
            assert sum(each.taken + each.dropped for each in seen) == len(planned)
            expected = sum(offset_digest(offset) for offset in range(planned.start, planned.end)) % MODULUS
            assert sum(int(each.digest, 16) for each in seen) % MODULUS == expected
            assert not any((each.disorder, each.foreign, each.stray, each.offenders) != (0, 0, 0, ()) for each in seen)
