#!/bin/sh
# Zeros in Parquet by parquet-go v0.32.0 (Go): numbers, false and text in fields that are `optional`, and a time.Time that was never set.
# Guess: `optional` lets a column be null, by a pointer or a slice that is nil; 0, false and "" are values and come back as such.
# Seen:  what is Go's zero value is written as null in an optional column: an amount of 0, false, "". So count, average and `amount = 0` are others
#        than those of the records, and nothing of the file says so. Only behind a pointer 0 stays 0. A time that was never set, of the year 1, is
#        1754-08-30 22:43:41.128654848, as the nanoseconds that time.Time is written in by default wrap round.
# Needs Go.
set -eu
home=$(mktemp -d)
trap 'chmod -R u+w "$home"; rm -rf "$home"' EXIT
cd "$home"
export GOPATH="$home/gopath" GOFLAGS=-mod=mod
cat > main.go <<'GO'
package main

import (
	"os"
	"time"

	"github.com/parquet-go/parquet-go"
)

type Order struct {
	ID     int64     `parquet:"id"`
	Amount int64     `parquet:"amount,optional"`
	Share  float64   `parquet:"share,optional"`
	Paid   bool      `parquet:"paid,optional"`
	Note   string    `parquet:"note,optional"`
	Points *int64    `parquet:"points,optional"`
	At     time.Time `parquet:"at"`
}

func main() {
	zero, at := int64(0), time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	rows := []Order{{ID: 1, Amount: 5, Share: 0.5, Paid: true, Note: "x", Points: &zero, At: at}, {ID: 2, Points: &zero}, {ID: 3, At: at}}
	file, err := os.Create("orders.parquet")
	if err != nil {
		panic(err)
	}
	if err := parquet.Write(file, rows); err != nil {
		panic(err)
	}
}
GO
(go mod init seen && go get github.com/parquet-go/parquet-go@v0.32.0) > go.log 2>&1 || { cat go.log; exit 1; }
go run .
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1
cat > run.py <<'PY'
import pyarrow as pa
import pyarrow.parquet as pq

rows = pq.read_table("orders.parquet")
rows = rows.set_column(rows.schema.get_field_index("at"), "at", rows["at"].cast(pa.string())).to_pylist()
for row in rows:
    print(*(f"{name}: {value!r}" for name, value in row.items()), sep="  ")
assert [row["points"] for row in rows] == [0, 0, None], "it has changed"
assert rows[0]["amount"] == 5 and rows[0]["at"].startswith("2026-11-30 12:00:00"), "it has changed"
assert [rows[1][name] for name in ("amount", "share", "paid", "note")] == [None] * 4, "it has changed"
assert rows[1]["at"].startswith("1754-08-30 22:43:41.128654848"), "it has changed"
PY
v/bin/python run.py
