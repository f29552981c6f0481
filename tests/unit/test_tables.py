"""What DuckDB gives is written in types that a Delta table holds and gives back, or refused by name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from coset.batches.tables.logs import check_storable
from partitioning.errors import Refused
from partitioning.model.graph import Write
from partitioning.model.plan import PlannedWrite
from partitioning.model.streams import Column
from spark_jobs.tables.table_schema import table_schema


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
