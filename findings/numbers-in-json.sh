#!/bin/sh
# Whole numbers of 64 bits in JSON lines: DuckDB 2.0.1, PyArrow 26.0.1, Polars 2.1.0.
# Guess: a reader that infers types widens (HUGEINT, a decimal, text) or fails; none rounds a neighbour of the large number.
# Seen:  one value of 2^64 makes DuckDB's column DOUBLE, and another row's 9007199254740993 becomes ...992. PyArrow does so from 2^63 on.
#        DuckDB has HUGEINT for 2^63, so the loss begins one bit later than its tests of small data show. Polars has Int128 and loses nothing.
#        An unsigned id of a producer in Go or Rust is enough.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1 polars==2.1.0
cat > "$home/run.py" <<'PY'
import sys

import duckdb
import polars
import pyarrow.json

ODD = 2**53 + 1
seen = {}
for bits in (63, 64):
    path = f"{sys.argv[1]}/{bits}.json"
    with open(path, "w") as file:
        file.write(f'{{"id": {2**bits}}}\n{{"id": {ODD}}}\n')
    of_duckdb = duckdb.sql(f"SELECT id FROM read_json('{path}', format='newline_delimited')")
    of_arrow, of_polars = pyarrow.json.read_json(path)["id"], polars.read_ndjson(path)["id"]
    seen[bits] = {
        "duckdb": (str(of_duckdb.types[0]), int(of_duckdb.fetchall()[1][0]) == ODD),
        "pyarrow": (str(of_arrow.type), int(of_arrow[1].as_py()) == ODD),
        "polars": (str(of_polars.dtype), int(of_polars[1]) == ODD),
    }
for bits, each in seen.items():
    print(f"beside 2^{bits}:", {name: f"{kind}, {'exact' if exact else 'rounded'}" for name, (kind, exact) in each.items()})
assert seen == {
    63: {"duckdb": ("HUGEINT", True), "pyarrow": ("double", False), "polars": ("Int128", True)},
    64: {"duckdb": ("DOUBLE", False), "pyarrow": ("double", False), "polars": ("Int128", True)},
}, "it has changed"
PY
"$home/v/bin/python" "$home/run.py" "$home"
