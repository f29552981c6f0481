#!/bin/sh
# A Delta table partitioned by a column of bytes, or of text: deltalake 1.6.6 (delta-rs) writes it and reads it, PyArrow 26.0.1.
# Guess: who writes a partition's value reads the same value, and both of the library's readers, to_pyarrow_table and QueryBuilder, agree.
# Seen:  the bytes "a" are written into the log as the six characters \u0061, and read as these six bytes by both: the value has changed, and
#        a filter by it finds nothing. Empty text, and empty bytes, are null to to_pyarrow_table, as the protocol says, and empty to
#        QueryBuilder; so `k IS NULL` has two answers in one library. As columns without partitions all of them come back.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
cat > "$home/run.py" <<'PY'
import json
import os
import sys

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

os.chdir(sys.argv[1])


def asked(table, sql):
    return pa.table(QueryBuilder().register("t", DeltaTable(table)).execute(sql).read_all()).to_pydict()


seen = {}
for name, values in {"bytes": pa.array([b"a", b"", None]), "text": pa.array(["a", "", None])}.items():
    for how, partitioned in {"by": ["k"], "plain": None}.items():
        table = f"{name}-{how}"
        write_deltalake(table, pa.table({"k": values, "n": [0, 1, 2]}), partition_by=partitioned)
        rows = DeltaTable(table).to_pyarrow_table().sort_by("n")["k"].to_pylist()
        where = "k = X'61'" if name == "bytes" else "k = 'a'"
        found = [asked(table, f"SELECT n FROM t WHERE {sql} ORDER BY n")["n"] for sql in (where, "k IS NULL")]
        seen[table] = (rows, asked(table, "SELECT k FROM t ORDER BY n")["k"], *found)
        print(f"{table:12} to_pyarrow_table {rows}, QueryBuilder {seen[table][1]}; {where} in {found[0]}, k IS NULL in {found[1]}")
with open(f"bytes-by/_delta_log/{0:020}.json") as log:
    written = sorted(json.loads(line)["add"]["partitionValues"]["k"] or "" for line in log if '"add"' in line)
print("in the log:", written)
assert written == ["", "", "\\u0061"], "it has changed"
assert seen == {
    "bytes-by": ([b"\\u0061", None, None], [b"\\u0061", b"", None], [], [2]),
    "bytes-plain": ([b"a", b"", None], [b"a", b"", None], [0], [2]),
    "text-by": (["a", None, None], ["a", "", None], [0], [2]),
    "text-plain": (["a", "", None], ["a", "", None], [0], [2]),
}, "it has changed"
PY
"$home/v/bin/python" "$home/run.py" "$home"
