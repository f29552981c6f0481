#!/bin/sh
# What PyIceberg 0.12.0 does with Parquet files that have dates and times which Python's own types cannot be: BC, or after the year 9999.
# Guess: add_files registers a file whose columns it can read, whatever their values: bounds in a manifest are numbers of days or microseconds.
# Seen:  it makes Python values of the bounds first and raises OverflowError, for add_files as for append of the same rows from Arrow, so no
#        such row can come into a table. Without bounds (write.metadata.metrics.default = counts) both succeed, and a scan gives the values.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q 'pyiceberg[pyarrow,sql-sqlite]==0.12.0' pyarrow==26.0.1 duckdb==1.5.5
cd "$home"
cat > run.py <<'PY'
import os

import duckdb
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("it", uri=f"sqlite:///{os.getcwd()}/it.db", warehouse=f"file://{os.getcwd()}")
catalog.create_namespace("it")
CASES = {"bc": "DATE '0044-03-15 (BC)'", "far": "TIMESTAMP '12000-01-01'", "infinite": "TIMESTAMP 'infinity'"}
seen = {}
for name, value in CASES.items():
    duckdb.sql(f"COPY (SELECT {value} AS at) TO '{name}.parquet'")
    rows = pq.read_table(f"{name}.parquet")
    for metrics in ("truncate(16)", "counts"):
        for way in ("add_files", "append"):
            properties = {"write.metadata.metrics.default": metrics}
            table = catalog.create_table(f"it.{name}_{metrics[:6]}_{way}", rows.schema, properties=properties)
            try:
                table.add_files([f"{os.getcwd()}/{name}.parquet"]) if way == "add_files" else table.append(rows)
                said = "the same" if table.scan().to_arrow().equals(rows.cast(table.schema().as_arrow())) else "other rows"
            except Exception as error:
                said = type(error).__name__
            seen[name, metrics, way] = said
            print(f"{name}, {metrics}, {way}: {said}")
assert {said for (_, metrics, _), said in seen.items() if metrics == "truncate(16)"} == {"OverflowError"}, "it has changed"
assert {said for (_, metrics, _), said in seen.items() if metrics == "counts"} == {"the same"}, "it has changed"
PY
"$home/venv/bin/python" run.py
