"""The kernel against DuckDB on the same records, in a real store, without Spark."""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from threading import Event

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.s3_server import S3Server
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import decode, encode
from partitioning.documents.store import S3Store
from partitioning.errors import Finding, Refused
from partitioning.hashes import placement_hash
from partitioning.model.placement import OPAQUE
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import MASK64, Offender, PartitionReceipt, TaskReceipt, offset_digest
from partitioning.model.streams import DROP, OWN_TASK, REFUSE, InputFile
from partitioning.planning.planner import plan_batch
from sources.landed import discover
from sources.s3 import filesystem
from spark_jobs.feed import Feed
from spark_jobs.inspection import Inspection
from spark_jobs.kernel import run_task
from spark_jobs.sql.check import check
from tests.landed import land_file, land_table

VIEWS = pa.table({"k": [f"key-{n % 97}" for n in range(1500)], "v": list(range(1500))})
CLICKS = pa.table({"k": [f"key-{n % 131}" for n in range(900)], "c": [n * 7 % 100 for n in range(900)]})
JOINED = """
    SELECT coalesce(a.k, b.k), views, v, clicks, c
    FROM (SELECT k, count(*) AS views, sum(v) AS v FROM views GROUP BY k) AS a
    FULL JOIN (SELECT k, count(*) AS clicks, sum(c) AS c FROM clicks GROUP BY k) AS b ON a.k = b.k
"""


@pytest.fixture
def source(s3: S3Server) -> str:
    return f"s3://test/{uuid.uuid4().hex}/topics"


def _activity(source: str, lineage: bool = False, **options: str) -> Pipeline:
    pipeline = Pipeline("activity", source=source)
    views = pipeline.stream("views", key="k", partitions=8, **options)
    clicks = pipeline.stream("clicks", key="k", partitions=12, **options)
    left = views.aggregate("count(*) AS views, sum(v) AS v")
    right = clicks.aggregate("count(*) AS clicks, sum(c) AS c")
    left.join(right, "views.views, views.v, clicks.clicks, clicks.c", how="full").write("activity", lineage=lineage)
    return pipeline


def _land(source: str, views: pa.Table = VIEWS, clicks: pa.Table = CLICKS) -> None:
    land_table(views, "views", source, key="k", partitions=8, files=2)
    land_table(clicks, "clicks", source, key="k", partitions=12, files=2)


def _plan(pipeline: Pipeline, scheme: str | None = None, limit: int | None = None, after: Plan | None = None) -> Plan:
    found = discover(pipeline.streams)
    plan = plan_batch(
        pipeline,
        found,
        check(pipeline, found),
        published=after,
        settings=Settings.parse(scheme=scheme, limit=limit),
    )
    assert plan is not None
    return decode(Plan, encode(plan), "a plan")


def _run(plan: Plan, store: S3Store, **options: object) -> list[TaskReceipt]:
    tasks = [TaskRef(stage.name, task.task) for stage in plan.stages for task in stage.tasks]
    return [run_task(plan, task, 0, store.root, **options) for task in tasks]


def _rows(store: S3Store, receipts: Sequence[TaskReceipt], table: str) -> list[tuple[object, ...]]:
    return list(
        chain.from_iterable(zip(*each.to_pydict().values(), strict=True) for each in _files(store, receipts, table))
    )


def _files(store: S3Store, receipts: Sequence[TaskReceipt], table: str) -> list[pa.Table]:
    found = []
    for file in chain.from_iterable(receipt.files for receipt in receipts):
        if file.table == table:
            entry = store.head(f"tables/{table}/{file.path}")
            data = store.get(f"tables/{table}/{file.path}")
            assert entry is not None
            assert data is not None
            assert (entry.size, entry.etag) == (file.size, file.etag)
            rows = pq.read_table(io.BytesIO(data))
            assert len(rows) == file.records
            found.append(rows)
    return found


def _partitions(receipts: Sequence[TaskReceipt], stream: str) -> dict[int, list[PartitionReceipt]]:
    found: dict[int, list[PartitionReceipt]] = {}
    for receipt in chain.from_iterable(each.partitions for each in receipts):
        if receipt.stream == stream:
            found.setdefault(receipt.partition, []).append(receipt)
    return found


def _assert_proved(plan: Plan, receipts: Sequence[TaskReceipt]) -> None:
    """Each planned offset taken or dropped by exactly one task, and nothing that offends."""
    for stream in plan.streams:
        for number, seen in _partitions(receipts, stream.name).items():
            planned = plan.stream(stream.name).range(number)
            assert {each.read for each in seen} == {len(planned)}
            assert sum(each.taken + each.dropped for each in seen) == len(planned)
            expected = sum(offset_digest(offset) for offset in range(planned.start, planned.end)) & MASK64
            assert sum(int(each.digest, 16) for each in seen) & MASK64 == expected
            assert not any((each.disorder, each.foreign, each.stray, each.offenders) != (0, 0, 0, ()) for each in seen)


def _direct(sql: str, **tables: pa.Table) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize("scheme", ["cogroup", "elastic(2)", "elastic(3)", "tasks(1)", "tasks(5)", "tasks(24)"])
def test_every_scheme_gives_the_rows_that_duckdb_gives(source: str, store: S3Store, scheme: str) -> None:
    _land(source)
    plan = _plan(_activity(source), scheme)
    receipts = _run(plan, store)
    assert sorted(_rows(store, receipts, "activity"), key=str) == sorted(
        _direct(JOINED, views=VIEWS, clicks=CLICKS), key=str
    )
    _assert_proved(plan, receipts)


def test_the_sampled_keys_are_the_keys_each_with_its_task_and_first_offset(source: str, store: S3Store) -> None:
    _land(source)
    plan = _plan(_activity(source), "tasks(5)")
    sampled: set[str] = set()
    for receipt in _run(plan, store):
        data = store.get(receipt.keys or "")
        assert data is not None
        rows = pq.read_table(io.BytesIO(data)).to_pylist()
        assert len(rows) == sum(each.keys for each in receipt.partitions)
        for row in rows:
            sampled.add(row["key"])
            assert placement_hash(row["key"]) % 5 == row["task"] == receipt.task.task
            assert placement_hash(row["key"]) % {"views": 8, "clicks": 12}[row["stream"]] == row["partition"]
    assert sampled == {*VIEWS["k"].to_pylist(), *CLICKS["k"].to_pylist()}


def test_a_sample_of_the_keys_is_the_same_keys_in_every_stream(source: str, store: S3Store) -> None:
    _land(source)
    plan = replace(_plan(_activity(source)), key_sample=3)
    sampled: dict[str, set[str]] = {"views": set(), "clicks": set()}
    for receipt in _run(plan, store):
        for row in pq.read_table(io.BytesIO(store.get(receipt.keys or "") or b"")).to_pylist():
            sampled[row["stream"]].add(row["key"])
    expected = {key for key in CLICKS["k"].to_pylist() if placement_hash(key) // 4 % 3 == 0}
    assert sampled["clicks"] == expected
    assert sampled["views"] == expected & set(VIEWS["k"].to_pylist())


def test_a_stage_without_keyed_steps_takes_whole_partitions(source: str, store: S3Store) -> None:
    _land(source)
    pipeline = Pipeline("large", source=source)
    pipeline.stream("views", key="k", partitions=8).filter("v >= 700").select("v, _partition, _offset").write("large")
    pipeline.stream("clicks", key="k", partitions=12).select("c").write("clicked")
    plan = _plan(pipeline)
    receipts = _run(plan, store)
    assert [stage.scheme for stage in plan.stages] == ["max", "max"]
    rows = _rows(store, receipts, "large")
    assert sorted(row[:2] for row in rows) == sorted(_direct("SELECT k, v FROM views WHERE v >= 700", views=VIEWS))
    assert all(placement_hash(key) % 8 == partition for key, _, partition, _ in rows)
    assert len({row[2:] for row in rows}) == len(rows)
    assert len(_rows(store, receipts, "clicked")) == len(CLICKS)
    _assert_proved(plan, receipts)
    assert [receipt.keys for receipt in receipts] == [None] * 20


def test_a_stream_that_two_tables_need_is_read_once_for_both(source: str, store: S3Store) -> None:
    _land(source)
    pipeline = Pipeline("both", source=source)
    views = pipeline.stream("views", key="k", partitions=8)
    views.aggregate("sum(v) AS v").write("sums")
    views.filter("v % 2 = 0").write("even")
    plan = _plan(pipeline)
    receipts = _run(plan, store)
    assert sorted(_rows(store, receipts, "sums")) == sorted(
        _direct("SELECT k, sum(v) FROM views GROUP BY k", views=VIEWS)
    )
    assert sorted(_rows(store, receipts, "even")) == sorted(_direct("FROM views WHERE v % 2 = 0", views=VIEWS))
    _assert_proved(plan, receipts)


def test_receipts_are_complete_although_sql_stops_early(source: str, store: S3Store) -> None:
    _land(source)
    pipeline = Pipeline("nothing", source=source)
    views = pipeline.stream("views", key="k", partitions=8).filter("v < 0")
    clicks = pipeline.stream("clicks", key="k", partitions=12)
    clicks.join(views, "views.v").write("nothing")
    plan = _plan(pipeline)
    receipts = _run(plan, store)
    assert [receipt.files for receipt in receipts] == [()] * 4
    _assert_proved(plan, receipts)


def test_of_a_table_only_the_latest_record_of_each_key_counts(source: str, store: S3Store) -> None:
    old = pa.table({"k": [f"key-{n}" for n in range(60)], "name": [f"old {n}" for n in range(60)]})
    new = pa.table({"k": [f"key-{n}" for n in range(0, 60, 3)], "name": [f"new {n}" for n in range(0, 60, 3)]})
    land_table(CLICKS, "clicks", source, key="k", partitions=12)
    land_table(pa.concat_tables([old, new]), "users", source, key="k", partitions=8)
    pipeline = Pipeline("named", source=source)
    users = pipeline.table("users", key="k", partitions=8)
    pipeline.stream("clicks", key="k", partitions=12).join(users, "clicks.c, users.name").write("named")
    plan = _plan(pipeline, "tasks(5)")
    receipts = _run(plan, store)
    latest = dict(zip(old["k"].to_pylist(), old["name"].to_pylist(), strict=True))
    latest |= dict(zip(new["k"].to_pylist(), new["name"].to_pylist(), strict=True))
    clicks = zip(CLICKS["k"].to_pylist(), CLICKS["c"].to_pylist(), strict=True)
    expected = sorted((key, c, latest[key]) for key, c in clicks if key in latest)
    assert sorted(_rows(store, receipts, "named")) == expected
    _assert_proved(plan, receipts)


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(5)"])
@pytest.mark.parametrize("policy", [DROP, OWN_TASK])
def test_records_without_a_key_follow_the_policy(source: str, store: S3Store, policy: str, scheme: str) -> None:
    keys = [None if n % 10 == 3 else f"key-{n % 97}" for n in range(1500)]
    views = VIEWS.set_column(0, "k", pa.array(keys))
    _land(source, views=views)
    plan = _plan(_activity(source, null_keys=policy), scheme)
    receipts = _run(plan, store)
    _assert_proved(plan, receipts)
    wanted = views if policy == OWN_TASK else views.filter(views["k"].is_valid())
    assert sorted(_rows(store, receipts, "activity"), key=str) == sorted(
        _direct(JOINED, views=wanted, clicks=CLICKS), key=str
    )
    seen = list(chain.from_iterable(_partitions(receipts, "views").values()))
    assert sum(each.dropped for each in seen) == (150 if policy == DROP else 0)
    assert sum(each.nulls for each in seen) == (0 if policy == DROP else 150)


def test_records_without_a_key_that_are_refused_are_named(source: str, store: S3Store) -> None:
    views = VIEWS.set_column(0, "k", pa.array([None if n in {7, 11} else f"key-{n}" for n in range(1500)]))
    _land(source, views=views)
    seen = _partitions(_run(_plan(_activity(source, null_keys=REFUSE), "tasks(16)"), store), "views")
    offenders = [offender for each in chain.from_iterable(seen.values()) for offender in each.offenders]
    assert sum(each.nulls for each in chain.from_iterable(seen.values())) == 2
    assert [(offender.rule, offender.partition, offender.key) for offender in offenders] == [
        ("null key", 0, None),
        ("null key", 1, None),
    ]


def test_a_record_in_a_foreign_partition_is_named_with_its_key_and_offset(source: str, store: S3Store) -> None:
    _land(source)
    key = next(key for key in map(str, range(100)) if placement_hash(key) % 8 == 6)
    end = _plan(_activity(source)).stream("views").partitions[2].end
    land_file(pa.table({"k": [key], "v": [1]}), "views", source, 2, end)
    plan = _plan(_activity(source))
    (seen,) = _partitions(_run(plan, store), "views")[2]
    assert (seen.foreign, seen.stray) == (1, 0)
    assert seen.offenders == (Offender("foreign", 2, end, key),)
    (seen,) = _partitions(_run(_plan(_activity(source), "tasks(8)"), store), "views")[2]
    assert (seen.foreign, seen.stray) == (1, 1)


def test_opaque_placement_is_not_checked_by_hash(source: str, store: S3Store) -> None:
    _land(source)
    end = _plan(_activity(source)).stream("views").partitions[2].end
    land_file(pa.table({"k": [f"new-{n}" for n in range(50)], "v": [1] * 50}), "views", source, 2, end)
    plan = _plan(_activity(source, placement=OPAQUE), "tasks(2)")
    receipts = _run(plan, store)
    _assert_proved(plan, receipts)
    assert {"new-7"} <= {row[0] for row in _rows(store, receipts, "activity")}


@pytest.mark.parametrize(
    ("offsets", "disorder"),
    [([0, 2, 1, 3], 3), ([0, 1, 1, 3], 2), ([0, 0, 3, 3], 3)],
    ids=["swapped", "twice", "twice twice"],
)
def test_offsets_out_of_order_are_seen(source: str, store: S3Store, offsets: list[int], disorder: int) -> None:
    key = next(key for key in map(str, range(100)) if placement_hash(key) % 8 == 0)
    _land(source, views=VIEWS.slice(0, 0))
    # The footer's statistics and the number of records are as they should be.
    land_file(pa.table({"k": [key] * 4, "v": [1] * 4}), "views", source, 0, 0, offsets=offsets)
    (seen,) = _partitions(_run(_plan(_activity(source)), store), "views")[0]
    assert (seen.read, seen.disorder) == (4, disorder)
    assert {offender.rule for offender in seen.offenders} == {"offset"}
    good = sum(offset_digest(offset) for offset in range(4)) & MASK64
    assert (int(seen.digest, 16) == good) == (sorted(offsets) == [0, 1, 2, 3])


def test_only_the_planned_range_is_read(source: str, store: S3Store) -> None:
    _land(source)
    first = _plan(_activity(source), limit=10)
    receipts = _run(first, store)
    _assert_proved(first, receipts)
    second = _plan(_activity(source), limit=7, after=first)
    _assert_proved(second, _run(second, store))
    assert {(each.start, each.end) for each in _partitions(_run(second, store), "views")[3]} == {(10, 17)}


def test_row_groups_outside_of_the_range_are_left_out(source: str, store: S3Store) -> None:
    key = next(key for key in map(str, range(100)) if placement_hash(key) % 8 == 0)
    _land(source, views=VIEWS.slice(0, 0))
    sink = io.BytesIO()
    rows = pa.table({"k": [key] * 1000, "v": range(1000), "_offset": pa.array(range(1000), pa.int64())})
    pq.write_table(rows, sink, row_group_size=100)
    S3Store(source).put("views/partition=0/views+0+0000000000.parquet", sink.getvalue())
    first = _plan(_activity(source), limit=250)
    _assert_proved(first, _run(first, store))
    second = _plan(_activity(source), limit=250, after=first)
    receipts = _run(second, store)
    _assert_proved(second, receipts)
    assert [row[2] for row in _rows(store, receipts, "activity") if row[0] == key] == [sum(range(250, 500))]


def test_rows_carry_batch_and_task_only_if_asked_for(source: str, store: S3Store) -> None:
    _land(source)
    receipts = _run(_plan(_activity(source, lineage=True), "tasks(5)"), store)
    for rows, receipt in zip(_files(store, receipts, "activity"), receipts, strict=True):
        assert rows.schema.names == ["k", "views", "v", "clicks", "c", "_batch", "_task"]
        assert set(rows["_batch"].to_pylist()) == {0}
        assert set(rows["_task"].to_pylist()) == {receipt.task.task}
    (rows, *_) = _files(store, _run(_plan(_activity(source)), store), "activity")
    assert rows.schema.names == ["k", "views", "v", "clicks", "c"]


def test_a_second_run_of_a_task_leaves_the_files_of_the_first_alone(source: str, store: S3Store) -> None:
    _land(source)
    plan = _plan(_activity(source))
    first, second = _run(plan, store), _run(plan, store)
    assert [each.partitions for each in first] == [each.partitions for each in second]
    paths = [file.path for each in (*first, *second) for file in each.files]
    assert len(set(paths)) == len(paths) == 8
    assert sorted(_rows(store, first, "activity"), key=str) == sorted(_rows(store, second, "activity"), key=str)


def test_all_files_that_changed_after_planning_are_refused(source: str, store: S3Store) -> None:
    _land(source)
    plan = _plan(_activity(source))
    paths = [plan.stream("views").partitions[number].files[0].path for number in (0, 4)]
    landed = S3Store(source)
    landed.put(paths[0].removeprefix(f"{source}/"), b"something else")
    data = bytearray(landed.get(paths[1].removeprefix(f"{source}/")) or b"")
    data[10] ^= 1
    landed.put(paths[1].removeprefix(f"{source}/"), bytes(data))
    with pytest.raises(Refused, match="changed since the batch was planned") as caught:
        run_task(plan, TaskRef("views+clicks", 0), 0, store.root)
    assert [finding.where for finding in caught.value.findings] == paths
    run_task(plan, TaskRef("views+clicks", 1), 0, store.root)


def test_a_file_that_is_gone_is_refused(source: str, store: S3Store) -> None:
    _land(source)
    plan = _plan(_activity(source))
    views = plan.stream("views")
    moved = [replace(file, path=file.path + "x") for file in views.partitions[0].files]
    partitions = (replace(views.partitions[0], files=tuple(moved)), *views.partitions[1:])
    plan = replace(plan, streams=(replace(views, partitions=partitions), *plan.streams[1:]))
    with pytest.raises(Refused, match="gone since the batch was planned"):
        run_task(plan, TaskRef("views+clicks", 0), 0, store.root)


def test_an_expression_that_fails_on_the_data_names_table_and_task(source: str, store: S3Store) -> None:
    _land(source)
    pipeline = Pipeline("failing", source=source)
    pipeline.stream("views", key="k", partitions=8).select("CAST(k AS INTEGER) AS number").write("numbers")
    with pytest.raises(Refused, match="Could not convert string 'key-") as caught:
        run_task(_plan(pipeline), TaskRef("views", 0), 0, store.root)
    assert caught.value.findings[0].where == "table 'numbers', task views/0 of batch 0"


def test_what_does_not_fit_into_memory_is_spilled(source: str, store: S3Store) -> None:
    count = 400_000
    keys = [f"a-key-that-takes-some-memory-{n * 7919 % count:030}" for n in range(count)]
    views = pa.table({"k": keys, "v": range(count)})
    pipeline = Pipeline("wide", source=source)
    both = pipeline.stream("views", key="k", partitions=1)
    both.aggregate("sum(v) AS v, max(v || k) AS text").write("sums")
    both.select("v").write("copies")
    land_table(views, "views", source, key="k", partitions=1, files=4)
    plan = _plan(pipeline)
    (receipt,) = _run(plan, store, memory="48MB")
    assert {file.table: file.records for file in receipt.files} == {"sums": count, "copies": count}
    assert sum(row[1] for row in _rows(store, [receipt], "sums")) == sum(range(count))
    with pytest.raises(Refused, match="Out of Memory") as caught:
        _run(plan, store, memory="4MB")
    assert "--memory" in caught.value.findings[0].then


def test_what_sql_is_still_reading_when_the_rest_is_drained_is_read_once(store: S3Store, source: str) -> None:
    _land(source)
    plan = _plan(_activity(source), "tasks(1)")
    stage, reading, go_on = plan.stages[0], Event(), Event()

    class Slow(Inspection):
        def take(self, batch: pa.RecordBatch, file: InputFile) -> pa.RecordBatch:
            reading.set()
            assert go_on.wait(60)
            return super().take(batch, file)

    feed = Feed(plan, stage, stage.tasks[0], "views", filesystem(), Slow)
    with ThreadPoolExecutor(2) as threads:
        ahead = threads.submit(pa.RecordBatchReader.from_stream(feed).read_next_batch)
        assert reading.wait(60)
        drained = threads.submit(feed.drain)
        go_on.set()
        drained.result()
        assert ahead.result().num_rows > 0
    assert sum(receipt.taken for receipt in feed.receipts()) == VIEWS.num_rows


def test_an_error_while_sql_reads_ahead_is_raised_when_the_rest_is_drained(store: S3Store, source: str) -> None:
    _land(source)
    plan = _plan(_activity(source), "tasks(1)")

    class Failing(Inspection):
        def take(self, batch: pa.RecordBatch, file: InputFile) -> pa.RecordBatch:
            raise Refused(Finding("it is broken", file.path, "land it again"))

    feed = Feed(plan, plan.stages[0], plan.stages[0].tasks[0], "views", filesystem(), Failing)
    with pytest.raises(pa.ArrowException, match="it is broken"):
        pa.RecordBatchReader.from_stream(feed).read_next_batch()
    with pytest.raises(Refused, match="it is broken"):
        feed.drain()
