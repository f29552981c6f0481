"""A store in a folder; and the first use of any: what lacks what everything rests on is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coset.batches.planning import take_up
from coset.batches.tables.table_base import move
from coset.testing.runs import Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.folder_store import FolderStore
from partitioning.documents.store import Entry
from partitioning.documents.stores import SplitStore, check_first_use
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.root_names import STORE_ID, taken_from_pipelines
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


class LastWins(FolderStore):
    """Conditions are accepted and ignored."""

    def put_new(self, key: str, data: bytes) -> bytes:
        self.put(key, data)
        return data


class LaterWins(FolderStore):
    """Of those who come at once one wins; who comes later replaces what is there."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._calls = count(1)

    def put_new(self, key: str, data: bytes) -> bytes:
        if next(self._calls) > 8:
            self.put(key, data)
            return data
        return super().put_new(key, data)


class Behind(FolderStore):
    """What was just written is read later."""

    def get(self, key: str) -> bytes | None:
        return None


class Unlisted(FolderStore):
    """What was just written is listed later."""

    def list(self, prefix: str, limit: int | None = None) -> Iterator[Entry]:
        return iter(())


@pytest.mark.parametrize(
    ("store", "said"),
    [
        (LastWins, "of 8 who wrote an object at once, 8 were told that theirs is stored"),
        (LaterWins, "an object that was there was replaced, though only a new one was to be created"),
        (Behind, "an object was read otherwise than it was written"),
        (Unlisted, "an object that was written is not listed"),
    ],
)
def test_a_store_that_does_not_keep_its_word_is_refused(store: type[FolderStore], said: str, tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        check_first_use(store(f"file://{tmp_path}"))
    (finding,) = refused.value.findings
    assert (finding.kind, finding.what) == (Kind.STORE_ADDRESS, f"the store cannot be relied on: {said}")


def test_a_store_is_asked_before_its_first_plan_and_until_it_has_an_id(tmp_path: Path) -> None:
    made = Pipeline("p", source="s3://lake")
    made.stream("s", key="k", partitions=1).write("t")
    with Trial.made(made) as trial:
        trial.land({"s": [{"k": "a"}]})
        store = LastWins(f"file://{tmp_path}")
        with pytest.raises(Refused, match="cannot be relied on"):
            take_up(trial.pipeline, store)
        assert list(store.list("")) == []
        store.put(STORE_ID, b"known")
        assert take_up(trial.pipeline, store).plan is not None


def test_a_store_whose_tables_are_to_lie_elsewhere_is_asked_as_well(tmp_path: Path) -> None:
    store = SplitStore(LastWins(f"file://{tmp_path}/store"), FolderStore)
    with pytest.raises(Refused, match="cannot be relied on"):
        move(store, f"file://{tmp_path}/tables", "there is more room")
    assert list(store.list("")) == []
