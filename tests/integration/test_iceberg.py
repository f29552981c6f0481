"""Iceberg tables in a catalogue have the rows of the tables that they follow, whatever is done to these."""

from __future__ import annotations

import json
import os
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copytree, rmtree
from statistics import mean, median
from threading import Thread
from time import process_time
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import polars
import pyarrow as pa
import pytest
from deltalake import QueryBuilder
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchNamespaceError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from bench.elsewhere import environment_of, python_of, variables_of
from bench.party import JARS, PARTIES
from coset.batches import publication
from coset.batches.tables import iceberg, iceberg_files, iceberg_snapshot
from coset.batches.tables.iceberg import follow, tidied
from coset.sources.iceberg import named_catalogue, rest_catalogue, sql_catalogue
from coset.sources.iceberg.catalogue_changes import TableChange, commit
from coset.sources.iceberg.named_catalogue import catalogue
from coset.sources.iceberg.own_files import OwnFiles
from coset.sources.s3 import iceberg_options
from demo.s3_server import S3Server
from partitioning.documents.folder_store import path_of
from partitioning.documents.store import Store
from partitioning.kinds import Kind
from tests import forked
from tests.bucketed import renamed, swapped
from tests.catalogues import Made, glue, metastore, rest_catalogues
from tests.commands import coset, refused, succeeded
from tests.examples import share
from tests.faults import FaultProxy
from tests.followed import told
from tests.histories import Click, table_of
from tests.landed import land_table
from tests.logs import log_of
from tests.readers import reader
from tests.swapped import NEWEST, backfilled, entered, land, two_batches
from tests.there import there
from tests.trino import trino

__all__ = ["backfilled", "two_batches"]
TABLES = ("counts", "newest")
ways_to_update = pytest.mark.parametrize("updates", ["rewrite", "beside"])
GLUE = "PYICEBERG_CATALOG__LAKE__GLUE__ENDPOINT"
# What may happen to a request on its way to a catalogue, and be over when it is made again.
WIRED = ("after:lost", "after:500", "before:503", "before:409", "after:twice")
ICEBERG_OF_DUCKDB = [
    f"{name}==1.5.5" for name in ("duckdb", "duckdb-extensions", "duckdb-extension-avro", "duckdb-extension-iceberg")
]


@pytest.fixture(scope="module")
def catalogues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A server of REST catalogues."""
    with rest_catalogues(tmp_path_factory.mktemp("catalogues")) as made:
        yield made


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a metastore has its databases, of each test in a folder of its own."""
    return tmp_path_factory.mktemp("metastore") / "warehouse"


@pytest.fixture(scope="module")
def hive(warehouse: Path) -> Iterator[str]:
    with metastore(warehouse.parent, warehouse) as url:
        yield url


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with glue(tmp_path_factory.mktemp("glue")) as url:
        yield url


@pytest.fixture(params=["sql", "rest", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("hive", "glue"))])
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of catalogue."""
    return str(request.param)


@pytest.fixture
def wire(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Iterator[FaultProxy | None]:
    """What leads to a REST catalogue; None for others."""
    (tmp_path / "lake").mkdir()
    if kind != "rest":
        yield None
        return
    wire = FaultProxy(request.getfixturevalue("catalogues")(warehouse=f"file://{tmp_path}/lake"))
    yield wire
    wire.stop()


@pytest.fixture
def lake(
    request: pytest.FixtureRequest,
    kind: str,
    wire: FaultProxy | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Catalog]:
    """A catalogue, which the environment asks for."""
    folder = f"file://{tmp_path}/lake"
    match kind:
        case "hive":
            (link := request.getfixturevalue("warehouse")).unlink(missing_ok=True)
            link.symlink_to(tmp_path / "lake")
            lake = asked_for(monkeypatch, uri=request.getfixturevalue("hive"))
        case "glue":
            names = ("region", "access-key-id", "secret-access-key")
            grant = {f"glue.{name}": "us-east-1" for name in names}
            monkeypatch.setenv(GLUE, request.getfixturevalue("aws"))
            lake = asked_for(monkeypatch, type=kind, warehouse=folder, **grant)
        case _ if wire:
            lake = asked_for(monkeypatch, uri=wire.url)
        case _:
            lake = asked_for(monkeypatch, uri=f"sqlite:///{tmp_path}/lake/lake.db", warehouse=folder)
    yield lake
    # One server has all that tests leave.
    for namespace in lake.list_namespaces() if kind in ("hive", "glue") else ():
        for table in lake.list_tables(namespace):
            lake.drop_table(table)
        if namespace != ("default",):
            lake.drop_namespace(namespace)


def asked_for(monkeypatch: pytest.MonkeyPatch, **options: str) -> Catalog:
    """Let the environment ask for a catalogue."""
    monkeypatch.setenv("COSET_ICEBERG", "lake.shop")
    for name, value in options.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    return catalogue("lake")


@pytest.fixture
def empty(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store without batches, which the environment names."""
    return entered(store, tmp_path, monkeypatch)


def in_catalogue(lake: Catalog, name: str) -> Table:
    return lake.load_table(f"shop.{name}")


def snapshots(lake: Catalog, name: str = "newest") -> list[dict[str, str]]:
    return [there(each.summary).additional_properties for each in in_catalogue(lake, name).snapshots()]


def rows(read: Any) -> list[tuple[object, ...]]:
    """The rows of a table of Arrow's, of whichever library."""
    return sorted((tuple(row.values()) for row in pa.table(read).to_pylist()), key=repr)


def delta_rows(store: Store, name: str, columns: str) -> list[tuple[object, ...]]:
    """The rows of a Delta table, of which some may be dead."""
    return rows(QueryBuilder().register("rows", log_of(store, name)).execute(f"SELECT {columns} FROM rows"))


def follows(store: Store, lake: Catalog) -> None:
    """Both tables have the same rows and columns in the catalogue, listed in few files."""
    for name in TABLES:
        there_is = in_catalogue(lake, name)
        assert len(there(there_is.current_snapshot()).manifests(there_is.io)) <= 6
        holds_what_it_keeps(there_is)
        table = there_is.scan().to_arrow()
        assert rows(table) == delta_rows(store, name, ", ".join(table.column_names))
        assert set(table.column_names) >= {each.name for each in log_of(store, name).schema().fields} - {"_residue"}


def holds_what_it_keeps(table: Table) -> None:
    """What this process kept of the files that it wrote is what these have."""
    if own := sql_catalogue._OWN.found(".".join(table.name()), table.metadata_location):
        assert FromInputFile.table_metadata(table.io.new_input(table.metadata_location)) == own
    newest = there(table.current_snapshot())
    if kept_files := iceberg_snapshot._OWN.found(str(table.metadata.table_uuid), newest.manifest_list):
        manifests, entries = kept_files
        assert [each._data for each in manifests] == [each._data for each in newest.manifests(table.io)]
        for each in (each for each in manifests if each.manifest_path in entries):
            for kept, read in zip(entries[each.manifest_path], each.fetch_manifest_entry(table.io), strict=True):
                # One that stayed has another status in the file, as it had when it came.
                assert kept._data[1:4] == read._data[1:4]
                assert kept.data_file._data == read.data_file._data


def run(*more: str) -> str:
    return succeeded("run", NEWEST, "--runner", "local", *more).output


def test_each_batch_is_a_snapshot_that_says_its_offsets(lake: Catalog, empty: Store) -> None:
    for number in range(2):
        land(empty, number)
        assert "lake.shop.counts follows; lake.shop.newest follows" in run()
        follows(empty, lake)
    first, second = snapshots(lake)
    assert (first["coset.batch"], second["coset.batch"]) == ("0", "1")
    assert sum(json.loads(first["coset.offsets"]).values()) == 10
    assert sum(json.loads(second["coset.offsets"]).values()) == 17
    assert second["coset.digest"].startswith("sha256:")
    assert snapshots(lake, "counts")[1]["added-records"] == "7"


def test_store_and_catalogue_may_be_in_s3(
    s3: S3Server, empty: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = f"s3://test/{tmp_path.name}"
    lake = asked_for(monkeypatch, uri=f"sqlite:///{tmp_path}/lake.db", warehouse=warehouse, **iceberg_options())
    land(empty, 0)
    assert "lake.shop.counts follows; lake.shop.newest follows" in run()
    monkeypatch.setenv("NEWEST_UPDATES", "beside")
    arrive(empty, 1, (4, 5))
    run()
    table = in_catalogue(lake, "newest")
    assert table.metadata_location.startswith(f"{warehouse}/")
    assert snapshots(lake)[1]["added-position-deletes"] == "2"
    arrive(empty, 2, (5, 6))
    run()
    assert tidied(empty, "newest", timedelta(0)) > 2
    assert len(snapshots(lake)) == 1
    follows(empty, lake)


_CALL, _ALTER = "CALL lake.system", "ALTER TABLE lake.shop.newest"
# What others may do in the catalogue. GC of a table whose files are another's is off.
FORBIDDEN = (
    f"{_CALL}.expire_snapshots('shop.newest', TIMESTAMP '2099-01-01 00:00:00')",
    f"{_CALL}.remove_orphan_files('shop.newest')",
    "DROP TABLE lake.shop.newest PURGE",
)
ROLLED_BACK = (
    f"{_CALL}.rewrite_data_files(table => 'shop.newest', options => map('rewrite-all', 'true'))",
    f"{_CALL}.fast_forward('shop.newest', 'main', 'audit')",
    "DELETE FROM lake.shop.newest WHERE k < 'key-2'",
)
ACCEPTED = (
    f"{_CALL}.rollback_to_snapshot('shop.newest', FIRST)",
    f"{_CALL}.compute_table_stats('shop.newest')",
    f"{_ALTER} CREATE BRANCH meanwhile",
    f"{_ALTER} ADD COLUMN mine BIGINT",
    f"{_ALTER} WRITE ORDERED BY k",
)
MADE_AGAIN = (f"{_ALTER} ADD PARTITION FIELD bucket(4, k)", f"{_ALTER} SET TBLPROPERTIES ('format-version' = '3')")


def maintained(lake: Catalog, store: Store, sql: Callable[[str], object]) -> None:
    """Others maintain the table by Spark: each thing is accepted, or taken back as the page says, and nothing lost."""
    first = in_catalogue(lake, "newest").snapshots()[0].snapshot_id
    for words in FORBIDDEN:
        with pytest.raises(RuntimeError, match="GC is disabled"):
            sql(words)
    there_are = len(snapshots(lake))
    sql(f"{_CALL}.rewrite_manifests('shop.newest')")
    assert len(snapshots(lake)) == there_are + 1
    assert "Nothing to do" in succeeded("iceberg", NEWEST).stdout
    arrive(store, 19, (5,))
    run()
    mine = there(in_catalogue(lake, "newest").current_snapshot()).snapshot_id
    sql(f"{_ALTER} CREATE BRANCH audit")
    sql("INSERT INTO lake.shop.newest.branch_audit SELECT * FROM lake.shop.newest LIMIT 1")
    for words in (*ROLLED_BACK, *MADE_AGAIN):
        follows(store, lake)
        sql(words)
        found = told(Kind.ICEBERG_TABLE, "iceberg", NEWEST)
        if words in MADE_AGAIN:
            sql("DROP TABLE lake.shop.newest")
        else:
            sql(f"{_CALL}.rollback_to_snapshot('shop.newest', {mine})")
        found.follow()
        if words == ROLLED_BACK[-1]:
            for number, accepted in enumerate(ACCEPTED):
                sql(accepted.replace("FIRST", str(first)))
                arrive(store, 20 + number)
                run()
                follows(store, lake)
            in_catalogue(lake, "newest").maintenance.expire_snapshots().older_than(datetime(2099, 1, 1)).commit()  # noqa: DTZ001


@pytest.mark.long
@ways_to_update
@pytest.mark.parametrize("kind", ["sql", "rest"])
def test_what_it_costs_to_follow_is_printed(
    kind: str,
    updates: str,
    proxy: FaultProxy,
    request: pytest.FixtureRequest,
    empty: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With `-s`: what publishing a small batch of two tables takes, and following it, by turns with the footers of new
    files and with what the log says of them. In SQL the catalogue's files lie in S3, in REST in a folder."""
    wires = [proxy]
    if kind == "rest":
        wires.append(FaultProxy(request.getfixturevalue("catalogues")(warehouse=f"file://{tmp_path}/lake")))
        asked_for(monkeypatch, uri=wires[1].url)
    else:
        warehouse = f"s3://test/{tmp_path.name}"
        asked_for(monkeypatch, uri=f"sqlite:///{tmp_path}/lake.db", warehouse=warehouse, **iceberg_options())
    monkeypatch.setenv("NEWEST_UPDATES", updates)
    spent, told, asked = defaultdict[str, list[tuple[float, int]]](list), iceberg_files._is_told, list[str]()

    def measured(module: ModuleType, name: str) -> None:
        does = getattr(module, name)

        def call(*given: Any) -> Any:
            for each in wires:
                each.asked()
            began = process_time()
            result = does(*given)
            took = 1000 * (process_time() - began)
            seen = [f"{method} {path.partition('?')[0]}" for each in wires for method, path in each.asked()]
            turn = "footers" if number % 2 else "the log"
            asked.extend(f"{name}, {turn}: {each}" for each in seen if number in (10, 11))
            if number > 1:
                spent[f"{name}, {turn}"].append((took, len(seen)))
            return result

        monkeypatch.setattr(module, name, call)

    measured(publication, "publish")
    measured(iceberg, "follow")
    for number in range(12):
        monkeypatch.setattr(iceberg_files, "_is_told", (lambda _: False) if number % 2 else told)
        arrive(empty, number, range(20_000) if not number else range(number, 20_000, 500))
        run()
    for each in wires[1:]:
        each.stop()
    means = {what: (median(took for took, _ in of), mean(n for _, n in of)) for what, of in spent.items()}
    print("", *asked, *(f"{what}: {took:.0f} CPU ms, {n:.1f} requests" for what, (took, n) in means.items()), sep="\n")
    for turn in ("footers", "the log"):
        delta, lake = means[f"publish, {turn}"], means[f"follow, {turn}"]
        print(
            f"{kind}, {updates}, by {turn}: {lake[0] / delta[0]:.1f} x the CPU, {lake[1] / delta[1]:.1f} x the requests"
        )
    assert means["follow, the log"][1] < means["follow, footers"][1]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["rest"])
def test_spark_trino_duckdb_and_polars_read_each_snapshot(
    lake: Catalog, empty: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/how-to/iceberg.md, by Iceberg for Spark, Trino and DuckDB's extension in processes of their own."""
    monkeypatch.setenv("NEWEST_UPDATES", "beside")
    versions = dict[int | None, Any]()
    for number, keys in enumerate((range(10), range(3, 10), (4, 5), (5, 6), (5, 7))):
        arrive(empty, number, keys)
        run()
        table = in_catalogue(lake, "newest")
        versions[there(table.current_snapshot()).snapshot_id] = delta_rows(empty, "newest", "k, id")
    versions[None] = now = versions.pop(there(table.current_snapshot()).snapshot_id)
    assert any(task.delete_files for task in table.scan().plan_files())
    asked = "SELECT k, id FROM TABLE ORDER BY k"
    with trino() as ask:
        for snapshot, right in versions.items():
            assert [tuple(row) for row in ask("newest", snapshot, asked)] == right
    spark, duckdb = variables_of(PARTIES["iceberg"]), environment_of("duckdb-1.5.5-iceberg", *ICEBERG_OF_DUCKDB)
    for name, python, jars in (
        ("iceberg-spark", str(python_of(PARTIES["iceberg"])), spark[JARS]),
        ("iceberg-duckdb", str(duckdb), ""),
    ):
        with reader(name, python, jars) as ask:
            for snapshot, right in versions.items():
                assert [tuple(row) for row in ask(table.metadata_location, snapshot, asked)] == right
            if jars:
                maintained(lake, empty, partial(ask, "", None))
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    found = polars.scan_iceberg(table.metadata_location).select("k", "id").collect().sort("k")
    assert found.rows() == now


def test_snapshots_that_are_too_old_go_with_what_only_they_name(
    lake: Catalog, two_batches: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWEST_UPDATES", "beside")
    for number in range(2, 8):
        arrive(two_batches, number, (number, 3))
        run()
    in_catalogue(lake, "newest").manage_snapshots().create_tag(
        there(in_catalogue(lake, "newest").snapshots()[1]).snapshot_id, "kept"
    ).commit()
    files = {path for path in (tmp_path / "lake").rglob("*") if path.suffix in (".avro", ".parquet")}
    assert "newest: nothing to merge, 0 old files removed" in succeeded("compact", NEWEST, "--yes").stdout
    gone = sum(tidied(two_batches, name, timedelta(0)) for name in TABLES)
    left = {path for path in files if path.exists()}
    assert len(files) - len(left) == gone > len(left)
    assert [len(snapshots(lake, name)) for name in TABLES] == [1, 2]
    assert in_catalogue(lake, "newest").scan().use_ref("kept").count() == 10
    assert [tidied(two_batches, name, timedelta(0)) for name in TABLES] == [0, 0]
    arrive(two_batches, 9)
    run()
    follows(two_batches, lake)


@pytest.mark.parametrize("kind", ["rest"])
@pytest.mark.parametrize("can", [True, False])
def test_tables_come_at_once_where_the_catalogue_can(
    lake: Catalog, wire: FaultProxy, two_batches: Store, can: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can:
        monkeypatch.setattr(rest_catalogue, "_TRANSACTION", "what no catalogue has")
    succeeded("iceberg", NEWEST)
    arrive(two_batches, 2)
    assert wire.count("POST", "/transactions/commit$|/tables/", run) == (1 if can else 2)
    follows(two_batches, lake)


@pytest.mark.parametrize("kind", ["sql"])
def test_tables_in_a_database_come_together_or_not_at_all(
    lake: Catalog, two_batches: Store, faulty: list[Fault]
) -> None:
    succeeded("iceberg", NEWEST)

    def raced(commit: Callable[..., None], changes: Sequence[TableChange]) -> None:
        in_catalogue(lake, "newest").transaction().set_properties(mine="1").commit_transaction()
        with suppress(CommitFailedException):
            commit(changes)
        raise KeyboardInterrupt

    arrive(two_batches, 2)
    faulty.append(raced)
    assert coset("run", NEWEST, "--runner", "local").exit_code == 130
    assert [len(snapshots(lake, name)) for name in TABLES] == [1, 1]
    succeeded("iceberg", NEWEST)
    follows(two_batches, lake)
    assert [len(snapshots(lake, name)) for name in TABLES] == [2, 2]


def test_tables_that_were_there_come_by_a_command(lake: Catalog, two_batches: Store) -> None:
    said = succeeded("iceberg", NEWEST).stdout
    assert "lake.shop.counts has what its table has now" in said
    follows(two_batches, lake)
    assert "Nothing to do: no table of newest has what its Iceberg table lacks" in succeeded("iceberg", NEWEST).stdout
    assert len(snapshots(lake)) == 1


def test_a_swap_an_undo_and_a_compaction_are_a_snapshot_each(lake: Catalog, backfilled: Store) -> None:
    succeeded("iceberg", NEWEST)
    approved = json.loads(succeeded("backfills", NEWEST, "0", "--json").stdout)["comparison"]["digest"]
    for words in (
        ("swap", NEWEST, "0", "--approve", approved, "--why", "as it is to be"),
        ("undo", NEWEST, "0", "--why", "too early"),
        ("compact", NEWEST, "--yes", "--keep-days", "1"),
    ):
        before = {name: len(snapshots(lake, name)) for name in TABLES}
        succeeded(*words)
        follows(backfilled, lake)
        assert {name: len(snapshots(lake, name)) - before[name] for name in TABLES} in (
            dict.fromkeys(TABLES, 1),
            {"counts": 1, "newest": 0},
        )


@contextmanager
def away(kind: str, wire: FaultProxy | None, folder: Path) -> Iterator[None]:
    """The catalogue does not answer until the block ends."""
    with pytest.MonkeyPatch.context() as environment:
        if kind == "glue":
            wire = FaultProxy(os.environ[GLUE])
            environment.setenv(GLUE, wire.url)
        if wire:
            # What boto3 does not ask again.
            wire.spoil("before:412" if kind == "glue" else "before:503")
        (folder / "lake").rename(folder / "away")
        yield
        (folder / "away").rename(folder / "lake")
        if wire:
            wire.heal()
        if wire and kind == "glue":
            wire.stop()


def test_the_doctor_tries_the_catalogue(
    lake: Catalog, kind: str, wire: FaultProxy | None, empty: Store, tmp_path: Path
) -> None:
    def found() -> dict[str, str]:
        told = json.loads(coset("doctor", "--json").stdout)
        return next(each for each in told if each["what"] == "catalogue")

    assert found()["seen"] == "lake.shop let a table be made and removed"
    assert lake.list_tables("shop") == []
    if wire:
        wire.spoil("before:403 post /tables$")
        assert found()["seen"].startswith("the catalogue refuses what it is asked: Forbidden")
    with away(kind, wire, tmp_path):
        assert found()["seen"].startswith("the catalogue does not answer")
        assert found()["then"]


def test_without_a_catalogue_there_is_nothing_to_follow(two_batches: Store) -> None:
    refused(coset("iceberg", NEWEST), "this environment names no catalogue")


@pytest.mark.parametrize("said", ["lake", "lake.", "la ke.shop", "lake.shop;"])
def test_what_is_no_place_is_refused(said: str, two_batches: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_ICEBERG", said)
    refused(coset("plan", NEWEST), f"cannot be '{said}'", "prod.analytics")


def test_a_catalogue_that_is_not_configured_is_refused(two_batches: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_ICEBERG", "nowhere.shop")
    refused(coset("iceberg", NEWEST), "PyIceberg cannot load the catalogue nowhere", "PYICEBERG_CATALOG__NOWHERE__URI")
    monkeypatch.setenv("PYICEBERG_CATALOG__NOWHERE__TYPE", "glue")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    refused(coset("iceberg", NEWEST), "the catalogue refuses what it is asked: NoRegionError")
    monkeypatch.setenv("PYICEBERG_CATALOG__NOWHERE__GLUE__MAX_RETRIES", "3")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    refused(coset("iceberg", NEWEST), "PyIceberg cannot load the catalogue nowhere: TypeError")
    monkeypatch.setenv("PYICEBERG_CATALOG__NOWHERE__TYPE", "hive")
    refused(coset("iceberg", NEWEST), "PyIceberg cannot load the catalogue nowhere")


def test_columns_that_iceberg_takes_for_one_are_refused_when_planned(
    lake: Catalog, empty: Store, tmp_path: Path
) -> None:
    land(empty, 0)
    pipeline = tmp_path / "dotted.py"
    pipeline.write_text(f"{Path(NEWEST).read_text()}chosen.select('{{b: id}} AS a, id AS \"a.b\"').write('dotted')\n")
    refused(coset("plan", str(pipeline)), "table 'dotted'", "multiple fields for name a.b", "with AS")


def test_a_catalogue_that_does_not_answer_stops_no_batch(
    lake: Catalog, kind: str, wire: FaultProxy | None, two_batches: Store, tmp_path: Path
) -> None:
    land(two_batches, 2)
    with away(kind, wire, tmp_path):
        found = told(Kind.ICEBERG_UNREACHABLE, "run", NEWEST, "--runner", "local", code=6)
    assert "Batch 2 is published" in succeeded("status", NEWEST).stdout
    assert "lake.shop.newest has what its table has now" in found.follow()
    follows(two_batches, lake)


def test_what_others_wrote_there_is_taken_back_or_the_table_made_again(
    lake: Catalog, two_batches: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeeded("iceberg", NEWEST)
    table = in_catalogue(lake, "newest")
    mine, row = there(table.current_snapshot()), table.scan(limit=1).to_arrow()
    table.append(row)
    land(two_batches, 2)
    found = told(Kind.ICEBERG_TABLE, "run", NEWEST, "--runner", "local")
    assert "somebody else wrote to it" in found.findings[0]["what"]
    in_catalogue(lake, "newest").manage_snapshots().rollback_to_snapshot(mine.snapshot_id).commit()
    found.follow()
    follows(two_batches, lake)

    in_catalogue(lake, "newest").append(row)
    assert "somebody else wrote to it" in coset("iceberg", NEWEST).stderr
    lake.drop_table("shop.newest")
    succeeded("iceberg", NEWEST)
    follows(two_batches, lake)
    assert len(snapshots(lake)) == 1

    table = in_catalogue(lake, "newest")
    table.io.delete(there(table.current_snapshot()).manifest_list)
    # As another process, which did not write it.
    monkeypatch.setattr(iceberg_snapshot, "_OWN", OwnFiles())
    land(two_batches, 3)
    said = "files of the Iceberg table's newest snapshot are gone", "drop the table there, without its files, then"
    refused(coset("run", NEWEST, "--runner", "local"), *said)
    lake.drop_table("shop.newest")
    succeeded("iceberg", NEWEST)
    follows(two_batches, lake)


def test_columns_that_somebody_renamed_are_named_again_before_it_follows(
    lake: Catalog, empty: Store, tmp_path: Path
) -> None:
    """Bounds of files are of the columns of then, so filters by names of now would find too little."""
    pipeline = tmp_path / "columns.py"
    pipeline.write_text(
        """
import os
from coset import Pipeline
pipeline = Pipeline("columns", source=os.environ["DELAYS_SOURCE"])
clicks = pipeline.stream("clicks", key="k", partitions=4)
clicks.select("id AS a, id + 1000 AS b, {'x': id, 'y': id + 1000} AS of").write("columns")
"""
    )
    land(empty, 0)
    succeeded("run", str(pipeline), "--runner", "local")
    for number, (one, other) in enumerate((("a", "b"), ("of.x", "of.y")), 1):
        swapped(in_catalogue(lake, "columns"), one, other)
        land(empty, number)
        found = told(Kind.ICEBERG_TABLE, "run", str(pipeline), "--runner", "local")
        assert f"{one} was {other}" in found.findings[0]["what"]
        swapped(in_catalogue(lake, "columns"), one, other)
        found.follow()
        table = in_catalogue(lake, "columns")
        assert rows(table.scan().to_arrow()) == rows(log_of(empty, "columns").to_pyarrow_table())
        for row in table.scan().to_arrow().to_pylist():
            for name, value in (("a", row["a"]), ("b", row["b"]), ("of.x", row["of"]["x"])):
                assert table.scan(row_filter=f"{name} = {value}").count() == 1
    renamed(in_catalogue(lake, "columns"), "a", "c")
    refused(coset("iceberg", str(pipeline)), "c was a", "drop the table there, without its files")
    lake.drop_table("shop.columns")
    succeeded("iceberg", str(pipeline))


def test_a_table_has_one_name_in_the_catalogue(
    lake: Catalog, two_batches: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeeded("iceberg", NEWEST)
    lake.create_namespace("other")
    lake.register_table("other.newest", in_catalogue(lake, "newest").metadata_location)
    monkeypatch.setenv("COSET_ICEBERG", "lake.other")
    found = told(Kind.ICEBERG_TABLE, "iceberg", NEWEST)
    assert "the catalogue has the table as shop.newest, too" in found.findings[0]["what"]
    refused(coset("compact", NEWEST), "the catalogue has the table as shop.newest, too")
    lake.drop_table("shop.newest")
    found.follow()
    lake.rename_table("other.newest", "shop.newest")
    monkeypatch.setenv("COSET_ICEBERG", "lake.shop")
    succeeded("iceberg", NEWEST)
    assert in_catalogue(lake, "newest").properties["coset.table"] == "shop.newest"
    follows(two_batches, lake)


def test_a_table_that_is_not_cosets_stays_as_it_is(lake: Catalog, two_batches: Store) -> None:
    lake.create_namespace("shop")
    lake.create_table("shop.newest", pa.schema([("mine", pa.int64())]))
    refused(coset("iceberg", NEWEST), "lake.shop.newest", "is not one that Coset made")
    assert in_catalogue(lake, "newest").snapshots() == []
    # The other one follows all the same.
    assert len(snapshots(lake, "counts")) == 1


class Answers(BaseHTTPRequestHandler):
    """A catalogue that has one answer."""

    server: Any

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"", "the catalogue refuses what it is asked: Unauthorized"),
        (403, b"", "the catalogue refuses what it is asked: Forbidden"),
        (419, b"", "the catalogue refuses what it is asked: AuthorizationExpired"),
        (200, b"<html>Sign in</html>", "PyIceberg cannot load the catalogue lake"),
        (200, b'{"overrides": {}, "defaults": {}, "endpoints": ["GET /v1/{prefix}/namespaces"]}', "does not support"),
    ],
)
def test_a_catalogue_that_denies_access_says_so(
    status: int, body: bytes, said: str, two_batches: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_ICEBERG", "lake.shop")
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.__dict__.update(status=status, body=body)
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"http://127.0.0.1:{server.server_port}")
        refused(coset("iceberg", NEWEST), said)
        server.shutdown()


@pytest.mark.parametrize("kind", ["sql"])
def test_a_catalogue_that_is_not_configured_is_by_the_variables_that_are_named(
    lake: Catalog, two_batches: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PyIceberg takes underscores of variables for hyphens, so that none configures this name.
    monkeypatch.setenv("COSET_ICEBERG", "my_lake.elsewhere")
    told = coset("iceberg", NEWEST)
    assert "PYICEBERG_CATALOG__" not in told.stdout + told.stderr
    refused(told, "nothing configures it", "in .pyiceberg.yaml", "call it my-lake")
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  my_lake:\n    uri: {lake.properties['uri']}\n")
    told = coset("iceberg", NEWEST)
    assert "PYICEBERG_CATALOG__" not in told.stdout + told.stderr
    refused(told, "say where its tables are, in .pyiceberg.yaml")
    with (tmp_path / ".pyiceberg.yaml").open("a") as configured:
        configured.write(f"    warehouse: {lake.properties['warehouse']}\n")
    assert "my_lake.elsewhere.newest has what" in succeeded("iceberg", NEWEST).stdout
    monkeypatch.setenv("COSET_ICEBERG", "my-lake.elsewhere")
    for setting in ("uri", "warehouse"):
        for command in (("iceberg", NEWEST), ("doctor",)):
            told = coset(*command)
            assert told.exit_code == 3
            (named,) = set(re.findall(r"with (PYICEBERG_CATALOG__\S+)", told.stdout + told.stderr))
            # No shell exports another name.
            assert named.isidentifier()
        monkeypatch.setenv(named, lake.properties[setting])
    succeeded("iceberg", NEWEST)


def test_a_namespace_may_have_levels(
    lake: Catalog, wire: FaultProxy | None, kind: str, two_batches: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_ICEBERG", "lake.shop.of.ours")
    if kind in ("hive", "glue"):
        refused(coset("iceberg", NEWEST), "cannot have the namespace shop.of.ours", "name one without a dot")
        return
    if wire:
        # As Iceberg's JDBC answers where another makes the same.
        wire.spoil("before:500 post /namespaces$ x1")
    assert "lake.shop.of.ours.newest has what its table has now" in succeeded("iceberg", NEWEST).stdout
    assert lake.load_table("shop.of.ours.newest").scan().count() == 10
    assert ("shop", "of") in lake.list_namespaces("shop")
    assert "Nothing to do" in succeeded("iceberg", NEWEST).stdout


def test_the_catalogue_need_not_reach_the_store(
    s3: S3Server, lake: Catalog, empty: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own files lie elsewhere, for which it has other credentials."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__ACCESS_KEY_ID", "of-the-catalogue")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__SECRET_ACCESS_KEY", "of-the-catalogue")
    land(empty, 0)
    assert "lake.shop.counts follows; lake.shop.newest follows" in run()


def test_columns_come_and_change_and_go_with_those_of_the_table(lake: Catalog, empty: Store, tmp_path: Path) -> None:
    pipeline, seen = tmp_path / "columns.py", list[list[str]]()
    for number, columns in enumerate(("id AS a, 'x' AS b", "id::VARCHAR AS a, [id] AS c", "id AS a, {d: id} AS c")):
        land(empty, number)
        pipeline.write_text(
            f"""
import os
from coset import Pipeline
pipeline = Pipeline("columns", source=os.environ["DELAYS_SOURCE"])
chosen = pipeline.stream("clicks", key="k", partitions=4).select("{columns}")
chosen.to_stream().write("columns", mode="replace", comments={{"a": "of batch {number}"}})
"""
        )
        assert "follows" in succeeded("run", str(pipeline), "--runner", "local", "--go-on", "columns").output
        table = in_catalogue(lake, "columns")
        seen.append([f"{field.name} {field.field_type} {field.doc or ''}".strip() for field in table.schema().fields])
        assert rows(table.scan().to_arrow()) == rows(log_of(empty, "columns").to_pyarrow_table())
    assert [re.sub("[0-9]+: ", "", "; ".join(columns)) for columns in seen] == [
        "k string; a long of batch 0; b string",
        "k string; a string of batch 1; c list<long>",
        "k string; a long of batch 2; c struct<d: optional long>",
    ]


def altered(table: Table, chance: random.Random) -> None:
    """What others may alter of a table, and not its rows."""
    names = [field.name for field in table.schema().fields]
    name = chance.choice(names)
    for way in chance.sample(("sorted", "known", "needed", "mapped", "collected", "added"), k=3):
        table.refresh()
        match way:
            case "sorted":
                with table.update_sort_order() as order:
                    order.asc(name, IdentityTransform())
            case "known" | "needed" | "added":
                with table.update_schema(allow_incompatible_changes=True) as change:
                    if way == "added":
                        change.add_column(chance.choice(sorted({*"abcd"} - {*names})), LongType())
                    else:
                        change.update_column(name, required=True)
                    if way == "known":
                        change.set_identifier_fields(name)
            case "mapped":
                with table.transaction() as transaction:
                    transaction.set_properties({"schema.name-mapping.default": "[]"})
            case "collected":
                with table.transaction() as transaction:
                    transaction.set_properties({"gc.enabled": "true"})


@pytest.mark.parametrize("seed", share(range(4)))
def test_what_others_alter_of_a_table_stops_no_batch(lake: Catalog, empty: Store, tmp_path: Path, seed: int) -> None:
    """Columns that are sorted by, known by, or never null to others may go, or be null."""
    chance, pipeline = random.Random(seed), tmp_path / "columns.py"
    of = {
        name: (f"nullif(id % {n}, 0) AS {name}", f"nullif(id::VARCHAR, '3') AS {name}")
        for n, name in enumerate("abc", 2)
    }
    for number in range(5):
        arrive(empty, number)
        chosen = ", ".join(chance.choice(of[name]) for name in chance.sample("abc", k=chance.randrange(1, 4)))
        pipeline.write_text(
            f"""
import os
from coset import Pipeline
pipeline = Pipeline("columns", source=os.environ["DELAYS_SOURCE"])
chosen = pipeline.stream("clicks", key="k", partitions=4).select("{chosen}")
chosen.to_stream().write("columns", mode="replace")
"""
        )
        assert "follows" in succeeded("run", str(pipeline), "--runner", "local", "--go-on", "columns").output
        table, right = in_catalogue(lake, "columns"), log_of(empty, "columns").to_pyarrow_table()
        assert rows(table.scan().to_arrow().select(right.column_names)) == rows(right)
        assert table.properties["gc.enabled"] == "false"
        for name in right.column_names:
            assert table.scan(row_filter=f"{name} IS NULL").count() == right[name].null_count
        altered(table, chance)


def test_a_table_that_others_analyze_follows(lake: Catalog, two_batches: Store) -> None:
    """As by Trino's ANALYZE, or Spark's compute_table_stats."""
    succeeded("iceberg", NEWEST)
    table = in_catalogue(lake, "newest")
    analyzed = {"snapshot-id": there(table.current_snapshot()).snapshot_id, "statistics-path": f"{table.location()}/it"}
    sizes = {"file-size-in-bytes": 4, "file-footer-size-in-bytes": 4}
    arrive(two_batches, 2)
    run()
    with in_catalogue(lake, "newest").update_statistics() as update:
        update.set_statistics(StatisticsFile.model_validate(analyzed | sizes | {"blob-metadata": []}))
    assert "Nothing to do" in succeeded("iceberg", NEWEST).stdout
    assert tidied(two_batches, "newest", timedelta(0)) > 0
    follows(two_batches, lake)


def test_a_table_may_be_empty_and_have_times_that_python_does_not_know(
    lake: Catalog, empty: Store, tmp_path: Path
) -> None:
    land(empty, 0)
    pipeline = tmp_path / "times.py"
    pipeline.write_text(
        """
import os
from coset import Pipeline
pipeline = Pipeline("times", source=os.environ["DELAYS_SOURCE"])
clicks = pipeline.stream("clicks", key="k", partitions=4)
clicks.select("TIMESTAMP 'infinity' AS t, DATE '0044-03-15 (BC)' AS d").write("times")
clicks.filter("id < 0", name="none").write("nothing")
"""
    )
    succeeded("run", str(pipeline), "--runner", "local")
    assert in_catalogue(lake, "nothing").scan().count() == 0
    read = in_catalogue(lake, "times").scan().to_arrow()
    assert read.select(["t", "d"]).equals(log_of(empty, "times").to_pyarrow_table().select(["t", "d"]))
    assert read.num_rows == 10


Fault = Callable[[Callable[..., None], Sequence[TableChange]], None]


def _lost(commit: Callable[..., None], changes: Sequence[TableChange]) -> None:
    commit(changes)
    raise CommitStateUnknownException("the answer was lost")


def _killed_before(*_: object) -> None:
    raise KeyboardInterrupt


def _killed_after(commit: Callable[..., None], changes: Sequence[TableChange]) -> None:
    commit(changes)
    raise KeyboardInterrupt


def _killed_between(commit: Callable[..., None], changes: Sequence[TableChange]) -> None:
    """As a catalogue without transactions would leave it."""
    commit(changes[:1])
    raise KeyboardInterrupt


@pytest.fixture
def faulty(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> list[Fault]:
    """Faults of the next commits to a catalogue, each of which happens once."""
    faults = list[Fault]()

    def committed(catalogue: Catalog, changes: Sequence[TableChange]) -> None:
        if faults and changes:
            faults.pop(0)(partial(commit, catalogue), changes)
        else:
            commit(catalogue, changes)

    monkeypatch.setattr(iceberg, "commit", committed)
    return faults


@ways_to_update
def test_whoever_loses_a_race_an_answer_or_its_life_adds_nothing_twice(
    lake: Catalog,
    wire: FaultProxy | None,
    two_batches: Store,
    faulty: list[Fault],
    updates: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEWEST_UPDATES", updates)
    history(lake, wire, two_batches, faulty, batches=1)


def test_who_stopped_before_it_asked_the_catalogue_takes_nothing_back_of_what_came_meanwhile(
    lake: Catalog, two_batches: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeeded("iceberg", NEWEST)
    load, before = type(lake).load_table, len(log_of(two_batches, "counts").history())

    def stopped(catalogue: Catalog, *given: Any) -> Table:
        monkeypatch.setattr(type(lake), "load_table", load)
        arrive(two_batches, 20)
        assert forked.coset("run", NEWEST, "--runner", "local", environment=os.environ).returncode == 0
        return load(catalogue, *given)

    monkeypatch.setattr(type(lake), "load_table", stopped)
    follow(two_batches, "newest")
    follows(two_batches, lake)
    versions = [int(each["coset.version"]) for each in snapshots(lake, "counts")]
    assert versions == [before - 1, before]


def test_a_table_that_was_made_and_no_more_is_readable_once_it_follows(
    lake: Catalog, two_batches: Store, faulty: list[Fault]
) -> None:
    faulty.append(_killed_before)
    assert coset("iceberg", NEWEST).exit_code == 130
    assert in_catalogue(lake, "counts").snapshots() == []
    succeeded("iceberg", NEWEST)
    follows(two_batches, lake)


@pytest.mark.parametrize("kind", ["sql"])
def test_nobody_takes_a_table_back_to_what_its_log_was_before(
    lake: Catalog, two_batches: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process publishes and follows just before this one reads what the catalogue has."""
    succeeded("iceberg", NEWEST)
    load = type(lake).load_table

    def loaded(*given: Any) -> Table:
        monkeypatch.setattr(type(lake), "load_table", load)
        with ThreadPoolExecutor(1) as other:
            other.submit(run).result()
        return load(*given)

    arrive(two_batches, 2)
    monkeypatch.setattr(type(lake), "load_table", loaded)
    succeeded("iceberg", NEWEST)
    follows(two_batches, lake)
    assert [each["coset.version"] for each in snapshots(lake, "counts")] == ["2", "3"]


@pytest.mark.parametrize("kind", ["sql"])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_store_may_come_back_from_a_backup(
    lake: Catalog, two_batches: Store, tmp_path: Path, batches: int, faulty: list[Fault]
) -> None:
    """The Iceberg table follows a version that the log does not have, or has of another batch."""
    succeeded("iceberg", NEWEST)
    root, kept = path_of(two_batches.root), tmp_path / "kept"
    copytree(root, kept)
    for number in range(2):
        arrive(two_batches, 2 + number)
        run()
    rmtree(root)
    kept.rename(root)
    if batches == 2:
        faulty.append(_killed_before)
    for number in range(batches):
        arrive(two_batches, 5 + number, range(3, 6))
        coset("run", NEWEST, "--runner", "local")
    succeeded("iceberg", NEWEST)
    follows(two_batches, lake)


@pytest.mark.parametrize("kind", ["rest"])
@pytest.mark.parametrize("most", [4, pytest.param(None, marks=pytest.mark.long)])
def test_each_request_to_a_catalogue_may_end_in_every_way(
    lake: Catalog, wire: FaultProxy, most: int | None, two_batches: Store
) -> None:
    wire.asked()
    succeeded("iceberg", NEWEST)
    requests = {f"{method.lower()} {re.escape(urlsplit(path).path)}(\\?|$)" for method, path in wire.asked()}
    assert len(requests) == 7
    ways = [f"{what} {each} x1" for what in (*WIRED, "before:403") for each in sorted(requests)]
    for way in random.Random(0).sample(ways, most or len(ways)):
        for name in TABLES:
            lake.drop_table(f"shop.{name}")
        # Of a namespace that was not made when its tables were, nothing is left.
        with suppress(NoSuchNamespaceError):
            lake.drop_namespace("shop")
        # A command is a process, which asks first how the catalogue is configured.
        named_catalogue._rest.cache_clear()
        wire.spoil(way)
        code = coset("iceberg", NEWEST).exit_code
        wire.heal()
        assert code in ({0, 3} if way.startswith("before:403") else {0, 6}), way
        succeeded("iceberg", NEWEST)
        follows(two_batches, lake)
        assert [len(snapshots(lake, name)) for name in TABLES] == [1, 1]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["glue"])
def test_requests_to_glue_may_end_in_every_way(
    lake: Catalog, two_batches: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3 asks again by itself, also what was done already."""
    wire = FaultProxy(os.environ[GLUE])
    monkeypatch.setenv(GLUE, wire.url)
    for seed, way in enumerate(("after:lost", "after:500", "after:twice", "before:503", "before:403")):
        wire.spoil(f"{way} post / 30% of seed {seed}")
        code = coset("iceberg", NEWEST).exit_code
        wire.heal()
        assert code in ({3} if way.startswith("before:403") else {0, 6}), way
        succeeded("iceberg", NEWEST)
        follows(two_batches, lake)
        assert [len(snapshots(lake, name)) for name in TABLES] == [1, 1]
        for name in TABLES:
            lake.drop_table(f"shop.{name}")
    wire.stop()


@pytest.mark.long
@ways_to_update
def test_nothing_comes_twice_in_a_longer_history(
    lake: Catalog,
    wire: FaultProxy | None,
    two_batches: Store,
    faulty: list[Fault],
    updates: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEWEST_UPDATES", updates)
    history(lake, wire, two_batches, faulty, batches=8)


def history(lake: Catalog, wire: FaultProxy | None, store: Store, faulty: list[Fault], batches: int) -> None:
    """A history by chance: batches, others who follow meanwhile, and commits that end in every way."""

    def raced(commit: Callable[..., None], changes: Sequence[TableChange]) -> None:
        # The other meets no fault, or it would end before this one loses.
        mine, faulty[:] = faulty[:], []
        follow(store, "newest")
        faulty[:] = mine
        commit(changes)

    def spoiled(what: str) -> Fault:
        def fault(commit: Callable[..., None], changes: Sequence[TableChange]) -> None:
            there(wire).spoil(f"{what} post /tables/|/transactions/commit x1")
            commit(changes)

        return fault

    chance = random.Random(batches)
    ways: list[Fault] = [_lost, _killed_before, _killed_between, _killed_after, *map(spoiled, WIRED if wire else ())]
    succeeded("iceberg", NEWEST)
    for number in range(2, 2 + batches):
        # The first commit appends: made again upon the other's, it would add the same files.
        faulty += [raced, *chance.sample([*ways, raced], k=chance.randrange(1, 4))]
        for part in range(9):
            arrive(store, 10 * number + part, chance.sample(range(10), 2))
            coset("run", NEWEST, "--runner", "local")
            coset("iceberg", NEWEST)
            if not faulty:
                break
        succeeded("iceberg", NEWEST)
        follows(store, lake)
        told_of = [each["coset.version"] for each in snapshots(lake)]
        assert len(set(told_of)) == len(told_of)
        assert not faulty


def arrive(store: Store, number: int, keys: Sequence[int] = range(10)) -> None:
    """Land one click of each of these keys."""
    clicks = [Click(f"key-{key}", 100 * number + key, number) for key in keys]
    land_table(table_of(clicks), "clicks", f"{store.root}/topics", key="k", partitions=4)
