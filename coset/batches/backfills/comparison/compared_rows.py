"""Compares the rows of a batch before and now, in any order.

Rows are equal if all their columns are, except `_task`, which says who made them. Floats are equal if their bits are,
or if both are NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from coset.sources.files import Files
from coset.sources.formats.parquet import open_parquet
from coset.sources.s3 import AGAIN, reaching
from partitioning.model.backfill import Difference
from partitioning.model.composite_key import canonical, key_parts
from partitioning.model.graph import quote
from partitioning.model.private import is_private
from spark_jobs.engine.task_database import connect

_FIRST = 5
_NOW = quote("@now")
_WHERE_MADE = {"_task"}


def compared(
    before: pa.RecordBatchReader,
    now: pa.RecordBatchReader,
    key: str,
    private: Collection[str] = (),
    memory: str = "1GB",
) -> Difference:
    """Compare rows by key, which may be made of several columns. Without a `key`, each row is its own key. Rows with
    `private` columns are not listed."""
    with connect(memory) as connection:
        columns = _both(connection, before, now)
        sides = [_digested(connection, columns, side) for side in ("NOT " + _NOW, _NOW)]
        (rows_before, digest_before), (rows_now, digest_now) = sides
        same = sides[0] == sides[1]
        keys, first = (0, ()) if same else _differing(connection, columns, _key(key, columns))
        if any(is_private(column, private) for column in columns):
            first = ()
        return Difference((rows_before, rows_now), (digest_before, digest_now), keys, first)


def _key(key: str, columns: Sequence[str]) -> str:
    if not key:
        return _row(columns)
    return quote(key) if key in columns else canonical(key_parts(key))


def _both(connection: duckdb.DuckDBPyConnection, before: pa.RecordBatchReader, now: pa.RecordBatchReader) -> list[str]:
    """Put all rows into one table, and return the columns to compare, sorted, so that their order does not matter."""
    connection.register("before", before)
    connection.register("now", now)
    for name, select in (("were", "before"), ("are", "now")):
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {select}")
    connection.execute(
        f"CREATE TEMP TABLE rows AS SELECT *, false AS {_NOW} FROM were "
        f"UNION ALL BY NAME SELECT *, true AS {_NOW} FROM are"
    )
    connection.execute("DROP TABLE were; DROP TABLE are")
    return sorted({*before.schema.names, *now.schema.names} - _WHERE_MADE)


def _digested(connection: duckdb.DuckDBPyConnection, columns: Sequence[str], side: str) -> tuple[int, str]:
    """The number of rows, and the sum of their hashes, which does not depend on their order."""
    sums = f"coalesce(sum(md5_number_lower({_row(columns)})::HUGEINT), 0)"
    ((count, total),) = connection.execute(f"SELECT count(*), {sums} FROM rows WHERE {side}").fetchall()
    return count, f"{total % (1 << 64):016x}"


def _differing(
    connection: duckdb.DuckDBPyConnection, columns: Sequence[str], key: str
) -> tuple[int, tuple[tuple[str, str, str], ...]]:
    """How many keys have different rows, and the first of them."""
    texts = f"SELECT {key} AS key, {_row(columns)} AS row FROM rows WHERE"
    for name, (mine, others) in {"gone": (f"NOT {_NOW}", _NOW), "come": (_NOW, f"NOT {_NOW}")}.items():
        connection.execute(f"CREATE TEMP TABLE {name} AS {texts} {mine} EXCEPT ALL {texts} {others}")
    keys = "SELECT key FROM gone UNION SELECT key FROM come"
    ((count,),) = connection.execute(f"SELECT count(*) FROM ({keys})").fetchall()
    first = connection.execute(
        f"SELECT key::VARCHAR, {_listed('gone')}, {_listed('come')} FROM ({keys}) AS keys ORDER BY 1 LIMIT {_FIRST}"
    ).fetchall()
    return count, tuple((str(name), were, are) for name, were, are in first)


def _listed(side: str) -> str:
    rows = f"SELECT row FROM {side} AS other WHERE other.key IS NOT DISTINCT FROM keys.key ORDER BY row LIMIT {_FIRST}"
    return f"array_to_string(ARRAY({rows}), '; ')"


def _row(columns: Sequence[str]) -> str:
    """A row as text. Two rows are equal if and only if their texts are."""
    fields = ", ".join(f"{quote(column)} := {quote(column)}" for column in columns)
    return f"to_json(struct_pack({fields}))::VARCHAR"


def rows_of(uris: Sequence[str], schema: pa.Schema) -> pa.RecordBatchReader:
    """The rows of a table's files. There may be no file."""
    return pa.RecordBatchReader.from_batches(schema, _batches(uris, schema))


def _batches(uris: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for uri in uris:
        with _opened(uri) as file:
            for batch in file.iter_batches(1 << 16):
                yield batch.cast(schema)


@contextmanager
def _opened(uri: str) -> Iterator[pq.ParquetFile]:
    with reaching("the file cannot be read", uri, AGAIN), Files().open(uri) as source:
        yield open_parquet(source)
