#!/bin/sh
# Prices by @dsnp/parquetjs 1.8.8 (Node) in columns of DECIMAL with two digits, and dates; read by PyArrow 26.0.1.
# Guess: a JavaScript number with two digits behind its point is that decimal, as its nearest double is printed so; others are rounded, or refused.
# Seen:  it cuts the product by 100 downwards, and that of a double is often just below. 1.15 is 1.14, 19.99 is 19.98, 8.2 is 8.19: of the prices
#        0.00 to 99.99 are 573 a cent less, so sums of a day are a little low. What is paid back is cut downwards too: -1.15 is right, -1.1 is -1.11.
#        A time of day in a DATE is cut off, but before 1970 the day is the next one: 1969-12-31 12:00 is 1970-01-01.
# Needs Node.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
npm install --silent --no-fund --no-audit @dsnp/parquetjs@1.8.8
cat > write.js <<'JS'
const { ParquetSchema, ParquetWriter } = require("@dsnp/parquetjs");

async function write(name, type, values) {
  const writer = await ParquetWriter.openFile(new ParquetSchema({ v: type }), `${name}.parquet`);
  for (const v of values) await writer.appendRow({ v });
  await writer.close();
}

(async () => {
  const price = { type: "DECIMAL", precision: 9, scale: 2 };
  await write("some", price, [1.15, 19.99, 8.2, 5, -1.15, -1.1, 1.005]);
  await write("all", price, [...Array(10000).keys()].map((cents) => Number(`${Math.floor(cents / 100)}.${String(cents % 100).padStart(2, "0")}`)));
  await write("dates", { type: "DATE" }, ["2026-11-30T23:30:00Z", "1969-12-31T00:00:00Z", "1969-12-31T12:00:00Z"].map((at) => new Date(at)));
})();
JS
node write.js
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1
cat > read.py <<'PY'
from decimal import Decimal

import pyarrow.parquet as pq

some, prices, dates = ([*map(str, pq.read_table(f"{name}.parquet")["v"].to_pylist())] for name in ("some", "all", "dates"))
wrong = [cents for cents, price in enumerate(prices) if Decimal(price) != Decimal(cents).scaleb(-2)]
less = {Decimal(cents).scaleb(-2) - Decimal(prices[cents]) for cents in wrong}
print("1.15, 19.99, 8.2, 5, -1.15, -1.1, 1.005 are", *some)
print(len(wrong), "of 10,000 prices are others, less by", *map(str, less))
print("dates", *dates)
assert some == ["1.14", "19.98", "8.19", "5.00", "-1.15", "-1.11", "1.00"], "it has changed"
assert len(wrong) == 573 and less == {Decimal("0.01")}, "it has changed"
assert dates == ["2026-11-30", "1969-12-31", "1970-01-01"], "it has changed"
PY
v/bin/python read.py
