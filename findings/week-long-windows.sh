#!/bin/sh
# Where a window begins: DuckDB 2.0.1, Polars 2.1.0, PyArrow 26.0.1, pandas 3.1.1, for Friday, 27 November 2026, 10:00.
# Guess: windows of a fixed width count from 1970-01-01 everywhere (Thursdays), those named "week" from Mondays.
# Seen:  seven days begin on Thursday in Polars, PyArrow and pandas' floor, on Monday in DuckDB, and on the first record's day in pandas'
#        resample. Two weeks begin on 16 November in DuckDB and PyArrow, on the 23rd in Polars. Five hours begin at 10:00 in DuckDB,
#        which counts from 3 January 2000, and at 9:00 in the others. Only widths that divide a day are the same in all.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1 polars==2.1.0 pandas==3.1.1
cat > "$home/run.py" <<'PY'
from datetime import datetime

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.compute

AT = datetime(2026, 11, 27, 10)
of_arrow, of_polars = pyarrow.array([AT]), polars.Series([AT])


def bucket(width):
    return duckdb.sql(f"SELECT time_bucket(INTERVAL '{width}', TIMESTAMP '{AT}')").fetchall()[0][0]


def floored(many, unit):
    return pyarrow.compute.floor_temporal(of_arrow, many, unit)[0].as_py()


seen = {
    "7 days": {
        "duckdb": bucket("7 days"),
        "polars": of_polars.dt.truncate("7d")[0],
        "pyarrow": floored(7, "day"),
        "pandas floor": pandas.Timestamp(AT).floor("7D").to_pydatetime(),
        "pandas resample": pandas.Series([1], index=[pandas.Timestamp(AT)]).resample("7D").sum().index[0].to_pydatetime(),
    },
    "2 weeks": {"duckdb": bucket("14 days"), "polars": of_polars.dt.truncate("2w")[0], "pyarrow": floored(2, "week")},
    "5 hours": {"duckdb": bucket("5 hours"), "polars": of_polars.dt.truncate("5h")[0], "pyarrow": floored(5, "hour")},
    "6 hours": {"duckdb": bucket("6 hours"), "polars": of_polars.dt.truncate("6h")[0], "pyarrow": floored(6, "hour")},
}
told = {width: {name: f"{at:%a %d %H}" for name, at in each.items()} for width, each in seen.items()}
for width, each in told.items():
    print(width, each)
assert told == {
    "7 days": {
        "duckdb": "Mon 23 00", "polars": "Thu 26 00", "pyarrow": "Thu 26 00", "pandas floor": "Thu 26 00", "pandas resample": "Fri 27 00",
    },
    "2 weeks": {"duckdb": "Mon 16 00", "polars": "Mon 23 00", "pyarrow": "Mon 16 00"},
    "5 hours": {"duckdb": "Fri 27 10", "polars": "Fri 27 09", "pyarrow": "Fri 27 09"},
    "6 hours": {"duckdb": "Fri 27 06", "polars": "Fri 27 06", "pyarrow": "Fri 27 06"},
}, "it has changed"
PY
"$home/v/bin/python" "$home/run.py"
