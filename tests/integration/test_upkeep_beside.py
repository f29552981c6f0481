"""Upkeep of a table with rows beside its data: what goes once it has served, and how near the table is to being written
again, in the same words everywhere."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import QueryBuilder

from coset.batches import steps
from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.ref import BatchRef
from coset.batches.sweeping import sweep
from coset.batches.tables import compaction, dead_rows
from coset.batches.tables.file_keys import FileKeys
from coset.batches.tables.live_files import LiveFile
from coset.batches.verifying import verify
from coset.cli import metrics, status
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.store import Store
from partitioning.model import table_parts
from tests.backfilled import Batches
from tests.histories import Click
from tests.logs import log_of
from tests.running import run_and_publish, run_groups

KEYS = 40


def beside(threshold: int) -> Callable[[str, int], Pipeline]:
    def pipeline(source: str, partitions: int) -> Pipeline:
        one = Pipeline("kept", source=source)
        clicks = one.stream("clicks", key="k", partitions=partitions).filter(f"id >= {threshold}", name="chosen")
        clicks.latest("seen", name="newest").write("newest", mode="upsert", updates="beside")
        return one

    return pipeline


class Newest:
    """Batches of the newest click of each key; the first has all keys."""

    def __init__(self, store: Store, docs: Path) -> None:
        self.store, self._docs = store, docs
        self.history = Batches(store, docs, beside)
        self.pipeline = beside(0)(f"{store.root}/topics", 4)
        self.publish(0, *range(KEYS))

    def planned(self, minute: int, *keys: int) -> BatchRef:
        self.history.land([Click(f"key-{key}", 100 * minute + key, minute) for key in keys], [], 4)
        return self.history.plan(Settings.parse(scheme="tasks(2)"), 4)

    def publish(self, minute: int, *keys: int) -> BatchRef:
        ref = self.planned(minute, *keys)
        run_and_publish(ref, self._docs)
        return ref

    @property
    def rows(self) -> dict[str, int]:
        asked = QueryBuilder().register("rows", log_of(self.store, "newest")).execute("SELECT k, id FROM rows")
        return dict(pl.DataFrame(asked.read_all()).iter_rows())

    @property
    def replaced(self) -> set[str]:
        """The files with keys of rows that were replaced."""
        files = {entry.key for entry in self.store.list("tables/newest/data/")}
        return {file for file in files if file.endswith(".replaced.parquet")}


def test_keys_of_rows_that_were_replaced_go_once_their_batch_is_published(store: Store, tmp_path: Path) -> None:
    """Whatever is done with an earlier batch afterwards needs them no more, though verdicts name them."""
    newest = Newest(store, tmp_path)
    newest.publish(1, 1, 2)
    second = newest.replaced
    ref = newest.planned(2, 2, 3)
    run_groups(ref)
    steps.audit(ref)
    steps.check(ref, tmp_path)
    assert second < newest.replaced
    assert second == {file.key for file in sweep(newest.pipeline, store).files if file.key in newest.replaced | second}
    steps.publish(ref, tmp_path)
    sweep(newest.pipeline, store)
    assert newest.replaced == set()
    rows = {f"key-{key}": {1: 101, 2: 202, 3: 203}.get(key, key) for key in range(KEYS)}
    assert newest.rows == rows
    # Its commit is made again, its report is written again, and it is verified.
    commit = store.get("kept/commits/2.json")
    store.delete("kept/commits/2.json")
    steps.publish(ref, tmp_path)
    assert store.get("kept/commits/2.json") == commit
    assert "newest" in steps.report(ref, tmp_path)
    (verified,) = verify(newest.pipeline, store)
    assert verified.difference is not None
    assert verified.difference.same
    # It is run again, swapped in and taken back.
    again = newest.history.backfilled(Asked(0, 2, Settings()), threshold=10)
    actions.swap(store, again, digest(actions.comparison(store, again)), "")
    assert newest.rows == {key: id for key, id in rows.items() if id >= 10}
    actions.undo(store, again, "")
    sweep(newest.pipeline, store, everything=True)
    assert newest.rows == rows
    newest.publish(3, 3, 4)
    assert newest.rows == rows | {"key-3": 303, "key-4": 304}


def test_a_compaction_that_stops_while_a_swap_is_taken_back_keeps_the_dead_rows_of_a_table(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = Newest(store, tmp_path)
    newest.publish(1, 1, 2)
    rows, again = newest.rows, newest.history.backfilled(Asked(0, 1, Settings()), threshold=10)
    actions.swap(store, again, digest(actions.comparison(store, again)), "")
    unneeded = compaction._unneeded_vectors

    def stopped(*given: Any) -> list[str]:
        monkeypatch.setattr(compaction, "_unneeded_vectors", unneeded)
        found = unneeded(*given)
        actions.undo(store, again, "")
        return found

    monkeypatch.setattr(compaction, "_unneeded_vectors", stopped)
    compaction.compact(newest.pipeline, store, timedelta(0))
    assert newest.rows == rows


def test_status_metrics_and_pages_say_how_near_a_table_is_to_being_written_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_parts, "MOST_FILES", 1)
    newest = Newest(store, tmp_path)
    monkeypatch.setattr("coset.cli.pipelines.load", lambda _: newest.pipeline)
    for minute, dead, files, said in [
        (
            1,
            1,
            2,
            "1 of its rows is dead, and a partition has up to 2 files; 1 partition is written again by the next batch",
        ),
        (2, 0, 1, "0 of its rows are dead, and a partition has up to 1 file"),
    ]:
        newest.publish(minute, 1)
        pages = [store.get(f"kept/docs/{name}.html") for name in (f"batch-{minute}-attempt-0", "index")]
        shown = [html.unescape((page or b"").decode()) for page in pages]
        for text in (*shown, str(status.standing("kept", store.root).text)):
            assert f"Table newest: {said}." in text
        printed = metrics.printed("kept", store.root).text
        assert f'coset_table_dead_rows{{pipeline="kept",table="newest"}} {dead}' in printed
        assert f'coset_table_partition_files{{pipeline="kept",table="newest"}} {files}' in printed


def test_where_the_rows_of_keys_lie_is_looked_up_once_a_batch(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest, looked = Newest(store, tmp_path), Counter[str]()
    having = dead_rows._having

    def counted(read: FileKeys, file: LiveFile, keys: pa.Table) -> tuple[pa.Table, int]:
        looked[file.path] += 1
        return having(read, file, keys)

    monkeypatch.setattr(dead_rows, "_having", counted)
    newest.publish(1, *range(8))
    assert set(looked.values()) == {1}
