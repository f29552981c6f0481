#!/bin/sh
# One WHERE over a Parquet file with 1.0 and NaN, and over the same rows in memory: DuckDB 2.0.1, DataFusion 55.0.0, PyArrow 26.0.1, Polars 2.1.0.
# Guess: bounds of a file's columns only leave out what no row of it can meet, so each engine answers alike in both.
# Seen:  writers leave NaN out of the bounds, so a file of 1.0 and NaN says that all is 1.0. DuckDB and DataFusion believe it: `v > 5` loses NaN,
#        which both have as the greatest value, and `v = 1` gives the rows with NaN too, as what has one value is not looked at. PyArrow loses
#        it from `v <> 1`. Polars is right, and so is DuckDB with files of its own, which have no bounds then, or with can_have_nan.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 datafusion==55.0.0 pyarrow==26.0.1 polars==2.1.0
cat > "$home/run.py" <<'PY'
import os
import sys

import datafusion
import duckdb
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet

os.chdir(sys.argv[1])
rows = pyarrow.table({"v": [1.0, float("nan")]})
pyarrow.parquet.write_table(rows, "arrow.parquet")
polars.from_arrow(rows).write_parquet("polars.parquet")
duckdb.sql("COPY rows TO 'duckdb.parquet'")
FILTERS = {
    "v > 5": pyarrow.dataset.field("v") > 5,
    "v = 1": pyarrow.dataset.field("v") == 1,
    "v <> 1": pyarrow.dataset.field("v") != 1,
}


def by_duckdb(source):
    return lambda sql, _: duckdb.sql(f"SELECT count(*) FROM {source} WHERE {sql}").fetchall()[0][0]


def by_datafusion(file):
    context = datafusion.SessionContext()
    context.register_parquet("t", file) if file else context.register_record_batches("t", [rows.to_batches()])
    return lambda sql, _: context.sql(f"SELECT count(*) AS n FROM t WHERE {sql}").to_pydict()["n"][0]


def by_arrow(source):
    return lambda _, where: pyarrow.dataset.dataset(source).to_table(filter=where).num_rows


def by_polars(frame):
    return lambda sql, _: frame.sql(f"SELECT v FROM self WHERE {sql}").collect().height


PARTIES = {
    "duckdb, in memory": by_duckdb("rows"),
    "duckdb": by_duckdb("'arrow.parquet'"),
    "duckdb, by polars": by_duckdb("'polars.parquet'"),
    "duckdb, by itself": by_duckdb("'duckdb.parquet'"),
    "duckdb, can_have_nan": by_duckdb("read_parquet('arrow.parquet', can_have_nan = true)"),
    "datafusion, in memory": by_datafusion(None),
    "datafusion": by_datafusion("arrow.parquet"),
    "pyarrow, in memory": by_arrow(rows),
    "pyarrow": by_arrow("arrow.parquet"),
    "polars, in memory": by_polars(polars.from_arrow(rows).lazy()),
    "polars": by_polars(polars.scan_parquet("arrow.parquet")),
}
seen = {name: tuple(ask(sql, where) for sql, where in FILTERS.items()) for name, ask in PARTIES.items()}
for name, counts in seen.items():
    print(f"{name:22}", *(f"{sql}: {count}" for sql, count in zip(FILTERS, counts)), sep="  ")
right, wrong = (1, 1, 1), (0, 2, 0)
assert seen == {
    "duckdb, in memory": right,
    "duckdb": wrong,
    "duckdb, by polars": wrong,
    "duckdb, by itself": right,
    "duckdb, can_have_nan": right,
    "datafusion, in memory": right,
    "datafusion": wrong,
    "pyarrow, in memory": (0, 1, 1),
    "pyarrow": (0, 1, 0),
    "polars, in memory": right,
    "polars": right,
}, "it has changed"
PY
"$home/v/bin/python" "$home/run.py" "$home"
