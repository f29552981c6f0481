#!/bin/sh
# A Parquet file whose columns end early, and whose footer says in all places that there is more: PyArrow 26.0.1, DuckDB 2.0.1, Polars 2.1.0.
# Guess: a reader that finds fewer values than footer, row group and column chunk say raises, or says how many it found.
# Seen:  PyArrow gives the 2 records of 5 that there are, by read() and iter_batches(), and says nothing; num_rows stays 5. DuckDB and Polars raise.
#        So counts that go by footers differ from what was read, and nobody is told. apache/parquet-testing has one of these (ARROW-GH-41317).
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0
cat > "$home/run.py" <<'PY'
import io
import struct
import sys

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

sink = io.BytesIO()
pq.write_table(pa.table({"a": pa.array([1, 2], pa.int32())}), sink, use_dictionary=False, compression="none", store_schema=False, write_statistics=False)
data = sink.getvalue()
size = struct.unpack("<I", data[-8:-4])[0]
footer = data[-8 - size : -8]
# Numbers are zigzag in Thrift: 2 is 4, 5 is 10. Field 3 of the file (16 04), 5 of the chunk (16 04 16), 3 of the group.
said = footer.replace(b"\x16\x04", b"\x16\x0a")
assert footer.count(b"\x16\x04") == 3, footer
path = f"{sys.argv[1]}/short.parquet"
with open(path, "wb") as file:
    file.write(data[: -8 - size] + said + data[-8:])


def seen(read):
    try:
        return read()
    except Exception as error:
        return type(error).__name__


found = pq.ParquetFile(path)
of_arrow = (found.metadata.num_rows, seen(lambda: found.read().num_rows), seen(lambda: sum(len(b) for b in found.iter_batches())))
others = [
    seen(lambda: duckdb.sql(f"SELECT list(a) FROM '{path}'").fetchall()),
    seen(lambda: polars.read_parquet(path).height),
]
print("PyArrow: said, read, in batches", of_arrow, "- DuckDB, Polars", others)
assert of_arrow == (5, 2, 2) and all(isinstance(each, str) for each in others), "it has changed"
PY
"$home/v/bin/python" "$home/run.py" "$home"
