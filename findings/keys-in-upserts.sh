#!/bin/sh
# Keys of PyIceberg 0.12.0's Table.upsert that are null, NaN, or one zero for the other. PyArrow 26.0.1.
# Guess: a key is what `=` says, or what IS NOT DISTINCT FROM says: -0.0 is 0.0 in both, so its row is replaced; a null or NaN finds its row, or none and is
#        inserted. One such key does not matter to the others.
# Seen:  -0.0 is inserted beside 0.0, which stays: the key has two rows, and a filter k = 0.0 finds both.
#        A single null or NaN among the keys is an error (TypeError, ValueError) and nothing is written, also where the column is optional and the table
#        has such rows by append. A row equal to what is there is not counted, but NaN over NaN is an update, each time; 0.0 over -0.0 is none.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1
cat > "$home/run.py" <<'PY'
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

home, nan = sys.argv[1], float("nan")
catalog = SqlCatalog("lake", uri=f"sqlite:///{home}/lake.db", warehouse=f"file://{home}")
catalog.create_namespace("shop")
schema = pa.schema([("k", pa.float64()), ("v", pa.float64())])


def rows(pairs):
    keys, values = zip(*pairs)
    return pa.table([pa.array(keys, pa.float64()), pa.array(values, pa.float64())], schema=schema)


def upserted(had, given):
    """How many rows are updated and inserted, twice, and what is there in the end."""
    table = catalog.create_table(f"shop.t{len(catalog.list_tables('shop'))}", schema)
    table.append(rows(had))
    counted = []
    for _ in range(2):
        try:
            did = table.upsert(rows(given), join_cols=["k"])
            counted.append((did.rows_updated, did.rows_inserted))
        except (TypeError, ValueError) as error:
            counted.append(type(error).__name__)
    return counted, sorted(str(tuple(row.values())) for row in table.scan().to_arrow().to_pylist()), len(table.scan("k = 0.0").to_arrow())


seen = {
    "zeros": upserted([(0.0, 1), (1.0, 1)], [(-0.0, 2), (1.0, 2)]),
    "null": upserted([(None, 1), (1.0, 1)], [(None, 2), (1.0, 2)]),
    "NaN": upserted([(nan, 1), (1.0, 1)], [(nan, 2), (1.0, 2)]),
    "NaN over NaN": upserted([(1.0, nan)], [(1.0, nan)]),
    "0.0 over -0.0": upserted([(1.0, -0.0)], [(1.0, 0.0)]),
}
for name, found in seen.items():
    print(name, *found, sep=": ")
assert seen == {
    "zeros": ([(1, 1), (0, 0)], ["(-0.0, 2.0)", "(0.0, 1.0)", "(1.0, 2.0)"], 2),
    "null": (["TypeError"] * 2, ["(1.0, 1.0)", "(None, 1.0)"], 0),
    "NaN": (["ValueError"] * 2, ["(1.0, 1.0)", "(nan, 1.0)"], 0),
    "NaN over NaN": ([(1, 0), (1, 0)], ["(1.0, nan)"], 0),
    "0.0 over -0.0": ([(0, 0), (0, 0)], ["(1.0, -0.0)"], 0),
}, "it has changed"
PY
"$home/v/bin/python" -W ignore "$home/run.py" "$home" 2> "$home/log" || { cat "$home/log"; exit 1; }
