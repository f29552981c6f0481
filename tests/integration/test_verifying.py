"""`coset verify` says of a published table whether it is its query, and `meaning` knows it before anything runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from deltalake import DeltaTable

from coset.batches.verifying import ALL, KeyPart, Verified, verify
from coset.testing.runs import Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.explain.table_query import table_query
from partitioning.hashes import murmur2
from partitioning.model.meaning import RowKind, meanings
from spark_jobs.tables.table_schema import folder

# Each of these is of a table, and what its rows are.
MEANINGS: Mapping[str, RowKind] = {
    "raw": RowKind.RECORDS,
    "filtered": RowKind.RECORDS,
    "once": RowKind.RECORDS,
    "hours": RowKind.RECORDS,
    "newest": RowKind.NEWEST,
    "positive": RowKind.NEWEST,
    "shown": RowKind.NEWEST,
    "totals": RowKind.NEWEST,
    "big": RowKind.NEWEST,
    "alive": RowKind.NEWEST,
    "living": RowKind.NEWEST,
    "expired": RowKind.RECORDS,
    "users": RowKind.ALL,
    "users_selected": RowKind.NEWEST,
    "segments": RowKind.NEWEST,
    "users_now": RowKind.ALL,
    "both_now": RowKind.ALL,
    "by_group": RowKind.NEWEST,
    "total_by_segment": RowKind.NEWEST,
    "histogram": RowKind.NEWEST,
    "counted_again": RowKind.NEWEST,
    "by_batch": RowKind.OF_BATCH,
    "last_sums": RowKind.OF_BATCH,
    "with_users": RowKind.OF_BATCH,
    "with_newest": RowKind.OF_BATCH,
    "changes": RowKind.OF_BATCH,
    "last_records": RowKind.OF_BATCH,
    "last_expired": RowKind.OF_BATCH,
    "priced": RowKind.OF_BATCH,
    "adding_up": RowKind.NEWEST,
    "by_two": RowKind.NEWEST,
}


def natural() -> Pipeline:
    """What people write: steps in orders that seem to mean something."""
    pipeline = Pipeline("natural")

    orders = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders", time="ts")
    users = pipeline.table("users", key="k", partitions=4, source="s3://lake/users", deletes="gone", kept=True)
    segments = pipeline.table("segments", key="k", partitions=4, source="s3://lake/segments", deletes="gone")
    orders.write("raw")
    orders.filter("amount > 0").select("amount * 2 AS twice").write("filtered")
    orders.distinct("id", time="ts", within=timedelta(days=1)).write("once")
    orders.windows("count(*) AS n", time="ts", every=timedelta(hours=1)).write("hours")
    newest = orders.latest("ts", name="newest_order")
    newest.write("newest", mode="upsert")
    newest.filter("amount > 0").write("positive", mode="upsert")
    newest.select("amount, g", name="some").filter("amount > 0").select("g").write("shown", mode="upsert")
    newest.to_stream().write("changes")
    newest.rekey("g").aggregate("count(*) AS n").write("by_group", mode="upsert")
    totals = orders.select("amount", name="amounts").combine(
        "sum(amount)::BIGINT AS amount", running=True, name="total"
    )
    totals.write("totals", mode="upsert")
    totals.filter("amount > 5").write("big", mode="upsert")
    totals.rekey("amount", key_format="long").aggregate("count(*) AS n").write("histogram", mode="upsert")
    totals.combine("sum(amount)::BIGINT AS amount", running=True).write("counted_again", mode="upsert")
    totals.join(users, "total.amount, users.seg").write("total_by_segment", mode="upsert")
    lives = orders.select("ts, 1::BIGINT AS n", name="timed").combine(
        "sum(n)::BIGINT AS n, max(ts) AS ts", running=True, time="ts", keep=timedelta(hours=20), name="life"
    )
    lives.write("alive", mode="upsert")
    lives.rekey("n", key_format="long", name="by_n").aggregate("count(*) AS c").write("living", mode="upsert")
    ended = lives.expired()
    ended.write("expired")
    users.write("users", mode="upsert")
    users.select("seg").write("users_selected", mode="upsert")
    segments.write("segments", mode="upsert")
    users.write("users_now", mode="replace")
    both = users.join(segments, "users.seg, segments.seg AS other")
    both.write("both_now", mode="replace")
    orders.aggregate("count(*) AS n").write("by_batch")
    orders.aggregate("sum(amount) AS s", name="sums").to_stream().write("last_sums", mode="upsert")
    orders.join(users, "orders.id, users.seg", name="with_users").write("with_users")
    orders.join(newest, "orders.id, newest_order.id AS newest", name="with_newest").write("with_newest")
    orders.write("last_records", mode="replace")
    ended.to_stream().write("last_expired", mode="upsert")
    sums = "sum(amount)::BIGINT AS amount"
    priced = orders.join(users, "orders.amount", name="priced")
    by_batch = priced.aggregate(sums, name="priced_by_batch")
    by_batch.combine(sums, running=True, name="priced_sums").write("priced", mode="upsert")
    orders.aggregate(sums, name="by_order").combine(sums, running=True, name="all").write("adding_up", mode="upsert")
    orders.rekey(("k", "g"), name="of_two").latest("ts", name="newest_of_two").write("by_two", mode="upsert")
    return pipeline


def few() -> Pipeline:
    """Some of these tables: one of each kind, and those of which a row may go."""
    pipeline = Pipeline("few")
    orders = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders", time="ts")
    segments = pipeline.table("segments", key="k", partitions=4, source="s3://lake/segments", deletes="gone")
    segments.write("segments", mode="upsert")
    newest = orders.latest("ts", name="newest_order")
    newest.filter("amount > 0").write("positive", mode="upsert")
    newest.rekey("g").aggregate("count(*) AS n").write("by_group", mode="upsert")
    orders.rekey(("k", "g"), name="of_two").latest("ts", name="newest_of_two").write("by_two", mode="upsert")
    lives = orders.latest("ts", time="ts", keep=timedelta(hours=20), name="life")
    lives.write("alive", mode="upsert")
    lives.rekey("g", name="living_by_group").aggregate("max(amount) AS most").write("living", mode="upsert")
    lives.expired(name="ended").write("expired")
    pipeline.flow("ended").to_stream().write("last_expired", mode="upsert")
    return pipeline


def landed(batch: int, seed: int) -> dict[str, list[dict[str, object]]]:
    """Records of a batch, two days after those of the one before."""
    chance, day = random.Random(f"{seed}-{batch}"), datetime.fromisoformat("2026-11-01") + timedelta(days=2 * batch)
    of_users = [
        [
            {"k": f"k{chance.randrange(20)}", "seg": chance.choice("xyz"), "gone": chance.random() < 0.3}
            for _ in range(12)
        ]
        for _ in range(2)
    ]
    orders = [
        {
            "k": f"k{chance.randrange(20)}",
            "g": chance.choice("abc"),
            "amount": chance.randrange(-5, 6),
            "ts": day + timedelta(minutes=chance.randrange(600), microseconds=number),
            "id": chance.randrange(30),
        }
        for number in range(40)
    ]
    return {"orders": orders, "users": of_users[0], "segments": of_users[1]}


def test_what_rows_are_is_known_before_anything_runs() -> None:
    assert {table: means.rows for table, means in meanings(natural().graph).items()} == dict(MEANINGS)


def test_newest_rows_under_another_key_go_from_their_old_place() -> None:
    pipeline = Pipeline("small")
    newest = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders").latest("n", name="newest")
    moved = newest.rekey("g", name="moved")
    assert (moved.means.rows, moved.means.several) == (RowKind.CHANGES, True)


@pytest.mark.parametrize(
    ("pipeline", "seed"), [(few(), 0), *(pytest.param(natural(), seed, marks=pytest.mark.long) for seed in (1, 2, 3))]
)
def test_a_table_differs_from_its_query_only_where_that_is_said(pipeline: Pipeline, seed: int) -> None:
    with published(pipeline, seed) as place:
        found = {each.table: each for each in verified(place)}
        rows = place.tables()
        some = ["positive", "by_group", "by_two"]
        parts = [each for part in range(3) for each in verified(place, some, KeyPart(part, 3))]
    for table in rows:
        difference = found[table].difference
        assert (difference is None) == (MEANINGS[table] is RowKind.OF_BATCH), table
        if difference is not None:
            assert difference.same, (table, difference)
    # A key that lives again has still been over once.
    assert {row["k"] for row in rows["last_expired"]} == {row["k"] for row in rows["expired"]}
    for table in some:
        whole, of_parts = found[table].difference, [each.difference for each in parts if each.table == table]
        assert whole is not None
        assert [sum(counts) for counts in zip(*(each.rows for each in of_parts if each), strict=True)] == [*whole.rows]
        assert sum(each.keys for each in of_parts if each) == whole.keys


@pytest.mark.parametrize("column", ["_batch", "_task", "_residue"])
def test_a_column_is_compared_although_coset_has_one_of_its_name_elsewhere(column: str) -> None:
    pipeline = Pipeline("small")
    orders = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders")
    orders.select(f"n AS {column}").write("each")
    with Trial.made(pipeline) as place:
        place.land({"orders": [{"k": f"k{number}", "n": number} for number in range(20)]})
        place.run()
        assert [each.is_wrong for each in verified(place)] == [False]
        DeltaTable(folder(store_at(place.root), "each")).update({column: "-1"}, predicate="k = 'k7'")
        assert [each.is_wrong for each in verified(place)] == [True]


def test_a_row_that_somebody_changed_is_found_by_its_key() -> None:
    pipeline = Pipeline("small")
    orders = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders")
    orders.latest("n").write("newest", mode="upsert")
    rows = [{"k": f"k{number}", "n": number} for number in range(20)]
    with Trial.made(pipeline) as place:
        place.land({"orders": rows})
        place.run()
        table = DeltaTable(folder(store_at(place.root), "newest"))
        table.update({"n": "-1"}, predicate="k = 'k7'")
        (found,) = verified(place)
        assert found.difference is not None
        assert found.difference.first == (("k7", '{"k":"k7","n":-1}', '{"k":"k7","n":7}'),)
        mine = [
            each.difference.keys
            for part in range(16)
            for each in verified(place, part=KeyPart(part, 16))
            if each.difference
        ]
        assert sorted(mine) == [*[0] * 15, 1]


def test_floating_sums_of_batches_are_nearly_those_of_all_records_at_once() -> None:
    pipeline, chance = Pipeline("real", source="s3://nowhere/topics"), random.Random(0)
    orders = pipeline.stream("orders", key="customer", partitions=3)
    orders.select("amount").combine("sum(amount) AS amount", running=True, name="spent").write("spent", mode="upsert")
    with Trial.made(pipeline) as place:
        for _ in range(3):
            rows = [{"customer": f"c{chance.randrange(5)}", "amount": chance.uniform(-99, 99)} for _ in range(200)]
            place.land({"orders": rows})
            place.run()
        (found,) = verified(place)
        assert str(found) == "Table spent is its query up to batch 2: 5 rows"


def test_of_records_that_are_alike_the_first_that_came_may_not_be_the_earliest() -> None:
    pipeline, hour = Pipeline("late", source="s3://nowhere/topics"), timedelta(hours=1)
    views = pipeline.stream("views", key="k", partitions=1, time="seen", late=9 * hour)
    views.distinct("page", time="seen", within=hour, name="once").write("once")
    noon = datetime.fromisoformat("2026-11-01 12:00:00")
    with Trial.made(pipeline) as place:
        for minute in (30, 10):
            place.land({"views": [{"k": "a", "page": 1, "seen": noon + timedelta(minutes=minute)}]})
            place.run()
        (found,) = verified(place)
        assert found.is_wrong
        assert "step once keeps the first to come, which may not be the earliest" in str(found)
        plan = Ledger(store_at(place.root), "late").standing().published
        assert plan
        assert "-- DISTINCT BY BATCH: of records that are alike" in table_query(pipeline, plan, "once")


def test_a_part_of_the_keys_is_computed_without_the_records_of_others() -> None:
    def declared(amount: str) -> Pipeline:
        pipeline = Pipeline("small")
        orders = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders")
        orders.select(f"n, {amount} AS amount", name="amounts").latest("n").write("newest", mode="upsert")
        return pipeline

    with Trial.made(declared("n")) as place:
        place.land({"orders": [{"k": f"k{number}", "n": number} for number in range(100)]})
        place.run()
        place.go_on_with(declared("CASE WHEN k = 'k8' THEN error('it is read') ELSE n END"))
        home = murmur2(b"k8") % 16
        with pytest.raises(Refused, match="it is read"):
            verified(place, part=KeyPart(home, 16))
        others = [KeyPart(part, 16) for part in range(16) if part != home]
        assert [each.is_wrong for part in others for each in verified(place, part=part)] == [False] * 15


def test_of_rows_that_nothing_places_by_their_key_no_part_is_taken() -> None:
    pipeline = Pipeline("small")
    orders = pipeline.stream("orders", key="k", partitions=2, source="s3://lake/orders")
    orders.rekey("n", key_format="long").write("moved")
    with Trial.made(pipeline) as place:
        place.land({"orders": [{"k": "a", "n": 1}]})
        place.run()
        assert [each.found for each in verified(place, part=KeyPart(2, 16))] == [
            "nothing places its rows by its key, so no part of its keys can be taken"
        ]
        (whole,) = verified(place)
        assert whole.difference is not None
        assert whole.difference.same


def test_rows_of_tasks_that_own_no_keys_are_in_their_part() -> None:
    pipeline = Pipeline("small")
    orders = pipeline.stream("orders", key="k", partitions=2, source="s3://lake/orders", null_keys="own task")
    orders.write("raw")
    orders.distinct("n", time="seen", within=timedelta(days=1)).write("once")
    seen = datetime.fromisoformat("2026-11-01")
    with Trial.made(pipeline) as place:
        place.land({"orders": [{"k": key, "n": n, "seen": seen} for n, key in enumerate([None, *"abcdefgh"])]})
        place.run()
        for table in ("raw", "once"):
            parts = [each.difference for part in range(3) for each in verified(place, [table], KeyPart(part, 3))]
            assert [each.same for each in parts if each] == [True] * 3
            assert sum(each.rows[0] for each in parts if each) == 9


def test_records_that_are_gone_are_named() -> None:
    pipeline = Pipeline("small")
    pipeline.stream("orders", key="k", partitions=1, source="s3://lake/orders").latest("n").write("t", mode="upsert")
    with Trial.made(pipeline) as place:
        for at in range(3):
            place.land({"orders": [{"k": "a", "n": at}]})
            place.run()
        first, *_ = sorted(Path(urlsplit(place.pipeline.streams[0].source).path).rglob("*.parquet"))
        first.unlink()
        with pytest.raises(Refused, match=r"offsets \[0,1\) are gone"):
            verified(place)


@contextmanager
def published(pipeline: Pipeline, seed: int) -> Iterator[Trial]:
    """The pipeline after four batches, and those that give what is over."""
    with Trial.made(pipeline) as place:
        for batch in range(4):
            arrived = landed(batch, seed)
            place.land({stream.name: arrived[stream.name] for stream in pipeline.streams})
            place.run()
        place.close()
        yield place


def verified(place: Trial, tables: Sequence[str] = (), part: KeyPart = ALL) -> list[Verified]:
    return list(verify(place.pipeline, store_at(place.root), tables, part))
