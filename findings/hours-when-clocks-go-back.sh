#!/bin/sh
# The hour of a record in the night of 25 October 2026, when Berlin's clocks go back at 03:00: DuckDB 2.0.1, DataFusion 55.0.0, Polars 2.1.0,
# pandas 3.1.1, PyArrow 26.0.1. Times have the zone; the hours are asked for in it.
# Guess: an hour is an hour in every engine, since whoever knows the zone knows both hours that are called 02; and no window begins after its record.
# Seen:  DuckDB's date_trunc puts 00:30 UTC into the hour that begins at 01:00 UTC: half an hour before that begins, together with the records of the next
#        hour, of which a GROUP BY then makes one of twice as many. pandas' and PyArrow's floor raise an error for the first such record. DuckDB's
#        time_bucket, DataFusion and Polars have two hours. At six hours DuckDB's time_bucket begins at 01:00 in summer, as it counts from a
#        winter's midnight, and at 02:00 without the zone's name; pandas, Polars and PyArrow begin at midnight.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 datafusion==55.0.0 polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1
cat > "$home/run.py" <<'PY'
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import datafusion
import duckdb
import pandas
import polars
import pyarrow
import pyarrow.compute

ZONE = "Europe/Berlin"
RECORDS = [datetime(2026, 10, 25, hour, 30, tzinfo=timezone.utc) for hour in (0, 1)]
of_arrow = pyarrow.array(RECORDS, pyarrow.timestamp("us", ZONE))
of_polars = polars.Series(RECORDS).dt.convert_time_zone(ZONE)
of_pandas = pandas.Series(RECORDS).dt.tz_convert(ZONE)
rows = pyarrow.table({"t": of_arrow})
connection = duckdb.connect()
connection.execute(f"SET TimeZone = '{ZONE}'")
context = datafusion.SessionContext()
context.register_record_batches("rows", [rows.to_batches()])


def by_duckdb(sql):
    return lambda: [at for (at,) in connection.sql(f"SELECT {sql} FROM rows").fetchall()]


def by_datafusion(sql):
    return lambda: context.sql(f"SELECT {sql} AS h FROM rows").to_arrow_table()["h"].to_pylist()


WAYS = {
    "duckdb date_trunc": by_duckdb("date_trunc('hour', t)"),
    "duckdb time_bucket": by_duckdb("time_bucket(INTERVAL '1 hour', t)"),
    "datafusion date_trunc": by_datafusion("date_trunc('hour', t)"),
    "polars truncate": lambda: of_polars.dt.truncate("1h").to_list(),
    "pandas floor": lambda: of_pandas.dt.floor("1h").to_list(),
    "pyarrow floor_temporal": lambda: pyarrow.compute.floor_temporal(of_arrow, 1, "hour").to_pylist(),
    "six hours: duckdb": by_duckdb("time_bucket(INTERVAL '6 hours', t)"),
    "six hours: duckdb, zone": by_duckdb(f"time_bucket(INTERVAL '6 hours', t, '{ZONE}')"),
    "six hours: polars": lambda: of_polars.dt.truncate("6h").to_list(),
    "six hours: pandas": lambda: of_pandas.dt.floor("6h").to_list(),
    "six hours: pyarrow": lambda: pyarrow.compute.floor_temporal(of_arrow, 6, "hour").to_pylist(),
}
seen = {}
for name, ask in WAYS.items():
    try:
        seen[name] = " ".join(f"{at.astimezone(timezone.utc):%H:%M}" for at in ask())
        shown = " ".join(f"{at.astimezone(ZoneInfo(ZONE)):%H:%M%z}" for at in ask())
    except (ValueError, pyarrow.ArrowException):
        seen[name] = shown = "refused"
    print(f"{name:24} {seen[name]} UTC, {shown}")
once, twice, midnight = "01:00 01:00", "00:00 01:00", "22:00 22:00"
assert seen == {
    "duckdb date_trunc": once, "duckdb time_bucket": twice, "datafusion date_trunc": twice, "polars truncate": twice,
    "pandas floor": "refused", "pyarrow floor_temporal": "refused", "six hours: duckdb": "00:00 00:00",
    "six hours: duckdb, zone": "23:00 23:00", "six hours: polars": midnight, "six hours: pandas": midnight, "six hours: pyarrow": midnight,
}, "it has changed"
PY
"$home/v/bin/python" "$home/run.py"
