#!/bin/sh
# Appending another type to a Delta table: deltalake 1.6.6, PyArrow 26.0.1, no schema_mode given.
# Guess: write_deltalake refuses each type that is not the table's; at most it widens.
# Seen:  it casts as long as the value can be cast. A double 7.9 into a long column is stored as 7, the text "7" as 7, and nanoseconds of a
#        timestamp are cut off, all without a word. Yet a decimal of another scale is refused even where its value fits exactly, and an
#        unsigned byte of 200 cannot begin a table at all: uint8 becomes Delta's byte, which ends at 127.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
cat > "$home/run.py" <<'PY'
import sys
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake


def appended(name, first, *more):
    path = f"{sys.argv[1]}/{name}"
    try:
        for array in (first, *more):
            write_deltalake(path, pa.table({"v": array}), mode="append")
    except Exception as error:
        return type(error).__name__
    return DeltaTable(path).to_pyarrow_table()["v"].to_pylist()[0]


ten, micro = pa.decimal128(10, 1), pa.timestamp("us")
seen = {
    "double into long": appended("a", pa.array([1], pa.int64()), pa.array([7.9])),
    "text into integer": appended("b", pa.array([1], pa.int32()), pa.array(["7"])),
    "[ns] into [us]": appended("c", pa.array([datetime(2026, 1, 1)], micro), pa.array([1_999], pa.timestamp("ns"))),
    "1.50 into decimal(10, 1)": appended("d", pa.array([Decimal("1.5")], ten), pa.array([Decimal("1.50")], pa.decimal128(10, 2))),
    "a new column of uint8": appended("e", pa.array([200], pa.uint8())),
}
for name, value in seen.items():
    print(f"{name:26} {value}")
assert seen == {
    "double into long": 7,
    "text into integer": 7,
    "[ns] into [us]": datetime(1970, 1, 1, microsecond=1),
    "1.50 into decimal(10, 1)": "SchemaMismatchError",
    "a new column of uint8": "DeltaError",
}, "it has changed"
PY
"$home/v/bin/python" "$home/run.py" "$home"
