"""Readers leave files out by the least and greatest values that a table's log says, and never a row with that."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pytest
from deltalake import QueryBuilder
from pyiceberg import expressions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow

from bench.elsewhere import environment_of, python_of, variables_of
from bench.party import JARS, PARTIES
from bench.upserts import delta_jars, packages
from coset.batches.tables.iceberg import follow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from spark_jobs.engine import writers
from spark_jobs.tables.column_bounds import bounds_in
from spark_jobs.tables.table_schema import folder
from tests.integration.test_iceberg import ICEBERG_OF_DUCKDB
from tests.landed import land_table
from tests.logs import log_of
from tests.readers import Ask, reader
from tests.running import next_batch, run_and_publish_unjudged

KINDS: dict[str, pa.DataType] = {
    "tiny": pa.int8(),
    "small": pa.int32(),
    "large": pa.int64(),
    "unsigned": pa.uint64(),
    "narrow": pa.float32(),
    "wide": pa.float64(),
    "price": pa.decimal128(9, 2),
    "exact": pa.decimal128(38, 10),
    "born": pa.date32(),
    "moment": pa.timestamp("us"),
    "zoned": pa.timestamp("us", "UTC"),
    "text": pa.string(),
    "raw": pa.binary(),
    "yes": pa.bool_(),
    "parts": pa.list_(pa.int64()),
}
COMPARED = [name for name in KINDS if name not in ("raw", "yes", "parts")]
FLOATS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e30, -1e30, 0.1)
# Around what UTF-16 writes in two parts, and the last that there is.
LETTERS = ("a", "é", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "b")
TIMES = (datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 31, 23, 59, 59, 999_999))  # noqa: DTZ001
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}
ICEBERGS = {
    "<": expressions.LessThan,
    "<=": expressions.LessThanOrEqual,
    "=": expressions.EqualTo,
    ">=": expressions.GreaterThanOrEqual,
    ">": expressions.GreaterThan,
}
LATER = 100
Asked = tuple[str, str, Any]
# The ids of the rows that fulfil a condition: as a reader finds them by it, and as it judges each of all rows.
Found = tuple[set[int], set[int]]
Read = Callable[[Sequence[Asked]], Iterable[Found]]


def of(kind: pa.DataType, random: Random, near: int) -> Any:
    """A value by chance, around a place that the values of a file have in common."""
    if pa.types.is_integer(kind):
        bits = kind.bit_width - (0 if pa.types.is_uint64(kind) else 1)
        low = 0 if pa.types.is_uint64(kind) else -(2**bits)
        return min(max(low, random.choice((low, 2**bits - 1, 2**53, near, -near)) + random.randint(-3, 3)), 2**bits - 1)
    if pa.types.is_floating(kind):
        return random.choice(FLOATS) if random.random() < 0.1 else near + random.random()
    if pa.types.is_decimal(kind):
        with localcontext(prec=40):
            most = 10**kind.precision - 1
            unscaled = random.choice((most, -most)) if random.random() < 0.1 else near * 1_000 - random.randint(-9, 9)
            return Decimal(unscaled).scaleb(-kind.scale)
    if pa.types.is_date(kind):
        return date(1970, 1, 1) + timedelta(days=near + random.randint(-3, 3))
    if pa.types.is_timestamp(kind):
        time = datetime(1970, 1, 1) + timedelta(days=near, microseconds=random.randint(-3000, 3000))  # noqa: DTZ001
        time = random.choice(TIMES) if random.random() < 0.05 else time
        return time.replace(tzinfo=UTC) if kind.tz else time
    if pa.types.is_string(kind):
        letter = LETTERS[near % len(LETTERS)]
        return letter * random.choice((0, 1, 30, 31, 32)) + "".join(random.choices(LETTERS, k=random.randint(0, 3)))
    return {pa.binary(): b"\xff\x00", pa.bool_(): random.random() < 0.5}.get(kind, [near])


def rows(random: Random, keys: Sequence[int], first: int) -> pa.Table:
    """A row of each key, each column near a place of its own."""
    columns: dict[str, Any] = {"k": [f"key-{key}" for key in keys], "id": range(first, first + len(keys))}
    for name, kind in KINDS.items():
        near, none = random.choice((0, 50, -50, 100)), random.choice((0.0, 0.0, 0.2, 1.0))
        values = [None if random.random() < none else of(kind, random, near) for _ in keys]
        columns[name] = pa.array(values, kind)
    return pa.table(columns)


def published(store: Store, random: Random, batches: int) -> None:
    """Batches of one table that is appended to, and of one in which rows are dead."""
    source = f"{store.root}/topics"
    pipeline = Pipeline("values", source=source)
    stream = pipeline.stream("values", key="k", partitions=3)
    stream.select(", ".join(("id", *KINDS)), name="every").write("every")
    stream.latest("id", name="last").write("last", mode="upsert", updates="beside")
    for number in range(batches):
        keys = range(60) if not number else random.sample(range(60), 4)
        land_table(rows(random, keys, LATER * number), "values", source, key="k", partitions=3)
        run_and_publish_unjudged(next_batch(pipeline, store.root, Settings.parse(scheme="tasks(3)")))
    follow(store, "values")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalogue in SQLite, which the environment asks for."""
    (tmp_path / "lake").mkdir()
    options = {"uri": f"sqlite:///{tmp_path}/lake/lake.db", "warehouse": f"file://{tmp_path}/lake"}
    monkeypatch.setenv("COSET_ICEBERG", "lake.shop")
    for name, value in options.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    return load_catalog("lake", **options)


def literal(kind: pa.DataType, value: Any, engine: str) -> str:
    """A value in SQL."""
    if pa.types.is_string(kind):
        return f"'{value}'"
    if pa.types.is_timestamp(kind):
        said = value.replace(tzinfo=None).isoformat(" ", "microseconds")
        zone, end, more = ('Some("UTC")', "+00", "TZ") if kind.tz else ("None", "", "")
        return {
            "delta-rs": f"arrow_cast('{said}', 'Timestamp(Microsecond, {zone})')",
            "duckdb": f"CAST('{said}{end}' AS TIMESTAMP{more})",
            "spark": f"TIMESTAMP '{said}Z'" if kind.tz else f"TIMESTAMP_NTZ '{said}'",
        }[engine]
    types = {pa.date32(): "DATE", pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.int64(): "BIGINT"}
    if pa.types.is_decimal(kind):
        return f"CAST('{value:f}' AS DECIMAL({kind.precision}, {kind.scale}))"
    return f"CAST('{value}' AS {types.get(kind, 'DECIMAL(20, 0)' if kind == pa.uint64() else 'INT')})"


def condition(asked: Asked, engine: str) -> str:
    name, word, value = asked
    if word == "IS NULL":
        return f"{name} IS {'' if value else 'NOT '}NULL"
    return f"{name} {word} {literal(KINDS[name], value, engine)}"


def by_sql(ask: Callable[[str], list[Sequence[Any]]], engine: str) -> Read:
    def read(asked: Sequence[Asked]) -> Iterator[Found]:
        for some in (asked[first : first + 40] for first in range(0, len(asked), 40)):
            said = [condition(each, engine) for each in some]
            every = ask(f"SELECT id, {', '.join(f'({each}) AS it_{at}' for at, each in enumerate(said))} FROM TABLE")
            by_it = [f"SELECT {at} AS condition, id FROM TABLE WHERE {each}" for at, each in enumerate(said)]
            found = {(at, number) for at, number in ask(" UNION ALL ".join(by_it))}
            for at in range(len(some)):
                yield {number for it, number in found if it == at}, {row[0] for row in every if row[at + 1]}

    return read


def by_delta_rs(store: Store, table: str) -> Read:
    builder = QueryBuilder().register("rows", log_of(store, table))

    def ask(sql: str) -> list[Sequence[Any]]:
        return pl.DataFrame(builder.execute(sql.replace("TABLE", "rows")).read_all()).rows()  # type: ignore[return-value]

    return by_sql(ask, "delta-rs")


def by_reader(ask: Ask, where: str, engine: str) -> Read:
    return by_sql(lambda sql: [*ask(where, None, sql)], engine)


def by_polars(store: Store) -> Read:
    scanned = pl.scan_delta(folder(store, "every"))
    every = scanned.collect()

    def judged(asked: Asked) -> Found:
        name, word, value = asked
        column = pl.col(name)
        if word == "IS NULL":
            it = column.is_null() if value else column.is_not_null()
        else:
            it = OPERATORS[word](column, pl.lit(value, every.schema[name]))
        found, right = (each.filter(it).select("id") for each in (scanned, every.lazy()))
        return {*found.collect()["id"]}, {*right.collect()["id"]}

    return partial(map, judged)


def by_pyiceberg(lake: Catalog, table: str) -> Read:
    loaded = lake.load_table(f"shop.{table}")
    every = loaded.scan().to_arrow()

    def judged(asked: Asked) -> Found:
        name, word, value = asked
        unary: Any = expressions.IsNull if value else expressions.NotNull
        it = unary(name) if word == "IS NULL" else ICEBERGS[word](name, value)
        right = every.filter(expression_to_pyarrow(bind(loaded.schema(), it, case_sensitive=True), loaded.schema()))
        return {*loaded.scan(row_filter=it).to_arrow()["id"].to_pylist()}, {*right["id"].to_pylist()}

    return partial(map, judged)


def conditions(store: Store, random: Random) -> Iterator[Asked]:
    """On each column: which rows have none, and how the others lie to values that are there."""
    there = pl.scan_delta(folder(store, "every")).collect()
    # PyIceberg has no conditions on lists, and none with NaN.
    for name in filter("parts".__ne__, KINDS):
        for is_null in (True, False):
            yield name, "IS NULL", is_null
        # Files of later batches have few rows, of which most are the least or the greatest.
        for values in (there[name], there.filter(pl.col("id") >= LATER)[name]) if name in COMPARED else ():
            few = [value for value in values.drop_nulls().to_list() if value == value]
            for value in random.sample(few, min(len(few), 3)):
                yield from ((name, word, value) for word in OPERATORS)


def of_this_process(store: Store, lake: Catalog) -> dict[str, Read]:
    return {
        "delta-rs": by_delta_rs(store, "every"),
        "delta-rs, dead rows": by_delta_rs(store, "last"),
        "Polars": by_polars(store),
        "PyIceberg": by_pyiceberg(lake, "every"),
        "PyIceberg, dead rows": by_pyiceberg(lake, "last"),
    }


def wrong(*of: Any) -> str:
    """Bounds of which the greatest is the least."""
    said = msgspec.json.decode(bounds_in(*of), type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**said, "maxValues": said["minValues"]}).decode()


def differing(readers: Mapping[str, Read], asked: Sequence[Asked]) -> dict[str, set[str]]:
    """The columns by which each of some readers finds other rows than it has."""
    return {
        name: {each[0] for each, (found, right) in zip(asked, read(asked), strict=True) if found != right}
        for name, read in readers.items()
    }


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_no_row_is_lost_whatever_its_values_are(seed: int, store: Store, lake: Catalog) -> None:
    published(store, random := Random(seed), batches=4)
    found = differing(of_this_process(store, lake), [*conditions(store, random)])
    assert found == {name: set() for name in found}


@pytest.mark.long
def test_a_wrong_bound_loses_rows(store: Store, lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """So each reader leaves files out by the bounds."""
    monkeypatch.setattr(writers, "bounds_in", wrong)
    published(store, random := Random(0), batches=4)
    found = differing(of_this_process(store, lake), [*conditions(store, random)])
    assert all(len(columns) > 8 for columns in found.values())


@pytest.mark.long
@pytest.mark.parametrize("bounds", [bounds_in, wrong])
def test_spark_and_duckdb_lose_none_but_by_wrong_bounds(
    bounds: Callable[..., str], store: Store, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of Delta and of Iceberg for Spark and DuckDB, in processes of their own."""
    monkeypatch.setattr(writers, "bounds_in", bounds)
    published(store, random := Random(2), batches=4)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://no.catalogue")
    duckdb, spark = environment_of("duckdb-1.5.5-iceberg", *ICEBERG_OF_DUCKDB), variables_of(PARTIES["iceberg"])
    asked, found = [*conditions(store, random)], dict[str, set[str]]()
    # Spark plans each for long.
    few = random.sample(asked, 16)
    for name, python, jars in (
        ("duckdb", str(packages()), ""),
        ("iceberg-duckdb", str(duckdb), ""),
        ("spark", sys.executable, str(delta_jars())),
        ("iceberg-spark", str(python_of(PARTIES["iceberg"])), spark[JARS]),
    ):
        with reader(name, python, jars) as ask:
            for table in ("every", "last"):
                at = lake.load_table(f"shop.{table}").metadata_location if "iceberg" in name else folder(store, table)
                read = by_reader(ask, at.removeprefix("file://"), name.removeprefix("iceberg-"))
                found |= differing({f"{name}, {table}": read}, asked if "duckdb" in name else few)
    assert all(bool(columns) == (bounds is wrong) for columns in found.values())
