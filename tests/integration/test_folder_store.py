"""A store in a folder: batches on a laptop with nothing running, and what only a store for many machines can do."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from partitioning.kinds import Kind
from partitioning.model.root_names import taken_from_pipelines
from tests import forked
from tests.commands import succeeded
from tests.followed import done, told
from tests.landed import land_table

LOCAL = ("--runner", "local")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline in a folder with a space in its name, beside what has landed; nothing says where the store is."""
    folder = tmp_path / "my work"
    folder.mkdir()
    for name in ("COSET_STORE", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    file = folder / "views.py"
    file.write_text(
        "from pathlib import Path\n"
        "from coset import Pipeline\n"
        'pipeline = Pipeline("views", source=Path(__file__).parent / "landing")\n'
        'views = pipeline.stream("views", key="user", partitions=3)\n'
        'each = views.partial("count(*) AS n, sum(x)::BIGINT AS x", by="user")\n'
        'totals = each.combine("sum(n)::BIGINT AS n, sum(x)::BIGINT AS x", running=True, name="totals")\n'
        'totals.write("totals", mode="upsert")\n'
    )
    land(folder, 0)
    return file


def land(folder: Path, first: int) -> None:
    numbers = range(first, first + 100)
    users = [f"user-{number % 7}" for number in numbers]
    table = pa.table({"user": users, "x": list(numbers)})
    land_table(table, "views", f"file://{folder}/landing", key="user", partitions=3)


def totals(store: Path) -> dict[str, tuple[int, int]]:
    rows = DeltaTable(store / "tables" / "totals").to_pyarrow_table().to_pylist()
    assert len({row["user"] for row in rows}) == len(rows)
    return {row["user"]: (row["n"], row["x"]) for row in rows}


def wanted(records: int) -> dict[str, tuple[int, int]]:
    mine = {f"user-{user}": range(user, records, 7) for user in range(7)}
    return {user: (len(numbers), sum(numbers)) for user, numbers in mine.items()}


def test_a_laptop_needs_no_server_and_state_goes_on(file: Path) -> None:
    first = succeeded("run", str(file), *LOCAL)
    assert "No --store is given and COSET_STORE is not set: the store is the folder .coset/store" in first.stderr
    store = file.parent / ".coset" / "store"
    assert totals(store) == wanted(100)
    land(file.parent, 100)
    done("run", str(file), *LOCAL, "--scheme", "tasks(2)", "--store", ".coset/store")
    assert totals(store) == wanted(200)
    assert "Lag: 0" in done("status", str(file))
    assert "Nothing to remove" in done("clean", str(file))
    done("compact", str(file))
    assert totals(store) == wanted(200)
    forked.coset("doctor", str(file))
    # What the store has of its own, beside the pipeline's folder, is no name for a pipeline.
    own = {each.name for folder in (store, file.parent / ".coset" / "docs") for each in folder.iterdir()} - {"views"}
    assert own >= {"tables", "docs", "store-id", "index.html"}
    assert [name for name in own if not taken_from_pipelines(name)] == []


def test_in_a_terminal_upkeep_says_how_far_it_is(file: Path) -> None:
    done("run", str(file), *LOCAL)
    terminal = {**os.environ, "FORCE_COLOR": "1"}
    assert "of 1 tables: compact …" in forked.coset("compact", str(file), environment=terminal).stderr
    assert "folders listed: clean …" in forked.coset("clean", str(file), environment=terminal).stderr


@pytest.mark.long
def test_a_batch_is_run_again_beside_and_the_same(file: Path) -> None:
    done("run", str(file), *LOCAL)
    assert "identical" in done("backfill", str(file), "--from", "0", "--why", "to see", *LOCAL)


@pytest.mark.long
def test_a_lost_object_of_state_is_made_again(file: Path) -> None:
    done("run", str(file), *LOCAL)
    (lost, *_) = sorted((file.parent / ".coset/store/views/left").rglob("*.arrow"))
    lost.unlink()
    land(file.parent, 100)
    # The store is that of the folder, which the next command knows by itself.
    done(*told(Kind.STATE_GONE, "run", str(file), *LOCAL).commands[0])
    done("run", str(file), *LOCAL)
    assert totals(file.parent / ".coset" / "store") == wanted(200)


def test_tasks_on_other_machines_cannot_use_a_folder(file: Path) -> None:
    found = told(Kind.STORE_ELSEWHERE, "run", str(file), "--master", "spark://elsewhere:7077")
    assert "or --runner local" in found.next
    done("run", str(file), *LOCAL)
    assert totals(file.parent / ".coset" / "store") == wanted(100)


def test_a_plan_is_compared_by_the_address_that_is_shown(file: Path) -> None:
    shown = re.search(r"The plan is (file://.+?\.json\.gz)", done("run", str(file), *LOCAL))
    assert shown is not None
    assert "No change: both are the same plan" in done("diff", shown[1], shown[1])
