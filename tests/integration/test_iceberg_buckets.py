"""Iceberg tables of upserted tables lie in buckets of their key, if that lies by Iceberg's hash."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, IcebergType, LongType, StringType

from bench.elsewhere import python_of, variables_of
from bench.party import JARS, PARTIES
from partitioning.documents.store import Store
from partitioning.kinds import Kind
from tests.bucketed import append, create, lake, live
from tests.catalogues import rest_catalogues
from tests.commands import succeeded
from tests.followed import done, told
from tests.logs import log_of
from tests.readers import reader
from tests.swapped import entered

__all__ = ["lake"]
LOCAL = "--runner", "local"
ORDERS = 'orders = pipeline.table("orders", key="customer", partitions=8, kept=True)'
SPENT = 'orders.select("amount", name="paid").write("spent", mode="upsert", updates="beside")'


def written(folder: Path, *lines: str, name: str = "spending", source: str = "lake.shop") -> str:
    file = folder / f"{name}.py"
    first = "from coset import Pipeline", f'pipeline = Pipeline("{name}", source="iceberg://{source}")'
    file.write_text("\n".join([*first, *lines, ""]))
    return str(file)


@pytest.fixture
def store_(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("COSET_ICEBERG", "lake.results")
    return entered(store, tmp_path / "docs", monkeypatch)


def lies_by(table: Table) -> list[str]:
    """How a table lies; each of its files is in the bucket of its keys."""
    for file in live(table):
        for field in table.spec().fields:
            source = table.schema().find_field(field.source_id)
            bucket = field.transform.transform(source.field_type)
            keys = pq.read_table(file.file_path.removeprefix("file://"), columns=[source.name])[source.name].to_pylist()
            assert {bucket(key) for key in keys} == {file.partition[0]}
    return [f"{field.transform} of {table.schema().find_column_name(field.source_id)}" for field in table.spec().fields]


def seen(table: Table) -> list[str]:
    return sorted(map(repr, table.scan().to_arrow().to_pylist()))


@pytest.mark.parametrize(
    ("kind", "key_format"), [(StringType(), "string"), (LongType(), "long"), (BinaryType(), "bytes")]
)
def test_what_comes_of_a_table_in_buckets_lies_in_these_and_is_read_by_them(
    lake: Catalog, store_: Store, tmp_path: Path, kind: IcebergType, key_format: str
) -> None:
    def key(number: int) -> Any:
        return {"string": f"c{number}", "long": number, "bytes": b"c%d" % number}[key_format]

    orders = create(lake, "shop.orders", {"customer": kind, "amount": LongType()}, 8)
    append(orders, [{"customer": key(number), "amount": number} for number in range(40)])
    declared = f'"{"orders"}", key="customer", key_format="{key_format}", partitions=8, kept=True'
    file = written(tmp_path, f"orders = pipeline.table({declared})", SPENT)
    succeeded("run", file, *LOCAL)
    spent = lake.load_table("results.spent")
    assert lies_by(spent) == ["bucket[8] of customer"]
    equal: Any = EqualTo
    found = spent.scan(row_filter=equal("customer", key(7)))
    assert (found.count(), len([*found.plan_files()]), len(live(spent))) == (1, 1, 8)
    append(orders.refresh(), [{"customer": key(40), "amount": 40}])
    succeeded("run", file, *LOCAL, "--scheme", "tasks(3)")
    assert lies_by(spent.refresh()) == ["bucket[8] of customer"]
    append(orders.refresh(), [{"customer": key(41), "amount": 41}])
    succeeded("run", file, *LOCAL, "--scheme", "tasks(40)")
    assert lies_by(spent.refresh()) == ["bucket[40] of customer"]
    right = seen(orders.refresh())
    assert seen(spent) == right
    again = succeeded("inspect", "iceberg://lake.results.spent").output
    assert "partitions=40" in again
    read = f'"spent", key="customer", key_format="{key_format}", partitions=40, kept=True'
    reading = written(
        tmp_path, f'pipeline.table({read}).write("again", mode="upsert")', name="reading", source="lake.results"
    )
    succeeded("run", reading, *LOCAL)
    assert seen(lake.load_table("results.again")) == right
    assert lies_by(lake.load_table("results.again")) == ["bucket[40] of customer"]


def test_a_table_of_before_there_were_buckets_gets_them_and_no_file_is_in_a_wrong_one(
    lake: Catalog, store_: Store, tmp_path: Path
) -> None:
    orders = create(lake, "shop.orders", {"customer": StringType(), "amount": LongType()}, 8)
    append(orders, [{"customer": f"c{number}", "amount": number} for number in range(40)])
    # A column has the name that partitions have.
    file = written(tmp_path, ORDERS, SPENT.replace('"amount"', '"amount, 0 AS customer_bucket_8"'))
    succeeded("run", file, *LOCAL)
    commits = Path(store_.root.removeprefix("file://"), "tables/spent/_delta_log").glob("*.json")
    commit = next(each for each in commits if "coset.buckets" in each.read_text())
    said = commit.read_text()
    lake.drop_table("results.spent")
    commit.write_text(said.replace('"8 customer"', '""'))
    done("iceberg", file)
    spent = lake.load_table("results.spent")
    assert lies_by(spent) == []
    commit.write_text(said.replace('"8 customer"', '"16 customer"'))
    found = told(Kind.ICEBERG_TABLE, "iceberg", file)
    assert "of customer, as the log says" in found.findings[0]["what"]
    commit.write_text(said)
    done("iceberg", file)
    assert lies_by(spent.refresh()) == ["bucket[8] of customer"]
    with spent.update_spec() as change:
        change.add_identity("amount")
    assert "gave the Iceberg table partitions" in told(Kind.ICEBERG_TABLE, "iceberg", file).findings[0]["what"]
    lake.drop_table("results.spent")
    # Rows of others may be in any partition: none is in a bucket until all are written anew.
    rows = log_of(store_, "spent").to_pyarrow_table()
    write_deltalake(log_of(store_, "spent"), rows.slice(0, 1), mode="append")
    done("iceberg", file)
    assert lies_by(lake.load_table("results.spent")) == []
    told(Kind.TABLE_CHANGED, "run", file, *LOCAL).follow()
    for number, tasks, lies in ((99, 8, []), (100, 40, ["bucket[40] of customer"])):
        append(orders.refresh(), [{"customer": f"c{number}", "amount": number}])
        succeeded("run", file, *LOCAL, "--scheme", f"tasks({tasks})")
        assert lies_by(lake.load_table("results.spent")) == lies


@pytest.mark.long
def test_spark_joins_a_table_with_what_comes_of_it_without_a_shuffle(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg's storage-partitioned join, also once rows are dead."""
    entered(store, tmp_path / "docs", monkeypatch)
    monkeypatch.setenv("COSET_ICEBERG", "lake.results")
    (tmp_path / "lake").mkdir()
    with rest_catalogues(tmp_path) as made:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", made(warehouse=f"{tmp_path}/lake"))
        jars = variables_of(PARTIES["iceberg"])[JARS]
        with reader("iceberg-spark", str(python_of(PARTIES["iceberg"])), jars) as asked:
            ask = partial(asked, "", None)
            for setting in (
                "spark.sql.sources.v2.bucketing.enabled=true",
                "spark.sql.sources.v2.bucketing.pushPartValues.enabled=true",
                "`spark.sql.iceberg.planning.preserve-data-grouping`=true",
                "spark.sql.requireAllClusterKeysForCoPartition=false",
                "spark.sql.autoBroadcastJoinThreshold=-1",
                "spark.sql.adaptive.enabled=false",
            ):
                ask(f"SET {setting}")
            ask("CREATE NAMESPACE lake.shop")
            ask("CREATE TABLE lake.shop.orders (id BIGINT, amount BIGINT) USING iceberg PARTITIONED BY (bucket(8, id))")
            ask("INSERT INTO lake.shop.orders SELECT id, id FROM range(200)")
            table = 'orders = pipeline.table("orders", key="id", key_format="long", partitions=8, kept=True)'
            file = written(tmp_path, table, SPENT)
            join = "SELECT s.id, s.amount FROM lake.results.spent s JOIN lake.shop.orders o ON s.id = o.id"
            for change in ("", "DELETE FROM lake.shop.orders WHERE id % 50 = 7"):
                if change:
                    ask(change)
                succeeded("run", file, *LOCAL)
                plan = ask(f"EXPLAIN {join}")[0][0]
                assert "SortMergeJoin" in plan
                assert "Exchange" not in plan
                ask("SET spark.sql.sources.v2.bucketing.enabled=false")
                assert "Exchange" in ask(f"EXPLAIN {join}")[0][0]
                ask("SET spark.sql.sources.v2.bucketing.enabled=true")
                right = sorted(ask("SELECT id, amount FROM lake.shop.orders"))
                assert sorted(ask(join)) == right
                assert sorted(ask(f"{join} WHERE s.id IN (8, 9)")) == [[8, 8], [9, 9]]
