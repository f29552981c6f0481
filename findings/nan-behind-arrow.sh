#!/bin/sh
# The same WHERE over the same rows, as a DuckDB table and as a PyArrow table that DuckDB scans: DuckDB 1.5.5 and 2.0.1, PyArrow 26.0.1.
# Guess: a scan of Arrow data is a way of reading; which rows pass is SQL's own answer in both.
# Seen:  DuckDB 1.5.5 hands comparisons over to PyArrow's scanner, which has another order of floats. So `k > 3` loses NaN (DuckDB's greatest
#        value), and `k IN (0.0, 5.0)` loses -0.0. A RecordBatchReader behaves as the PyArrow table does; a bare Arrow C stream is filtered
#        by DuckDB itself. 2.0.1 answers alike everywhere.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
cat > "$home/run.py" <<'PY'
import duckdb
import pyarrow

nan = float("nan")
rows = pyarrow.table({"k": [0.0, -0.0, nan, 5.0]})
duckdb.sql("CREATE TABLE own_rows AS FROM rows")
asked = {
    "k > 3": "FROM {own}rows WHERE k > 3",
    "k IN (0.0, 5.0)": "FROM {own}rows WHERE k IN (0.0, 5.0)",
}
seen = {name: tuple(len(duckdb.sql(sql.format(own=own)).fetchall()) for own in ("own_", "")) for name, sql in asked.items()}
for name, (own, scanned) in seen.items():
    print(f"{duckdb.__version__} {name:16} {own} rows of its own table, {scanned} of the same PyArrow table")
old = duckdb.__version__ == "1.5.5"
assert seen == {"k > 3": (2, 1 if old else 2), "k IN (0.0, 5.0)": (3, 2 if old else 3)}, "it has changed"
PY
for version in 1.5.5 2.0.1; do
    "$home/v/bin/pip" install --quiet --disable-pip-version-check "duckdb==$version" pyarrow==26.0.1
    "$home/v/bin/python" "$home/run.py"
done
