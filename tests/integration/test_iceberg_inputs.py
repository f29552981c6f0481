"""Iceberg tables as inputs: each row that a snapshot appends is taken once, by the bucket of its key."""

from __future__ import annotations

import json
import random
import signal
import socket
import uuid
from collections import Counter
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from coset.batches.ref import BatchRef
from coset.batches.steps import plan as planned
from coset.batches.verifying import verify
from coset.sources.iceberg import rest_catalogue
from coset.sources.s3 import iceberg_options
from demo.s3_server import S3Server
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.store import Store
from partitioning.kinds import Kind
from partitioning.model.schemes import tasks
from tests import forked
from tests.bucketed import (
    Row,
    append,
    append_files,
    bucket_of,
    create,
    delete_positions,
    file_of,
    files_of,
    keep_newest,
    lake,
    live,
    rewrite,
)
from tests.commands import coset, refused, succeeded
from tests.examples import share
from tests.followed import told
from tests.killed import arm
from tests.landed import land_table
from tests.logs import log_of
from tests.running import moved, run_and_publish_unjudged
from tests.swapped import entered
from tests.there import there

__all__ = ["lake"]
KEYS = 40


def shop() -> Pipeline:
    pipeline = Pipeline("shop", source="iceberg://lake.shop")
    orders = pipeline.stream("orders", key="customer", key_format="long", partitions=8)
    returns = pipeline.stream("returns", key="customer", key_format="long", partitions=12)
    orders.select("id, amount::BIGINT AS amount", name="each").write("each")
    both = orders.select("amount::BIGINT AS amount").merge(returns.select("amount::BIGINT AS amount"), name="both")
    each = both.aggregate("count(*) AS n, sum(amount)::BIGINT AS amount", name="parts")
    each.combine("sum(n)::BIGINT AS n, sum(amount)::BIGINT AS amount", running=True, name="totals").write(
        "totals", mode="upsert"
    )
    return pipeline


def held(store: Store, table: str, *columns: str) -> list[tuple[object, ...]]:
    rows = log_of(store, table).to_pyarrow_table(columns=[*columns]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


class Shop:
    """Two tables with rows of some customers, whose columns change over time."""

    def __init__(self, lake: Catalog, random_: random.Random) -> None:
        self._random = random_
        self._next = 0
        columns = {"customer": LongType(), "id": LongType(), "amount": IntegerType(), "note": StringType()}
        self.orders = create(lake, "shop.orders", columns, 8)
        # Whole numbers of both sizes have one hash.
        self.returns = create(lake, "shop.returns", {**columns, "customer": IntegerType()}, 12)

    @property
    def tables(self) -> tuple[Table, Table]:
        return self.orders.refresh(), self.returns.refresh()

    def append(self) -> None:
        table = self._random.choice(self.tables)
        names = {field.name for field in table.schema().fields}
        rows = list[Row]()
        for _ in range(self._random.choice([1, 3, 30])):
            self._next += 1
            # An old note is never a new one, nor the other way round.
            rows.append(
                {
                    "customer": self._random.randrange(KEYS) - 20,
                    "id": self._next,
                    "amount": self._random.randrange(100),
                    **dict.fromkeys(names - {"customer", "id", "amount"}, "x"),
                }
            )
        append(table, rows)

    def compact(self) -> None:
        table = self._random.choice(self.tables)
        by_bucket = Counter(file.partition[0] for file in live(table))
        several = [bucket for bucket, count in by_bucket.items() if count > 1]
        if not several:
            return
        bucket = self._random.choice(several)
        rows = [row for row in table.scan().to_arrow().to_pylist() if bucket_of(table, row) == bucket]
        self._random.shuffle(rows)
        rewrite(table, [file for file in live(table) if file.partition[0] == bucket], rows, Operation.REPLACE)

    def evolve(self) -> None:
        table = self._random.choice(self.tables)
        names = {field.name for field in table.schema().fields} - {"customer", "id", "amount"}
        with table.update_schema(allow_incompatible_changes=True) as update:
            match self._random.randrange(4):
                case 0 if names:
                    update.rename_column(min(names), f"c{self._random.randrange(10**6)}")
                case 1 if names:
                    update.delete_column(min(names))
                case 2:
                    update.update_column("amount", LongType())
                case _:
                    update.add_column(f"d{self._random.randrange(10**6)}", StringType())

    def expire(self) -> None:
        for table in self.tables:
            keep_newest(table)

    def totals(self) -> list[tuple[object, ...]]:
        orders, returns = (table.scan(selected_fields=("customer", "amount")).to_arrow() for table in self.tables)
        sql = (
            "FROM (FROM orders UNION ALL FROM returns) SELECT customer, count(*), sum(amount) GROUP BY ALL ORDER BY ALL"
        )
        with duckdb.connect() as connection:
            connection.register("orders", orders)
            connection.register("returns", returns)
            return connection.sql(sql).fetchall()


def batch(store: Store, settings: Settings = DEFAULTS) -> BatchRef | None:
    """Run the next batch; None if there is nothing to do."""
    ref, _ = planned(shop(), store.root, settings)
    if ref is not None:
        run_and_publish_unjudged(ref)
        assert moved(store, ref.load()[1]) == 0
    return ref


@pytest.mark.parametrize("seed", share([1, 2]))
def test_any_history_of_two_tables_is_read_as_it_is(lake: Catalog, store: Store, seed: int) -> None:
    random_ = random.Random(seed)
    there = Shop(lake, random_)
    there.append()
    for _ in range(6):
        for _ in range(random_.randrange(1, 7)):
            random_.choice([there.append, there.append, there.append, there.compact, there.evolve])()
        limit = random_.choice([None, 1, 2])
        batch(store, Settings(limit=limit, scheme=random_.choice([None, tasks(3), tasks(12)])))
        if limit is None:
            assert held(store, "totals", "customer", "n", "amount") == there.totals()
            random_.choice([lambda: None, there.expire])()
        assert all(found.found.same for found in verify(shop(), store) if not isinstance(found.found, str))
    while batch(store):
        pass
    assert held(store, "totals", "customer", "n", "amount") == there.totals()
    ids = [(row["id"],) for row in there.tables[0].scan(selected_fields=("id",)).to_arrow().to_pylist()]
    assert held(store, "each", "id") == sorted(ids)
    assert all("is its query" in str(found) for found in verify(shop(), store))


@pytest.fixture
def orders(lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table in eight buckets with ten rows, of which a pipeline has published a batch."""
    entered(store, tmp_path / "docs", monkeypatch)
    table = create(lake, "shop.orders", {"customer": StringType(), "amount": LongType()}, 8)
    append(table, some(10))
    run()
    return table


SPENT = str(Path(__file__).parents[1] / "pipelines" / "spent.py")


def some(count: int, first: int = 0) -> list[Row]:
    return [{"customer": f"c{number % 7}", "amount": number} for number in range(first, first + count)]


def without(table: Table, amount: int) -> None:
    """Delete the rows with this amount, as engines do that copy what stays."""
    wrong = [
        each
        for each in live(table)
        if any(row["amount"] == amount for row in pq.read_table(each.file_path[7:]).to_pylist())
    ]
    rows = [row for each in wrong for row in pq.read_table(each.file_path[7:]).to_pylist() if row["amount"] != amount]
    rewrite(table, wrong, rows, Operation.OVERWRITE)


def run() -> str:
    return succeeded("run", SPENT, "--runner", "local").output


def spent(store: Store) -> int:
    return sum(cast(int, n) for (n,) in held(store, "spent", "n"))


def test_rows_that_a_snapshot_takes_away_are_refused_until_it_is_rolled_back(orders: Table, store: Store) -> None:
    before = there(orders.current_snapshot()).snapshot_id
    append(orders, some(3))
    without(orders, 0)
    found = told(Kind.STREAM_DELETES, "run", SPENT, "--runner", "local")
    assert str(there(orders.current_snapshot()).snapshot_id) in found.findings[0]["what"]
    assert spent(store) == 10
    # What was appended before counts.
    orders.manage_snapshots().rollback_to_snapshot(there(there(orders.current_snapshot()).parent_snapshot_id)).commit()
    run()
    assert spent(store) == 13
    append(orders, some(5))
    orders.refresh().manage_snapshots().rollback_to_snapshot(before).commit()
    append(orders, some(1))
    found = told(Kind.STREAM_RESET, "run", SPENT, "--runner", "local")
    assert "does not follow snapshot" in found.findings[0]["what"]


def test_a_table_with_deleted_rows_is_begun_anew_with_what_is_there(
    orders: Table, store: Store, tmp_path: Path
) -> None:
    without(orders, 0)
    append(orders, some(3, 10))
    found = told(Kind.STREAM_DELETES, "run", SPENT, "--runner", "local")
    # All that the words say is done before anything is run.
    words = "pipeline.table(…, kept=True)", "mode='upsert'", "result tables of other names", "another name"
    assert all(each in found.next for each in words)
    lines = (
        "from coset import Pipeline",
        "pipeline = Pipeline({name!r}, source='iceberg://lake.shop')",
        "orders = pipeline.{declared}",
        "orders.select('amount AS paid', name='{name}_each').write('{name}_each', mode='{mode}')",
    )
    as_it_is = "table('orders', key='amount', key_format='long', partitions=1, kept=True)"
    for name, declared, mode in (
        ("spent", as_it_is, "upsert"),
        ("again", "stream('orders', key='customer', partitions=8)", "append"),
    ):
        file = tmp_path / f"{name}.py"
        file.write_text("\n".join(lines).format(name=name, declared=declared, mode=mode))
        if name == "spent":
            found.follow()
        succeeded("run", str(file), "--runner", "local")
        right = sorted((row["amount"],) for row in orders.refresh().scan().to_arrow().to_pylist())
        assert held(store, f"{name}_each", "paid") == right
    assert "Table again_each is its query" in succeeded("verify", str(file)).output


def test_rows_whose_snapshots_expired_before_a_batch_are_named(orders: Table, store: Store) -> None:
    for number in range(3):
        append(orders, some(2, number))
    snapshots = [each.snapshot_id for each in orders.refresh().snapshots()]
    orders.maintenance.expire_snapshots().by_id(snapshots[1]).commit()
    found = told(Kind.STREAM_LOST, "run", SPENT, "--runner", "local")
    assert "expired" in found.findings[0]["what"]
    assert spent(store) == 10


def test_snapshots_may_expire_that_were_read(orders: Table, store: Store) -> None:
    taken = there(orders.refresh().current_snapshot()).snapshot_id
    append(orders, some(2))
    append(orders, some(2))
    orders.refresh().maintenance.expire_snapshots().by_id(taken).commit()
    run()
    assert spent(store) == 14


def test_a_rollback_shows_although_what_was_read_has_expired(orders: Table, store: Store) -> None:
    before = there(orders.refresh().current_snapshot()).snapshot_id
    append(orders, some(4))
    run()
    taken = there(orders.refresh().current_snapshot()).snapshot_id
    orders.manage_snapshots().rollback_to_snapshot(before).commit()
    append(orders, some(3))
    orders.refresh().maintenance.expire_snapshots().by_id(before).by_id(taken).commit()
    found = told(Kind.STREAM_RESET, "run", SPENT, "--runner", "local")
    # A table that Spark replaces keeps its uuid, and its snapshot follows none.
    assert "it was rolled back or replaced" in found.findings[0]["what"]
    assert spent(store) == 14


@pytest.mark.parametrize("appended", [False, True])
def test_compaction_loses_nothing_of_an_idle_table_whose_snapshots_expire(
    orders: Table, store: Store, appended: bool
) -> None:
    """What was read is known by a snapshot that expired with the next ones, which brought nothing or something."""
    for number in range(3):
        if appended and number == 1:
            append(orders, some(1))
        rewrite(orders, live(orders), [*orders.refresh().scan().to_arrow().to_pylist()], Operation.REPLACE)
        orders.refresh()
    keep_newest(orders)
    if appended:
        told(Kind.STREAM_LOST, "run", SPENT, "--runner", "local")
        return
    append(orders, some(3))
    run()
    assert spent(store) == 13


def test_rows_that_are_deleted_by_their_positions_are_not_read(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered(store, tmp_path / "docs", monkeypatch)
    table = create(lake, "shop.orders", {"customer": StringType(), "amount": LongType()}, 8)
    append(table, some(10))
    delete_positions(table, {live(table)[0].file_path: [0]})
    run()
    assert spent(store) == 9
    append(table, some(2))
    run()
    assert spent(store) == 11
    assert "Table spent is its query" in succeeded("verify", SPENT).output


@pytest.mark.parametrize("fault", ["a file is named twice", "deletes are not read"])
def test_a_table_that_is_not_read_rightly_is_read_once_its_files_are_written_anew(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Of files that are named twice engines count the rows twice, as Iceberg's sink left some in 2026."""
    entered(store, tmp_path / "docs", monkeypatch)
    table = create(lake, "shop.orders", {"customer": StringType(), "amount": LongType()}, 8)
    rows, files = some(10), files_of(table, some(10))
    append_files(table, files)
    if fault == "a file is named twice":
        append_files(table, files)
        rows += some(10)
    else:
        delete_positions(table, {files[0].file_path: [0]}, FileFormat.AVRO)
    found = told(Kind.STREAM_DELETES, "run", SPENT, "--runner", "local")
    rewrite(table, live(table), rows, Operation.REPLACE)
    found.again()
    assert spent(store) == len(rows)


@pytest.mark.parametrize("read", [True, False])
def test_a_table_of_the_first_format_is_read_before_it_is_of_the_second_and_after(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: bool
) -> None:
    entered(store, tmp_path / "docs", monkeypatch)
    monkeypatch.setenv("SPENT_BUCKETS", "1")
    table = create(lake, "shop.orders", {"customer": StringType(), "amount": LongType()}, None, version=1)
    as_arrow = partial(pa.Table.from_pylist, schema=schema_to_pyarrow(table.schema()))
    table.append(as_arrow(some(10)))
    if read:
        run()
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    run()
    table.append(as_arrow(some(10, 10)))
    run()
    assert spent(store) == 20


def test_rows_that_are_deleted_by_their_positions_later_are_not_read(orders: Table, store: Store) -> None:
    delete_positions(orders, {live(orders)[0].file_path: [0]})
    refused(coset("run", SPENT, "--runner", "local"), "it deletes or overwrites rows")


def test_a_row_in_another_bucket_than_its_key_is_not_published(orders: Table, store: Store) -> None:
    bucket = next(number for number in range(8) if number != bucket_of(orders, {"customer": "c0"}))
    append_files(orders, [file_of(orders, bucket, [{"customer": "c0", "amount": 1}])])
    refused(coset("run", SPENT, "--runner", "local"), "c0", f"orders-{bucket}")
    assert spent(store) == 10


def test_rows_without_a_key_are_refused(orders: Table, store: Store) -> None:
    append(orders, [{"customer": None, "amount": 1}, {"customer": "c0", "amount": 2}])
    result = coset("run", SPENT, "--runner", "local")
    refused(result, "Refused\n", "without a key")
    assert "not taken by any task" not in result.output
    assert spent(store) == 10


@pytest.mark.parametrize("kind", [DateType(), DecimalType(9, 2), TimestampType(), TimestamptzType()], ids=str)
def test_keys_of_other_types_are_refused_with_what_is_declared_instead(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: PrimitiveType
) -> None:
    entered(store, tmp_path / "docs", monkeypatch)
    table = create(lake, "shop.orders", {"seen": kind, "id": LongType()}, 4)
    pa_kind = schema_to_pyarrow(table.schema()).field("seen").type
    some = pa.array([number * 86_400_000_000 for number in (0, 0, 1, 40)], pa.timestamp("us", "UTC"))
    seen = (
        pa.array([Decimal("1.50"), Decimal("1.50"), Decimal("-2.00"), Decimal("0.00")])
        if isinstance(kind, DecimalType)
        else some
    )
    append(table, pa.table({"seen": seen.cast(pa_kind), "id": [1, 2, 3, 4]}).to_pylist())
    file = tmp_path / "seen.py"
    lines = "from coset import Pipeline\npipeline = Pipeline('seen', source='iceberg://lake.shop')\n"
    rest = "{}.aggregate('count(*) AS n', name='counts').write('counts', mode='replace')\n"
    file.write_text(lines + rest.format("pipeline.table('orders', key='seen', partitions=4, kept=True)"))
    refused(coset("run", str(file), "--runner", "local"), "'seen' is", "add one, as CAST(seen AS STRING)")
    file.write_text(lines + rest.format("pipeline.stream('orders', key='seen', partitions=4)"))
    then = told(Kind.STREAM_COLUMNS, "run", str(file), "--runner", "local").next
    declared, behind = then.removeprefix("declare ").split(", and behind it ")
    file.write_text(lines + rest.format(f"pipeline.stream('orders', {declared}){behind}"))
    succeeded("run", str(file), "--runner", "local")
    assert held(store, "counts", "n") == [(1,), (1,), (2,)]


def test_a_table_that_was_made_anew_is_refused(lake: Catalog, orders: Table, store: Store) -> None:
    lake.drop_table("shop.orders")
    append(create(lake, "shop.orders", {"customer": StringType(), "amount": LongType()}, 8), some(30))
    found = told(Kind.STREAM_RESET, "run", SPENT, "--runner", "local")
    assert "the table was made anew" in found.findings[0]["what"]
    assert spent(store) == 10


def test_a_table_of_types_that_pyiceberg_does_not_know_is_refused(orders: Table, store: Store) -> None:
    """As Spark makes in format 3. It is no use to ask the catalogue again."""
    metadata = Path(orders.refresh().metadata_location.removeprefix("file://"))
    metadata.write_text(metadata.read_text().replace('"long"', '"variant"'))
    found = told(Kind.STREAM_COLUMNS, "run", SPENT, "--runner", "local")
    assert "Unsupported field type: 'variant'" in found.findings[0]["what"]
    assert spent(store) == 10


def test_buckets_that_do_not_fit_are_refused_and_any_divisor_of_their_count_fits(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered(store, tmp_path / "docs", monkeypatch)
    table = create(lake, "shop.orders", {"customer": LongType(), "amount": LongType()}, 12)
    append(table, [{"customer": number, "amount": number} for number in range(20)])
    refused(coset("run", SPENT, "--runner", "local"), "key_format='string' is declared", "declare key_format='long'")
    monkeypatch.setenv("SPENT_KEYS", "long")
    found = told(Kind.PARTITIONS, "run", SPENT, "--runner", "local")
    assert "files of the table lie by bucket[12](customer), and 8 buckets are declared" in found.findings[0]["what"]
    monkeypatch.setenv("SPENT_BUCKETS", "4")
    run()
    assert spent(store) == 20
    # Twice as many buckets are no other partitions.
    with table.refresh().update_spec() as spec:
        spec.remove_field("bucket")
        spec.add_field("customer", BucketTransform(24), "more")
    append(table, [{"customer": number, "amount": number} for number in range(20)])
    run()
    assert spent(store) == 40
    monkeypatch.setenv("SPENT_BUCKETS", "12")
    refused(coset("run", SPENT, "--runner", "local"), "counted by 4 buckets, and 12 are declared")


def test_a_topic_does_not_go_on_at_the_rows_of_a_table(orders: Table, store: Store, tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(some(30))
    land_table(rows, "orders", f"{tmp_path}/topics", key="customer", partitions=8)
    text = Path(SPENT).read_text().replace("iceberg://lake.shop", f"{tmp_path}/topics")
    (tmp_path / "spent.py").write_text(text)
    refused(coset("run", str(tmp_path / "spent.py"), "--runner", "local"), "which counts its records otherwise")
    assert spent(store) == 10


def test_a_table_without_buckets_is_one_partition(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered(store, tmp_path / "docs", monkeypatch)
    append(create(lake, "shop.orders", {"customer": StringType(), "amount": LongType()}, None), some(20))
    refused(coset("run", SPENT, "--runner", "local"), "lie by no partition", "declare partitions=1")
    monkeypatch.setenv("SPENT_BUCKETS", "1")
    run()
    assert spent(store) == 20
    assert "Table spent is its query" in succeeded("verify", SPENT).output


def test_files_in_no_buckets_are_read_anew_once_they_lie_in_buckets(orders: Table, store: Store) -> None:
    with orders.update_spec() as spec:
        spec.remove_field("bucket")
    append(orders, some(6))
    plain = [file for file in live(orders) if not len(file.partition)]
    found = told(Kind.PARTITIONS, "run", SPENT, "--runner", "local")
    with orders.refresh().update_spec() as spec:
        spec.add_field("customer", BucketTransform(8), "again")
    rewrite(orders, plain, some(6), Operation.REPLACE)
    # The snapshot that added them still has them.
    refused(coset("run", SPENT, "--runner", "local"), "lie by no partition")
    found.follow()
    run()
    assert spent(store) == 10 + 16


def test_a_table_that_is_not_there_is_named(
    store: Store, lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered(store, tmp_path / "docs", monkeypatch)
    refused(coset("run", SPENT, "--runner", "local"), "the catalogue lake has no table shop.orders")
    (tmp_path / "lake").rename(tmp_path / "away")
    refused(coset("run", SPENT, "--runner", "local"), "the catalogue does not answer", code=6)


def test_a_catalogue_that_never_answers_is_not_waited_for(
    store: Store, lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered(store, tmp_path / "docs", monkeypatch)
    monkeypatch.setattr(rest_catalogue, "TIMEOUT", (5, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        refused(coset("run", SPENT, "--runner", "local"), "the catalogue does not answer: ReadTimeout", code=6)


def test_old_files_are_read_by_the_ids_of_columns(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column that was dropped does not come back with another of its name; one that was renamed does."""
    entered(store, tmp_path / "docs", monkeypatch)
    columns = {"customer": StringType(), "price": IntegerType(), "amount": LongType(), "_offset": LongType()}
    table = create(lake, "shop.orders", columns, 8)
    append(table, [{"customer": "c", "price": 3, "amount": 5, "_offset": 10**6} for _ in range(4)])
    refused(coset("run", SPENT, "--runner", "local"), "has the name that the positions of rows have")
    with table.refresh().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("amount")
        update.delete_column("_offset")
    with table.refresh().update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("price", "amount")
        update.update_column("price", LongType())
    with table.refresh().update_schema() as update:
        update.add_column("price", IntegerType())
    append(table, [{"customer": "c", "price": 7, "amount": 100} for _ in range(2)])
    run()
    assert held(store, "spent", "customer", "n", "spent") == [("c", 6, 4 * 3 + 2 * 100)]
    assert "Table spent is its query" in succeeded("verify", SPENT).output


def test_a_file_without_ids_is_read_by_its_names_as_long_as_these_are_of_now(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered(store, tmp_path / "docs", monkeypatch)
    monkeypatch.setenv("SPENT_BUCKETS", "1")
    table = create(lake, "shop.orders", {"customer": StringType(), "amount": LongType()}, None)
    pq.write_table(pa.Table.from_pylist(some(1)), tmp_path / "plain.parquet")
    table.add_files([f"file://{tmp_path}/plain.parquet"])
    run()
    assert spent(store) == 1
    pq.write_table(pa.Table.from_pylist(some(2)), tmp_path / "more.parquet")
    table.add_files([f"file://{tmp_path}/more.parquet"])
    with table.refresh().update_schema() as update:
        update.rename_column("amount", "price")
    refused(coset("run", SPENT, "--runner", "local"), "its columns have no ids, and 'amount' has another name by now")
    with table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    refused(coset("run", SPENT, "--runner", "local"), "its columns have no ids, as those of files that were added")


@pytest.mark.parametrize("point", ["plan.before", "plan.after", "verdict.before", "delta.before", "delta.after"])
def test_a_batch_that_was_killed_reads_what_was_planned_whatever_came_since(
    orders: Table, store: Store, tmp_path: Path, point: str
) -> None:
    append(orders, some(5))
    words = ("run", "--runner", "local", SPENT, "--store", store.root, "--docs", str(tmp_path / "docs"))
    assert forked.coset(*words, first=partial(arm, point)).returncode == -signal.SIGKILL
    append(orders, some(4))
    files = [file for file in live(orders) if file.partition[0] == bucket_of(orders, {"customer": "c0"})]
    rows = [row for file in files for row in pq.read_table(file.file_path[7:]).to_pylist()]
    rewrite(orders, files, rows, Operation.REPLACE)
    run()
    run()
    assert spent(store) == 19
    assert "Table spent is its query" in succeeded("verify", SPENT).output


@pytest.mark.parametrize(("key", "amount"), [("customer", "amount"), ("the customer", "_offset")])
def test_inspection_writes_the_declaration(lake: Catalog, store: Store, key: str, amount: str) -> None:
    columns = {key: LongType(), amount: LongType()}
    append(create(lake, "shop.orders", columns, 12), [{key: number, amount: number} for number in range(20)])
    said = json.loads(succeeded("inspect", "iceberg://lake.shop.orders", "--json").stdout)
    assert sum(each["records"] for each in said["offsets"]) == 20
    made: dict[str, Any] = {}
    exec(said["declaration"], made)
    orders = made["orders"]
    orders.write("copied")
    ref, _ = planned(made["pipeline"], store.root)
    run_and_publish_unjudged(there(ref))
    assert held(store, "copied", amount) == [(number,) for number in range(20)]
    assert {stream.partitions for stream in made["pipeline"].streams} == {12}


def test_values_of_each_type_are_read_as_the_table_has_them(
    s3: S3Server, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From S3, through result files, in old files and in new ones."""
    said = {"uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": f"s3://test/{tmp_path.name}"}
    for name, value in said.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    lake = load_catalog("lake", **said, **iceberg_options())
    nested = {
        "points": ListType(
            20, StructType(NestedField(21, "x", IntegerType()), NestedField(22, "y", StringType())), False
        ),
        "said": MapType(30, StringType(), 31, LongType()),
    }
    plain = {
        "k": UUIDType(), "i": IntegerType(), "l": LongType(), "f": FloatType(), "d": DoubleType(), "b": BooleanType(),
        "s": StringType(), "t": TimestampType(), "z": TimestamptzType(), "day": DateType(), "c": TimeType(),
        "n": DecimalType(12, 3), "raw": BinaryType(), "fixed": FixedType(4),
    }  # fmt: skip
    table = create(lake, "shop.orders", {**plain, **nested}, 4)
    when = datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
    values: list[Row] = [
        {
            "k": uuid.UUID(int=number).bytes, "i": -number, "l": 2**62 + number, "f": 0.5, "d": -0.1, "b": True,
            "s": "\u00e9\U0001f600",
            "t": when.replace(tzinfo=None), "z": when, "day": when.date(), "c": time(23, 59, 59, 999999),
            "n": Decimal("-123456789.001"), "raw": b"\0\xff", "fixed": b"abcd",
            "points": [[], None, [{"x": 1, "y": None}, None]][number % 3], "said": [("a", number)],
        }
        for number in range(6)
    ]  # fmt: skip
    append(table, [*values, {"k": uuid.UUID(int=9).bytes}])
    with table.update_schema() as update:
        update.update_column("i", LongType())
        update.update_column("f", DoubleType())
        update.update_column("n", DecimalType(20, 3))
        update.add_column("late", StringType())
    append(table, [{"k": uuid.UUID(int=10).bytes, "i": 2**40, "late": "x"}])
    pipeline = Pipeline("typed", source="iceberg://lake.shop")
    rows = pipeline.stream("orders", key="k", key_format="uuid", partitions=4)
    others = [name for name in table.schema().column_names if "." not in name and name not in ("k", "c")]
    # Delta has no times of day.
    rows.select(", ".join(["c::VARCHAR AS c", *others]), name="typed").write("typed")
    ref, _ = planned(pipeline, store.root)
    run_and_publish_unjudged(there(ref))
    assert [str(found) for found in verify(pipeline, store)] == ["Table typed is its query up to batch 0: 8 rows"]
    made, right = log_of(store, "typed").to_pyarrow_table(), table.refresh().scan().to_arrow()
    # PyIceberg 0.12 reads a list of structs that is null as an empty one.
    points = sorted((str(row["k"]), row["points"]) for row in made.select(["k", "points"]).to_pylist())
    assert [each for _, each in points] == [*(row["points"] for row in values), None, None]
    names = ", ".join(f"{name}::VARCHAR" for name in right.column_names if name != "points")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        both = []
        for rows_ in (made, right):
            connection.register("rows_", rows_)
            both.append(connection.sql(f"SELECT {names} FROM rows_ ORDER BY ALL").fetchall())
        assert both[0] == both[1]
