"""Keys of several columns: what comes out is what one query by both columns gives, however the batches are planned."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coset import expect
from coset.testing import engine, run
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.hashes import murmur2
from partitioning.model.composite_key import canonical
from spark_jobs.engine.task_database import connect
from tests.checked_sql import findings
from tests.examples import examples
from tests.landed import land_file, land_table

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
