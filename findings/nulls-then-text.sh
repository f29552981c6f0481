#!/bin/sh
# A column of nulls in one Parquet file, text in the next: files by Polars 2.1.0, read by DuckDB 2.0.1, PyArrow 26.0.1, pandas 3.1.1, Polars.
# Guess: the order of files does not matter; a column without a value takes the type of the file that has one.
# Seen:  the first file decides. Nulls first: all four fail to read the second file's text, DuckDB with a cast to a type named "NULL".
#        Text first: all four read both. So the same folder is readable or not by the names of its files, and a topic whose optional column
#        was empty for its first hour cannot be read from its beginning. DuckDB's union_by_name, otherwise about missing columns, helps.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1 polars==2.1.0 pandas==3.1.1
cat > "$home/run.py" <<'PY'
import os
import sys

import duckdb
import pandas
import polars
import pyarrow.dataset

os.chdir(sys.argv[1])
polars.DataFrame({"v": [None]}).write_parquet("nulls.parquet")
polars.DataFrame({"v": ["x"]}).write_parquet("text.parquet")


def read(of, files):
    try:
        return sorted(map(str, of(files)))
    except Exception as error:
        return type(error).__name__


readers = {
    "duckdb": lambda files: [v for (v,) in duckdb.sql(f"SELECT v FROM read_parquet({files})").fetchall()],
    "duckdb, union_by_name": lambda files: [
        v for (v,) in duckdb.sql(f"SELECT v FROM read_parquet({files}, union_by_name = true)").fetchall()
    ],
    "pyarrow": lambda files: pyarrow.dataset.dataset(files).to_table()["v"].to_pylist(),
    "pandas": lambda files: pandas.read_parquet(files)["v"].astype(object).where(lambda v: v.notna(), None),
    "polars": lambda files: polars.scan_parquet(files).collect()["v"].to_list(),
}
both = {
    name: (read(of, ["nulls.parquet", "text.parquet"]), read(of, ["text.parquet", "nulls.parquet"])) for name, of in readers.items()
}
for name, (nulls_first, text_first) in both.items():
    print(f"{name:22} nulls first: {nulls_first}; text first: {text_first}")
right = ["None", "x"]
assert both == {
    "duckdb": ("ConversionException", right),
    "duckdb, union_by_name": (right, right),
    "pyarrow": ("ArrowNotImplementedError", right),
    "pandas": ("ArrowNotImplementedError", right),
    "polars": ("SchemaError", right),
}, "it has changed"
PY
"$home/v/bin/python" "$home/run.py" "$home"
