"""Compares the rows of a batch before and now, in any order.

Rows are equal if all their columns are. Floats are equal if their bits are, or if both are NaN; or if they are nearly,
where their sums may have been made in another order.
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
from partitioning.model.table_mode import CHANGE_TYPE, COMES, GOES, left_of
from spark_jobs.engine.task_database import connect

_FIRST = 5
_NOW = quote("@now")
_BOTH = ((COMES, COMES, GOES), (GOES, GOES, COMES))
_FLOATING, _TOLERANCE = {"FLOAT", "DOUBLE"}, 1e-9


def compared(
    before: pa.RecordBatchReader,
    now: pa.RecordBatchReader,
    key: str,
    private: Collection[str] = (),
    memory: str = "1GB",
    *,
    nearly: bool = False,
) -> Difference:
    """Compare rows by key, which may be made of several columns. Without a `key`, each row is its own key. Rows with
    `private` columns are not listed. If `nearly`, floating-point columns may differ by one in a billion."""
    with connect(memory) as connection:
        columns = _both(connection, before, now)
        sides = [_digested(connection, columns, side) for side in ("NOT " + _NOW, _NOW)]
        (rows_before, digest_before), (rows_now, digest_now) = sides
        same = sides[0] == sides[1]
        by = quote(key) if key in columns else canonical(key_parts(key)) if key else key
        keys, first = (0, ()) if same else _differing(connection, columns, by, nearly)
        if nearly and not keys:
            digest_now = digest_before
        if any(is_private(column, private) for column in columns):
            first = ()
        return Difference((rows_before, rows_now), (digest_before, digest_now), keys, first)


def _both(connection: duckdb.DuckDBPyConnection, before: pa.RecordBatchReader, now: pa.RecordBatchReader) -> list[str]:
    """Put all rows into one table, and return the columns to compare, sorted, so that their order does not matter."""
    connection.register("before", before)
    connection.register("now", now)
    # Nothing casts a nested value to one that is none, or made of other parts.
    nested = {field.name for side in (before, now) for field in side.schema if pa.types.is_nested(field.type)}
    common = nested.intersection(before.schema.names, now.schema.names)
    unlike = [name for name in common if before.schema.field(name).type != now.schema.field(name).type]
    texts = ", ".join(f"to_json({quote(name)})::VARCHAR AS {quote(name)}" for name in sorted(unlike))
    for name, select in (("were", "before"), ("are", "now")):
        columns = f"* REPLACE ({texts})" if texts else "*"
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT {columns} FROM {select}")
    connection.execute(
        f"CREATE TEMP TABLE rows AS SELECT *, false AS {_NOW} FROM were "
        f"UNION ALL BY NAME SELECT *, true AS {_NOW} FROM are"
    )
    connection.execute("DROP TABLE were; DROP TABLE are")
    # DuckDB takes names that differ in case for the same.
    return sorted({name.lower(): name for name in (*now.schema.names, *before.schema.names)}.values())


def _digested(connection: duckdb.DuckDBPyConnection, columns: Sequence[str], side: str) -> tuple[int, str]:
    """The number of rows, and the sum of their hashes, which does not depend on their order."""
    sums = f"coalesce(sum(md5_number_lower({_row(columns)})::HUGEINT), 0)"
    ((count, total),) = connection.execute(f"SELECT count(*), {sums} FROM rows WHERE {side}").fetchall()
    return count, f"{total % (1 << 64):016x}"


def _differing(
    connection: duckdb.DuckDBPyConnection, columns: Sequence[str], key: str, nearly: bool
) -> tuple[int, tuple[tuple[str, str, str], ...]]:
    """How many keys have different rows, and the first of them."""
    types = dict(connection.execute("SELECT column_name, column_type FROM (DESCRIBE rows)").fetchall())
    floats = [name for name in columns if types[name] in _FLOATING] if nearly else []
    exact = [name for name in columns if name not in floats]
    others = _row(exact) if floats and exact else "''"
    key = key or (others if floats else _row(columns))
    listed = "".join(f", {quote(name)} AS {quote(f'@{number}')}" for number, name in enumerate(floats))
    texts = f'SELECT {key} AS key, {_row(columns)} AS row, {others} AS "@others"{listed} FROM rows WHERE'
    for name, (mine, theirs) in {"gone": (f"NOT {_NOW}", _NOW), "come": (_NOW, f"NOT {_NOW}")}.items():
        connection.execute(f"CREATE TEMP TABLE {name} AS {texts} {mine} EXCEPT ALL {texts} {theirs}")
    if floats:
        _leave_alike_out(connection, [quote(f"@{number}") for number in range(len(floats))])
    keys = "SELECT key FROM gone UNION SELECT key FROM come"
    ((count,),) = connection.execute(f"SELECT count(*) FROM ({keys})").fetchall()
    first = connection.execute(
        f"SELECT key::VARCHAR, {_listed('gone')}, {_listed('come')} FROM ({keys}) AS keys ORDER BY 1 LIMIT {_FIRST}"
    ).fetchall()
    return count, tuple((str(name), were, are) for name, were, are in first)


def _leave_alike_out(connection: duckdb.DuckDBPyConnection, floats: Sequence[str]) -> None:
    """Take the rows out of both sides that are nearly the same: the first of a key with the first, and so on."""
    in_order = f'row_number() OVER (PARTITION BY key, "@others" ORDER BY {", ".join(floats)}, row)'
    for side in ("gone", "come"):
        connection.execute(f'CREATE OR REPLACE TEMP TABLE {side} AS SELECT *, {in_order} AS "@place" FROM {side}')
    # An infinity is nearly nothing else.
    alike = (
        f"(gone.{each} IS NOT DISTINCT FROM come.{each} OR (isfinite(gone.{each}) AND "
        f"abs(gone.{each} - come.{each}) <= {_TOLERANCE} * greatest(abs(gone.{each}), 1)))"
        for each in floats
    )
    both = f"gone JOIN come ON {_of_one_place('gone', 'come')} AND {' AND '.join(alike)}"
    connection.execute(f"CREATE TEMP TABLE alike AS SELECT gone.* FROM {both}")
    for side in ("gone", "come"):
        connection.execute(f"DELETE FROM {side} WHERE EXISTS (FROM alike WHERE {_of_one_place('alike', side)})")


def _of_one_place(one: str, other: str) -> str:
    names = ("key", '"@others"', '"@place"')
    return " AND ".join(f"{one}.{name} IS NOT DISTINCT FROM {other}.{name}" for name in names)


def _listed(side: str) -> str:
    rows = f"SELECT row FROM {side} AS other WHERE other.key IS NOT DISTINCT FROM keys.key ORDER BY row LIMIT {_FIRST}"
    return f"array_to_string(ARRAY({rows}), '; ')"


def _row(columns: Sequence[str]) -> str:
    """A row as text. Two rows are equal if and only if their texts are."""
    fields = ", ".join(f"{quote(column)} := {quote(column)}" for column in columns)
    return f"to_json(struct_pack({fields}))::VARCHAR"


def nearly(
    before: pa.RecordBatchReader, now: pa.RecordBatchReader, key: str, private: Collection[str] = ()
) -> Difference:
    """Compare rows as `compared`, where floating-point numbers may differ by one in a billion: sums in another order
    do."""
    return compared(before, now, key, private, nearly=True)


@contextmanager
def netted(log: pa.RecordBatchReader) -> Iterator[pa.RecordBatchReader]:
    """The rows of a changelog that have come and not gone, and those that went more often than they came."""
    with connect() as connection:
        connection.register("rows", log)
        connection.execute("CREATE TEMP TABLE log AS FROM rows")
        left = (f"SELECT *, '{one}' AS {CHANGE_TYPE} FROM ({left_of('log', *both)})" for one, *both in _BOTH)
        yield connection.sql(" UNION ALL ".join(left)).to_arrow_reader()


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
