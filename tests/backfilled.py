"""Published batches, and backfills of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.interpreter import silently
from coset.batches.runners.local import Local
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import WriteMode
from partitioning.documents.store import Store
from partitioning.model.backfill import Backfill
from partitioning.values import replace
from tests.histories import Click, History
from tests.logs import log_of

Rows = list[tuple[object, ...]]
# How many minutes a window is long, and a key lives on.
EVERY, LIFE = 4, 5
# How long a window is corrected; how far apart records of a session may be, and how long it may be.
CORRECTED, GAP, LONG = 6, 7, 24
COLUMNS = {
    "counts": ["k", "n", "total", "_batch"],
    "newest": ["k", "id", "seen"],
    "windows": ["k", "n", "total", "window_start", "_batch"],
    "corrected": ["k", "n", "total", "window_start", "_batch"],
    "sessions": ["k", "n", "total", "window_start", "_batch"],
    "alive": ["k", "id", "seen", "_batch"],
    "ended": ["k", "id", "seen", "_batch"],
}


def counted(threshold: int) -> Callable[[str, int], Pipeline]:
    def pipeline(source: str, partitions: int) -> Pipeline:
        one = Pipeline("kept", source=source)
        _counted(one.stream("clicks", key="k", partitions=partitions), threshold)
        return one

    return pipeline


def timed(threshold: int) -> Callable[[str, int], Pipeline]:
    """Those of `counted`, and windows that are given when they close, or again with what comes late, sessions, the
    latest of keys until they expire, and what expired."""

    def pipeline(source: str, partitions: int) -> Pipeline:
        one = Pipeline("kept", source=source)
        clicks = one.stream("clicks", key="k", partitions=partitions, time="seen")
        chosen = _counted(clicks, threshold)
        columns = "count(*) AS n, sum(id)::BIGINT AS total"
        chosen.windows(columns, time="seen", every=timedelta(minutes=EVERY), name="windows").write(
            "windows", lineage=True
        )
        late: dict[str, Any] = {"late": "correct", "keep": timedelta(minutes=CORRECTED)}
        chosen.windows(columns, time="seen", every=timedelta(minutes=EVERY), name="corrected", **late).write(
            "corrected", lineage=True
        )
        sessions: dict[str, Any] = {"every": timedelta(minutes=LONG), "gap": timedelta(minutes=GAP)}
        chosen.windows(columns, time="seen", name="sessions", **sessions).write("sessions", lineage=True)
        lives = chosen.latest("seen", time="seen", keep=timedelta(minutes=LIFE), name="alive")
        lives.to_stream().write("alive", lineage=True)
        lives.expired(name="ended").write("ended", lineage=True)
        return one

    return pipeline


def _counted(clicks: Flow, threshold: int) -> Flow:
    chosen = clicks.filter(f"id >= {threshold}", name="chosen")
    chosen.aggregate("count(*) AS n, sum(id)::BIGINT AS total", name="counts").write("counts", lineage=True)
    chosen.latest("seen", name="newest").write("newest", mode="upsert")
    return chosen


class Batches(History):
    """Batches of clicks, some keys in each, and backfills of them."""

    def __init__(
        self, store: Store, docs: Path, pipeline: Callable[[int], Callable[[str, int], Pipeline]] = counted
    ) -> None:
        super().__init__(store, docs, pipeline(0))
        self.docs = docs
        self._of = pipeline

    def batch(self, number: int, partitions: int = 4) -> None:
        self.land([Click(f"key-{(number + key) % 13}", 10 * number + key, number) for key in range(9)], [], partitions)
        self.publish(
            self.plan(goes_on(self._of(0)(f"{self.store.root}/topics", partitions), Settings()), partitions),
            judged=False,
        )

    def backfilled(self, asked: Asked, partitions: int = 4, threshold: int = 0) -> Backfill:
        pipeline = self._of(threshold)(f"{self.store.root}/topics", partitions)
        asked = dataclasses.replace(asked, settings=goes_on(pipeline, asked.settings))
        return run_again(pipeline, self.store, asked, self.docs)

    def seen(self, table: str = "counts") -> Rows:
        delta = log_of(self.store, table)
        columns = COLUMNS[table]
        return sorted((tuple(row.values()) for row in delta.to_pyarrow_table(columns=columns).to_pylist()), key=repr)


def run_again(pipeline: Pipeline, store: Store, asked: Asked, docs: Path) -> Backfill:
    """Begin a backfill, and run it."""
    backfill = actions.begin(pipeline, store, asked)
    with Local(processes=1) as runner:
        actions.run(pipeline, store, backfill, runner, docs, silently)
    return backfill


def goes_on(pipeline: Pipeline, settings: Settings) -> Settings:
    """Whatever was changed before it, each step goes on from what it kept, and each table keeps its rows."""
    kept = tuple(step.name for step in pipeline.steps if step.state)
    return replace(settings, go_on=(*kept, *(write.table for write in pipeline.writes)))


def appended(threshold: int, mode: WriteMode = "append") -> Callable[[str, int], Pipeline]:
    """Counts of clicks with a great enough identity; nothing is kept."""

    def pipeline(source: str, partitions: int) -> Pipeline:
        one = Pipeline("kept", source=source)
        chosen = one.stream("clicks", key="k", partitions=partitions).filter(f"id >= {threshold}", name="chosen")
        chosen.aggregate("count(*) AS n, sum(id)::BIGINT AS total", name="counts").to_stream().write(
            "counts", lineage=True, mode=mode
        )
        return one

    return pipeline


def stored(store: Store) -> list[str]:
    return sorted(entry.key for entry in store.list(""))
