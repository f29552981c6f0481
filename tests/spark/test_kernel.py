"""The kernel against DuckDB on the same records, without Spark: steps, receipts, where it ran, its intake."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from inspect import signature
from threading import Event, get_ident

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from coset.batches.runners.local import Local
from coset.sources.copies import Copies
from coset.sources.files import Files
from coset.sources.reader import Batch, ahead
from demo.s3_server import S3Server
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.receipts import locations
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused
from partitioning.hashes import placement_hash
from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from partitioning.model.receipt import Role
from partitioning.model.schemes import MAX
from partitioning.values import replace
from spark_jobs.engine.intake import Inspect, Intake, Proved
from spark_jobs.engine.kernel import TaskEnvironment, reader, run_orders
from spark_jobs.engine.task_database import connect
from tests.activity import (
    CLICKS,
    VIEWS,
    activity,
    assert_proved,
    files_of,
    land,
    order_for,
    plan_for,
    ran_all,
    rows_of,
    run_all,
)
from tests.asked_of_duckdb import direct, published
from tests.examples import in_turn
from tests.landed import land_table
from tests.real_batches import stored
from tests.running import run_and_publish_unjudged, task_receipts
from tests.small import SmallBatch, small_batch


@pytest.fixture
def source(store: Store) -> str:
    return f"{store.root}/topics"


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
    assert sorted(row[:2] for row in rows) == sorted(direct("SELECT k, v FROM views WHERE v >= 700", views=VIEWS))
    assert all(placement_hash(key) % 8 == partition for key, _, partition, _ in rows)
    assert len({row[2:] for row in rows}) == len(rows)
    assert len(rows_of(store, receipts, "clicked")) == len(CLICKS)
    assert_proved(plan, receipts)
    assert [len(ran.sample) for ran in everything] == [0] * 20


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
    assert receipt.shortage is None
    (short,) = run_all(plan, store, memory="4MB")
    assert short.shortage
    assert sum(pc.sum(rows["v"]).as_py() for rows in files_of(store, [short], "sums")) == sum(range(count))


def test_the_sampled_keys_are_the_keys_each_with_its_task_and_first_offset(source: str, store: Store) -> None:
    land(source)
    plan = plan_for(activity(source), "tasks(5)")
    sampled: set[str] = set()
    for ran in ran_all(plan, store):
        rows, receipt = ran.sample.to_pylist(), ran.receipt
        assert {row["stage"] for row in rows} == {receipt.task.stage}
        assert len(rows) == sum(each.keys for each in receipt.partitions)
        for row in rows:
            sampled.add(str(row["key"]))
            assert placement_hash(row["key"]) % 5 == row["task"] == receipt.task.task
            assert placement_hash(row["key"]) % {"views": 8, "clicks": 12}[str(row["input"])] == row["partition"]
    assert sampled == {*VIEWS["k"].to_pylist(), *CLICKS["k"].to_pylist()}


def test_a_sample_of_the_keys_is_the_same_keys_in_every_stream(source: str, store: Store) -> None:
    land(source)
    plan = replace(plan_for(activity(source)), key_sample=3)
    sampled: dict[str, set[str]] = {"views": set(), "clicks": set()}
    for ran in ran_all(plan, store):
        for row in ran.sample.to_pylist():
            sampled[str(row["input"])].add(str(row["key"]))
    expected = {key for key in CLICKS["k"].to_pylist() if placement_hash(key) // 4 % 3 == 0}
    assert sampled["clicks"] == expected
    assert sampled["views"] == expected & set(VIEWS["k"].to_pylist())


@pytest.mark.parametrize("condition", ["v < 0", "false"], ids=["no record is left", "none is read"])
def test_receipts_are_complete_although_sql_stops_early(source: str, store: Store, condition: str) -> None:
    land(source)
    pipeline = Pipeline("nothing", source=source)
    views = pipeline.stream("views", key="k", partitions=8).filter(condition)
    clicks = pipeline.stream("clicks", key="k", partitions=12)
    clicks.join(views, "views.v").write("nothing")
    plan = plan_for(pipeline)
    receipts = run_all(plan, store)
    assert [receipt.left(Role.TABLE) for receipt in receipts] == [()] * 4
    assert_proved(plan, receipts)


def run(batch: SmallBatch, group: int) -> str:
    with Local(processes=1) as runner:
        return runner.group(batch.ref, group)


def test_where_a_group_ran_is_read_back(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_LOCATION", "rack-7")
    batch = small_batch()
    assert run(batch, 1).endswith("attempt 0, at rack-7")
    ran = batch.ledger.receipts(0, 0, range(2)).values()
    known = locations(batch.ledger.store, batch.plan, ran)
    assert known is not None
    assert (known.groups, known.tasks) == ({1: "rack-7"}, dict.fromkeys(batch.plan.groups[1].tasks, "rack-7"))


def test_what_is_no_location_is_refused_before_anything_runs(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_LOCATION", "rack\n7")
    batch = small_batch()
    with pytest.raises(Refused, match="is no location"):
        run(batch, 0)
    assert batch.ledger.receipt(0, 0, 0) is None


def intake_of_views(plan: Plan, store: Store, inspect: Inspect = Proved) -> Intake:
    """The views of the one task there is."""
    order = order_for(plan, store, "views+clicks")
    views = next(each for each in order.inputs if each.read.name == "views")
    return Intake(order, views, reader(order, views, TaskEnvironment(Files(), Copies(None))), inspect)


def test_sql_reads_each_record_once_in_the_thread_of_its_task(store: Store, source: str) -> None:
    land(source)
    seen = set[int]()

    class Seen(Proved):
        def rows(self, batch: Batch) -> np.ndarray | None:
            seen.add(get_ident())
            return super().rows(batch)

    intake = intake_of_views(plan_for(activity(source), "tasks(1)"), store, Seen)
    with connect() as connection:
        connection.register("views", intake.stream())
        assert connection.sql("SELECT count(*) FROM views").fetchall() == [(VIEWS.num_rows,)]
        assert seen == {get_ident()}
        with pytest.raises(duckdb.InvalidInputException, match="already been consumed"):
            connection.sql("SELECT count(*) FROM views").fetchall()
    intake.drain()
    assert sum(receipt.taken for receipt in intake.receipts()) == VIEWS.num_rows


def test_a_batch_is_read_while_the_one_before_is_worked_on() -> None:
    reading = Event()

    def batches() -> Iterator[Batch]:
        for number in range(3):
            if number:
                reading.set()
            yield Batch(0, number, number + 1, "", pa.record_batch({"offset": [number]}))

    read = ahead(batches(), 1_000_000)
    first = next(read)
    assert reading.wait(60)
    assert [batch.first for batch in (first, *read)] == [0, 1, 2]


def test_few_records_are_read_by_who_asks_for_them() -> None:
    threads = set[int]()

    def batches() -> Iterator[Batch]:
        for number in range(3):
            threads.add(get_ident())
            yield Batch(0, number, number + 1, "", pa.record_batch({"offset": [number]}))

    assert [batch.first for batch in ahead(batches(), 3)] == [0, 1, 2]
    assert threads == {get_ident()}


def test_an_error_while_sql_reads_is_raised_when_the_rest_is_drained(store: Store, source: str) -> None:
    land(source)

    class Failing(Proved):
        def rows(self, batch: Batch) -> np.ndarray | None:
            raise Refused(Finding(Kind.RECORD, "it is broken", batch.where, "land it again"))

    intake = intake_of_views(plan_for(activity(source), "tasks(1)"), store, Failing)
    with connect() as connection:
        connection.register("views", intake.stream())
        with pytest.raises(duckdb.Error, match="it is broken"):
            connection.sql("SELECT count(*) FROM views").fetchall()
    with pytest.raises(Refused, match="it is broken"):
        intake.drain()


def test_who_interrupts_a_task_while_sql_reads_ends_it(store: Store, source: str) -> None:
    land(source)

    class Interrupted(Proved):
        def rows(self, batch: Batch) -> np.ndarray | None:
            raise KeyboardInterrupt

    order = order_for(plan_for(activity(source), "tasks(1)"), store, "views+clicks")
    with pytest.raises(KeyboardInterrupt):
        run_orders([order], inspect=Interrupted)


# Keys that all have, keys that only some have, and records without a key.
RECORDS = {
    "views": pa.table({"k": [f"key-{n % 67}" if n % 50 else None for n in range(300)], "v": list(range(300))}),
    "more": pa.table({"k": [f"key-{n % 31 + 50}" if n % 40 else None for n in range(200)], "v": list(range(200))}),
    "clicks": pa.table({"k": [f"key-{n % 83 + 20}" for n in range(250)], "c": [n * 7 % 100 for n in range(250)]}),
}
PARTITIONS = {"views": 8, "more": 12, "clicks": 4}

Build = Callable[..., Flow]

# What is built of the streams that it names, and the same in DuckDB's words.
KEYED: dict[str, tuple[Build, str]] = {
    "a merge of streams of 8 and 12 partitions, aggregated": (
        lambda views, more: views.merge(more).aggregate("count(*) AS n, sum(v)::BIGINT AS v"),
        "SELECT k, count(*), sum(v) FROM (FROM views UNION ALL FROM more) GROUP BY k",
    ),
    "a merge of a merge, filtered before and after": (
        lambda views, more, clicks: (
            views.filter("v % 3 > 0")
            .merge(more)
            .merge(clicks.select("c AS v"))
            .filter("v > 20")
            .aggregate("count(*) AS n, max(v) AS v")
        ),
        """
        SELECT k, count(*), max(v)
        FROM (FROM views WHERE v % 3 > 0 UNION ALL FROM more UNION ALL FROM clicks) WHERE v > 20 GROUP BY k
        """,
    ),
    "a merge of three, of which one is an aggregate": (
        lambda views, more, clicks: views.merge(more, clicks.aggregate("sum(c)::BIGINT AS v", name="sums")).aggregate(
            "count(*) AS n, sum(v)::BIGINT AS v"
        ),
        """
        SELECT k, count(*), sum(v)
        FROM (FROM views UNION ALL FROM more UNION ALL SELECT k, sum(c) FROM clicks GROUP BY k) GROUP BY k
        """,
    ),
    "a stream merged with a part of itself": (
        lambda views: views.merge(views.filter("v > 100")).aggregate("count(*) AS n"),
        "SELECT k, count(*) FROM (FROM views UNION ALL FROM views WHERE v > 100) GROUP BY k",
    ),
    "a cogroup of two": (
        lambda views, clicks: views.cogroup("count(*) AS views", (clicks, "count(*) AS clicks, max(c) AS c")),
        """
        WITH a AS (SELECT k, count(*) AS views FROM views GROUP BY k),
        b AS (SELECT k, count(*) AS clicks, max(c) AS c FROM clicks GROUP BY k)
        SELECT coalesce(a.k, b.k), views, clicks, c FROM a FULL JOIN b ON a.k IS NOT DISTINCT FROM b.k
        """,
    ),
    "a cogroup of three": (
        lambda views, more, clicks: views.cogroup(
            "count(*) AS a", (more.filter("v > 10"), "count(*) AS b, sum(v)::BIGINT AS v"), (clicks, "max(c) AS c")
        ),
        """
        WITH keys AS (SELECT k FROM views UNION SELECT k FROM more WHERE v > 10 UNION SELECT k FROM clicks)
        SELECT k, nullif((SELECT count(*) FROM views AS x WHERE x.k IS NOT DISTINCT FROM keys.k), 0),
            nullif((SELECT count(*) FROM more AS x WHERE x.k IS NOT DISTINCT FROM keys.k AND v > 10), 0),
            (SELECT sum(v) FROM more AS x WHERE x.k IS NOT DISTINCT FROM keys.k AND v > 10),
            (SELECT max(c) FROM clicks AS x WHERE x.k = keys.k)
        FROM keys
        """,
    ),
    "an inner join of three": (
        lambda views, more, clicks: views.join([more, clicks], "views.v, more.v AS w, c", on="c > 10"),
        "SELECT k, views.v, more.v, c FROM views JOIN more USING (k) JOIN clicks USING (k) WHERE c > 10",
    ),
    "a left join of three": (
        lambda views, more, clicks: views.join([more, clicks], "views.v, more.v AS w, c", how="left", on="c > 10"),
        """
        SELECT views.k, views.v, more.v, c FROM views LEFT JOIN more ON views.k = more.k
        LEFT JOIN clicks ON views.k = clicks.k AND c > 10
        """,
    ),
    "a full join of three": (
        lambda views, more, clicks: views.join([more, clicks], "views.v, more.v AS w, c", how="full"),
        "SELECT k, views.v, more.v, c FROM views FULL JOIN more USING (k) FULL JOIN clicks USING (k)",
    ),
    "joins one after the other": (
        lambda views, more, clicks: views.join(more, "views.v, more.v AS w", how="left").join(
            clicks, "v, w, c", how="inner"
        ),
        "SELECT k, views.v, more.v, c FROM views LEFT JOIN more USING (k) JOIN clicks USING (k)",
    ),
    "a full join of aggregates, one after the other": (
        lambda views, more, clicks: (
            views.aggregate("count(*) AS a")
            .join(more.aggregate("count(*) AS b"), "a, b", how="full")
            .join(clicks.aggregate("count(*) AS d"), "a, b, d", how="full")
        ),
        """
        SELECT k, a, b, d FROM (SELECT k, count(*) AS a FROM views GROUP BY k)
        FULL JOIN (SELECT k, count(*) AS b FROM more GROUP BY k) USING (k)
        FULL JOIN (SELECT k, count(*) AS d FROM clicks GROUP BY k) USING (k)
        """,
    ),
    "a partial by the key that the flow has, combined": (
        lambda views, more: (
            views.merge(more)
            .partial("v % 2 AS odd, count(*) AS n, max(v) AS v", by="k")
            .combine("odd, sum(n)::BIGINT AS n, max(v) AS v")
        ),
        "SELECT k, v % 2 AS odd, count(*), max(v) FROM (FROM views UNION ALL FROM more) GROUP BY ALL",
    ),
}

STATELESS: dict[str, tuple[Build, str]] = {
    "a merge as it is": (lambda views, more: views.merge(more), "FROM views UNION ALL FROM more"),
    "a merge with what has no offset": (
        lambda views, clicks: views.merge(clicks.select("c AS v")),
        "FROM views UNION ALL FROM clicks",
    ),
    "a rekey by a column": (
        lambda views: views.rekey("v", key_format="long").filter("v > 7").select("k"),
        "SELECT v, k FROM views WHERE v > 7",
    ),
    "a rekey by an expression": (
        lambda clicks: clicks.rekey("c2", sql="upper(k) || c").merge(clicks.rekey("c2", sql="k || '-'", name="other")),
        "SELECT upper(k) || c AS c2, k, c FROM clicks UNION ALL SELECT k || '-', k, c FROM clicks",
    ),
}


@pytest.mark.parametrize(
    ("case", "scheme"),
    [
        *in_turn(KEYED, ["tasks(6)", "cogroup", "elastic(2)", "tasks(1)"]),
        *in_turn(STATELESS, ["tasks(5)", "max", "cogroup", "elastic(3)"]),
    ],
)
def test_steps_give_the_rows_that_duckdb_gives(store: Store, case: str, scheme: str) -> None:
    build, sql = (KEYED | STATELESS)[case]
    pipeline = Pipeline("steps", source=f"{store.root}/topics")
    names = signature(build).parameters
    for name in names:
        land_table(RECORDS[name], name, pipeline.source, key="k", partitions=PARTITIONS[name])
    declared = (pipeline.stream(name, key="k", partitions=PARTITIONS[name], null_keys="own task") for name in names)
    build(*declared).to_stream().write("t")
    ref = stored(store, pipeline, settings=Settings.parse(scheme=scheme))
    run_and_publish_unjudged(ref)
    assert published(store) == direct(sql, **RECORDS)
    receipts = [each for receipt in task_receipts(ref) for each in receipt.partitions]
    assert sum(each.taken for each in receipts) == sum(len(RECORDS[name]) for name in names)
    assert not any(each.offenders for each in receipts)
