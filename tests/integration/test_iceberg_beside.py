"""Iceberg tables of tables with rows beside the data have position deletes, which say what deletion vectors say."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.io.pyarrow import _read_deletes
from pyiceberg.table import Table
from pyiceberg.types import StringType

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.tables import iceberg, iceberg_upkeep
from coset.batches.tables.compaction import compact
from coset.batches.tables.deletion_vectors import dead
from coset.batches.tables.iceberg import follow
from coset.batches.tables.live_files import live_files
from coset.batches.tables.logs import opened
from coset.sources.iceberg.catalogue_changes import TableChange, commit
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError
from partitioning.model import table_parts
from partitioning.model.placement import MURMUR2, MURMUR3
from spark_jobs.tables.table_schema import folder
from tests.backfilled import Batches
from tests.examples import share
from tests.histories import Click
from tests.integration.test_iceberg import asked_for, delta_rows, in_catalogue, rows
from tests.logs import log_of
from tests.running import run_and_publish_unjudged
from tests.there import there

KEYS = 60


def coming_and_going(by: str, threshold: int) -> Callable[[str, int], Pipeline]:
    """The newest click of each key, which lie by a hash, unless its identity is a multiple of five."""

    def pipeline(source: str, partitions: int) -> Pipeline:
        one = Pipeline("kept", source=source)
        clicks = one.stream("clicks", key="k", partitions=partitions).filter(f"id >= {threshold}", name="chosen")
        clicks = clicks if by == MURMUR2 else clicks.repartition(hash=by)
        newest = clicks.select("id, seen, id % 5 = 0 AS gone").latest("seen", name="newest")
        newest.write("newest", mode="upsert", deletes="gone", updates="beside")
        return one

    return pipeline


class Followed:
    """A table whose Iceberg table follows it, or is behind."""

    def __init__(self, store: Store, lake: Catalog, docs: Path, by: str) -> None:
        self.store, self.lake, self.minute, self.by = store, lake, 0, by
        self.batches = Batches(store, docs, partial(coming_and_going, by))
        self.publish(range(KEYS), 2)

    def publish(self, keys: Any, tasks: int) -> None:
        self.batches.land([Click(f"key-{key}", 100 * self.minute + key, self.minute) for key in keys], [], 4)
        run_and_publish_unjudged(self.batches.plan(Settings.parse(scheme=f"tasks({tasks})"), 4))
        self.minute += 1

    def swap(self) -> None:
        """Swap a backfill in, and take it back or not."""
        again = self.batches.backfilled(Asked(0, self.minute - 1, Settings()), threshold=7 * self.minute)
        actions.swap(self.store, again, digest(actions.comparison(self.store, again)), "")
        self.check()
        actions.undo(self.store, again, "")

    def compact(self) -> None:
        compact(coming_and_going(self.by, 0)(f"{self.store.root}/topics", 4), self.store, timedelta(days=1))

    def follow(self) -> None:
        follow(self.store, "kept")

    def remove(self) -> None:
        """Remove what is old of the Iceberg table."""
        iceberg.tidied(self.store, "newest", timedelta(0))

    def tidy(self) -> None:
        """What the newest snapshot does not name is removed, but for files of a snapshot that may come still."""
        self.remove()
        table = in_catalogue(self.lake, "newest")
        assert len(table.snapshots()) == 1
        manifests = there(table.current_snapshot()).manifests(table.io)
        named = {there(table.current_snapshot()).manifest_list, *(each.manifest_path for each in manifests)}
        named |= {file.file_path for task in table.scan().plan_files() for file in task.delete_files}
        lake = Path(table.location().removeprefix("file://"))
        left = {f"file://{path}" for path in lake.rglob("*") if path.suffix in (".avro", ".parquet")}
        assert named <= left
        gone = {entry for each in manifests for entry in each.fetch_manifest_entry(table.io, discard_deleted=False)}
        to_come = f"-{table.last_sequence_number + 1}-"
        assert {path for path in left - named if to_come not in path} <= {each.data_file.file_path for each in gone}

    def restore(self, version: int) -> None:
        """Somebody else makes it what it was: rows that were dead live, and may lie anywhere."""
        log_of(self.store, "newest").restore(version)
        self.by = ""

    def check(self) -> None:
        self.follow()
        table, where = in_catalogue(self.lake, "newest"), folder(self.store, "newest")
        assert rows(table.scan(selected_fields=("k", "id")).to_arrow()) == delta_rows(self.store, "newest", "k, id")
        with opened(where) as log:
            files = live_files(there(log))
        contents = dict[str, bytes | None]()
        right = {f"{where}/{file.path}": [*dead(store_at(where), file.vector, contents)] for file in files}
        tasks = {task.file.file_path: task.delete_files for task in table.scan().plan_files()}
        found = {path: self.positions(path, deletes) for path, deletes in tasks.items()}
        assert found == right
        self.lies(table)
        said = there(there(table.current_snapshot()).summary)
        assert {name: said[f"total-{name}"] for name in ("data-files", "delete-files", "position-deletes")} == {
            "data-files": str(len(right)),
            "delete-files": str(sum(map(bool, right.values()))),
            "position-deletes": str(sum(map(len, right.values()))),
        }
        assert len(table.inspect.delete_files()) == int(there(said["total-delete-files"]))

    def lies(self, table: Table) -> None:
        """Each file, and what says which rows of it are dead, is in the bucket of its keys if Iceberg hashes so."""
        assert len(table.spec().fields) == (self.by == MURMUR3)
        for task in table.scan().plan_files():
            files = [task.file, *task.delete_files]
            assert {file.spec_id for file in files} == {table.spec().spec_id}
            for field in table.spec().fields:
                bucket = field.transform.transform(StringType())
                keys = pq.read_table(task.file.file_path.removeprefix("file://"), columns=["k"])["k"].to_pylist()
                assert {bucket(key) for key in keys} == {file.partition[0] for file in files}

    def positions(self, path: str, deletes: Any) -> list[int]:
        """The rows of a data file that its delete file has, which has no others."""
        assert len(deletes) <= 1
        found = [_read_deletes(in_catalogue(self.lake, "newest").io, file) for file in deletes]
        assert all(each.keys() == {path} for each in found)
        return [row for each in found for row in each[path].to_pylist()]


def committed(store: Store, ends: list[str], catalogue: Catalog, changes: Sequence[TableChange]) -> None:
    """A commit that ends as the last of these says, which is taken away."""
    end = ends.pop() if ends else "well"
    if end == "killed before":
        raise KeyboardInterrupt
    if end in ("raced", "raced and tidied"):
        follow(store, "kept")
    if end in ("tidied", "raced and tidied"):
        iceberg.tidied(store, "newest", timedelta(0))
    commit(catalogue, changes)
    if end == "killed after":
        raise KeyboardInterrupt
    if end == "lost":
        raise CommitStateUnknownException


@pytest.mark.parametrize("seed", share(range(6)))
def test_any_history_is_followed(seed: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of any size, compactions, swaps and undos; commits that are lost, killed and raced, and versions that
    nobody followed. In the end it is restored to any version, and
    the Iceberg table made again."""
    monkeypatch.setattr(table_parts, "MOST_FILES", 4)
    (tmp_path / "lake").mkdir()
    lake = asked_for(monkeypatch, uri=f"sqlite:///{tmp_path}/lake/lake.db", warehouse=f"file://{tmp_path}/lake")
    chance, ends = random.Random(seed), list[str]()
    for module in (iceberg, iceberg_upkeep):
        monkeypatch.setattr(module, "commit", partial(committed, store, ends))
    followed = Followed(store, lake, tmp_path, MURMUR2 if seed % 2 else MURMUR3)
    followed.check()
    for _ in range(10 if seed else 3):
        for _ in range(chance.choice([1, 1, 2, 3])):
            kinds = [followed.compact, followed.swap] if followed.minute > 3 and chance.random() < 0.3 else []
            if not kinds:
                many, tasks = chance.choice([1, 2, 3, 4, 40]), chance.choice([2, 2, 2, 2, 3])
                followed.publish(chance.sample(range(KEYS + 10), many), tasks)
            else:
                chance.choice(kinds)()
        ends[:] = chance.choices(
            ["well", "killed before", "killed after", "lost", "raced", "tidied", "raced and tidied"], k=2
        )
        with suppress(KeyboardInterrupt, CosetError):
            chance.choice([followed.follow, followed.remove])()
        ends.clear()
        followed.check()
        if chance.random() < 0.3:
            followed.tidy()
            followed.check()
    newest = log_of(store, "newest").version()
    for version in chance.sample(range(2, newest), min(6, newest - 2)):
        followed.restore(version)
        followed.check()
        lake.drop_table("shop.newest")
        followed.check()
