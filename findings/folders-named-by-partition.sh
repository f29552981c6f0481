#!/bin/sh
# How Polars 2.1.0 reads a Delta table that is partitioned, and of which some files lie in folders named by their partition, others not. deltalake 1.6.6
# writes it. The protocol lets a file lie anywhere below the table: the log says its partition.
# Guess: scan_delta takes the partition from the log, as delta-rs does; where it does not, it gives null or a wrong value.
# Seen:  it takes it from the names of folders. Where none is named so it gives null for each row. Where some are, as after optimize.compact(), which names
#        its files so, it refuses the whole table, by ShapeError or SchemaFieldNotFoundError, also for columns that are not the partition's.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q deltalake==1.6.6 polars==2.1.0 pyarrow==26.0.1
cd "$home"
cat > run.py <<'PY'
import os

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, Schema
from deltalake.transaction import AddAction

schema = pa.schema([("n", pa.int64()), ("part", pa.int32())])
table = DeltaTable.create("table", Schema.from_arrow(schema), partition_by=["part"])


def add(name, part, values):
    pq.write_table(pa.table({"n": pa.array(values, pa.int64())}), f"table/{name}.parquet")
    size, stats = os.path.getsize(f"table/{name}.parquet"), '{"numRecords": %d}' % len(values)
    action = AddAction(f"{name}.parquet", size, {"part": str(part)}, 1, True, stats)
    DeltaTable("table").create_write_transaction([action], "append", table.schema(), partition_by=["part"])


def by_delta_rs():
    asked = QueryBuilder().register("t", DeltaTable("table")).execute("SELECT n, part FROM t ORDER BY n")
    return pa.table(asked.read_all()).to_pydict()


def by_polars(columns):
    try:
        return pl.scan_delta("table").select(columns).collect().sort("n").to_dict(as_series=False)
    except pl.exceptions.PolarsError as error:
        return type(error).__name__


for name, part, values in (("a", 0, [1, 2]), ("b", 0, [3]), ("c", 1, [4])):
    add(name, part, values)
print("no folder is named:", by_delta_rs(), by_polars(["n", "part"]))
assert by_polars(["n", "part"]) == {"n": [1, 2, 3, 4], "part": [None] * 4}, "it has changed"
DeltaTable("table").optimize.compact()
print("after compact:", by_delta_rs(), by_polars(["n", "part"]), by_polars(["n"]))
assert by_delta_rs() == {"n": [1, 2, 3, 4], "part": [0, 0, 0, 1]}
assert by_polars(["n"]) in {"ShapeError", "SchemaFieldNotFoundError"}, "it has changed"
PY
"$home/venv/bin/python" run.py
