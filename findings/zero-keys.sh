#!/bin/sh
# Two zeros as a key: DuckDB 2.0.1, Polars 2.1.0, pandas 3.1.1, PyArrow 26.0.1.
# Guess: all of them group and join 0.0 with -0.0, and NaN with NaN, since SQL calls both equal.
# Seen:  PyArrow keeps the zeros apart (two groups, no match in a join) while it does match NaN with NaN, the one pair that IEEE 754 calls
#        unequal. All others have one zero. So a key of floats that PyArrow grouped before an engine joins it has two rows for one key.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1 polars==2.1.0 pandas==3.1.1
cat > "$home/run.py" <<'PY'
import duckdb
import polars
import pyarrow

keys = pyarrow.table({"k": [0.0, -0.0, float("nan"), float("nan")]})
other = keys.append_column("n", pyarrow.array([0, 1, 2, 3]))
seen = {
    "pyarrow": (keys.group_by("k").aggregate([]).num_rows, keys.join(other, "k", join_type="inner").num_rows),
    "polars": (
        polars.from_arrow(keys).unique().height,
        polars.from_arrow(keys).join(polars.from_arrow(other), on="k", nulls_equal=True).height,
    ),
    "pandas": (keys.to_pandas().groupby("k", dropna=False).ngroups, len(keys.to_pandas().merge(other.to_pandas(), on="k"))),
    "duckdb": (
        duckdb.sql("SELECT DISTINCT k FROM keys").arrow().read_all().num_rows,
        duckdb.sql("SELECT n FROM keys JOIN other USING (k)").arrow().read_all().num_rows,
    ),
}
for name, (groups, pairs) in seen.items():
    print(f"{name:8} {groups} groups, {pairs} joined pairs")
assert seen == {"pyarrow": (3, 6), "polars": (2, 8), "pandas": (2, 8), "duckdb": (2, 8)}, "it has changed"
PY
"$home/v/bin/python" "$home/run.py"
