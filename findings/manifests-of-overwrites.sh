#!/bin/sh
# How many manifests a snapshot of PyIceberg 0.12.0 lists after a table of one file was replaced 20 times.
# Guess: one or two, whichever call replaces it: a manifest that has no live file any more is left out, as Iceberg for Java leaves it out.
# Seen:  Table.overwrite and Table.upsert, which delete and then append, leave one. The change that can do both in one snapshot,
#        update_snapshot().overwrite(), leaves 21: the manifest of what a commit removed stays listed in every later snapshot.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q 'pyiceberg[pyarrow,sql-sqlite]==0.12.0' pyarrow==26.0.1
cd "$home"
cat > run.py <<'PY'
import os

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import parquet_file_to_data_file

catalog = SqlCatalog("it", uri=f"sqlite:///{os.getcwd()}/it.db", warehouse=f"file://{os.getcwd()}")
catalog.create_namespace("it")


def rows(number):
    return pa.table({"k": ["a"], "v": [number]})


def overwrite_files(table, number):
    """What a sink does that knows its files."""
    path = f"{os.getcwd()}/{number}.parquet"
    pq.write_table(rows(number), path)
    held = [task.file for task in table.scan().plan_files()]
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as change:
        for file in held:
            change.delete_data_file(file)
        change.append_data_file(parquet_file_to_data_file(table.io, transaction.table_metadata, path))


WAYS = {
    "Table.overwrite": lambda table, number: table.overwrite(rows(number)),
    "Table.upsert": lambda table, number: table.upsert(rows(number), join_cols=["k"]),
    "update_snapshot().overwrite": overwrite_files,
}
seen = {}
for name, replace in WAYS.items():
    names = {"schema.name-mapping.default": '[{"field-id": 1, "names": ["k"]}, {"field-id": 2, "names": ["v"]}]'}
    table = catalog.create_table(f"it.way{len(seen)}", rows(0).schema, properties=names)
    for number in range(21):
        replace(table, number)
    assert table.scan().to_arrow().to_pylist() == [{"k": "a", "v": 20}]
    listed = table.current_snapshot().manifests(table.io)
    alive = [each for each in listed if each.has_added_files() or each.has_existing_files()]
    seen[name] = len(listed), len(alive)
    print(f"{name}: {len(listed)} manifests, {len(alive)} of them with a live file")
assert seen == {"Table.overwrite": (1, 1), "Table.upsert": (1, 1), "update_snapshot().overwrite": (21, 1)}, "it has changed"
PY
"$home/venv/bin/python" run.py
