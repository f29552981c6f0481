"""Tables behind rows that change are their query after each batch: behind re-keying, joins, aggregates.

The oracle is one query for each table, in DuckDB over all records.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

from coset.testing import run
from coset.testing.runs import Rows, Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.meaning import RowKind, meanings
from partitioning.model.schemes import Scheme
from tests.examples import share
from tests.refused import finding_of, findings_of

SCHEMES = ("cogroup", "elastic(2)", "tasks(3)", "tasks(5)")
# The newest order of each key, the total of each key, and the users who are not deleted.
NEWEST = "(SELECT * FROM orders QUALIFY row_number() OVER (PARTITION BY k ORDER BY n DESC) = 1)"
TOTAL = "(SELECT k, sum(amount)::BIGINT AS amount FROM orders GROUP BY k)"
USERS = "(SELECT * FROM users QUALIFY row_number() OVER (PARTITION BY id ORDER BY n DESC) = 1)"
LIVING = f"(SELECT * FROM {USERS} WHERE NOT gone)"
# Each table with its query.
QUERIES: Mapping[str, str] = {
    "groups": f"SELECT g, count(*) AS c, sum(amount)::BIGINT AS s, count(note) AS notes FROM {NEWEST} GROUP BY g",
    "positive": f"SELECT g, max(amount) AS most, avg(amount) AS mean, count(DISTINCT note) AS notes FROM {NEWEST} "
    "WHERE amount > 0 GROUP BY g",
    "means": f"SELECT g, avg(amount) AS mean FROM {NEWEST} GROUP BY g",
    "sizes": f"SELECT c, count(*) AS groups FROM (SELECT g, count(*) AS c FROM {NEWEST} GROUP BY g) GROUP BY c",
    "segments": f"SELECT t.k, t.amount, u.seg FROM {TOTAL} AS t JOIN {LIVING} AS u ON t.k = u.id",
    "by_segment": f"SELECT u.seg, list(t.amount ORDER BY t.amount) AS amounts FROM {TOTAL} AS t JOIN {LIVING} AS u "
    "ON t.k = u.id GROUP BY u.seg",
    "everyone": f"SELECT coalesce(t.k, u.id) AS k, t.amount, u.seg FROM {NEWEST} AS t FULL JOIN {LIVING} AS u "
    "ON t.k = u.id",
    "best": f"SELECT g, k, amount, n FROM {NEWEST} QUALIFY row_number() OVER (PARTITION BY g ORDER BY amount, n) = 1",
    "owing": f"SELECT t.k, count(*) AS c FROM {NEWEST} AS t JOIN (SELECT k FROM {NEWEST} "
    "QUALIFY row_number() OVER (PARTITION BY g ORDER BY amount, n) = 1) AS b ON t.k = b.k WHERE t.amount < 0 "
    "GROUP BY t.k",
    "counted": f"SELECT coalesce(t.k, u.id) AS k, a, b FROM (SELECT k, count(*) AS a FROM {NEWEST} GROUP BY k) AS t "
    f"FULL JOIN (SELECT id, count(*) AS b FROM {LIVING} GROUP BY id) AS u ON t.k = u.id",
    "either": f"SELECT amount, count(*) AS c FROM (SELECT amount FROM {NEWEST} UNION ALL SELECT amount FROM {TOTAL}) "
    "GROUP BY amount",
    "log": f"SELECT g, k, amount FROM {NEWEST}",
}


def changing() -> Pipeline:
    """Rows of orders and users that change, behind every step that takes changes."""
    pipeline = Pipeline("changing")
    orders = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders")
    users = pipeline.table("users", key="id", partitions=3, source="s3://lake/users", deletes="gone", kept=True)
    newest = orders.latest("n", name="newest")
    by_group = newest.rekey("g", name="by_group")
    counts = by_group.aggregate(
        "count(*) AS c, sum(amount::BIGINT)::BIGINT AS s, count(note) AS notes", name="group_counts"
    )
    counts.write("groups", mode="upsert")
    most = "max(amount) AS most, avg(amount) AS mean, count(DISTINCT note) AS notes"
    newest.filter("amount > 0", name="above").rekey("g", name="above_by_group").aggregate(most, name="maxima").write(
        "positive", mode="upsert"
    )
    counts.rekey("c", key_format="long", name="by_size").aggregate("count(*) AS groups", name="size_counts").write(
        "sizes", mode="upsert"
    )
    totals = orders.select("amount", name="amounts").combine(
        "sum(amount)::BIGINT AS amount", running=True, name="total"
    )
    of_user = totals.join(users, "total.amount, users.seg", name="of_user")
    of_user.write("segments", mode="upsert")
    of_user.rekey("seg", name="of_seg").aggregate("list(amount ORDER BY amount) AS amounts", name="lists").write(
        "by_segment", mode="upsert"
    )
    newest.join(users, "newest.amount, users.seg", how="full", name="all_of").write("everyone", mode="upsert")
    least = by_group.select("k, amount, n", name="some").latest("(-amount, -n)", name="least")
    least.write("best", mode="upsert")
    # What the newest rows changed is needed before an exchange, and these once it is there.
    owing = newest.filter("amount < 0", name="owing").join(least.rekey("k", name="of_least"), "owing.amount", name="o")
    owing.aggregate("count(*) AS c", name="owed").write("owing", mode="upsert")
    newest.cogroup("count(*) AS a", (users, "count(*) AS b"), name="both").write("counted", mode="upsert")
    one, other = (
        flow.rekey("amount", key_format="long", name=f"{flow.step}_by").select("1 AS one", name=f"{flow.step}_ones")
        for flow in (newest, totals)
    )
    one.merge(other, name="merged").aggregate("count(*) AS c", name="again").write("either", mode="upsert")
    by_group.select("amount", name="alone").aggregate("avg(amount) AS mean", name="means").write("means", mode="upsert")
    by_group.select("k, amount", name="logged").write("log", mode="changelog")
    return pipeline


def landed(chance: random.Random, batch: int) -> dict[str, Rows]:
    """Records of a batch: few keys, so that most of them come again."""
    return {
        "orders": [
            {
                "k": f"k{chance.randrange(12)}",
                "g": chance.choice("abc"),
                "amount": chance.randrange(-4, 5),
                "n": batch * 1000 + number,
                "note": chance.choice([None, "x", "y"]),
            }
            for number in range(chance.randrange(1, 25))
        ],
        "users": [
            {
                "id": f"k{chance.randrange(14)}",
                "seg": chance.choice("xyz"),
                "gone": chance.random() < 0.3,
                "n": batch * 1000 + number,
            }
            for number in range(chance.randrange(1, 10))
        ],
    }


def rows_of(database: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    return sorted(map(str, database.sql(sql).to_arrow_table().to_pylist()))


@pytest.mark.parametrize("seed", share(range(8)))
def test_a_table_behind_rows_that_change_is_its_query_after_each_batch(seed: int) -> None:
    chance, records = random.Random(seed), dict[str, list[Mapping[str, object]]]()
    with Trial.made(changing()) as place:
        for batch in range(4):
            arrived = landed(chance, batch)
            for stream, rows in arrived.items():
                records.setdefault(stream, []).extend(rows)
            place.land(arrived)
            place.run(Settings(scheme=Scheme.parse(chance.choice(SCHEMES))), twice=chance.random() < 0.2)
            published = place.tables()
            with duckdb.connect() as database:
                for stream, rows in records.items():
                    database.register(stream, pa.Table.from_pylist(rows))
                for table, sql in QUERIES.items():
                    columns = ", ".join(database.sql(sql).columns)
                    made = f"SELECT {columns} FROM published"
                    if table == "log":
                        sign = "CASE _change_type WHEN 'insert' THEN 1 ELSE -1 END"
                        made = f"SELECT {columns} FROM published GROUP BY ALL HAVING sum({sign}) > 0"
                    found = list[str]()
                    if published[table]:
                        database.register("published", pa.Table.from_pylist(published[table]))
                        found = rows_of(database, made)
                    assert found == rows_of(database, sql), (table, batch, seed)


def test_the_sum_of_a_group_that_has_no_value_any_more_is_null() -> None:
    pipeline = Pipeline("sums")
    orders = pipeline.stream("orders", key="k", partitions=1, source="s3://lake/orders")
    orders.latest("n").rekey("g").aggregate("sum(v::BIGINT)::BIGINT AS s", name="sums").write("sums", mode="upsert")
    first = [{"k": "a", "g": "x", "n": 1, "v": 5}, {"k": "b", "g": "x", "n": 1, "v": None}]
    then = [{"k": "a", "g": "x", "n": 2, "v": None}, {"k": "c", "g": "y", "n": 2, "v": 7}]
    rows = run(pipeline, {"orders": first}, {"orders": then})
    assert {(row["g"], row["s"]) for row in rows["sums"]} == {("x", None), ("y", 7)}


def test_sums_of_decimals_keep_their_cents() -> None:
    pipeline = Pipeline("cents")
    orders = pipeline.stream("orders", key="k", partitions=2, source="s3://lake/orders")
    paid = "sum(v::DECIMAL(9,2))::DECIMAL(12,2) AS s"
    orders.latest("n").rekey("g").aggregate(paid, name="sums").write("sums", mode="upsert")
    first = [{"k": key, "g": "x", "n": 1, "v": "0.10"} for key in "abc"]
    rows = run(pipeline, {"orders": first}, {"orders": [{"k": "a", "g": "x", "n": 2, "v": "0.25"}]})
    assert [str(row["s"]) for row in rows["sums"]] == ["0.45"]


def test_of_changes_only_those_that_come_are_records() -> None:
    pipeline = Pipeline("coming")
    orders = pipeline.stream("orders", key="k", partitions=2, source="s3://lake/orders")
    orders.latest("n", name="newest").rekey("g", name="moved").to_stream().write("moves")
    rows = run(pipeline, {"orders": [{"k": "a", "g": "x", "n": 1}]}, {"orders": [{"k": "a", "g": "y", "n": 2}]})
    assert sorted((row["g"], row["n"]) for row in rows["moves"]) == [("x", 1), ("y", 2)]


def counted(rows: pa.Table, kept: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Each record with its number among those of its key, where what is kept is the last."""
    last, numbers = dict(zip(kept["k"].to_pylist(), kept["records"].to_pylist(), strict=True)), list[int]()
    for key in rows["k"].to_pylist():
        last[key] = last.get(key, 0) + 1
        numbers.append(last[key])
    return (
        pa.table({"k": rows["k"], "records": numbers}),
        pa.table({"k": list(last.keys()), "records": list(last.values())}),
    )


@pytest.mark.parametrize("step", ["distinct", "process"])
def test_records_of_a_step_that_keeps_something_else_only_come(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_IMPORTS", "tests")
    pipeline = Pipeline("kept", source="s3://landing")
    views = pipeline.stream("views", key="k", partitions=2)
    if step == "distinct":
        hours = {"within": timedelta(hours=1), "keep": timedelta(days=9)}
        made = views.distinct("page", time="seen", name="once", **hours).select("page AS records", name="made")
    else:
        columns = {"k": "VARCHAR", "records": "BIGINT"}
        made = views.process("tests.integration.test_changes:counted", columns, state=columns, name="made")
    made.write("records")
    logged = made if step == "process" else pipeline.flow("once").select("page AS records", name="logged")
    pipeline.flow("once" if step == "distinct" else "made").write("log", mode="changelog")
    logged.kept(name="all").aggregate("count(*) AS n, max(records) AS most").write("most", mode="upsert")
    noon = datetime.fromisoformat("2026-11-01 12:00:00")
    batches = [
        {"views": [{"k": key, "page": 1, "seen": noon + timedelta(minutes=minute)} for key in keys]}
        for minute, keys in enumerate(("ab", "a", "bc"))
    ]
    rows = run(pipeline, *batches)
    assert rows.unverified == {}
    assert len(rows["log"]) == len(rows["records"]) == {"distinct": 3, "process": 5}[step]
    assert {row["_change_type"] for row in rows["log"]} == {"insert"}
    assert {row["k"]: row["n"] for row in rows["most"]} == {
        "distinct": {"a": 1, "b": 1, "c": 1},
        "process": {"a": 2, "b": 2, "c": 1},
    }[step]


def test_what_is_no_number_is_the_greatest_in_the_printed_query_too() -> None:
    pipeline = Pipeline("real")
    prices = pipeline.stream("prices", key="k", partitions=1, source="s3://lake/prices")
    prices.filter("price > 1").write("high")
    prices.latest("price", name="newest").write("newest", mode="upsert")
    landed = [{"k": "a", "price": price} for price in (0.5, math.nan, -1.0)]
    # Each is held against its query.
    rows = run(pipeline, {"prices": landed}, {"prices": landed[:1]})
    assert [len(rows[table]) for table in ("high", "newest")] == [1, 1]


def test_what_goes_is_taken_back_as_it_came() -> None:
    def most_of(made: str) -> Pipeline:
        pipeline = Pipeline("edited")
        orders = pipeline.stream("orders", key="k", partitions=1, source="s3://lake/orders")
        made_of = orders.latest("n").select(f"g, {made} AS v", name="made").rekey("g")
        made_of.aggregate("max(v) AS most", name="most").write("most", mode="upsert")
        return pipeline

    with Trial.made(most_of("v")) as place:
        place.land({"orders": [{"k": "a", "g": "x", "n": 1, "v": 5}]})
        place.run()
        place.go_on_with(most_of("v + 1"))
        place.land({"orders": [{"k": "a", "g": "y", "n": 2, "v": 5}]})
        (kept,) = findings_of(place.run)
        assert "if the steps make the same of earlier records as before" in kept.then
        assert kept.where == "state of most.kept.made, left by batch 0, and 1 more step or table"
        finding = finding_of(place.run, Settings(go_on=("most.kept.made",)))
        assert finding.kind is Kind.STATE_CHANGED
        assert finding.then.endswith("by a backfill of all batches: `coset backfill edited --from 0 --cascade`")


def test_rows_that_change_meet_by_keys_of_several_columns_that_have_other_names() -> None:
    pipeline = Pipeline("met")
    orders = pipeline.stream("orders", key="k", partitions=2, source="s3://lake/orders")
    newest = orders.latest("n", name="newest")
    placed = newest.rekey(("shop", "day"), name="placed")
    counts = (
        newest.select("shop AS place, day AS at_day").rekey(("place", "at_day"), name="days").aggregate("count(*) AS c")
    )
    met = placed.join(counts, "placed.k, days.c", name="met")
    met.rekey("k").latest("c").write("met", mode="upsert")
    first = [{"k": k, "shop": "x", "day": 1, "n": 1} for k in "ab"]
    moved = [{"k": "b", "shop": "x", "day": 2, "n": 2}, {"k": "c", "shop": "x", "day": 2, "n": 2}]
    rows = run(pipeline, {"orders": first}, {"orders": moved}, settings=Settings(scheme=Scheme.parse("tasks(3)")))
    assert {(row["k"], row["day"], row["c"]) for row in rows["met"]} == {("a", 1, 1), ("b", 2, 2), ("c", 2, 2)}


def test_only_records_are_kept_and_a_key_may_have_several() -> None:
    pipeline, _ = flows()
    orders, newest = pipeline.flow("orders"), pipeline.flow("newest")
    with pytest.raises(Refused, match="rows of newest are newest, not records"):
        newest.kept()
    with pytest.raises(Refused, match="may have several rows of a key"):
        orders.kept(name="every").write("orders", mode="upsert")
    assert orders.kept().step == orders.kept().step, "it is one step however often it is asked for"


def test_of_all_these_tables_only_the_changelog_has_what_goes() -> None:
    kinds = {table: means.rows for table, means in meanings(changing().graph).items()}
    assert kinds == dict.fromkeys(QUERIES, RowKind.NEWEST) | {"log": RowKind.CHANGES}


def test_rows_that_only_a_table_takes_as_records_are_no_step_of_it_and_can_be_looked_at() -> None:
    pipeline, _ = flows()
    given = pipeline.flow("newest").to_stream()
    given.write("history")
    assert given.step not in {step.name for step in pipeline.steps}
    assert [step.name for step in pipeline.up_to(given.step, "t").steps] == ["newest", given.step]


def flows() -> tuple[Pipeline, Mapping[str, object]]:
    pipeline = Pipeline("refused")
    orders = pipeline.stream("orders", key="k", partitions=2, source="s3://lake/orders", time="ts")
    whole = pipeline.table("whole", key="k", partitions=2, source="s3://lake/whole")
    newest = orders.latest("n", name="newest")
    return pipeline, {"orders": orders, "whole": whole, "newest": newest, "moved": newest.rekey("g", name="moved")}


@pytest.mark.parametrize("name", ["changes", "keys", "kept", "newest", "parts", "rows", "there", "totals"])
def test_flows_may_be_called_as_what_batches_need_of_them_is(name: str) -> None:
    pipeline = Pipeline("named", source="s3://lake")
    one, other = (pipeline.stream(f"{of}_in", key="k", partitions=2).latest("n", name=of) for of in (name, "orders"))
    joined = one.join(other, f"{name}.g", name="joined")
    joined.rekey("g").aggregate("count(*) AS c, max(k) AS most", name="counted").write("counted", mode="upsert")
    one.rekey("g", name="moved").aggregate("count(*) AS c", name="all").write("all", mode="upsert")
    assert [write.table for write in pipeline.graph.writes] == ["counted", "all"]


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("orders.write('t', mode='upsert')", "only the row of its last batch would stay"),
        ("orders.aggregate('count(*) AS n').write('t', mode='upsert')", "only the row of its last batch would stay"),
        ("newest.write('t')", "which mode 'append' would leave or lose"),
        ("moved.write('t')", "which mode 'append' would leave or lose"),
        ("moved.write('t', mode='replace')", "which mode 'replace' would leave or lose"),
        ("orders.write('t', mode='replace')", "would take away those of the batches before it"),
        ("newest.filter('n > 1').write('t', mode='replace')", "which mode 'replace' would leave or lose"),
        ("whole.write('t')", "has all its rows in each batch, which would append them again"),
        ("moved.write('t', mode='upsert')", "may have several rows of a key"),
        ("moved.aggregate('count(*) AS n', by='k').write('t', mode='upsert')", "may have several rows of a key"),
        ("newest.select('unnest([n, 1]) AS m').write('t', mode='upsert')", "may have several rows of a key"),
        ("newest.select('1 + generate_subscripts([n, 1], 1) AS m').write('t', mode='upsert')", "may have several rows"),
        (
            "newest.select('Unlist (g) AS m').filter('m > 1').write('t', mode='upsert')",
            "may have several rows of a key",
        ),
        (
            "newest.select('regexp_split_to_table(g, k) AS m')._changes().write('t', mode='upsert')",
            "several rows of a key",
        ),
        ("newest.aggregate('unnest(list(n)) AS m').write('t', mode='upsert')", "may have several rows of a key"),
        ("whole.select('unnest([n, 1]) AS m').write('t', mode='upsert')", "may have several rows of a key"),
        ("newest.join(whole, '1 AS one').write('t', mode='upsert')", "each batch reads table 'whole' whole"),
        (
            "newest.join(orders.latest('ts', name='last'), '1 AS one', on='newest.n > last.n', how='full')"
            ".write('t', mode='upsert')",
            "may have several rows of a key",
        ),
        ("newest.merge(moved.rekey('k'), orders).write('t')", "which mode 'append' would leave or lose"),
        ("moved.join(orders.rekey('g', name='o'), '1 AS one')", "rows of o are records, and it meets rows that"),
        ("whole.join(whole.select('1 AS a', name='b'), '1 AS one').write('t', mode='upsert')", "all its rows in each"),
        ("newest.distinct('n', time='ts', within=timedelta(1))", "distinct does not take those back"),
        ("newest.partial('count(*) AS n', by='g')", "partial does not take those back"),
        ("newest.windows('count(*) AS n', time='ts', every=timedelta(1))", "windows does not take those back"),
        ("newest.join_within(orders, '1 AS a', times=('ts', 'ts'), within=timedelta(1))", "join_within does not take"),
        ("moved.process('m:f', {'g': 'VARCHAR'})", "process does not take those back"),
    ],
)
def test_what_could_not_be_its_query_is_refused_with_what_to_write(written: str, why: str) -> None:
    _, given = flows()
    with pytest.raises(Refused, match=why) as refused:
        eval(written, {**given, "timedelta": timedelta})
    assert all(finding.next for finding in refused.value.findings)
