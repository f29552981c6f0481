"""What DuckDB gives is written in types that a Delta table gives back; and the query of a table that needs others."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from coset.batches.tables.logs import check_storable
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.explain.table_query import table_query
from partitioning.model.graph import Write
from partitioning.model.offsets import OffsetRange
from partitioning.model.plan import PlannedWrite
from partitioning.model.streams import Column
from partitioning.planning.planner import plan_batch
from partitioning.values import replace
from spark_jobs.tables.table_schema import table_schema
from tests.plans import COLUMNS, arrived


def planned(*types: str, lineage: bool = False) -> PlannedWrite:
    columns = tuple(Column(f"c{number}", kind) for number, kind in enumerate(types))
    return PlannedWrite(Write("delays", "joined", "c0", lineage, ()), columns)


@pytest.mark.parametrize(
    ("duckdb_type", "written"),
    [
        ("VARCHAR", pa.string()),
        ("BIGINT", pa.int64()),
        ("HUGEINT", pa.decimal128(38, 0)),
        ("DECIMAL(18,3)", pa.decimal128(18, 3)),
        ("BOOLEAN", pa.bool_()),
        ("DATE", pa.date32()),
        ("TIMESTAMP", pa.timestamp("us")),
        ("TIMESTAMP_S", pa.timestamp("us")),
        ("TIMESTAMP WITH TIME ZONE", pa.timestamp("us", "UTC")),
        ("UTINYINT", pa.int16()),
        ("UINTEGER", pa.int64()),
        ("UBIGINT", pa.decimal128(20, 0)),
        ("ENUM('a', 'b')", pa.string()),
        ("UUID", pa.string()),
        ("INTEGER[]", pa.list_(pa.int32())),
        ("STRUCT(a INTEGER, b VARCHAR)", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ],
)
def test_each_column_type_has_one_type_that_it_is_written_in(duckdb_type: str, written: pa.DataType) -> None:
    assert table_schema(planned(duckdb_type)).field("c0").type == written


def test_lineage_columns_come_last_and_only_where_asked_for() -> None:
    assert table_schema(planned("VARCHAR")).names == ["c0"]
    assert table_schema(planned("VARCHAR", lineage=True)).names == ["c0", "_batch", "_task"]


def test_every_type_that_a_table_cannot_hold_is_refused_at_once() -> None:
    with pytest.raises(Refused) as refusal:
        check_storable(planned("VARCHAR", "TIME", "INTERVAL", "TIMESTAMP_NS", "UTINYINT[]", "STRUCT(a TIMESTAMP_NS)[]"))
    assert [finding.what for finding in refusal.value.findings] == [
        "column 'c1' is TIME, which a Delta table cannot hold",
        "column 'c2' is INTERVAL, which a Delta table cannot hold",
        "column 'c3' is TIMESTAMP_NS, which a Delta table cannot hold",
        "column 'c4' is UTINYINT[], which a Delta table cannot hold",
        "column 'c5' is STRUCT(a TIMESTAMP_NS)[], which a Delta table cannot hold",
    ]


@pytest.mark.parametrize("source", ["kafka://broker:9092", "s3://landing"])
def test_of_a_topic_or_avro_files_a_table_is_to_be_made(source: str) -> None:
    pipeline = Pipeline("topics", source="s3://landing")
    clicks = pipeline.stream("clicks", key="tailnum", partitions=2, format="avro")
    clicks.latest("dep_delay", name="newest").write("newest", mode="upsert")
    plan = plan_batch(pipeline, [arrived("clicks", [2, 1])], {"newest": COLUMNS}, batch=0)
    assert plan is not None
    pipeline = pipeline.with_streams(lambda stream: replace(stream, source=source))
    query = table_query(pipeline.graph, plan, "newest", [OffsetRange.parse("clicks-1@[0,1)")])
    assert f"-- {source}: make a table clicks of its records, with _partition and _offset" in query
    records = "('a', 1.0, 0, 0), ('a', 3.0, 0, 1), ('a', 5.0, 0, 2), ('b', 2.0, 1, 0)"
    with duckdb.connect() as alone:
        columns = "tailnum, dep_delay, _partition, _offset"
        alone.execute(f"CREATE TABLE clicks AS SELECT * FROM (VALUES {records}) AS made({columns})")
        # The third was not taken, and the last was left out as asked.
        assert alone.sql(query).fetchall() == [("a", 3.0)]
