"""Offsets that several files hold, because a sink that was started again wrote them once more."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import UNSET

from coset.cli import pipelines, plans
from coset.sources.doubles import comparing
from coset.sources.files import Files
from coset.sources.formats import parquet
from coset.sources.landed import discover
from coset.testing import engine
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.ledger import Ledger, LedgerBalance
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.explain.missing import said
from partitioning.hashes import placement_hash
from partitioning.model.offsets import Span
from partitioning.model.plan import Plan
from partitioning.model.stream_rules import checked
from partitioning.model.streams import InputFile, Layout, Sparse, Stream
from partitioning.planning.check import check_plan
from partitioning.values import replace
from tests.landed import land_file
from tests.refused import finding_of
from tests.written import WRITERS, Writer, file_key, row

KEYS = [f"k{number}" for number in range(400) if placement_hash(f"k{number}") % 2 == 0]


def rows(start: int, end: int) -> pa.Table:
    """What the topic's partition 0 has at these offsets."""
    numbers = range(start, end)
    keys = [KEYS[number % 20] for number in numbers]
    return pa.table({"k": keys, "n": pa.array(numbers, pa.int64())})


def land(store: Store, *spans: tuple[int, int]) -> None:
    for start, end in spans:
        land_file(rows(start, end), "orders", f"{store.root}/topics", 0, start)


def orders(store: Store, **declared: Any) -> Pipeline:
    made = Pipeline("shop", source=f"{store.root}/topics")
    stream = made.stream("orders", key="k", partitions=2, **declared)
    stream.write("raw")
    stream.combine("sum(n)::BIGINT AS n", running=True, name="totals").write("totals", mode="upsert")
    return made


def read(store: Store) -> list[int]:
    return sorted(int(str(row["n"])) for row in engine.rows(store.root, "raw"))


def published(store: Store) -> Plan:
    plan = Ledger(store, "shop").standing().published
    assert plan is not None
    return plan


THREE = ((0, 100), (50, 150), (60, 80), (90, 120), (150, 160))


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(3)"])
def test_each_offset_counts_once_however_many_files_hold_it(store: Store, scheme: str) -> None:
    land(store, *THREE)
    engine.run(orders(store), store.root, Settings.parse(scheme=scheme), twice=False)
    assert read(store) == list(range(160))
    totals = {row["k"]: row["n"] for row in engine.rows(store.root, "totals")}
    assert totals == {KEYS[place]: sum(range(place, 160, 20)) for place in range(20)}
    plan = published(store)
    planned = plan.stream("orders").partitions[0]
    assert [(file.start, file.end) for file in planned.files] == [(0, 100), (100, 150), (150, 160)]
    assert said(plan) == (
        "Other files have 100 records of this batch once more. Planning found the same in them: each counts once."
    )
    report = Ledger(store, "shop").judgement(0, 0)
    assert report is not None
    assert "Other files have 100 records of this batch once more" in report.decode()


@pytest.mark.parametrize("counted", [False, True], ids=["with offsets", "counted"])
@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("writer", WRITERS, ids=str)
def test_they_are_found_in_every_format_and_layout(store: Store, writer: Writer, layout: Layout, counted: bool) -> None:
    everything = [row(number) for number in range(40)]
    for hour, (start, end) in enumerate(((0, 20), (12, 30), (14, 16), (29, 40))):
        data = writer.write(everything[start:end], None if counted else start)
        store.put(file_key(writer, layout, 0, start, hour), data)
    declared: dict[str, Any] = {"counted": counted, "layout": layout, **writer.declared}
    views = checked(Stream("views", store.root, "member", 1, **declared))
    (found,) = discover([views])
    (partition,) = found.partitions
    assert [(file.start, file.end) for file in partition.files] == [(0, 20), (20, 30), (30, 40)]
    assert [(file.start, file.end) for file in partition.doubles] == [(12, 20), (14, 16), (29, 30)]
    made = Pipeline("all", source=store.root)
    said: dict[str, Any] = {"layout": layout, "null_keys": "own task", **writer.declared}
    stream = made.stream("views", key="member", partitions=1, offset=None if counted else "_offset", **said)
    stream.select("n, small", name="some").write("some")
    engine.run(made, store.root, DEFAULTS, twice=False)
    assert sorted(int(str(each["small"])) for each in engine.rows(store.root, "some")) == sorted(
        -number for number in range(40)
    )


def test_a_limit_ends_within_them_and_the_next_batch_goes_on_there(store: Store) -> None:
    land(store, *THREE)
    made, ends = orders(store), []
    for _ in range(4):
        engine.run(made, store.root, Settings.parse(limit=45), twice=False)
        ends.append(published(store).stream("orders").partitions[0].end)
    assert ends == [45, 90, 135, 160]
    assert read(store) == list(range(160))


def test_what_arrives_behind_what_was_read_is_passed_over_and_told(store: Store) -> None:
    land(store, (0, 100))
    made = orders(store)
    engine.run(made, store.root, DEFAULTS, twice=False)
    land(store, (20, 60), (30, 70))
    assert engine.run(made, store.root, DEFAULTS, twice=False) == (
        "Nothing to do: no new records since batch 0 (all 100 landed records are committed); "
        "passed over, as their records were read: 2 files of orders"
    )
    land(store, (50, 150))
    engine.run(made, store.root, DEFAULTS, twice=False)
    assert read(store) == list(range(150))
    assert said(published(store)) == (
        "Other files have 130 records that earlier batches read once more. Planning found the same in them: "
        "each counts once."
    )
    # The last file counts from within, and its name says an earlier offset.
    land(store, (70, 160), (160, 170))
    engine.run(made, store.root, DEFAULTS, twice=False)
    assert read(store) == list(range(170))


def test_a_longer_file_of_the_same_beginning_has_the_rest(store: Store) -> None:
    land(store, (0, 100))
    made = orders(store)
    engine.run(made, store.root, DEFAULTS, twice=False)
    sink = io.BytesIO()
    pq.write_table(rows(0, 130).append_column("_offset", pa.array(range(130), pa.int64())), sink)
    store.put("topics/orders/partition=0/orders+0+0000000000.snappy.parquet", sink.getvalue())
    land(store, (130, 140))
    engine.run(made, store.root, DEFAULTS, twice=False)
    assert read(store) == list(range(140))


def test_they_are_found_where_the_partition_count_grows(store: Store) -> None:
    land(store, (0, 100))
    engine.run(orders(store), store.root, DEFAULTS, twice=False)
    land(store, (50, 150))
    four = Pipeline("shop", source=f"{store.root}/topics")
    stream = four.stream("orders", key="k", partitions=4)
    stream.write("raw")
    stream.combine("sum(n)::BIGINT AS n", running=True, name="totals").write("totals", mode="upsert")
    for partition in (2, 3):
        keys = [key for key in (f"k{number}" for number in range(99)) if placement_hash(key) % 4 == partition][:9]
        table = pa.table({"k": keys, "n": pa.array(range(1000, 1009), pa.int64())})
        for first in (0, 4):
            land_file(table.slice(first), "orders", f"{store.root}/topics", partition, first)
    engine.run(four, store.root, DEFAULTS, twice=False)
    assert read(store) == sorted([*range(150), *range(1000, 1009), *range(1000, 1009)])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda table: table.set_column(1, "n", pa.array([*range(50, 77), 0, *range(78, 150)], pa.int64())), 77),
        (lambda table: table.set_column(0, "k", pa.array([None, *table["k"].to_pylist()[1:]])), 50),
        (lambda table: table.append_column("more", pa.array([*[None] * 49, "x", *[None] * 50])), 99),
    ],
    ids=["a value", "a null", "a column"],
)
def test_other_records_are_refused_with_the_first_offset_that_differs(store: Store, spoil: Any, said: int) -> None:
    land(store, (0, 100))
    uri = land_file(spoil(rows(50, 150)), "orders", f"{store.root}/topics", 0, 50)
    finding = finding_of(engine.run, orders(store), store.root, DEFAULTS, twice=False)
    assert finding.what == f"orders: two files hold orders-0@[50,100), and differ from offset {said} on"
    assert uri in finding.where
    assert "remove the other" in str(finding.next)


def test_a_column_of_nulls_that_only_one_of_them_has_is_no_difference(store: Store) -> None:
    land(store, (0, 100))
    more = pa.array([*[None] * 50, *["x"] * 50])
    land_file(rows(50, 150).append_column("more", more), "orders", f"{store.root}/topics", 0, 50)
    made = Pipeline("shop", source=f"{store.root}/topics")
    made.stream("orders", key="k", partitions=2).write("raw")
    engine.run(made, store.root, DEFAULTS, twice=False)
    assert read(store) == list(range(150))


def test_a_table_that_is_read_whole_finds_them_in_each_batch(store: Store) -> None:
    made = Pipeline("shop", source=f"{store.root}/topics")
    made.table("orders", key="k", partitions=2).write("raw", mode="replace")
    land(store, (0, 100), (50, 150))
    for end in (150, 170, 180):
        engine.run(made, store.root, DEFAULTS, twice=False)
        assert read(store) == list(range(end - 20, end))
        assert "records of this batch" in said(published(store))
        land(store, (end - 20, end + 20) if end == 150 else (end, end + 10))


def test_records_of_a_sparse_stream_are_the_same_if_they_lack_the_same_offsets(store: Store) -> None:
    def land_sparse(offsets: Sequence[int]) -> None:
        table = pa.concat_tables([rows(offset, offset + 1) for offset in offsets])
        land_file(table, "orders", f"{store.root}/topics", 0, offsets[0], offsets=offsets)

    land_sparse([0, 2, 5, 6, 9])
    land_sparse([5, 6, 9, 10, 14])
    made = orders(store, offsets="sparse(10)")
    engine.run(made, store.root, DEFAULTS, twice=False)
    assert read(store) == [0, 2, 5, 6, 9, 10, 14]
    assert "3 records of this batch" in said(published(store))


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ([5, 6, 7, 9, 10], 7),
        ([5, 9, 10], 6),
        ([5, 6, 10], 9),
        ([6, 9, 10], None),
        ([8, 9, 10], 8),
        ([2, 5, 8], 6),
        ([2, 4], 4),
    ],
    ids=[
        "one more",
        "one less",
        "one less at the end",
        "later",
        "one more at the beginning",
        "within, one other",
        "within, one more at the end",
    ],
)
def test_a_record_that_only_one_file_of_a_sparse_stream_has_is_a_difference(
    store: Store, other: list[int], differs: int | None
) -> None:
    for offsets in ([0, 2, 5, 6, 9], other):
        table = pa.concat_tables([rows(offset, offset + 1) for offset in offsets])
        land_file(table, "orders", store.root, 0, offsets[0], offsets=offsets)
    stream = checked(Stream("orders", store.root, "k", 1, sparse=Sparse(10)))
    if differs is None:
        assert discover([stream])[0].partitions[0].end == 11
        return
    with pytest.raises(Refused, match=rf"and differ from offset {differs} on"):
        discover([stream])


def test_a_topic_that_was_made_anew_beside_its_old_files_is_refused(store: Store) -> None:
    land(store, (0, 100))
    made = orders(store)
    engine.run(made, store.root, DEFAULTS, twice=False)
    land_file(rows(1000, 1100), "orders", f"{store.root}/topics", 0, 50)
    with pytest.raises(Refused, match=r"two files hold orders-0@\[50,100\), and differ from offset 50 on"):
        engine.run(made, store.root, DEFAULTS, twice=False)


def test_the_printed_query_counts_each_once(store: Store, tmp_path: Path) -> None:
    land(store, (0, 100), (50, 150))
    file = tmp_path / "shop.py"
    file.write_text(
        "from coset import Pipeline\n"
        f'pipeline = Pipeline("shop", source={store.root + "/topics"!r})\n'
        'orders = pipeline.stream("orders", key="k", partitions=2)\n'
        'orders.write("raw")\n'
    )
    made = pipelines.load(str(file))
    engine.run(made, store.root, DEFAULTS, twice=False)
    # In the batch after it, the doubles of the first are known of the balance.
    land(store, (150, 160))
    engine.run(made, store.root, DEFAULTS, twice=False)
    for batch, end in ((0, 150), (1, 160)):
        answer: Any = plans.query(str(file), store.root, "raw", batch).value
        with duckdb.connect() as alone:
            assert sorted(n for (n,) in alone.sql(answer["query"]).project("n").fetchall()) == list(range(end))
    assert LedgerBalance("shop").then(published(store)).doubled is UNSET


def test_a_plan_that_hides_why_a_file_counts_from_within_is_refused(store: Store) -> None:
    land(store, (0, 100), (50, 150))
    engine.run(orders(store), store.root, DEFAULTS, twice=False)
    plan = published(store)
    (stream,) = plan.streams
    silent = [replace(planned, doubles=()) for planned in stream.partitions]
    with pytest.raises(Refused, match=r"is, by its name, not the file of orders-0 from 100 on"):
        check_plan(replace(plan, streams=(replace(stream, partitions=tuple(silent)),)))


@pytest.mark.parametrize(
    "value",
    [
        pa.array([float("nan")]),
        pa.array([[{"x": float("nan")}]]),
        pa.array([{"a": None}]),
        # Text that is not UTF-8.
        pa.array([b"\xff\xfe"]).view(pa.string()),
    ],
    ids=["NaN", "within", "nulls", "no text"],
)
def test_equal_values_of_any_kind_are_the_same(store: Store, value: pa.Array) -> None:
    table = pa.table({"k": ["a"] * 3, "v": pa.concat_arrays([value] * 3)})
    paths = [land_file(table, "orders", store.root, 0, first) for first in (0, 1)]
    one, other = (InputFile(path, 1, "", first, first + 3) for first, path in enumerate(paths))
    stream = checked(Stream("orders", store.root, "k", 1))
    assert comparing(stream, Files())(one, other, Span(1, 3)).differs is None


def test_files_of_many_batches_are_compared_side_by_side(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH_ROWS", 7)
    paths = []
    for first, groups in ((0, 11), (5, 4)):
        sink, table = io.BytesIO(), rows(first, 60)
        pq.write_table(
            table.append_column("_offset", pa.array(range(first, 60), pa.int64())), sink, row_group_size=groups
        )
        store.put(f"orders/partition=0/orders+0+{first:010}.parquet", sink.getvalue())
        paths.append(f"{store.root}/orders/partition=0/orders+0+{first:010}.parquet")
    one, other = InputFile(paths[0], 1, "", 0, 60), InputFile(paths[1], 1, "", 5, 60)
    stream = checked(Stream("orders", store.root, "k", 1))
    compared = comparing(stream, Files())(one, other, Span(5, 60))
    assert (compared.records, compared.differs) == (55, None)
    shorter = comparing(stream, Files())(one, replace(other, end=50), Span(5, 60))
    assert shorter.records == 55
