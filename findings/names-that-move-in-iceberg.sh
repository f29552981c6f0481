#!/bin/sh
# Columns of an Iceberg table that are renamed, dropped and added: PyIceberg 0.12.0, rows by append and rows by add_files. PyArrow 26.0.1.
# Guess: Iceberg knows columns by numbers, so a new column is null in the rows that are there, whatever its name was before.
# Seen:  so it is where PyIceberg wrote the file. Files that add_files took have no numbers; the table's mapping of names stands in for them, and
#        a change of the schema writes it anew: a name goes over to the column that has it now. So a dropped column's values come back once its name
#        is given again, and where k was renamed to kk and a new k added, all values of kk are gone from kk and are k's. Both changes are right alone.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install --quiet --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1
cd "$home"
cat > run.py <<'PY'
import os

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType, StringType

catalog = SqlCatalog("lake", uri=f"sqlite:///{os.getcwd()}/lake.db", warehouse=f"file://{os.getcwd()}")
catalog.create_namespace("shop")
rows = pa.table({"k": ["a"], "v": [1]})
pq.write_table(rows, "rows.parquet")
seen = {}
for way in ("append", "add_files"):
    table = catalog.create_table(f"shop.{way}", rows.schema)
    table.append(rows) if way == "append" else table.add_files([f"{os.getcwd()}/rows.parquet"])

    def look(what):
        seen[way, what] = table.scan().to_arrow().to_pylist()[0]
        print(f"{way:9}  {what:25}", seen[way, what])

    with table.update_schema() as change:
        change.delete_column("v")
    look("v dropped")
    with table.update_schema() as change:
        change.add_column("v", LongType())
    look("another v added")
    with table.update_schema() as change:
        change.rename_column("k", "kk")
    look("k renamed to kk")
    with table.update_schema() as change:
        change.add_column("k", StringType())
    look("another k added")
    print(" " * 10, table.properties.get("schema.name-mapping.default", "no names are mapped"))
assert seen == {
    ("append", "v dropped"): {"k": "a"},
    ("append", "another v added"): {"k": "a", "v": None},
    ("append", "k renamed to kk"): {"kk": "a", "v": None},
    ("append", "another k added"): {"kk": "a", "v": None, "k": None},
    ("add_files", "v dropped"): {"k": "a"},
    ("add_files", "another v added"): {"k": "a", "v": 1},
    ("add_files", "k renamed to kk"): {"kk": "a", "v": 1},
    ("add_files", "another k added"): {"kk": None, "v": 1, "k": "a"},
}, "it has changed"
PY
"$home/venv/bin/python" -W ignore run.py 2> log || { cat log; exit 1; }
