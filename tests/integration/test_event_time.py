"""Times that jump, that are infinite or null: they are told, not obeyed, in steps that keep records for a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coset.batches import planning, steps
from coset.batches.attempt import Attempt
from coset.batches.backfills import actions
from coset.batches.progress import PipelineProgress
from coset.batches.ref import BatchRef
from coset.cli.metrics import metrics
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.artefact import Role
from tests.backfilled import run_again
from tests.landed import land_table
from tests.logs import log_of
from tests.running import next_batch, run_and_publish_unjudged, task_receipts

DAY = timedelta(days=1)
NOW = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
JUMP = datetime.fromisoformat("9999-12-31")
# A record: its key, its identity and its time, as SQL reads it.
Record = tuple[str, int, str | None]


def at(time: datetime) -> str:
    return time.isoformat(sep=" ")


class Clicks:
    """Batches of records, and what steps made of them."""

    def __init__(self, store: Store, ahead: timedelta = DAY) -> None:
        self.store = store
        self.timed = True
        self._source = f"{store.root}/topics"
        self._ahead = ahead

    @property
    def pipeline(self) -> Pipeline:
        pipeline = Pipeline("timed", source=self._source)
        clicks, views = (pipeline.stream(name, key="k", partitions=4) for name in ("clicks", "views"))
        if not self.timed:
            clicks.select("id, seen", name="clicked").write("clicked")
            views.select("id, seen", name="viewed").write("viewed")
            return pipeline
        spans: dict[str, Any] = {"within": DAY, "keep": 2 * DAY, "ahead": self._ahead}
        time = "seen::TIMESTAMP"
        clicks.distinct("id", time=time, name="once", **spans).select("id, seen").write("once")
        clicks.join_within(
            views, "clicks.id AS id", times=(f"clicks.{time}", f"views.{time}"), name="near", **spans
        ).write("near")
        return pipeline

    def batch(self, clicks: Sequence[Record], views: Sequence[Record] = (), scheme: str = "tasks(3)") -> BatchRef:
        for stream, records in (("clicks", clicks), ("views", views or [("none", 0, None)])):
            columns = zip(*records, strict=True)
            types = {"k": pa.string(), "id": pa.int64(), "seen": pa.string()}
            table = pa.table(
                [pa.array(column, kind) for column, kind in zip(columns, types.values(), strict=True)], list(types)
            )
            land_table(table, stream, self._source, key="k", partitions=4)
        ref = next_batch(self.pipeline, self.store.root, Settings.parse(scheme=scheme))
        run_and_publish_unjudged(ref)
        return ref

    def rows(self, table: str) -> list[tuple[object, ...]]:
        log = log_of(self.store, table)
        return sorted((row["k"], row["id"]) for row in log.to_pyarrow_table().to_pylist())


def test_one_time_that_jumps_does_not_let_duplicates_pass_for_ever(store: Store) -> None:
    clicks = Clicks(store)
    clicks.batch([("a", 1, at(NOW))])
    clicks.batch([("b", 2, at(JUMP)), ("a", 3, at(NOW))])
    clicks.batch([("a", 1, at(NOW)), ("a", 3, at(NOW)), ("a", 4, at(NOW))])
    assert clicks.rows("once") == [("a", 1), ("a", 3), ("a", 4), ("b", 2)]


def test_one_time_that_jumps_does_not_keep_later_records_from_joining(store: Store) -> None:
    clicks = Clicks(store)
    clicks.batch([("b", 1, at(JUMP))], [("b", 1, at(JUMP))])
    clicks.batch([("a", 2, at(NOW))])
    clicks.batch([("c", 3, at(NOW))], [("a", 9, at(NOW))])
    assert clicks.rows("near") == [("a", 2)]


@pytest.mark.parametrize("scheme", ["tasks(1)", "tasks(3)", "elastic(2)"])
def test_times_that_do_not_count_are_told_with_the_first_of_them(store: Store, tmp_path: Path, scheme: str) -> None:
    clicks = Clicks(store)
    ref = clicks.batch(
        [("a", 1, at(JUMP)), ("b", 2, "infinity"), ("c", 3, "-infinity"), ("d", 4, None), ("e", 5, at(NOW))],
        scheme=scheme,
    )
    counts: dict[str, int] = {}
    for task in task_receipts(ref):
        for apart in task.apart:
            counts[apart.step] = counts.get(apart.step, 0) + apart.records
    assert counts == {"once": 3, "near.clicks": 3}
    ledger = Ledger(store, clicks.pipeline.name)
    shown = list(metrics("timed", ledger.standing(), PipelineProgress((), None), [], Attempt.published(*ref.load())))
    assert [line for line in shown if line.startswith("coset_records_apart")] == [
        f'coset_records_apart{{pipeline="timed",step="{step}"}} 3' for step in sorted(counts)
    ]
    page = steps.report(ref, tmp_path)
    assert "Times that do not count" in page
    assert "a at 9999-12-31 00:00:00, b at infinity, c at -infinity" in page
    quiet = clicks.batch([("f", 6, at(NOW))], scheme=scheme)
    assert "Times that do not count" not in steps.report(quiet, tmp_path)


def test_records_without_a_time_that_counts_all_stay_and_join_nothing(store: Store) -> None:
    clicks, wrong = Clicks(store), [None, "infinity", "-infinity", at(JUMP)]
    for _ in range(2):
        records = [(f"k{number}", number, time) for number, time in enumerate(wrong)]
        clicks.batch([*records, *records], records)
    assert clicks.rows("once") == sorted([(f"k{number}", number) for number in range(4)] * 4)
    assert clicks.rows("near") == []


def test_how_far_times_may_be_ahead_is_set_by_the_step(store: Store) -> None:
    clicks = Clicks(store, ahead=30 * DAY)
    soon, late = at(NOW + 20 * DAY), at(NOW + 40 * DAY)
    for _ in range(2):
        clicks.batch([("a", 1, soon), ("b", 2, late)])
    assert clicks.rows("once") == [("a", 1), ("b", 2), ("b", 2)]


def test_how_far_times_may_be_ahead_is_more_than_nothing(store: Store) -> None:
    with pytest.raises(Refused, match="ahead is -1 day"):
        _ = Clicks(store, ahead=-DAY).pipeline


def test_plans_of_one_day_are_the_same_and_say_by_which_day_they_go(store: Store) -> None:
    clicks = Clicks(store)
    _, plan = clicks.batch([("a", 1, at(NOW))]).load()
    day_end = plan.day_end
    assert isinstance(day_end, int)
    assert day_end % (24 * 3600 * 10**6) == 0
    end = datetime.fromtimestamp(day_end / 10**6, UTC).replace(tzinfo=None)
    now = datetime.now(UTC).replace(tzinfo=None)
    assert timedelta() <= end - now + timedelta(minutes=10) <= DAY + timedelta(minutes=20)


def test_what_an_earlier_version_kept_of_a_time_that_jumped_counts_no_more_than_today(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = Clicks(store)
    with monkeypatch.context() as earlier:
        # Plans of earlier versions say no day, and bound nothing.
        earlier.setattr(planning, "end_of_day", lambda: None)
        clicks.batch([("a", 1, at(NOW)), ("b", 2, at(JUMP))])
    clicks.batch([("a", 1, at(NOW)), ("a", 3, at(NOW))])
    clicks.batch([("a", 3, at(NOW))])
    assert clicks.rows("once") == [("a", 1), ("a", 3), ("b", 2)]


def test_one_time_that_jumps_lets_no_duplicates_pass_where_a_backfill_brings_the_step(
    store: Store, tmp_path: Path
) -> None:
    clicks = Clicks(store)
    clicks.timed = False
    clicks.batch([("a", 1, at(NOW)), ("a", 2, at(JUMP))])
    clicks.batch([("a", 1, at(NOW))])
    clicks.timed = True
    backfill = run_again(clicks.pipeline, store, actions.Asked(0, None, Settings()), tmp_path)
    actions.swap(store, backfill, actions.review(store, backfill).digest, "the step is new")
    assert clicks.rows("once") == [("a", 1), ("a", 2)]


def test_what_the_next_batch_cannot_read_is_not_written(store: Store) -> None:
    clicks = Clicks(store)
    records = [("a", 1, at(NOW - 5 * DAY)), ("a", 2, at(NOW - DAY)), ("a", 3, at(NOW))]
    ref = clicks.batch(records, records, "tasks(1)")
    (receipt,) = task_receipts(ref)
    kept = {file.name: file.records for file in receipt.left(Role.STATE)}
    assert kept == {"once.state": 2, "near.clicks.state": 2, "near.views.state": 2}
    clicks.batch([("a", 1, at(NOW - 5 * DAY)), ("a", 4, at(NOW - DAY))])
    assert ("a", 4) in clicks.rows("near")
    assert clicks.rows("once") == [("a", 1), ("a", 1), ("a", 2), ("a", 3), ("a", 4)]


def test_records_of_days_to_come_let_no_task_drop_what_is_of_this_day(store: Store) -> None:
    clicks = Clicks(store, ahead=30 * DAY)
    clicks.batch([("a", 1, at(NOW)), ("a", 2, at(NOW + 20 * DAY))], [("b", 1, at(NOW))], "tasks(1)")
    clicks.batch([("b", 3, at(NOW))], [("a", 1, at(NOW))])
    assert clicks.rows("near") == [("a", 1), ("b", 3)]


def test_what_is_kept_of_days_to_come_is_there_when_they_have_come(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = Clicks(store, ahead=30 * DAY)
    soon = NOW + 20 * DAY
    clicks.batch([("a", 1, at(soon))])
    clicks.batch([("c", 3, at(NOW))])
    day_end = planning.end_of_day()
    monkeypatch.setattr(planning, "end_of_day", lambda: day_end + 20 * 86_400 * 10**6)
    clicks.batch([("b", 2, at(soon + DAY / 2))])
    clicks.batch([("a", 1, at(soon))], [("a", 9, at(soon))])
    assert clicks.rows("once") == [("a", 1), ("b", 2), ("c", 3)]
    assert ("a", 1) in clicks.rows("near")
