"""The query of a table whose records DuckDB alone does not find: it says which tables to make, and runs over these."""

from __future__ import annotations

import duckdb
import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.explain.table_query import table_query
from partitioning.model.offsets import OffsetRange
from partitioning.planning.planner import plan_batch
from partitioning.values import replace
from tests.plans import COLUMNS, arrived


@pytest.mark.parametrize("source", ["kafka://broker:9092", "s3://landing"])
def test_of_a_topic_or_avro_files_a_table_is_to_be_made(source: str) -> None:
    pipeline = Pipeline("topics", source="s3://landing")
    clicks = pipeline.stream("clicks", key="tailnum", partitions=2, format="avro")
    clicks.latest("dep_delay", name="newest").write("newest", mode="upsert")
    plan = plan_batch(pipeline, [arrived("clicks", [2, 1])], {"newest": COLUMNS}, batch=0)
    assert plan is not None
    pipeline = pipeline.with_streams(lambda stream: replace(stream, source=source))
    query = table_query(pipeline, plan, "newest", [OffsetRange.parse("clicks-1@[0,1)")])
    assert f"-- {source}: make a table clicks of its records, with _partition and _offset" in query
    records = "('a', 1.0, 0, 0), ('a', 3.0, 0, 1), ('a', 5.0, 0, 2), ('b', 2.0, 1, 0)"
    with duckdb.connect() as alone:
        columns = "tailnum, dep_delay, _partition, _offset"
        alone.execute(f"CREATE TABLE clicks AS SELECT * FROM (VALUES {records}) AS made({columns})")
        # The third was not taken, and the last was left out as asked.
        assert alone.sql(query).fetchall() == [("a", 3.0)]
