"""Watermarks: how far in time each stream has come, in plan, status, page and proof; times that jump."""

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
from coset.batches.continuity import reached
from coset.batches.progress import PipelineProgress
from coset.batches.ref import BatchRef
from coset.cli.metrics import metrics
from coset.cli.status import standing
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.explain.explain import explain
from partitioning.hashes import placement_hash
from partitioning.model.receipt import Role
from partitioning.model.watermarks import Watermark
from partitioning.sections import markdown
from tests.backfilled import run_again
from tests.landed import land_table
from tests.logs import log_of
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged, task_receipts

NOON = datetime.fromisoformat("2026-01-01 12:00")
MINUTE = timedelta(minutes=1)
PARTITIONS = 2
# A key in each partition.
A, B = (next(k for k in "abcdefgh" if placement_hash(k) % PARTITIONS == number) for number in range(PARTITIONS))


class Clicks:
    """Batches of clicks: each a key and a minute after noon."""

    def __init__(self, store: Store, *, windows: object = False, **time: object) -> None:
        self.store = store
        self._windows = windows
        self._source = f"{store.root}/topics"
        self._time = {"time": "seen::TIMESTAMP", "late": 2 * MINUTE, **time}

    @property
    def pipeline(self) -> Pipeline:
        pipeline = Pipeline("timed", source=self._source)
        clicks = pipeline.stream("clicks", key="k", partitions=PARTITIONS, **self._time)  # type: ignore[arg-type]
        clicks.distinct("id", time="seen::TIMESTAMP", within=10 * MINUTE, name="once").write("once")
        if self._windows:
            clicks.windows("count(*) AS n", time="seen::TIMESTAMP", every=10 * MINUTE, name="tens").write("tens")
        return pipeline

    def land(self, *clicks: tuple[str, object]) -> None:
        times = [_text(seen) for _, seen in clicks]
        columns = {"k": [key for key, _ in clicks], "id": range(len(clicks)), "seen": pa.array(times, pa.string())}
        land_table(pa.table(columns), "clicks", self._source, key="k", partitions=PARTITIONS)

    def plan(self, *clicks: tuple[str, object], scheme: str = "cogroup") -> BatchRef:
        if clicks:
            self.land(*clicks)
        return next_batch(self.pipeline, self.store.root, Settings.parse(scheme=scheme))

    def batch(self, *clicks: tuple[str, object], scheme: str = "cogroup") -> Watermark:
        """The watermark by which a batch went."""
        ref = self.plan(*clicks, scheme=scheme)
        run_and_publish_unjudged(ref)
        return mark_of(ref)

    @property
    def idle(self) -> bool:
        """Whether the next run has nothing to do."""
        return steps.plan(self.pipeline, self.store.root, Settings())[0] is None

    @property
    def after(self) -> Watermark:
        """The watermark after the last batch."""
        ledger = Ledger(self.store, "timed")
        (mark,) = reached(ledger, ledger.standing().published)
        return mark


def _text(seen: object) -> str | None:
    return str(NOON + seen * MINUTE) if isinstance(seen, int) else seen  # type: ignore[return-value]


def mark_of(ref: BatchRef) -> Watermark:
    _, plan = ref.load()
    (mark,) = plan.watermarks
    return mark


def minute(time: int | None) -> float | None:
    """So many minutes after noon."""
    if time is None:
        return None
    return (datetime.fromtimestamp(time / 10**6, UTC).replace(tzinfo=None) - NOON) / MINUTE


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The minute at which batches are planned, which the test may put forward."""
    now = [int((NOON + 60 * MINUTE).replace(tzinfo=UTC).timestamp()) * 10**6]
    monkeypatch.setattr(planning, "_minute", lambda: now[0])
    monkeypatch.setattr(planning, "end_of_day", lambda: -(-now[0] // (86_400 * 10**6)) * 86_400 * 10**6)
    return now


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(3)"])
def test_the_slowest_partition_counts_and_a_batch_goes_by_those_before_it(store: Store, scheme: str) -> None:
    clicks = Clicks(store)
    assert minute(clicks.batch((A, 5), (A, 9), (B, 3), (B, None), scheme=scheme).time) is None
    second = clicks.batch((A, 4), (B, 20), scheme=scheme)
    assert (minute(second.time), [minute(time) for time in second.latest]) == (1, [9, 3])
    assert second.slowest == 1
    third = clicks.batch((B, 30), scheme=scheme)
    assert (minute(third.time), third.slowest) == (7, 0)
    assert minute(clicks.after.time) == 7


def test_a_partition_that_never_had_a_record_holds_the_watermark_back_until_it_is_idle(
    store: Store, clock: list[int]
) -> None:
    clicks = Clicks(store, idle=30 * MINUTE)
    clicks.batch((A, 5))
    clock[0] += 29 * 60 * 10**6
    assert clicks.batch((A, 6)).time is None
    clock[0] += 60 * 10**6
    third = clicks.batch((A, 7))
    assert (minute(third.time), third.idle) == (4, (1,))


def test_a_partition_without_a_record_holds_the_watermark_back_by_no_more_than_it_may_be_behind(
    store: Store, clock: list[int]
) -> None:
    clicks = Clicks(store, behind=10 * MINUTE)
    marks = [clicks.batch((A, 5)), clicks.batch((A, 30)), clicks.batch((A, 60), (B, 31))]
    # One batch that finds none makes nobody silent: what it should have had may be a little late.
    assert [(minute(mark.time), mark.silent) for mark in marks] == [(None, ()), (-7, (1,)), (-7, ())]
    # It had records in the batch before, and then no more.
    assert minute(clicks.batch((A, 61)).time) == 29
    fifth = clicks.batch((A, 62))
    assert (minute(fifth.time), fifth.slowest, fifth.counted(1)) == (49, 1, (fifth.latest[0] or 0) - 10 * 60 * 10**6)


def test_a_partition_that_is_idle_no_more_holds_the_watermark_where_it_is(store: Store, clock: list[int]) -> None:
    clicks = Clicks(store, idle=30 * MINUTE)
    clicks.batch((A, 5), (B, 5))
    clicks.batch((A, 20))
    clock[0] += 30 * 60 * 10**6
    assert minute(clicks.batch((A, 30)).time) == 18
    fourth = clicks.batch((A, 31), (B, 6))
    assert (minute(fourth.time), fourth.slowest, fourth.idle) == (18, 1, ())
    fifth = clicks.batch((A, 40))
    assert (minute(fifth.time), fifth.slowest) == (18, 1)


def test_a_pause_of_the_pipeline_makes_no_partition_idle(store: Store, clock: list[int]) -> None:
    clicks = Clicks(store, idle=30 * MINUTE)
    clicks.batch((A, 5), (B, 5))
    clock[0] += 300 * 60 * 10**6
    second = clicks.batch((A, 100))
    assert (minute(second.time), second.idle) == (3, ())


def test_all_are_idle_in_the_end_also_if_the_last_records_moved_nothing(store: Store, clock: list[int]) -> None:
    clicks = Clicks(store, idle=30 * MINUTE, windows=True)
    clicks.batch((A, 5), (A, 50), (B, 5), (B, 20))
    clicks.batch()
    clicks.batch((A, 51), (B, 19))
    clicks.batch()
    assert clicks.idle
    clock[0] += 30 * 60 * 10**6
    assert minute(clicks.batch().time) == 49
    assert clicks.idle


def test_the_times_of_new_records_count_when_the_clock_was_set_back(store: Store, clock: list[int]) -> None:
    clicks = Clicks(store)
    clicks.batch((A, 5), (B, 5))
    clock[0] -= 5 * 86_400 * 10**6
    clicks.batch((A, 20), (B, 20))
    assert minute(clicks.after.time) == 18


@pytest.mark.parametrize("jump", ["9999-12-31 00:00:00", "infinity", "tomorrow"])
def test_one_record_of_the_future_or_without_a_time_does_not_move_it(store: Store, clock: list[int], jump: str) -> None:
    clicks = Clicks(store, ahead=timedelta())
    pipeline = clicks.pipeline
    assert pipeline.streams[0].time
    clicks.land((A, 5), (B, 5))
    if jump == "tomorrow":
        jump = str(NOON + timedelta(days=1))
    clicks.land((A, jump), (B, jump))
    clicks.batch()
    assert minute(clicks.after.time) == 3


def test_what_is_kept_for_a_time_expires_by_the_watermark(store: Store, clock: list[int]) -> None:
    clicks = Clicks(store)
    clicks.batch((A, 0), (B, 0))
    clicks.batch((A, 1000))
    clicks.batch((A, 1001), (B, 1))
    ref = clicks.plan((A, 0), (B, 0))
    run_and_publish_unjudged(ref)
    _, plan = ref.load()
    (kept,) = (step.state for stage in plan.stages for step in stage.steps if step.state)
    # By the latest time of all, 1001, both would have been forgotten, and their duplicates would pass.
    assert kept.watermark
    assert (minute(kept.watermark.before), minute(kept.watermark.now)) == (-2, -1)


def test_plan_status_metrics_and_report_show_it(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks = Clicks(store)
    clicks.batch((A, 5), (B, 3))
    ref = clicks.plan((A, 90), (B, 60))
    _, plan = ref.load()
    explained = markdown(explain(plan))
    for words in ("Watermarks", "2026-01-01 12:01:00", "clicks-1", "2026-01-01 12:03:00"):
        assert words in explained
    run_and_publish(ref, tmp_path)
    assert "2026-01-01 12:01:00" in steps.report(ref, tmp_path)
    ledger = Ledger(store, "timed")
    shown = list(metrics("timed", ledger.standing(), PipelineProgress((), None), [], Attempt.published(*ref.load())))
    at = int((NOON + 58 * MINUTE).replace(tzinfo=UTC).timestamp())
    assert f'coset_watermark_timestamp_seconds{{pipeline="timed",stream="clicks"}} {at}.0' in shown
    monkeypatch.setattr("coset.cli.pipelines.load", lambda _: clicks.pipeline)
    answer = standing("timed", store.root)
    assert [mark["time"] for mark in answer.value["watermarks"]] == [at * 10**6]  # type: ignore[index]


def test_another_expression_begins_with_no_watermark_and_never_goes_back(store: Store) -> None:
    clicks = Clicks(store)
    clicks.batch((A, 5), (B, 5))
    clicks.batch((A, 6), (B, 6))
    other = Clicks(store, time="seen::TIMESTAMP - INTERVAL 1 HOUR")
    assert other.batch((A, 7), (B, 7)).time is None
    ref = other.plan((A, 8), (B, 8))
    assert minute(mark_of(ref).time) == -55
    _, plan = ref.load()
    (kept,) = (step.state for stage in plan.stages for step in stage.steps if step.state)
    assert kept.watermark
    assert minute(kept.watermark.now) == 3


@pytest.mark.parametrize(
    ("said", "time"),
    [
        ("there is no column 'sen'", {"time": "sen"}),
        ("idle is 0:00:00", {"idle": timedelta()}),
        ("late is -1 day", {"late": timedelta(days=-1)}),
        ("behind is -1 day", {"behind": timedelta(days=-1)}),
        ("time= is empty", {"time": " "}),
        ("subquery", {"time": "(SELECT max(seen) FROM clicks)"}),
    ],
)
def test_what_cannot_say_a_time_is_refused(store: Store, said: str, time: dict[str, object]) -> None:
    with pytest.raises(Refused, match=said):
        Clicks(store, **time).plan((A, 1))


DAY = timedelta(days=1)
NOW = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
JUMP = datetime.fromisoformat("9999-12-31")
# A record: its key, its identity and its time, as SQL reads it.
Record = tuple[str, int, str | None]


def at(time: datetime) -> str:
    return time.isoformat(sep=" ")


class OddClicks:
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
    clicks = OddClicks(store)
    clicks.batch([("a", 1, at(NOW))])
    clicks.batch([("b", 2, at(JUMP)), ("a", 3, at(NOW))])
    clicks.batch([("a", 1, at(NOW)), ("a", 3, at(NOW)), ("a", 4, at(NOW))])
    assert clicks.rows("once") == [("a", 1), ("a", 3), ("a", 4), ("b", 2)]


def test_one_time_that_jumps_does_not_keep_later_records_from_joining(store: Store) -> None:
    clicks = OddClicks(store)
    clicks.batch([("b", 1, at(JUMP))], [("b", 1, at(JUMP))])
    clicks.batch([("a", 2, at(NOW))])
    clicks.batch([("c", 3, at(NOW))], [("a", 9, at(NOW))])
    assert clicks.rows("near") == [("a", 2)]


@pytest.mark.parametrize("scheme", ["tasks(1)", "tasks(3)", "elastic(2)"])
def test_times_that_do_not_count_are_told_with_the_first_of_them(store: Store, tmp_path: Path, scheme: str) -> None:
    clicks = OddClicks(store)
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
    clicks, wrong = OddClicks(store), [None, "infinity", "-infinity", at(JUMP)]
    for _ in range(2):
        records = [(f"k{number}", number, time) for number, time in enumerate(wrong)]
        clicks.batch([*records, *records], records)
    assert clicks.rows("once") == sorted([(f"k{number}", number) for number in range(4)] * 4)
    assert clicks.rows("near") == []


def test_how_far_times_may_be_ahead_is_set_by_the_step(store: Store) -> None:
    clicks = OddClicks(store, ahead=30 * DAY)
    soon, late = at(NOW + 20 * DAY), at(NOW + 40 * DAY)
    for _ in range(2):
        clicks.batch([("a", 1, soon), ("b", 2, late)])
    assert clicks.rows("once") == [("a", 1), ("b", 2), ("b", 2)]


def test_how_far_times_may_be_ahead_is_more_than_nothing(store: Store) -> None:
    with pytest.raises(Refused, match="ahead is -1 day"):
        _ = OddClicks(store, ahead=-DAY).pipeline


def test_plans_of_one_day_are_the_same_and_say_by_which_day_they_go(store: Store) -> None:
    clicks = OddClicks(store)
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
    clicks = OddClicks(store)
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
    clicks = OddClicks(store)
    clicks.timed = False
    clicks.batch([("a", 1, at(NOW)), ("a", 2, at(JUMP))])
    clicks.batch([("a", 1, at(NOW))])
    clicks.timed = True
    backfill = run_again(clicks.pipeline, store, actions.Asked(0, None, Settings()), tmp_path)
    actions.swap(store, backfill, actions.review(store, backfill).digest, "the step is new")
    assert clicks.rows("once") == [("a", 1), ("a", 2)]


def test_what_the_next_batch_cannot_read_is_not_written(store: Store) -> None:
    clicks = OddClicks(store)
    records = [("a", 1, at(NOW - 5 * DAY)), ("a", 2, at(NOW - DAY)), ("a", 3, at(NOW))]
    ref = clicks.batch(records, records, "tasks(1)")
    (receipt,) = task_receipts(ref)
    kept = {file.name: file.records for file in receipt.left(Role.STATE)}
    assert kept == {"once.state": 2, "near.clicks.state": 2, "near.views.state": 2}
    clicks.batch([("a", 1, at(NOW - 5 * DAY)), ("a", 4, at(NOW - DAY))])
    assert ("a", 4) in clicks.rows("near")
    assert clicks.rows("once") == [("a", 1), ("a", 1), ("a", 2), ("a", 3), ("a", 4)]


def test_records_of_days_to_come_let_no_task_drop_what_is_of_this_day(store: Store) -> None:
    clicks = OddClicks(store, ahead=30 * DAY)
    clicks.batch([("a", 1, at(NOW)), ("a", 2, at(NOW + 20 * DAY))], [("b", 1, at(NOW))], "tasks(1)")
    clicks.batch([("b", 3, at(NOW))], [("a", 1, at(NOW))])
    assert clicks.rows("near") == [("a", 1), ("b", 3)]


def test_what_is_kept_of_days_to_come_is_there_when_they_have_come(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = OddClicks(store, ahead=30 * DAY)
    soon = NOW + 20 * DAY
    clicks.batch([("a", 1, at(soon))])
    clicks.batch([("c", 3, at(NOW))])
    day_end = planning.end_of_day()
    monkeypatch.setattr(planning, "end_of_day", lambda: day_end + 20 * 86_400 * 10**6)
    clicks.batch([("b", 2, at(soon + DAY / 2))])
    clicks.batch([("a", 1, at(soon))], [("a", 9, at(soon))])
    assert clicks.rows("once") == [("a", 1), ("b", 2), ("c", 3)]
    assert ("a", 1) in clicks.rows("near")
