"""Equal keys: whatever the number of tasks, a pipeline gives what one query over all records gives."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coset.batches.publication import abandon
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import KeyFormatName
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.hashes import key_bytes, murmur2
from partitioning.model.placement import KeyFormat
from tests.examples import examples
from tests.landed import land_file, land_table
from tests.logs import log_of
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged

# Keys that are easily taken for one another, or for two.
KEYS: dict[str, tuple[pa.DataType, list[object]]] = {
    "string": (
        pa.string(),
        ["\u00e1", "a\u0301", "a", "A", "a ", "a\x00", "a\x00b", "", "0", "-0", "\U0001f600", None],
    ),
    "long": (pa.int64(), [0, -1, 1, 2**31, -(2**63), 2**63 - 1, None]),
    "int": (pa.int32(), [0, -1, 1, 2**31 - 1, -(2**31), None]),
    "double": (pa.float64(), [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 5e-324, 1.0, -1.0, 0.1, None]),
    "uuid": (
        pa.string(),
        ["bb3e975f-2c37-65ab-7197-cdc39ec2e62a", "BB3E975F-2C37-65AB-7197-CDC39EC2E62A", f"{1:032x}", None],
    ),
    "bytes": (pa.binary(), [b"", b"\x00", b"\x00\x00", b"a", b"\xff", b"a\x00", None]),
}
# Values that SQL takes for equal though they are written otherwise, or the other way round.
VALUES = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))])
NESTED: list[object] = [None, {"a": None, "b": None}, {"a": None, "b": [0.0, None]}, {"a": 1, "b": [-0.0, None]}]
IDENTITIES = (
    "d", "d::DECIMAL(9, 4)", "f", "nested", "seen", "seen AT TIME ZONE 'America/New_York'",
    "struct_pack(f := f, d := d)",
)  # fmt: skip
SCHEMES = ("tasks(1)", "tasks(2)", "tasks(3)", "tasks(7)", "cogroup", "elastic(2)", "elastic(3)")


def records(chance: random.Random, key_format: KeyFormatName, count: int) -> pa.Table:
    kind, keys = KEYS[key_format]
    zone = pa.timestamp("us", "Europe/Berlin")
    return pa.table(
        {
            "k": pa.array(chance.choices(keys, k=count), kind),
            "other": pa.array(chance.choices(keys, k=count), kind),
            "n": pa.array(range(count), pa.int64()),
            "d": pa.array(chance.choices([Decimal("1.00"), Decimal("1.50"), None], k=count), pa.decimal128(9, 2)),
            "f": pa.array(chance.choices([0.0, -0.0, math.nan, -math.nan, 1.5], k=count), pa.float64()),
            "nested": pa.array(chance.choices(NESTED, k=count), VALUES),
            "seen": pa.array(chance.choices([0, 3_600_000_000], k=count), zone),
        }
    )


def pipeline_of(source: str, key_format: KeyFormatName, partitions: int, identity: str) -> Pipeline:
    """Steps of each kind that takes keys for equal or not: by the stream's key, and by another that makes them move."""
    pipeline = Pipeline("equal", source=source)
    given = pipeline.stream("s", key="k", partitions=partitions, key_format=key_format, null_keys="own task")
    moved = given.select("other AS o, n, d, f, nested, seen").rekey("o", key_format=key_format, name="moved")
    for name, flow in (("stay", given), ("move", moved)):
        counted = flow.aggregate("count(*) AS c, sum(n)::BIGINT AS n", name=f"{name}_counts")
        counted.combine("sum(c)::BIGINT AS c, sum(n)::BIGINT AS n", running=True, name=f"{name}_totals").filter(
            f"{flow.key} IS NOT NULL", name=f"{name}_keyed"
        ).write(f"{name}_totals", mode="upsert")
        flow.distinct(identity, time="make_timestamp(0)", within=timedelta(days=1), name=f"{name}_once").aggregate(
            "count(*) AS c", name=f"{name}_onces"
        ).write(f"{name}_once")
    return pipeline


def queries(identity: str, name: str, key: str) -> Iterator[tuple[str, str]]:
    """What the tables of a flow hold in the end, of all records at once."""
    yield f"{name}_totals", f"SELECT {key}, count(*), sum(n)::BIGINT FROM s WHERE {key} IS NOT NULL GROUP BY 1"
    known = f"SELECT DISTINCT {key} AS k, {identity} AS i FROM s WHERE i IS NOT NULL"
    unknown = f"SELECT {key} AS k FROM s WHERE {identity} IS NULL"
    yield f"{name}_once", f"SELECT k, count(*) FROM (SELECT k FROM ({known}) UNION ALL {unknown}) GROUP BY 1"


def held(store: Store, table: str) -> pa.Table:
    return log_of(store, table).to_pyarrow_table()


def ordered(connection: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """The rows as text, in an order of their own; a text tells -0.0 from 0.0."""
    return sorted(map(repr, connection.execute(sql).fetchall()))


@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**40),
    key_format=st.sampled_from(KeyFormat),
    identity=st.sampled_from(IDENTITIES),
    schemes=st.lists(st.sampled_from(SCHEMES), min_size=2, max_size=3),
    partitions=st.integers(1, 5),
)
def test_results_do_not_depend_on_the_number_of_tasks(
    seed: int,
    key_format: KeyFormat,
    identity: str,
    schemes: list[str],
    partitions: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = str(tmp_path_factory.mktemp("equal") / "store")
    check(random.Random(seed), root, key_format.value, identity, schemes, partitions)


@pytest.mark.parametrize("scheme", ["tasks(1)", "tasks(2)", "tasks(5)"])
def test_minus_nought_and_nought_are_one_key_for_any_number_of_tasks(scheme: str, store: Store) -> None:
    check(random.Random(7), store.root, "double", "f", [scheme, "tasks(3)", scheme], 4)


def land_by_bytes(source: str) -> None:
    """Land keys where a producer puts them that hashes their bytes: 0.0 and -0.0 in different partitions."""
    for partition in range(3):
        keys = [key for key in (0.0, -0.0, 1.0, -0.0) if murmur2(key_bytes(key, "double")) % 3 == partition]
        if keys:
            land_file(pa.table({"k": pa.array(keys, pa.float64())}), "s", source, partition, 0)


def counted(source: str, *, moved: bool) -> Pipeline:
    pipeline = Pipeline("signed", source=source)
    flow = pipeline.stream("s", key="k", partitions=3, key_format="double", hash="opaque" if moved else "murmur2")
    if moved:
        flow = flow.rekey("key", sql='"k" + 0', key_format="double")
    flow.aggregate("count(*) AS n", name="counts").write("counts")
    return pipeline


def test_a_producers_minus_nought_is_refused_where_its_bytes_put_it_and_may_be_moved(store: Store) -> None:
    source = f"{store.root}/topics"
    land_by_bytes(source)
    ref = next_batch(counted(source, moved=False), store.root)
    with pytest.raises(Refused) as refused:
        run_and_publish(ref)
    told = "\n".join(finding.what for finding in refused.value.findings)
    assert "key '-0'" in told
    then = """declare the stream with hash='opaque' and go on from rekey('key', sql='"k" + 0', key_format='double')"""
    assert f"both are one key: {then}" in told
    abandon(Ledger(store, "signed"), "declared otherwise")
    run_and_publish(next_batch(counted(source, moved=True), store.root, Settings.parse(scheme="counts=tasks(4)")))
    counts = held(store, "counts")
    assert dict(zip(counts["key"].to_pylist(), counts["n"].to_pylist(), strict=True)) == {0.0: 3, 1.0: 1}


def check(
    chance: random.Random, root: str, key_format: KeyFormatName, identity: str, schemes: Sequence[str], partitions: int
) -> None:
    """Run a batch under each scheme, and compare what tables hold in the end with a query over all records."""
    source, all_records = f"{root}/topics", []
    pipeline = pipeline_of(source, key_format, partitions, identity)
    for scheme in schemes:
        arrived = records(chance, key_format, chance.randrange(5, 40))
        all_records.append(arrived)
        land_table(arrived, "s", source, key="k", partitions=partitions, key_format=key_format)
        run_and_publish_unjudged(next_batch(pipeline, root, Settings.parse(scheme=scheme, groups=2)))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("arrived", pa.concat_tables(all_records))
        # One way to write equal keys, so that texts can be compared.
        plain = ", ".join(f"{name}{' + 0' * (key_format == 'double')} AS {name}" for name in ("k", "other"))
        connection.execute(f"CREATE TABLE s AS SELECT * REPLACE ({plain}) FROM arrived")
        for name, key in (("stay", "k"), ("move", "other")):
            for table, sql in queries(identity, name, key):
                connection.register("held", held(store_at(root), table))
                columns = "k AS k" if name == "stay" else "o AS k"
                found = f"SELECT {columns}, c, n FROM held"
                if table.endswith("once"):
                    found = f"SELECT {columns}, sum(c)::BIGINT FROM held GROUP BY 1"
                assert ordered(connection, found) == ordered(connection, sql), table
