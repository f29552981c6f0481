"""Batches of clicks and views, one after the other, by steps that keep state; and what one process makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coset.batches.ref import BatchRef
from coset.sources.files import Files
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.model.receipt import Role
from partitioning.values import Value
from tests.landed import land_table
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged, task_receipts

MINUTE = 60_000_000
WITHIN = 10
KEEP = 25
Row = tuple[object, ...]


class Click(Value, frozen=True, order=True):
    """A record: of a key, or of none, with an identity, at a minute."""

    key: str | None
    identity: int
    minute: int


def table_of(clicks: Sequence[Click]) -> pa.Table:
    """The records as they are landed."""
    return pa.table(
        {
            "k": pa.array([click.key for click in clicks], pa.string()),
            "id": pa.array([click.identity for click in clicks], pa.int64()),
            "seen": pa.array([click.minute * MINUTE for click in clicks], pa.timestamp("us")),
        }
    )


def pipeline_of(source: str, partitions: int) -> Pipeline:
    """A table for each step that keeps state."""
    pipeline = Pipeline("kept", source=source)
    clicks = pipeline.stream("clicks", key="k", partitions=partitions, null_keys="own task")
    views = pipeline.stream("views", key="k", partitions=partitions, null_keys="own task")
    minutes: dict[str, Any] = {"within": timedelta(minutes=WITHIN), "keep": timedelta(minutes=KEEP)}
    total(clicks).to_stream().write("totals")
    clicks.latest("seen", name="newest").to_stream().write("newest")
    clicks.distinct("id", time="seen", name="once", **minutes).write("once")
    clicks.join_within(
        views, "clicks.id AS click, views.id AS view", times=("clicks.seen", "views.seen"), name="near", **minutes
    ).write("near")
    columns = {"k": "VARCHAR", "n": "BIGINT"}
    clicks.process("tests.functions:streak", columns, state=STREAK, name="streak").write("streak")
    return pipeline


STREAK = {"k": "VARCHAR", "n": "BIGINT", "last": "BIGINT"}


def total(clicks: Flow) -> Flow:
    """A running aggregate."""
    return clicks.aggregate("count(*) AS n, max(id) AS last").combine(
        "sum(n)::BIGINT AS n, max(last) AS last", running=True, name="totals"
    )


class Oracle:
    """Has seen all batches up to now."""

    def __init__(self) -> None:
        self._seen: list[Click] = []
        self._clicks: list[Click] = []
        self._views: list[Click] = []
        self._identities: list[Click] = []
        self._streaks: dict[str | None, tuple[int, int]] = {}

    def batch(self, clicks: Sequence[Click], views: Sequence[Click]) -> dict[str, list[Row]]:
        """What a batch gives for each table."""
        self._seen.extend(clicks)
        given = {
            "totals": self._totals(clicks),
            "newest": self._newest(clicks),
            "once": self._once(clicks),
            "near": self._near(clicks, views),
            "streak": self._streak(clicks),
        }
        return {table: sorted(rows, key=repr) for table, rows in given.items()}

    def _totals(self, clicks: Sequence[Click]) -> list[Row]:
        touched = {click.key for click in clicks}
        mine = {key: [click for click in self._seen if click.key == key] for key in touched}
        return [(key, len(found), max(click.identity for click in found)) for key, found in mine.items()]

    def _newest(self, clicks: Sequence[Click]) -> list[Row]:
        touched = {click.key for click in clicks}
        newest = [
            max((click for click in self._seen if click.key == key), key=lambda click: (click.minute, click.identity))
            for key in touched
        ]
        return [(click.key, click.identity, click.minute) for click in newest]

    def _once(self, clicks: Sequence[Click]) -> list[Row]:
        known = _young(self._identities)
        given: list[Row] = []
        for click in clicks:
            like = [other for other in known if (other.key, other.identity) == (click.key, click.identity)]
            if any(abs(other.minute - click.minute) <= WITHIN for other in like):
                continue
            earlier = (
                other
                for other in clicks
                if (other.key, other.identity) == (click.key, click.identity)
                and 0 < click.minute - other.minute <= WITHIN
            )
            row = (click.key, click.identity, click.minute)
            if next(earlier, None) is None and row not in given:
                given.append(row)
        self._identities = [*known, *clicks]
        return given

    def _near(self, clicks: Sequence[Click], views: Sequence[Click]) -> list[Row]:
        old_clicks, old_views = _young(self._clicks), _young(self._views)
        pairs = [(click, view) for click in clicks for view in (*old_views, *views)]
        pairs += [(click, view) for click in old_clicks for view in views]
        self._clicks, self._views = [*old_clicks, *clicks], [*old_views, *views]
        return [
            (click.key, click.identity, view.identity)
            for click, view in pairs
            if click.key is not None and click.key == view.key and abs(click.minute - view.minute) <= WITHIN
        ]

    def _streak(self, clicks: Sequence[Click]) -> list[Row]:
        rows: list[Row] = []
        for key in {click.key for click in clicks}:
            mine = [click for click in clicks if click.key == key]
            count, last = self._streaks.pop(key, (0, -1))
            count, last = count + len(mine), max(last, *(click.minute for click in mine))
            # Every fifth minute it is forgotten.
            if last % 5:
                self._streaks[key] = count, last
            rows.append((key, count))
        return rows


def _young(kept: Iterable[Click]) -> list[Click]:
    """Those that are still kept, by the latest of all."""
    there = list(kept)
    latest = max((click.minute for click in there), default=0)
    return [click for click in there if click.minute >= latest - KEEP]


class History:
    """Batches of clicks and views, each under a plan of its own."""

    def __init__(self, store: Store, docs: Path, pipeline: Callable[[str, int], Pipeline] = pipeline_of) -> None:
        self.store = store
        self._pipeline = pipeline
        self._source = f"{store.root}/topics"
        self._docs = docs

    def plan(self, settings: Settings, partitions: int) -> BatchRef:
        return next_batch(self._pipeline(self._source, partitions), self.store.root, settings)

    def land(self, clicks: Sequence[Click], views: Sequence[Click], partitions: int) -> None:
        for stream, records in (("clicks", clicks), ("views", views)):
            if records:
                land_table(table_of(records), stream, self._source, key="k", partitions=partitions)

    def publish(self, ref: BatchRef, attempt: int = 0, *, judged: bool = True) -> dict[str, list[Row]]:
        """What the batch wrote to each table, in the attempt that is published."""
        if judged:
            run_and_publish(ref, self._docs)
        else:
            run_and_publish_unjudged(ref)
        written: dict[str, list[Row]] = {write.declared.table: [] for write in ref.load()[1].writes()}
        for task in task_receipts(ref, attempt):
            for file in task.left(Role.TABLE):
                table = pq.read_table(Files().open(f"{self.store.root}/{file.path}"))
                written[file.name].extend(zip(*(_plain(table[name]) for name in table.column_names), strict=True))
        return {table: sorted(rows, key=repr) for table, rows in written.items()}


def _plain(column: pa.ChunkedArray) -> list[object]:
    """Values; times as minutes."""
    if pa.types.is_timestamp(column.type):
        return [value // MINUTE for value in column.cast(pa.int64()).to_pylist()]
    return column.to_pylist()
