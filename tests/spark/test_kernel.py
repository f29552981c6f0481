"""The kernel against DuckDB on the same records, in a real store, without Spark."""

from __future__ import annotations

import io
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.model.artefact import Role
from partitioning.model.schemes import MAX
from partitioning.model.streams import NullKeys
from partitioning.values import replace
from spark_jobs.engine.kernel import run_orders
from tests.activity import (
    CLICKS,
    JOINED,
    VIEWS,
    activity,
    assert_proved,
    files_of,
    in_duckdb,
    land,
    order_for,
    plan_for,
    ran_all,
    receipts_of,
    rows_of,
    run_all,
)
from tests.landed import land_table


@pytest.fixture
def source(store: Store) -> str:
    return f"{store.root}/topics"


@pytest.mark.parametrize("scheme", ["cogroup", "elastic(2)", "elastic(3)", "tasks(1)", "tasks(5)", "tasks(24)"])
def test_every_scheme_gives_the_rows_that_duckdb_gives(source: str, store: Store, scheme: str) -> None:
    land(source)
    plan = plan_for(activity(source), scheme)
    receipts = run_all(plan, store)
    assert sorted(rows_of(store, receipts, "activity"), key=str) == sorted(
        in_duckdb(JOINED, views=VIEWS, clicks=CLICKS), key=str
    )
    assert_proved(plan, receipts)


def test_a_stage_without_keyed_steps_takes_whole_partitions(source: str, store: Store) -> None:
    land(source)
    pipeline = Pipeline("large", source=source)
    pipeline.stream("views", key="k", partitions=8).filter("v >= 700").select("v, _partition, _offset").write("large")
    pipeline.stream("clicks", key="k", partitions=12).select("c").write("clicked")
    plan = plan_for(pipeline)
    everything = ran_all(plan, store)
    receipts = [ran.receipt for ran in everything]
    assert [stage.scheme for stage in plan.stages] == [MAX, MAX]
    rows = rows_of(store, receipts, "large")
    assert sorted(row[:2] for row in rows) == sorted(in_duckdb("SELECT k, v FROM views WHERE v >= 700", views=VIEWS))
    assert all(placement_hash(key) % 8 == partition for key, _, partition, _ in rows)
    assert len({row[2:] for row in rows}) == len(rows)
    assert len(rows_of(store, receipts, "clicked")) == len(CLICKS)
    assert_proved(plan, receipts)
    assert [len(ran.sample) for ran in everything] == [0] * 20


def test_a_stream_that_two_tables_need_is_read_once_for_both(source: str, store: Store) -> None:
    land(source)
    pipeline = Pipeline("both", source=source)
    views = pipeline.stream("views", key="k", partitions=8)
    views.aggregate("sum(v) AS v").write("sums")
    views.filter("v % 2 = 0").to_stream().write("even")
    plan = plan_for(pipeline)
    receipts = run_all(plan, store)
    assert sorted(rows_of(store, receipts, "sums")) == sorted(
        in_duckdb("SELECT k, sum(v) FROM views GROUP BY k", views=VIEWS)
    )
    assert sorted(rows_of(store, receipts, "even")) == sorted(in_duckdb("FROM views WHERE v % 2 = 0", views=VIEWS))
    assert_proved(plan, receipts)


def test_of_a_table_only_the_latest_record_of_each_key_counts(source: str, store: Store) -> None:
    old = pa.table({"k": [f"key-{n}" for n in range(60)], "name": [f"old {n}" for n in range(60)]})
    new = pa.table({"k": [f"key-{n}" for n in range(0, 60, 3)], "name": [f"new {n}" for n in range(0, 60, 3)]})
    land_table(CLICKS, "clicks", source, key="k", partitions=12)
    land_table(pa.concat_tables([old, new]), "users", source, key="k", partitions=8)
    pipeline = Pipeline("named", source=source)
    users = pipeline.table("users", key="k", partitions=8)
    pipeline.stream("clicks", key="k", partitions=12).join(users, "clicks.c, users.name").write("named")
    plan = plan_for(pipeline, "tasks(5)")
    receipts = run_all(plan, store)
    latest = dict(zip(old["k"].to_pylist(), old["name"].to_pylist(), strict=True))
    latest |= dict(zip(new["k"].to_pylist(), new["name"].to_pylist(), strict=True))
    clicks = zip(CLICKS["k"].to_pylist(), CLICKS["c"].to_pylist(), strict=True)
    expected = sorted((key, c, latest[key]) for key, c in clicks if key in latest)
    assert sorted(rows_of(store, receipts, "named")) == expected
    assert_proved(plan, receipts)


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(5)"])
@pytest.mark.parametrize("policy", [NullKeys.DROP, NullKeys.OWN_TASK])
def test_records_without_a_key_follow_the_policy(source: str, store: Store, policy: str, scheme: str) -> None:
    keys = [None if n % 10 == 3 else f"key-{n % 97}" for n in range(1500)]
    views = VIEWS.set_column(0, "k", pa.array(keys))
    land(source, views=views)
    plan = plan_for(activity(source, null_keys=policy), scheme)
    receipts = run_all(plan, store)
    assert_proved(plan, receipts)
    wanted = views if policy == NullKeys.OWN_TASK else views.filter(views["k"].is_valid())
    assert sorted(rows_of(store, receipts, "activity"), key=str) == sorted(
        in_duckdb(JOINED, views=wanted, clicks=CLICKS), key=str
    )
    seen = list(chain.from_iterable(receipts_of(receipts, "views").values()))
    assert sum(each.dropped for each in seen) == (150 if policy == NullKeys.DROP else 0)
    assert sum(each.nulls for each in seen) == (0 if policy == NullKeys.DROP else 150)


def test_only_the_planned_range_is_read(source: str, store: Store) -> None:
    land(source)
    first = plan_for(activity(source), limit=10)
    receipts = run_all(first, store)
    assert_proved(first, receipts)
    second = plan_for(activity(source), limit=7, after=first)
    assert_proved(second, run_all(second, store))
    assert {(each.start, each.end) for each in receipts_of(run_all(second, store), "views")[3]} == {(10, 17)}


def test_row_groups_outside_of_the_range_are_left_out(source: str, store: Store) -> None:
    key = next(key for key in map(str, range(100)) if placement_hash(key) % 8 == 0)
    land(source, views=VIEWS.slice(0, 0))
    sink = io.BytesIO()
    rows = pa.table({"k": [key] * 1000, "v": range(1000), "_offset": pa.array(range(1000), pa.int64())})
    pq.write_table(rows, sink, row_group_size=100)
    store_at(source).put("views/partition=0/views+0+0000000000.parquet", sink.getvalue())
    first = plan_for(activity(source), limit=250)
    assert_proved(first, run_all(first, store))
    second = plan_for(activity(source), limit=250, after=first)
    receipts = run_all(second, store)
    assert_proved(second, receipts)
    assert [row[2] for row in rows_of(store, receipts, "activity") if row[0] == key] == [sum(range(250, 500))]


def test_rows_carry_batch_and_task_only_if_asked_for(source: str, store: Store) -> None:
    land(source)
    receipts = run_all(plan_for(activity(source, lineage=True), "tasks(5)"), store)
    for rows, receipt in zip(files_of(store, receipts, "activity"), receipts, strict=True):
        assert rows.schema.names == ["k", "views", "v", "clicks", "c", "_batch", "_task"]
        assert set(rows["_batch"].to_pylist()) == {0}
        assert set(rows["_task"].to_pylist()) == {receipt.task.task}
    (rows, *_) = files_of(store, run_all(plan_for(activity(source)), store), "activity")
    assert rows.schema.names == ["k", "views", "v", "clicks", "c"]


def test_a_second_run_of_a_task_leaves_the_files_of_the_first_alone(source: str, store: Store) -> None:
    land(source)
    plan = plan_for(activity(source))
    first, second = run_all(plan, store), run_all(plan, store)
    assert [each.partitions for each in first] == [each.partitions for each in second]
    paths = [file.path for each in (*first, *second) for file in each.left(Role.TABLE)]
    assert len(set(paths)) == len(paths) == 8
    assert sorted(rows_of(store, first, "activity"), key=str) == sorted(rows_of(store, second, "activity"), key=str)


def test_all_files_that_changed_after_planning_are_refused(source: str, store: Store) -> None:
    land(source)
    plan = plan_for(activity(source))
    paths = [plan.stream("views").partitions[number].files[0].path for number in (0, 4)]
    landed = store_at(source)
    landed.put(paths[0].removeprefix(f"{source}/"), b"something else")
    data = bytearray(landed.get(paths[1].removeprefix(f"{source}/")) or b"")
    data[10] ^= 1
    landed.put(paths[1].removeprefix(f"{source}/"), bytes(data))
    with pytest.raises(Refused, match="changed since the batch was planned") as caught:
        run_orders([order_for(plan, store, "views+clicks")])
    assert [place.where for finding in caught.value.findings for place in finding.places] == paths
    run_orders([order_for(plan, store, "views+clicks", 1)])


def test_orders_that_share_nothing_run_together_as_they_do_alone(source: str, store: Store) -> None:
    land(source)
    plan = plan_for(activity(source), "elastic(2)")
    orders = [order_for(plan, store, "views+clicks", task) for task in (0, 1, 4, 2)]
    together, alone = run_orders(orders), [ran for order in orders for ran in run_orders([order])]
    assert [ran.receipt.task for ran in together] == [order.ref for order in orders]
    assert [ran.receipt.partitions for ran in together] == [ran.receipt.partitions for ran in alone]
    rows = [rows_of(store, [ran.receipt], "activity") for ran in together]
    assert rows == [rows_of(store, [ran.receipt], "activity") for ran in alone]
    assert all(rows)


def test_of_orders_that_share_nothing_all_are_told_what_is_wrong(source: str, store: Store) -> None:
    land(source)
    plan = plan_for(activity(source))
    paths = [plan.stream("views").partitions[number].files[0].path for number in (0, 1)]
    for path in paths:
        store_at(source).put(path.removeprefix(f"{source}/"), b"something else")
    with pytest.raises(Refused, match="changed since the batch was planned") as caught:
        run_orders([order_for(plan, store, "views+clicks", task) for task in range(4)])
    assert [place.where for finding in caught.value.findings for place in finding.places] == paths


def test_a_file_that_is_gone_is_refused(source: str, store: Store) -> None:
    land(source)
    plan = plan_for(activity(source))
    views = plan.stream("views")
    moved = [replace(file, path=file.path + "x") for file in views.partitions[0].files]
    partitions = (replace(views.partitions[0], files=tuple(moved)), *views.partitions[1:])
    plan = replace(plan, streams=(replace(views, partitions=partitions), *plan.streams[1:]))
    with pytest.raises(Refused, match="gone since the batch was planned"):
        run_orders([order_for(plan, store, "views+clicks")])


def test_an_expression_that_fails_on_the_data_names_table_and_task(source: str, store: Store) -> None:
    land(source)
    pipeline = Pipeline("failing", source=source)
    pipeline.stream("views", key="k", partitions=8).select("CAST(k AS INTEGER) AS number").write("numbers")
    with pytest.raises(Refused, match="Could not convert string 'key-") as caught:
        run_orders([order_for(plan_for(pipeline), store, "views")])
    assert caught.value.findings[0].where == "table 'numbers', task views/0 of batch 0"


@pytest.mark.long
def test_what_does_not_fit_into_memory_is_spilled(source: str, store: Store) -> None:
    count = 400_000
    keys = [f"a-key-that-takes-some-memory-{n * 7919 % count:030}" for n in range(count)]
    views = pa.table({"k": keys, "v": range(count)})
    pipeline = Pipeline("wide", source=source)
    both = pipeline.stream("views", key="k", partitions=1)
    both.aggregate("sum(v) AS v, max(v || k) AS text").write("sums")
    both.select("v").write("copies")
    land_table(views, "views", source, key="k", partitions=1, files=4)
    plan = plan_for(pipeline)
    (receipt,) = run_all(plan, store, memory="48MB")
    assert {file.name: file.records for file in receipt.left(Role.TABLE)} == {"sums": count, "copies": count}
    assert sum(pc.sum(rows["v"]).as_py() for rows in files_of(store, [receipt], "sums")) == sum(range(count))
    with pytest.raises(Refused, match="Out of Memory") as caught:
        run_all(plan, store, memory="4MB")
    assert "--memory" in caught.value.findings[0].then
