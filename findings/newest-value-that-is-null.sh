#!/bin/sh
# The newest value of a key whose newest row has null: DuckDB 2.0.1, DataFusion 55.0.0, Polars 2.1.0, pandas 3.1.1, PyArrow 26.0.1.
# Guess: null, as arg_max and max_by give what the row with the greatest time has, and `last` what the last row has.
# Seen:  DuckDB's arg_max and its max_by, pandas' last and PyArrow's "last" pass over nulls: an address that was taken away is the one before it, so a row
#        made of several such columns never was. Null it is by DuckDB's arg_max_null and last(… ORDER BY), DataFusion's last_value, and Polars, whose max_by
#        has DuckDB's name. And a row whose time is null is the newest for DataFusion, pandas and PyArrow, and never for arg_max
#        or Polars.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 datafusion==55.0.0 polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1
cat > "$home/run.py" <<'PY'
import datafusion
import duckdb
import polars
import pyarrow

taken = pyarrow.table({"k": ["ann", "ann"], "at_day": [1, 2], "address": ["here", None]})
undated = pyarrow.table({"k": ["ann", "ann"], "at_day": [1, None], "address": ["here", "there"]})


def by_duckdb(sql):
    return lambda rows: duckdb.sql(f"SELECT {sql} FROM rows GROUP BY k").fetchall()[0][0]


def by_datafusion(sql):
    def ask(rows):
        context = datafusion.SessionContext()
        context.register_record_batches("rows", [rows.to_batches()])
        return context.sql(f"SELECT {sql} AS newest FROM rows GROUP BY k").to_pydict()["newest"][0]

    return ask


def by_pandas(rows):
    newest = rows.to_pandas().sort_values("at_day").groupby("k")["address"].last().iloc[0]
    return newest if isinstance(newest, str) else None


address = polars.col("address")
WAYS = {
    "duckdb arg_max": by_duckdb("arg_max(address, at_day)"),
    "duckdb max_by": by_duckdb("max_by(address, at_day)"),
    "duckdb arg_max_null": by_duckdb("arg_max_null(address, at_day)"),
    "duckdb last": by_duckdb("last(address ORDER BY at_day)"),
    "datafusion last_value": by_datafusion("last_value(address ORDER BY at_day)"),
    "polars max_by": lambda rows: polars.from_arrow(rows).group_by("k").agg(address.max_by("at_day")).item(0, 1),
    "polars sort_by, last": lambda rows: polars.from_arrow(rows).group_by("k").agg(address.sort_by("at_day").last()).item(0, 1),
    "pandas last": by_pandas,
    "pyarrow last": lambda rows: rows.sort_by("at_day").group_by("k", use_threads=False).aggregate([("address", "last")])["address_last"][0].as_py(),
}
seen = {name: (ask(taken), ask(undated)) for name, ask in WAYS.items()}
for name, (newest, of_undated) in seen.items():
    print(f"{name:22} the newest of here, null: {newest}; of here, and there at an unknown time: {of_undated}")
assert seen == {
    "duckdb arg_max": ("here", "here"),
    "duckdb max_by": ("here", "here"),
    "duckdb arg_max_null": (None, "here"),
    "duckdb last": (None, "there"),
    "datafusion last_value": (None, "there"),
    "polars max_by": (None, "here"),
    "polars sort_by, last": (None, "here"),
    "pandas last": ("here", "there"),
    "pyarrow last": ("here", "there"),
}, "it has changed"
PY
"$home/v/bin/python" "$home/run.py"
