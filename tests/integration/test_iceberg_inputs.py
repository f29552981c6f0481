"""Iceberg tables as inputs: each row that a snapshot appends is taken once, by the bucket of its key."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import DoubleType, IntegerType, LongType, StringType

from coset.batches.ref import BatchRef
from coset.batches.steps import plan as planned
from coset.batches.verifying import verify
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.store import Store
from partitioning.model.schemes import tasks
from tests.bucketed import Row, append, bucket_of, create, live, rewrite
from tests.logs import log_of
from tests.running import moved, run_and_publish_unjudged

KEYS = 40


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalogue in SQLite, which PyIceberg's variables name."""
    (tmp_path / "lake").mkdir()
    said = {"uri": f"sqlite:///{tmp_path}/lake/lake.db", "warehouse": f"file://{tmp_path}/lake"}
    for name, value in said.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    return load_catalog("lake", **said)


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
            now = table.current_snapshot()
            expire = table.maintenance.expire_snapshots()
            for old in [each.snapshot_id for each in table.snapshots() if now and each.snapshot_id != now.snapshot_id]:
                expire = expire.by_id(old)
            expire.commit()

    def totals(self) -> list[tuple[object, ...]]:
        orders, returns = (table.scan(selected_fields=("customer", "amount")).to_arrow() for table in self.tables)
        sql = "FROM (FROM orders UNION ALL FROM returns) SELECT customer, count(*), sum(amount) GROUP BY ALL ORDER BY ALL"
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


@pytest.mark.parametrize("seed", range(4))
def test_any_history_of_two_tables_is_read_as_it_is(lake: Catalog, store: Store, seed: int) -> None:
    random_ = random.Random(seed)
    there = Shop(lake, random_)
    there.append()
    for _ in range(6):
        for _ in range(random_.randrange(1, 7)):
            random_.choice([there.append, there.append, there.append, there.compact, there.evolve])()
        limit = random_.choice([None, None, 3])
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
