"""A task whose input is ten times what it may hold spills the rest, and ends right, whatever its steps do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pyarrow as pa
import pytest

from coset.batches.interpreter import run_batch, silently
from coset.batches.runners.local import Local
from coset.batches.tables.logs import opened_whole
from coset.batches.tables.table_reader import live_rows
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.model.receipt import Role
from spark_jobs.tables.table_schema import folder
from tests.landed import land_file
from tests.running import next_batch, task_receipts

MEMORY = 64_000_000
ROWS, IN_A_FILE = 10 * MEMORY // 400, 200_000
# What a task holds beside its memory: files as they are stored, and what allocators keep for themselves.
BESIDE = 160 << 20

Steps = Callable[[Callable[[str], Flow]], Flow]


def wide(first: int, count: int, width: int = 350, keys: int = ROWS) -> pa.Table:
    """Rows of 400 bytes, or with text of another width, each of another of so many keys, in no order."""
    numbers = (np.arange(first, first + count) * 7919) % ROWS
    return pa.table(
        {
            "k": [f"{number % keys:020}" for number in numbers],
            "v": numbers,
            "seen": pa.array(numbers * 60_000_000, pa.timestamp("us")),
            "text": [f"{number:.>{width}}" for number in numbers],
        }
    )


STEPS: Mapping[str, Steps] = {
    "rows as they are": lambda stream: stream("one").select("v, text"),
    "counts": lambda stream: stream("one").aggregate("max(v) AS v, max(text) AS text"),
    "windows": lambda stream: stream("one").windows(
        "max(v) AS v, max(text) AS text", time="seen", every=timedelta(hours=1)
    ),
    "a join": lambda stream: stream("one").join(stream("other"), "one.v, other.text"),
    "a join of wide rows": lambda stream: stream("one").join(stream("other"), "one.text, other.text AS other"),
    "moved records": lambda stream: stream("one").rekey("text", name="by_text").aggregate("max(v) AS v"),
}


class Held:
    """The most memory that a process of a runner holds at once, beyond what one has that does nothing. Files that are
    mapped do not count: the system has their pages back when it wants."""

    def __init__(self, runner: Local) -> None:
        assert runner._pool is not None
        self._pool = runner._pool
        self._pool.submit(os.getpid).result()
        self._before, self._most = self._now(), 0
        self._ended = Event()
        self._thread = Thread(target=self._look)
        self._thread.start()

    def _now(self) -> int:
        read = [Path(f"/proc/{pid}/status").read_text() for pid in self._pool._processes]
        return max(int(status.partition("RssAnon:")[2].split()[0]) << 10 for status in read)

    def _look(self) -> None:
        while not self._ended.wait(0.01):
            self._most = max(self._most, self._now())

    def ended(self) -> int:
        self._ended.set()
        self._thread.join()
        return self._most - self._before


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", STEPS)
def test_a_task_that_may_hold_a_tenth_of_its_input_spills(case: str, store: Store) -> None:
    source = f"{store.root}/topics"
    pipeline = Pipeline("wide", source=source)
    width, count = (4_000, ROWS // 10) if "wide" in case else (350, ROWS)
    for name, rows in (("one", count), ("other", count // 4)):
        for first in range(0, rows, IN_A_FILE * 350 // width):
            land_file(wide(first, min(IN_A_FILE * 350 // width, rows - first), width), name, source, 0, first)
    STEPS[case](partial(pipeline.stream, key="k", partitions=1, time="seen")).write("t")
    ref = next_batch(pipeline, store.root, Settings.parse(scheme="tasks(1)"))
    with Local(processes=2, memory=f"{MEMORY // 1_000_000}MB") as runner:
        held = Held(runner)
        for group in ref.load()[1].groups:
            runner.group(ref, group.group)
        most = held.ended()
    # Windows are not over yet.
    role = Role.STATE if case == "windows" else Role.TABLE
    rows = sum(file.records for task in task_receipts(ref) for file in task.left(role))
    assert rows == (count // 4 if "join" in case else count)
    assert most < MEMORY + BESIDE


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_latest_of_wide_rows_spill_and_go_on(store: Store) -> None:
    """DuckDB would sort 122,880 rows at once, by all of their columns."""
    source, width = f"{store.root}/topics", 10_000
    rows, keys = 10 * MEMORY // width, 3 * MEMORY // width
    pipeline = Pipeline("wide", source=source)
    newest = pipeline.stream("one", key="k", partitions=1).latest("seen", name="newest")
    newest.write("t", mode="upsert")
    with Local(processes=2, memory=f"{MEMORY // 1_000_000}MB") as runner:
        for begins, ends in ((0, rows), (rows, rows + rows // 10)):
            for first in range(begins, ends, 2_000):
                land_file(wide(first, min(2_000, ends - first), width, keys), "one", source, 0, first)
            ref = next_batch(pipeline, store.root, Settings.parse(scheme="tasks(1)"))
            held = Held(runner)
            run_batch(ref, runner, None, silently)
            assert held.ended() < MEMORY + BESIDE
    came = wide(0, rows + rows // 10, 1, keys)
    with opened_whole(folder(store, "t")) as table:
        assert table is not None
        there = live_rows(table, ["k", "v"]).read_all()
    newest_of_each = came.group_by("k").aggregate([("v", "max")])
    assert there.sort_by("k").equals(newest_of_each.rename_columns(["k", "v"]).sort_by("k").cast(there.schema))
