#!/bin/sh
# Text in files that delta-rs wrote, of which an Iceberg table lists two: deltalake 1.6.6, PyIceberg 0.12.0, PyArrow 26.0.1.
# Guess: a column of strings in Parquet is one type, so whoever reads one file of a Delta table reads all of them.
# Seen:  an append keeps `string` in the footer's ARROW:schema, an update writes `string_view`. PyIceberg lets each file have its own:
#        `to_arrow` and `to_pandas` refuse to merge them, `to_arrow_batch_reader` reads all rows, and `count` counts them.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 'pyiceberg[sql-sqlite,pandas]==0.12.0' pyarrow==26.0.1
cat > "$home/run.py" <<'PY'
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

home = sys.argv[1]
for rows in ({"k": ["a", "b"], "n": [1, 2]}, {"k": ["c"], "n": [3]}):
    write_deltalake(f"{home}/delta", pa.table(rows), mode="append")
delta = DeltaTable(f"{home}/delta")
delta.update(updates={"n": "n + 1"}, predicate="n = 3")
print(*sorted(str(pq.read_schema(uri.removeprefix("file://")).field("k").type) for uri in delta.file_uris()))
lake = SqlCatalog("lake", uri=f"sqlite:///{home}/lake.db", warehouse=f"file://{home}")
lake.create_namespace("shop")
table = lake.create_table("shop.rows", pa.schema([("k", pa.string()), ("n", pa.int64())]))
table.add_files(delta.file_uris())
scan = table.scan()
print("count", scan.count())
print("to_arrow_batch_reader", scan.to_arrow_batch_reader().read_all().num_rows)
for way in ("to_arrow", "to_pandas"):
    try:
        print(way, len(getattr(scan, way)()))
    except pa.ArrowTypeError as error:
        print(way, error)
PY
"$home/v/bin/python" "$home/run.py" "$home" > "$home/seen" 2> "$home/log" || { cat "$home/log"; exit 1; }
cat "$home/seen"
[ "$(sed 's/ Unable.*: / /' "$home/seen" | tr '\n' ';')" = "string string_view;count 3;to_arrow_batch_reader 3;to_arrow string_view vs \
string;to_pandas string_view vs string;" ] || { echo "it has changed"; exit 1; }
