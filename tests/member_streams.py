"""Streams of what members did, as examples of the docs have them; batches of them, and what DuckDB says of each."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from coset import Pipeline, Settings
from partitioning.authoring.settings import DEFAULTS
from partitioning.documents.store import Store
from partitioning.model.plan import Plan
from tests import asked_of_duckdb
from tests.asked_of_duckdb import Row, in_order
from tests.landed import land_table
from tests.real_batches import stored
from tests.running import run_and_publish_unjudged

Build = Callable[[Pipeline], object]
KEYS = {"b": "session", "d": "session"}


def records(stream: str, batch: int = 0) -> pa.Table:
    """The records of a stream in a batch: some members are in every stream, and one page has far more than others."""
    first = batch * 1000
    numbers = range(first, first + {"views": 260, "clicks": 190, "a": 180, "b": 60}.get(stream, 120))
    return pa.table(
        {
            "member": [f"member-{n * 7 % {'views': 53, 'clicks': 71}.get(stream, 41)}" for n in numbers],
            "session": [f"session-{n * 5 % 37}" for n in numbers],
            "page": [f"page-{n % 10 * (n % 3)}" for n in numbers],
            "v": pa.array(numbers, pa.int64()),
        }
    )


def ran(store: Store, build: Build, settings: Settings = DEFAULTS, batch: int = 0) -> Plan:
    """Land the records of a batch, plan and run it by these settings, and publish it."""
    pipeline = Pipeline("lines", source=f"{store.root}/topics")
    build(pipeline)
    for stream in pipeline.streams:
        key = KEYS.get(stream.name, "member")
        land_table(records(stream.name, batch), stream.name, pipeline.source, key=key, partitions=stream.partitions)
    ref = stored(store, pipeline, settings=settings)
    run_and_publish_unjudged(ref)
    return ref.load()[1]


def direct(sql: str, batches: int = 1) -> list[Row]:
    """The rows that DuckDB gives of the records of each batch, all together."""
    streams = ("views", "clicks", "logins", "a", "b", "c", "d")
    landed = ({stream: records(stream, batch) for stream in streams} for batch in range(batches))
    return in_order([row for tables in landed for row in asked_of_duckdb.direct(sql, **tables)])


def numbers_of_tasks(plan: Plan) -> list[int]:
    return [len(stage.tasks) for stage in plan.stages]


def counted(pipeline: Pipeline, partitions: int = 4) -> None:
    views = pipeline.stream("views", key="member", partitions=partitions)
    views.aggregate("count(*) AS n, sum(v)::BIGINT AS v", name="counted").write("t")


COUNTED = "SELECT member, count(*), sum(v) FROM views GROUP BY member"
