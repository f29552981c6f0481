#!/bin/sh
# Decimals that are divided, averaged, multiplied and summed: DataFusion 55.0.0, DuckDB 2.0.1, Polars 2.1.0.
# Guess: a quotient of decimals is a decimal whose last digit is rounded, in each engine to its own number of digits; what is once a decimal is never a
#        double without a cast; and a sum that a type cannot hold is an error.
# Seen:  DataFusion cuts where it divides: 2/3 is 0.666666, the average of 1, 1, 3 is 1.666666, though a cast of it rounds; so three times an average is less
#        than the sum, always in one direction. By the literal 1.5 a decimal is multiplied as a double, 2.15 * 1.5 is 3.2249999999999996. Its sum of decimal(38, 0)
#        has 39 digits and goes on so. In DuckDB quotients and averages are doubles, products with 1.5 decimals. In Polars quotients are rounded, to eight digits.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check datafusion==55.0.0 duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1
cat > "$home/run.py" <<'PY'
from decimal import Decimal

import datafusion
import duckdb
import polars
import pyarrow


def column(digits, scale, *values):
    return pyarrow.table({"v": pyarrow.array(map(Decimal, values), pyarrow.decimal128(digits, scale))})


def by_datafusion(rows, sql):
    context = datafusion.SessionContext()
    context.register_record_batches("rows", [rows.to_batches()])
    return context.sql(f"SELECT {sql} AS v FROM rows").to_pydict()["v"][0]


def by_duckdb(rows, sql):
    return duckdb.sql(f"SELECT {sql} FROM rows").fetchall()[0][0]


def by_polars(rows, sql):
    return polars.from_arrow(rows).sql(f"SELECT {sql} AS v FROM self").item(0, 0)


CASES = {
    "v / 3": column(10, 2, "2.00"),
    "avg(v)": column(10, 2, "1.00", "1.00", "3.00"),
    "v * 1.5": column(10, 2, "2.15"),
    "sum(v)": column(38, 0, "9" * 38, "1"),
}
seen = {}
for sql, rows in CASES.items():
    for ask in (by_datafusion, by_duckdb, by_polars):
        try:
            seen[sql, ask.__name__] = repr(ask(rows, sql))
        except (duckdb.Error, polars.exceptions.PolarsError):
            seen[sql, ask.__name__] = "refused"
        print(f"{sql:8} {ask.__name__:14} {seen[sql, ask.__name__]}")
assert list(seen.values()) == [
    "Decimal('0.666666')", "0.6666666666666666", "Decimal('0.66666667')",
    "Decimal('1.666666')", "1.6666666666666667", "1.6666666666666665",
    "3.2249999999999996", "Decimal('3.225')", "Decimal('3.225')",
    f"Decimal('1{'0' * 38}')", "refused", "refused",
], "it has changed"
PY
"$home/v/bin/python" "$home/run.py"
