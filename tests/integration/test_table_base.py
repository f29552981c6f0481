"""An environment says where result tables lie: all that is done to them happens there, and a move is by name."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import Result

from coset.batches.ref import BatchRef
from coset.batches.runners.spark_settings import check_reach
from coset.batches.tables.table_base import move
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.root_names import taken_from_pipelines, taken_from_tables
from tests.batches import rows
from tests.commands import coset, refused, succeeded
from tests.swapped import NEWEST, chosen, land
from tests.there import there


@pytest.fixture(params=["folder", "s3"])
def placed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, str]:
    """A store, and an address beside it at which the environment has its tables."""
    if request.param == "s3":
        request.getfixturevalue("s3")
        root = f"s3://test/{tmp_path.name}"
    else:
        root = f"file://{tmp_path}"
    return entered(f"{root}/store", f"{root}/lake", monkeypatch, tmp_path), f"{root}/lake"


def entered(root: str, tables: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Store:
    """The environment of this store and these tables; the store."""
    monkeypatch.setenv("COSET_STORE", root)
    monkeypatch.setenv("COSET_TABLES", tables)
    monkeypatch.setenv("COSET_DOCS", str(folder / "docs"))
    monkeypatch.setenv("DELAYS_SOURCE", f"{root}/topics")
    return store_at(root)


def done(*words: str) -> Result:
    result = succeeded(*words)
    return result


def seen(store: Store) -> tuple[list[tuple[object, ...]], ...]:
    """What readers see of each key in both tables: by their logs, wherever they lie."""
    return tuple(sorted(row[:2] for row in rows(store_at(store.root).root, table)) for table in ("counts", "newest"))


@pytest.mark.long
def test_all_that_is_done_to_tables_happens_where_they_lie(
    placed: tuple[Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lake = placed
    for number in range(2):
        land(store, number)
        done("run", NEWEST, "--runner", "local")
    before, ledger = seen(store), Ledger(store_at(store.root), "newest")
    (entry,) = {each.rpartition("/data/")[0] for each in map(ledger.uri, written(ledger, "newest"))}
    assert entry == f"{lake}/newest"
    assert list(store_at(f"{store.root}/tables").list("")) == []
    assert "Table newest, version 2: 10 rows" in done("rows", NEWEST).stdout

    monkeypatch.setenv("NEWEST_FROM", "5")
    compared = done("backfill", NEWEST, "--from", "0", "--cascade", "--runner", "local").stdout
    (approved,) = set(re.findall("sha256:[0-9a-f]{64}", compared))
    done("swap", NEWEST, "0", "--approve", approved, "--why", "as it is to be")
    assert seen(store)[1] == chosen(before[1])
    done("undo", NEWEST, "0", "--why", "too early")
    assert seen(store) == before

    left = store_at(lake)
    left.put("newest/data/plan-0/attempt-0-ffffffff/none.parquet", b"of a task that was killed")
    left.put("other/data/plan-0/attempt-0-ffffffff/none.parquet", b"of nobody")
    assert "Removed 1 file" in done("clean", NEWEST, "--yes").stdout
    assert [each.key for each in left.list("other/")] == ["other/data/plan-0/attempt-0-ffffffff/none.parquet"]
    done("compact", NEWEST, "--yes")
    assert seen(store) == before
    assert f"{lake} " in done("doctor", NEWEST).stdout


def written(ledger: Ledger, table: str) -> list[str]:
    verdict = there(ledger.verdict(1))
    return [file.path for file in verdict.rows_of(table)]


def test_another_address_is_refused_until_the_tables_are_copied_and_moved_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, old, new = (f"file://{tmp_path}/{name}" for name in ("store", "lake", "bucket"))
    store = entered(root, old, monkeypatch, tmp_path)
    land(store, 0)
    done("run", NEWEST, "--runner", "local")
    before = seen(store)
    entered(root, new, monkeypatch, tmp_path)
    land(store, 1)
    refused(coset("run", NEWEST, "--runner", "local"), old, new, f"coset move-tables {new}")
    refused(coset("move-tables", new, "--why", "a bucket of its own"), "table counts is not there")
    shutil.copytree(tmp_path / "lake", tmp_path / "bucket")
    next((tmp_path / "bucket" / "newest" / "data").rglob("*.parquet")).unlink()
    refused(coset("move-tables", new, "--why", "a bucket of its own"), "lacks 1 of its files there")
    shutil.copytree(tmp_path / "lake", tmp_path / "bucket", dirs_exist_ok=True)
    assert f"lie at {new} now" in done("move-tables", new, "--why", "a bucket of its own").stdout
    shutil.rmtree(tmp_path / "lake")
    assert seen(store) == before
    assert "already" in done("move-tables", new, "--why", "a bucket of its own").stdout
    # What is there beside pipelines and tables is no name for one.
    own = {each.name for each in (tmp_path / "store").iterdir()} - {"newest", "topics"}
    assert own >= {"docs", "store-id", "tables-at-0.json", "tables-at-1.json"}
    assert [name for name in own if not taken_from_pipelines(name)] == []
    there = {each.name for each in (tmp_path / "bucket").iterdir()} - {"newest", "counts"}
    assert [name for name in there if not taken_from_tables(name)] == []
    assert there == {"store-id"}
    # What was published before lies there too: it is run again, and put in place.
    done("run", NEWEST, "--runner", "local")
    done("backfill", NEWEST, "--from", "0", "--scheme", "tasks(3)", "--cascade", "--runner", "local")
    assert not (tmp_path / "lake").exists()


def test_an_address_is_one_store_s_and_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = f"file://{tmp_path}/lake"
    for name in ("first", "second"):
        store = entered(f"file://{tmp_path}/{name}", lake, monkeypatch, tmp_path)
        land(store, 0)
        ran = coset("run", NEWEST, "--runner", "local")
        if name == "first":
            assert ran.exit_code == 0, ran.output
    refused(ran, "has the tables of another store")
    for inside in (f"{store.root}/newest", f"file://{tmp_path}"):
        with pytest.raises(Refused, match="lies within the store, or around it"):
            move(store_at(store.root), inside, "nowhere else")


def test_tables_in_a_folder_are_not_for_workers_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = entered(f"file://{tmp_path}/store", f"file://{tmp_path}/lake", monkeypatch, tmp_path)
    land(store, 0)
    done("run", NEWEST, "--runner", "local")
    plan = there(Ledger(store, "newest").plan(0))
    with pytest.raises(Refused) as found:
        check_reach(BatchRef.of(store, plan), "spark://elsewhere:7077")
    assert f"file://{tmp_path}/lake" in {finding.where for finding in found.value.findings}
