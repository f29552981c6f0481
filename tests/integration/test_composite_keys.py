"""Keys of several columns, empty ones, and equal ones whatever the number of tasks: as one query gives them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coset import expect
from coset.batches.attempt import Attempt
from coset.batches.publication import abandon
from coset.batches.records import of_keys
from coset.cli import pipelines, plans
from coset.testing import engine, run
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.authoring.words import KeyFormatName, NullKey
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.hashes import hash_of, key_bytes, murmur2
from partitioning.model.composite_key import canonical
from partitioning.model.placement import CRC32, CRC32_CONSISTENT, MURMUR2, OPAQUE, KeyFormat, Placement
from spark_jobs.engine.task_database import connect
from spark_jobs.row_routing import RowRouting
from tests.checked_sql import findings
from tests.examples import examples
from tests.judged import HAVE_KEYS, refusal
from tests.landed import land_file, land_table
from tests.logs import log_of
from tests.real_batches import ran
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged

# Values that a careless join of texts takes for one another.
TEXTS = ["a", "b", 'a","b', 'b","c', "c", "", "null", '"', "\\", "\\\\", '","', "[", "1", "\x1f", "é", "e\u0301", None]
NUMBERS = [1, -1, 0, 2**63 - 1, None]


def pipeline_of(partitions: int) -> Pipeline:
    pipeline = Pipeline("wide", source="s3://landing/topics")
    left = pipeline.stream("s", key="id", partitions=partitions).rekey(("x", "y", "z"), name="l")
    right = pipeline.stream("r", key="id", partitions=3).rekey(("u", "v", "w"), name="r_by")
    left.merge(left.filter("false").select("NULL AS id, NULL AS n", name="none"), name="all").partial(
        "count(*) AS c, sum(n)::BIGINT AS n", by=("x", "y", "z")
    ).combine("sum(c)::BIGINT AS c, sum(n)::BIGINT AS n", running=True, name="totals").write("totals", mode="upsert")
    met = left.join_within(
        right, "l.n, r_by.n AS m", times=("make_timestamp(0)", "make_timestamp(0)"), within=DAY, name="met"
    )
    met.write("met")
    left.latest("n", name="newest").write("newest", mode="upsert")
    return pipeline


DAY = timedelta(days=1)
QUERIES = {
    "totals": "SELECT x, y, z, count(*) AS c, sum(n)::BIGINT AS n FROM s GROUP BY x, y, z",
    "met": "SELECT s.x, s.y, s.z, s.n, r.n AS m FROM s JOIN r ON s.x = r.u AND s.y = r.v AND s.z = r.w",
    "newest": "SELECT id, x, y, z, n FROM s QUALIFY row_number() OVER (PARTITION BY x, y, z ORDER BY n DESC) = 1",
}


def records(chance: random.Random, count: int, names: Sequence[str], first: int) -> list[dict[str, Any]]:
    few = chance.sample(TEXTS, 4)
    return [
        {
            "id": str(first + number),
            **dict(
                zip(
                    names,
                    (chance.choice(few), chance.choice(few), chance.choice(NUMBERS) if number else 1),
                    strict=True,
                )
            ),
            "n": first + number,
        }
        for number in range(count)
    ]


@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(seed=st.integers(0, 2**40), batches=st.integers(1, 3), tasks=st.integers(1, 7))
def test_rows_meet_by_all_columns_and_by_no_text_that_they_make_together(seed: int, batches: int, tasks: int) -> None:
    chance = random.Random(seed)
    arrived = [
        {
            "s": records(chance, chance.randrange(1, 30), "xyz", 100 * batch),
            "r": records(chance, chance.randrange(1, 30), "uvw", 100 * batch),
        }
        for batch in range(batches)
    ]
    done = run(pipeline_of(chance.randint(1, 5)), *arrived, settings=Settings.parse(scheme=f"tasks({tasks})"))
    with duckdb.connect() as connection:
        for stream, names in (("s", "xyz"), ("r", "uvw")):
            kinds = pa.schema([("id", "string"), *((name, "string") for name in names[:2]), (names[2], "int64")])
            rows = [row for batch in arrived for row in batch[stream]]
            connection.register(stream, pa.Table.from_pylist(rows, kinds.append(pa.field("n", pa.int64()))))
        for table, sql in QUERIES.items():
            wanted = connection.sql(sql).to_arrow_table().to_pylist()
            assert sorted(map(repr, done[table])) == sorted(map(repr, wanted)), table


def test_records_meet_none_if_any_column_of_their_key_is_null() -> None:
    keys = [("a", "b", 1), (None, "b", 1), ("a", None, 1), ("a", "b", None)]
    left, right = (
        [{"id": str(n), **dict(zip(names, key, strict=True)), "n": n} for n, key in enumerate(keys)]
        for names in ("xyz", "uvw")
    )
    done = run(pipeline_of(1), {"s": left, "r": right}, settings=Settings.parse(scheme="tasks(1)"))
    assert [(row["n"], row["m"]) for row in done["met"]] == [(0, 0)]


values = st.one_of(st.none(), st.text(max_size=3), st.sampled_from(TEXTS))


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(values, values), min_size=2, max_size=2))
def test_different_texts_make_different_keys_and_the_form_is_that_of_json(pair: list[tuple[Any, Any]]) -> None:
    with connect() as connection:
        rows = pa.table({"a": pa.array([a for a, _ in pair], "string"), "b": pa.array([b for _, b in pair], "string")})
        connection.register("pair", rows)
        keys = [key for (key,) in connection.execute(f"SELECT {canonical(['a', 'b'])} FROM pair").fetchall()]
    assert (keys[0] == keys[1]) == (pair[0] == pair[1])
    assert [tuple(json.loads(key)) for key in keys] == pair
    for key, row in zip(keys, pair, strict=True):
        assert key.lower() == json.dumps(row, ensure_ascii=False, separators=(",", ":")).lower()


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("7::TINYINT", "7"),
        ("7::UHUGEINT", "7"),
        ("1.50::DECIMAL(9, 2)", "1.5"),
        (f"'{10**37}'::DECIMAL(38, 0)", str(10**37)),
        ("true", "true"),
        (f"DATE '{date(2013, 1, 31)}'", '"2013-01-31"'),
        ("TIMESTAMP '2013-01-31 00:00:01.5'", '"2013-01-31 00:00:01.5"'),
        ("TIMESTAMPTZ '2013-01-31 00:00:01+02'", '"2013-01-30 22:00:01+00"'),
        ("'bb3e975f-2c37-65ab-7197-cdc39ec2e62a'::UUID", '"bb3e975f-2c37-65ab-7197-cdc39ec2e62a"'),
        ("NULL::BIGINT", "null"),
    ],
)
def test_each_type_is_written_as_its_page_says(sql: str, written: str) -> None:
    with connect() as connection:
        (key,) = connection.execute(f"SELECT {canonical(['a', 'b'])} FROM (SELECT {sql} AS a, 'é' AS b)").fetchall()[0]
    assert key == f'[{written},"é"]'


def by(flow: Flow, sql: str, name: str) -> Flow:
    return flow.select(f"{sql} AS part, 'x' AS other", name=f"{name}_s").rekey(("part", "other"), name=name)


@pytest.mark.parametrize("sql", ["1.5::DOUBLE", "'a'::BLOB", "[1]", "TIME '10:00:00'"])
def test_a_column_whose_values_are_written_in_several_ways_is_no_part_of_a_key(sql: str) -> None:
    (finding,) = findings(lambda flights, _: by(flights, sql, "wide").write("t"))
    assert finding.what.startswith("key column 'part' is ")
    assert not_refused(lambda flights, _: by(flights, f"({sql})::VARCHAR", "wide").write("t"))


def test_columns_of_different_types_that_would_never_meet_are_refused_and_whole_numbers_meet() -> None:
    def joined(left: str, right: str) -> Any:
        return lambda flights, planes: by(flights, left, "l").join(by(planes, right, "r"), "1 AS n").write("t")

    (finding,) = findings(joined("1::BIGINT", "'1'"))
    assert finding.what == (
        "key columns of different types would never meet: part of l is BIGINT, part of r is VARCHAR"
    )
    assert not_refused(joined("1::BIGINT", "1::UTINYINT"))


def not_refused(build: Any) -> bool:
    with pytest.raises(pytest.fail.Exception):
        findings(build)
    return True


def test_a_key_of_several_columns_meets_no_key_of_another_number() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    one, two = (pipeline.stream(name, key="k", partitions=2) for name in ("one", "two"))
    with pytest.raises(Refused, match=r"their keys have different numbers of columns \(one.rekey: \(a, b\); two: k\)"):
        one.rekey(("a", "b")).join(two, "1 AS n")


@pytest.mark.parametrize(
    ("key", "more", "what"),
    [
        ((), {}, "named with 0"),
        (("a", "a"), {}, "the column 'a' twice"),
        (("a", "b, c"), {}, "'b, c' cannot be one of several"),
        (("a", "b"), {"sql": "a || b"}, "has no expression"),
        (("a", "b"), {"key_format": "long"}, "no key format of its own"),
    ],
)
def test_a_key_of_several_columns_is_named_by_columns_alone(key: tuple[str, ...], more: Any, what: str) -> None:
    stream = Pipeline("p", source="s3://landing/topics").stream("s", key="k", partitions=2)
    with pytest.raises(Refused, match=what):
        stream.rekey(key, **more)


def test_expectations_on_a_table_of_such_keys_count_them_and_name_the_offender() -> None:
    def spent(*expected: Any) -> Pipeline:
        pipeline = Pipeline("spent", source="s3://landing/topics")
        parts = pipeline.stream("s", key="id", partitions=2).partial("sum(n)::BIGINT AS n", by=("x", "z"))
        totals = parts.combine("sum(n)::BIGINT AS n", running=True, name="totals")
        totals.write("totals", mode="upsert", expect=expected)
        return pipeline

    rows: list[dict[str, Any]] = [{"id": "1", "x": "ann", "z": 7, "n": 1}, {"id": "2", "x": "bob", "z": None, "n": -2}]
    usual = expect.keys_as_usual()
    assert len(run(spent(usual), {"s": rows}, {"s": rows})["totals"]) == 2
    positive = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 0}}
    with pytest.raises(Refused) as refused:
        run(spent(positive), {"s": rows})
    assert """-2 of key '["bob",null]' (its key is in""" in refused.value.findings[0].what


def test_the_offender_is_named_by_its_key_as_the_audit_writes_it() -> None:
    pipeline = Pipeline("spent", source="s3://landing/topics")
    days = pipeline.stream("s", key="id", partitions=2).select(
        "d::DATE AS d, (p / 100)::DECIMAL(9, 2) AS p, n", name="days"
    )
    parts = days.partial("sum(n)::BIGINT AS n", by=("d", "p"))
    positive = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 0}}
    totals = parts.combine("sum(n)::BIGINT AS n", running=True, name="totals")
    totals.write("totals", mode="upsert", expect=(positive,))
    with pytest.raises(Refused) as refused:
        run(pipeline, {"s": [{"id": "1", "d": "2013-01-31", "p": 150, "n": -2}]})
    assert """-2 of key '["2013-01-31",1.5]' (its key is in""" in refused.value.findings[0].what


def test_keys_of_one_column_in_a_json_object_meet_where_they_lie_and_others_once_they_move(store: Store) -> None:
    source = f"{store.root}/topics"
    # As Debezium's topics lie: by murmur2 of {"id":1001}.
    for stream, partitions, column in (("customers", 4, "name"), ("orders", 6, "amount")):
        for partition in range(partitions):
            ids = [n for n in range(1000, 1040) if murmur2(f'{{"id":{n}}}'.encode()) % partitions == partition]
            land_file(pa.table({"id": ids, column: [f"{column} {n}" for n in ids]}), stream, source, partition, 0)
    visits = pa.table({"id": pa.array(range(1000, 1040), pa.int64()), "page": [f"p{n}" for n in range(40)]})
    land_table(visits, "visits", source, key="id", partitions=3, key_format="long")
    made = Pipeline("one", source=source)
    customers = made.stream("customers", key=("id",), key_format="json", partitions=4)
    orders = made.stream("orders", key=("id",), key_format="json", partitions=6)
    customers.join(orders, "customers.name, orders.amount", name="met").write("met")
    seen = made.stream("visits", key="id", key_format="long", partitions=3)
    orders.rekey("id", key_format="long").join(seen, "amount, page", name="moved").write("moved")
    engine.run(made, store.root, DEFAULTS, twice=False)
    plan = Ledger(store, "one").standing().published
    assert plan is not None
    assert [exchange.name for exchange in plan.exchanges] == ["orders.rekey.exchange"]
    assert str(plan.stage("customers+orders").inputs[0].placement) == "murmur2 of json(id) mod 4"
    met = engine.rows(store.root, "met")
    assert sorted((row["id"], row["name"], row["amount"]) for row in met) == [
        (n, f"name {n}", f"amount {n}") for n in range(1000, 1040)
    ]
    moved = engine.rows(store.root, "moved")
    assert sorted((row["id"], row["amount"], row["page"]) for row in moved) == [
        (n, f"amount {n}", f"p{n - 1000}") for n in range(1000, 1040)
    ]


KEYS = [*(f"user-{number}" for number in range(30)), "", "", "", "user-1", "", "user-2"]


def landed(store: Store, stream: str, partitions: int, hash: str, keys: Sequence[str | None] = KEYS) -> None:
    """Land a stream as its producers do: records without a key in turn, and by crc32 those with an empty one."""
    places: dict[int, list[int]] = {}
    for number, key in enumerate(keys):
        by_turns = key is None or (hash == CRC32 and not key)
        h = number if by_turns else hash_of(MURMUR2 if hash == OPAQUE else hash, "here")(key, "string")
        places.setdefault(h % partitions, []).append(number)
    for partition, rows in places.items():
        table = pa.table({"k": pa.array([keys[row] for row in rows], pa.string()), "n": pa.array(rows, pa.int64())})
        land_file(table, stream, f"{store.root}/topics", partition, 0)


def met(store: Store, null_keys: NullKey = "own task", hash: str = CRC32, name: str = "met") -> Pipeline:
    """Orders that librdkafka has placed, which meet others of it, and visits that Java has placed."""
    made = Pipeline(name, source=f"{store.root}/topics")
    orders = made.stream("orders", key="k", partitions=6, hash=hash, null_keys=null_keys)
    paid = made.stream("paid", key="k", partitions=4, hash=CRC32, null_keys=null_keys)
    visits = made.stream("visits", key="k", partitions=4, null_keys=null_keys)
    spent = orders.aggregate("count(*) AS orders, sum(n)::BIGINT AS spent", name="spent")
    spent.join(paid, "orders, spent, paid.n", name="both").write("both")
    orders.aggregate("count(*) AS n", name="counts").write("counts")
    visits.join(spent, "visits.n, orders", name="seen").write("seen")
    known = orders.filter("k IS NOT NULL", name="known")
    known.combine("sum(n)::BIGINT AS n", running=True, name="totals").write("totals", mode="upsert")
    return made


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(5)"])
def test_all_meet_and_count_in_the_task_of_records_without_a_key(store: Store, scheme: str) -> None:
    keys = [*KEYS, None, None]
    for stream, partitions, hash in (("orders", 6, CRC32), ("paid", 4, CRC32), ("visits", 4, MURMUR2)):
        landed(store, stream, partitions, hash, keys)
    engine.run(met(store), store.root, Settings.parse(scheme=scheme), twice=False)
    given = pa.table({"k": pa.array(keys, pa.string()), "n": pa.array(range(len(keys)), pa.int64())})
    spent = "(SELECT k, count(*) AS orders, sum(n)::BIGINT AS spent FROM given GROUP BY k)"
    right = {
        "counts": "SELECT k, count(*) AS n FROM given GROUP BY k",
        "totals": "SELECT k, sum(n)::BIGINT AS n FROM given WHERE k IS NOT NULL GROUP BY k",
        "both": f"SELECT k, orders, spent, n FROM given JOIN {spent} USING (k)",
        "seen": f"SELECT k, n, orders FROM given JOIN {spent} USING (k)",
    }
    with duckdb.connect() as alone:
        alone.register("given", given)
        for table, query in right.items():
            there, asked = engine.rows(store.root, table), alone.sql(query).to_arrow_table().to_pylist()
            assert sorted(map(_plain, there)) == sorted(map(_plain, asked)), table


def _plain(row: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(f"{name}={row[name]!r}" for name in sorted(row))


def test_state_of_them_goes_on_under_another_number_of_tasks(store: Store) -> None:
    made = met(store)
    for stream, partitions, hash in (("orders", 6, CRC32), ("paid", 4, CRC32), ("visits", 4, MURMUR2)):
        landed(store, stream, partitions, hash)
    engine.run(made, store.root, DEFAULTS, twice=False)
    for number, partition in enumerate((1, 4)):
        file = pa.table({"k": pa.array(["", ""]), "n": pa.array([1000, 1000 + number], pa.int64())})
        land_file(file, "orders", f"{store.root}/topics", partition, _end(store, partition))
    engine.run(made, store.root, Settings.parse(scheme="tasks(5)"), twice=False)
    totals = {row["k"]: row["n"] for row in engine.rows(store.root, "totals")}
    assert totals[""] == sum(number for number, key in enumerate(KEYS) if not key) + 4001
    assert len(totals) == len(set(KEYS))


def _end(store: Store, partition: int) -> int:
    plan = Ledger(store, "met").standing().published
    assert plan is not None
    return plan.stream("orders").partitions[partition].end


def test_dropped_they_are_in_no_query(store: Store, tmp_path: Path) -> None:
    landed(store, "orders", 6, CRC32)
    file = tmp_path / "dropped.py"
    file.write_text(
        "from coset import Pipeline\n"
        f'pipeline = Pipeline("dropped", source={store.root + "/topics"!r})\n'
        'orders = pipeline.stream("orders", key="k", partitions=6, hash="crc32", null_keys="drop")\n'
        'orders.combine("sum(n)::BIGINT AS n", running=True).write("counts", mode="upsert")\n'
    )
    engine.run(pipelines.load(str(file)), store.root, DEFAULTS, twice=False)
    answer: Any = plans.query(str(file), store.root, "counts", None).value
    with duckdb.connect() as alone:
        right = dict(alone.sql(answer["query"]).fetchall())
    assert right == {row["k"]: row["n"] for row in engine.rows(store.root, "counts")}
    assert right == {key: sum(n for n, other in enumerate(KEYS) if other == key) for key in KEYS if key}


def test_refused_they_are_told_as_records_without_a_key_with_what_to_declare(store: Store) -> None:
    landed(store, "orders", 6, CRC32)
    made = Pipeline("refused", source=f"{store.root}/topics")
    made.stream("orders", key="k", partitions=6, hash=CRC32).aggregate("count(*) AS n").write("counts")
    said = refusal(ran(store, made))
    assert said.failed[0] == HAVE_KEYS
    assert "orders-0@[0,5): 1 record without a key" in said.findings[0]
    assert 'declare null_keys="drop" or "own task" for the stream' in said.next[0]
    assert "an empty key of orders counts as none, as librdkafka puts it anywhere" in said.next[0]
    assert f'if its producer puts it into partition 0, declare hash="{CRC32_CONSISTENT}"' in said.next[0]


def test_where_producers_hash_them_they_are_keys_like_others(store: Store) -> None:
    landed(store, "orders", 6, CRC32_CONSISTENT)
    made = Pipeline("hashed", source=f"{store.root}/topics")
    orders = made.stream("orders", key="k", partitions=6, hash=CRC32_CONSISTENT)
    orders.aggregate("count(*) AS n").write("counts")
    engine.run(made, store.root, DEFAULTS, twice=False)
    assert {row["k"]: row["n"] for row in engine.rows(store.root, "counts")}[""] == KEYS.count("")


def test_one_hides_no_advice(store: Store) -> None:
    landed(store, "orders", 6, CRC32)
    made = Pipeline("advised", source=f"{store.root}/topics")
    made.stream("orders", key="k", partitions=6).aggregate("count(*) AS n").write("counts")
    said = refusal(ran(store, made))
    assert 'if their producer hashes so, declare hash="crc32"' in said.next[0]


def test_records_of_an_empty_key_are_found_in_all_partitions(store: Store) -> None:
    for stream, partitions, hash in (("orders", 6, CRC32), ("paid", 4, CRC32), ("visits", 4, MURMUR2)):
        landed(store, stream, partitions, hash)
    ref = ran(store, met(store))
    ledger, plan = ref.load()
    found = of_keys(Attempt(ledger, plan, 0), "orders", [""], 100).found
    assert sorted(record.columns["n"] for record in found) == [n for n, key in enumerate(KEYS) if not key]
    assert len({record.partition for record in found}) > 1


def test_rows_of_dataframes_go_where_the_kernel_takes_them() -> None:
    keys = pa.array(["", "user-1", None, "user-2", "user-3"])
    for hash, empty in ((CRC32, 2), (CRC32_CONSISTENT, 0)):
        placement = Placement("k", KeyFormat.STRING, hash, 2)
        routing = RowRouting("k", "VARCHAR", placement, 3, 2, {0: 0, 1: 1}, 2)
        homes = [hash_of(hash, "here")(key, "string") % 2 for key in ("user-1", "user-2", "user-3")]
        places = routing.places_of(pa.record_batch({"k": keys}))
        assert places.tolist() == [empty, homes[0], 2, *homes[1:]]
        assert places.dtype == np.int64


def test_a_topic_that_is_written_by_turns_is_told_so_and_is_right_once_its_records_move(store: Store) -> None:
    keys = [f"user-{number % 24}" for number in range(120)]
    for partition in range(7):
        rows = [number for number in range(120) if number % 7 == partition]
        table = pa.table({"k": [keys[row] for row in rows], "n": pa.array(rows, pa.int64())})
        land_file(table, "orders", f"{store.root}/topics", partition, 0)
    made = Pipeline("turns", source=f"{store.root}/topics")
    made.stream("orders", key="k", partitions=7).aggregate("count(*) AS n").write("counts")
    said = refusal(ran(store, made))
    by_key = 'let it place records by key; to take its records from where they lie, declare hash="opaque" and move them'
    assert all("24 keys compared of orders lie in several partitions" in then for then in said.next[:1])
    assert by_key in said.next[0]

    unmoved = Pipeline("unmoved", source=f"{store.root}/topics")
    unmoved.stream("orders", key="k", partitions=7, hash=OPAQUE).aggregate("count(*) AS n").write("unmoved")
    said = refusal(ran(store, unmoved))
    assert "if no hash of the key places the records of orders, move them: orders.repartition()" in said.next[0]

    moved = Pipeline("moved", source=f"{store.root}/topics")
    orders = moved.stream("orders", key="k", partitions=7, hash=OPAQUE).repartition()
    orders.aggregate("count(*) AS n").write("moved")
    engine.run(moved, store.root, DEFAULTS, twice=False)
    assert {row["n"] for row in engine.rows(store.root, "moved")} == {5}


# Keys that are easily taken for one another, or for two.
EQUAL_KEYS: dict[str, tuple[pa.DataType, list[object]]] = {
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


def equal_records(chance: random.Random, key_format: KeyFormatName, count: int) -> pa.Table:
    kind, keys = EQUAL_KEYS[key_format]
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


def pipeline_by(source: str, key_format: KeyFormatName, partitions: int, identity: str) -> Pipeline:
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
    pipeline = pipeline_by(source, key_format, partitions, identity)
    for scheme in schemes:
        arrived = equal_records(chance, key_format, chance.randrange(5, 40))
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
