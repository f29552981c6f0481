#!/bin/sh
# MERGE of rows of which several have one key: DuckDB 2.0.1, delta-rs 1.6.6, PyIceberg 0.12.0.
# Guess: it is an error, as in the SQL standard, PostgreSQL and Spark's Delta, since nobody can say which of the rows is to stay.
# Seen:  delta-rs and PyIceberg refuse it. DuckDB takes one of them, and counts all: "300,000 rows" are merged into a table of 1,000. Which one
#        stays is another from run to run, and neither the first nor the last of all keys. Rows without a match are inserted each, so that
#        the key has several rows from then on.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 deltalake==1.6.6 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1
cat > "$home/run.py" <<'PY'
import sys

import deltalake
import duckdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

home = sys.argv[1]
merge = "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v"
connection = duckdb.connect()
connection.execute("CREATE TABLE t AS SELECT * FROM (VALUES ('a', 0)) AS t(k, v)")
connection.execute("CREATE TABLE s AS SELECT * FROM (VALUES ('a', 1), ('a', 2), ('b', 3), ('b', 4)) AS s(k, v)")
connection.execute(f"{merge} WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v)")
small = connection.execute("FROM t ORDER BY ALL").fetchall()
print("DuckDB:", small)
assert len(small) == 3 and small[1:] == [("b", 3), ("b", 4)], "it has changed"
for order in ("i", "i DESC"):
    connection.execute("CREATE OR REPLACE TABLE t AS SELECT i AS k, -1 AS v FROM range(1000) AS r(i)")
    connection.execute(f"CREATE OR REPLACE TABLE s AS SELECT i % 1000 AS k, i AS v FROM range(300000) AS r(i) ORDER BY {order}")
    ((counted,),) = connection.execute(merge).fetchall()
    # The first and the last rows of all keys, in the order in which they lie in s.
    below, above = "v BETWEEN 0 AND 999", "v >= 299000"
    first, last = (below, above) if order == "i" else (above, below)
    ((rows, firsts, lasts),) = connection.execute(f"SELECT count(*), count(*) FILTER ({first}), count(*) FILTER ({last}) FROM t").fetchall()
    print(f"DuckDB, ordered by {order}: {counted} rows merged into {rows}; of {firsts} keys the first stays, of {lasts} the last")
    assert (counted, rows) == (300000, 1000) and max(firsts, lasts) < 1000, "it has changed"

had, given = (pa.table({"k": list(keys), "v": values}) for keys, values in (("a", [0]), ("aabb", [1, 2, 3, 4])))
deltalake.write_deltalake(f"{home}/delta", had)
merging = deltalake.DeltaTable(f"{home}/delta").merge(given, "t.k = s.k", source_alias="s", target_alias="t")
try:
    merging.when_matched_update_all().when_not_matched_insert_all().execute()
    raise SystemExit("it has changed")
except deltalake.exceptions.DeltaError as error:
    print("delta-rs:", str(error)[:140])
catalogue = SqlCatalog("c", uri=f"sqlite:///{home}/c.db", warehouse=f"file://{home}/iceberg")
catalogue.create_namespace("n")
table = catalogue.create_table("n.t", had.schema)
table.append(had)
try:
    table.upsert(given, join_cols=["k"])
    raise SystemExit("it has changed")
except ValueError as error:
    print("PyIceberg:", error)
PY
"$home/v/bin/python" "$home/run.py" "$home"
