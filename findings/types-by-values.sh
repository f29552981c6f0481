#!/bin/sh
# Columns of Parquet files by hyparquet-writer 0.17.0 (Node), of JavaScript values whose types are not given; read by PyArrow 26.0.1.
# Guess: a type of JavaScript is one of Parquet, so that files of one producer have one schema: a number is DOUBLE, as JavaScript has no other; what is null
#        throughout has Parquet's type for that.
# Seen:  the values of each file decide. Amounts are INT32 where all of a file are whole, DOUBLE where one is not, refused where one is whole and beyond 2^31,
#        bytes where all are null; arrays and objects are JSON, a column of texts that are all null is bytes too. Whether a column may be null goes by the file
#        as well. So a folder's schema changes with what was sold in an hour: it is the writer for one file, and each stream needs its types declared.
# Needs Node.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
echo '{"private": true, "type": "module"}' > package.json
npm install --silent --no-fund --no-audit hyparquet-writer@0.17.0
cat > write.js <<'JS'
import { writeFileSync } from "node:fs";
import { parquetWriteBuffer } from "hyparquet-writer";

const hours = { whole: [1, 2], parts: [1, 2.5], large: [1, 3000000000], none: [null, null], some: [1, null], big: [1n, 2n], lists: [[1], [2]], zero: [-0, 1] };
for (const [name, data] of Object.entries(hours)) {
  try {
    writeFileSync(`${name}.parquet`, Buffer.from(parquetWriteBuffer({ columnData: [{ name: "amount", data }] })));
  } catch (error) {
    console.log(`${name}: refused, ${error.message}`);
  }
}
JS
node write.js | tee refused
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1
cat > read.py <<'PY'
import pyarrow.parquet as pq

seen = {}
for name in ("whole", "parts", "none", "some", "big", "lists", "zero"):
    table = pq.read_table(f"{name}.parquet")
    field = table.schema.field(0)
    seen[name] = f"{field.type}{'' if field.nullable else ' not null'}"
    print(f"{name}: {seen[name]}, {table['amount'].to_pylist()}")
assert seen == {
    "whole": "int32 not null",
    "parts": "double not null",
    "none": "binary",
    "some": "int32",
    "big": "int64 not null",
    "lists": "extension<arrow.json> not null",
    "zero": "int32 not null",
}, "it has changed"
PY
v/bin/python read.py
grep -q '^large: refused' refused || { echo "it has changed"; exit 1; }
