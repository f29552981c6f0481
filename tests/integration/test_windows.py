"""Windows are given once, when they close, wherever batches were cut and whatever tasks there were."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.ref import BatchRef
from coset.batches.result_rows import set_aside_in
from coset.testing import run
from coset.testing.runs import Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import LateRecord
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from tests.backfilled import run_again
from tests.begun import Begun
from tests.examples import few
from tests.histories import Click
from tests.killed import killed_once
from tests.outer import END, LATE, some
from tests.running import run_and_publish, run_and_publish_unjudged, task_receipts
from tests.there import there
from tests.windowed import GAP, KEEP, Window, Windowed, both, sessions_of, windows_of

MINUTE = timedelta(minutes=1)
_NOON = datetime.fromisoformat("2026-01-05 12:00")
# A minute of the year 11,476, which no step believes.
_NEVER = 5_000_000_000
LATES = ("drop", "correct", "sessions")
# Before there is a verdict it does not matter whether late records count.
KILLED = (
    ("group-0.before", "drop"),
    ("group-0.after", "correct"),
    ("verdict.after", "drop"),
    ("delta.after", "correct"),
)


@pytest.mark.parametrize(
    ("batches", "seed", "late"),
    few(
        [
            (3, 0, "correct"),
            (7, 1, "drop"),
            # What drops late records does what corrects for them does, and less.
            (8, 40, "correct"),
            (8, 40, "sessions"),
            *zip((1, 1, 1), range(3), LATES, strict=True),
        ]
    ),
)
def test_the_same_records_give_the_same_windows_wherever_batches_are_cut(
    store: Store, batches: int, seed: int, late: str
) -> None:
    chance = random.Random(seed)
    arrived = some(chance, 40, LATE + KEEP if late == "correct" else LATE)
    windowed = Windowed(store, late)
    windowed.all_in(arrived, batches, chance)
    assert windowed.windows() == (sessions_of if late == "sessions" else windows_of)(both(arrived))


_LAST = [Click(key, END, END) for key in "abcdefgh"]


def test_a_batch_without_a_record_gives_the_windows_that_are_over_once_and_is_proved(store: Store) -> None:
    windowed = Windowed(store, "drop")
    windowed.batch([Click("a", 1, 0), Click("b", 2, 14)], [Click("b", 3, 15)])
    windowed.batch(_LAST, _LAST)
    assert windowed.windows() == []
    ref = there(windowed.plan())
    run_and_publish(ref)
    assert ref.load()[1].records == 0
    assert windowed.windows() == [("a", 0, 1, 1), ("b", 0, 1, 2), ("b", 15, 1, 3)]
    closed = [one for task in task_receipts(ref) for one in task.closed]
    assert [sum(getattr(one, part).rows for one in closed) for part in ("over", "met", "alone")] == [3, 0, 3]
    assert windowed.plan() is None


def test_a_window_closes_when_the_watermark_is_its_end_and_not_a_microsecond_before() -> None:
    for shown, closed in ((59, 0), (60, 1)):
        pipeline = Pipeline("ends", source="s3://landing/topics")
        stream = pipeline.stream("clicks", key="k", partitions=1, time="make_timestamp(t)")
        every = timedelta(microseconds=60)
        stream.windows("count(*) AS n", time="make_timestamp(t)", every=every, name="counted").write("counted")
        rows = run(pipeline, {"clicks": [{"k": "a", "t": 0}, {"k": "b", "t": shown}]})
        assert len(rows["counted"]) == closed


def test_windows_after_the_day_of_planning_are_given_as_others_are() -> None:
    pipeline = Pipeline("local_times", source="s3://landing/topics")
    clicks = pipeline.stream("clicks", key="k", partitions=1, time="t")
    clicks.windows("count(*) AS n", time="t", every=60 * MINUTE, name="hours").write("hours")
    tomorrow = datetime.now(UTC).replace(tzinfo=None, hour=1, minute=0, second=0, microsecond=0) + timedelta(days=1)
    arrived = [[{"k": "a", "t": tomorrow + 25 * number * MINUTE}] for number in range(8)]
    rows = run(pipeline, *({"clicks": batch} for batch in arrived))["hours"]
    assert [row["n"] for row in rows] == [3, 2]


def _dropped(ref: BatchRef) -> tuple[int, int]:
    """How many records came late, and how many are in no window."""
    closed = [one for task in task_receipts(ref) for one in task.closed]
    return sum(one.late for one in closed), sum(one.dropped for one in closed)


def _close(late: str, store: Store) -> None:
    windowed = Windowed(store, late)
    windowed.batch([Click("a", 1, 0)], [Click("b", 2, 0)])
    last = [Click(key, 9, 45) for key in "abcdefgh"]
    windowed.batch(last, last)
    ref = there(windowed.plan())
    run_and_publish_unjudged(ref)
    assert windowed.windows() == [("a", 0, 1, 1), ("b", 0, 1, 2)]


def _closed(begun: Begun, late: str) -> Windowed:
    """The window from minute 0 on was given, and those up to `END` are over."""
    return Windowed(begun.by(_close, late), late)


def test_what_comes_after_its_window_was_given_is_dropped_and_counted(begun: Begun, tmp_path: Path) -> None:
    windowed = _closed(begun, "drop")
    windowed.land([Click("a", 3, 1), Click("a", 4, 46), Click("c", 5, _NEVER)], [])
    ref = there(windowed.plan())
    run_and_publish(ref, tmp_path)
    assert _dropped(ref) == (1, 2)
    said = "".join(page.read_text() for page in tmp_path.rglob("*.html"))
    assert "1 came late; 2 dropped" in said
    windowed.close()
    assert [window for window in windowed.windows() if window[0] in {"a", "c"}] == [
        ("a", 0, 1, 1),
        ("a", 45, 3, 22),
        ("c", 45, 2, 18),
    ]


def _passes(windowed: Windowed, minute: int) -> None:
    """The watermark is there, and a batch has gone by it."""
    last = [Click(key, 9, minute + LATE) for key in "abcdefgh"]
    windowed.batch(last, last)
    ref = there(windowed.plan())
    run_and_publish_unjudged(ref)


@pytest.mark.long
def test_a_window_is_given_again_with_what_comes_late_until_it_is_kept_no_more(begun: Begun) -> None:
    windowed = _closed(begun, "correct")
    windowed.land([Click("a", 3, 1)], [])
    ref = there(windowed.plan())
    run_and_publish(ref)
    assert _dropped(ref) == (1, 0)
    assert windowed.windows() == [("a", 0, 2, 4), ("b", 0, 1, 2)]
    _passes(windowed, 14 + KEEP)
    in_time = windowed.batch([Click("a", 4, 2)], [])
    assert _dropped(in_time) == (1, 0)
    _passes(windowed, 15 + KEEP)
    too_late = windowed.batch([Click("a", 5, 3)], [])
    assert _dropped(too_late) == (1, 1)
    assert windowed.windows()[0] == ("a", 0, 3, 8)


@pytest.mark.parametrize(
    ("late", "rows", "aside"),
    few([("correct", [("a", 1), ("b", 1)], 0), ("drop", [("a", 1)], 0), ("set aside", [("a", 1)], 1)]),
)
def test_what_a_partition_brings_that_nobody_waited_for_is_late(
    late: LateRecord, rows: list[tuple[str, int]], aside: int
) -> None:
    pipeline = Pipeline("silent", source="s3://landing/topics")
    clicks = pipeline.stream("clicks", key="k", partitions=2, time="seen", behind=timedelta(), bad_records="set aside")
    keep = {"keep": 60 * MINUTE} if late == "correct" else {}
    counted = clicks.windows("count(*) AS n", time="seen", every=10 * MINUTE, late=late, name="counted", **keep)
    counted.rekey(("k", "window_start")).write("counted", mode="upsert")
    with Trial.made(pipeline) as trial:
        # "a" and "b" lie in different partitions. That of "b" never had a record until its window is over for "a".
        for key, minute in (("a", 5), ("a", 25), ("a", 30), ("b", 3)):
            trial.land({"clicks": [{"k": key, "seen": _NOON + minute * MINUTE}]})
            said = trial.run()
        found = [
            (row["k"], row["n"]) for row in trial.tables()["counted"] if str(row["window_start"])[11:] == "12:00:00"
        ]
        ledger = Ledger(store_at(trial.root), "silent")
        published = there(ledger.standing().published)
        assert (found, len(list(set_aside_in(ledger, published)))) == (rows, aside), said


def test_a_pair_is_in_the_window_of_its_earlier_record_however_late_the_other_comes() -> None:
    pipeline = Pipeline("pairs", source="s3://landing/topics")
    ads, clicks = (pipeline.stream(name, key="k", partitions=1, time="seen::TIMESTAMP") for name in ("ads", "clicks"))
    times = ("ads.seen::TIMESTAMP", "clicks.seen::TIMESTAMP")
    pairs = ads.join_within(clicks, "ads.seen", times=times, within=30 * MINUTE, name="pairs")
    pairs.windows("count(*) AS n", time="seen::TIMESTAMP", every=10 * MINUTE, name="tens").write("tens")
    # The window from 12:00 on is over by the watermark of its streams when the second click comes, which is not late.
    arriving = [("12:05", "12:00"), ("12:20", "12:20"), ("12:21", "12:21"), ("12:22", "12:30"), ("15:00", "15:00")]
    batches = [
        {"ads": [{"k": "a", "seen": f"2026-01-05 {ad}"}], "clicks": [{"k": "a", "seen": f"2026-01-05 {click}"}]}
        for ad, click in arriving
    ]
    assert [row["n"] for row in run(pipeline, *batches)["tens"]] == [4, 12]


@pytest.mark.long
@pytest.mark.parametrize("cuts", [(0, 2), (0, 1, 1, 2)])
def test_what_a_join_gives_alone_is_in_its_window_wherever_batches_are_cut(cuts: tuple[int, ...]) -> None:
    pipeline = Pipeline("pairs", source="s3://landing/topics")
    time: dict[str, Any] = {"key": "k", "time": "seen::TIMESTAMP"}
    # They lie by different hashes.
    ads = pipeline.stream("ads", partitions=2, **time)
    clicks = pipeline.stream("clicks", partitions=3, hash="java", **time)
    columns, times = "ads.seen, clicks.seen IS NOT NULL AS hit", ("ads.seen::TIMESTAMP", "clicks.seen::TIMESTAMP")
    pairs = ads.join_within(clicks, columns, times=times, within=30 * MINUTE, how="left", name="pairs")
    counted = "count(*) AS n, count(*) FILTER (hit) AS hits"
    hours = pairs.windows(counted, time="seen::TIMESTAMP", every=10 * MINUTE, name="hours")
    hours.windows("sum(n)::BIGINT AS n", time="window_start", every=MINUTE, name="again").write("again")
    hours.write("hours")

    def all_at(time: str) -> list[dict[str, object]]:
        return [{"k": key, "seen": f"2026-01-05 {time}"} for key in "cdefgh"]

    arriving: list[dict[str, list[dict[str, object]]]] = [
        {
            "ads": [{"k": key, "seen": "2026-01-05 12:01"} for key in "ab"],
            "clicks": [{"k": "a", "seen": "2026-01-05 12:02"}],
        },
        # The watermark passes the end of the window, and not yet the time that a record waits for its partner.
        {"ads": all_at("12:20"), "clicks": [*all_at("12:20"), *all_at("12:20")]},
        {"ads": all_at("20:00"), "clicks": all_at("20:00")},
    ]
    rows = run(pipeline, *(arriving[cut] for cut in cuts))
    found = {row["k"]: (row["n"], row["hits"]) for row in rows["hours"] if str(row["k"]) in "ab"}
    assert found == {"a": (1, 1), "b": (1, 0)}
    assert {row["k"]: row["n"] for row in rows["again"] if str(row["k"]) in "ab"} == {"a": 1, "b": 1}


def test_windows_that_cannot_be_given_once_are_refused() -> None:
    pipeline = Pipeline("refused", source="s3://landing/topics")
    clicks = pipeline.stream("clicks", key="k", partitions=2, time="seen")
    views = pipeline.stream("views", key="k", partitions=2)
    aside = pipeline.stream("aside", key="k", partitions=2, time="seen", bad_records="set aside")
    said: dict[str, Any] = {"time": "seen", "every": 60 * MINUTE}
    for flow, more, what in (
        (views, {}, "stream 'views' does not say when its records happened, so none is ever over"),
        (clicks, {"every": timedelta(0)}, "every is 0:00:00"),
        (clicks, {"late": "forget"}, "unknown policy 'forget' for late records"),
        (clicks, {"late": "correct"}, "nothing says how long that is"),
        (clicks, {"keep": MINUTE}, "keep is 0:01:00, and records are kept no longer than their window is open"),
        (clicks, {"late": "correct", "keep": timedelta(0)}, "keep is 0:00:00"),
        (clicks, {"late": "set aside"}, "stream 'clicks' sets no record aside, so a late one would stop the batch"),
        (clicks, {"gap": timedelta(0)}, "gap is 0:00:00"),
        (clicks, {"gap": 61 * MINUTE}, "every is 1:00:00, gap is 1:01:00"),
        (clicks, {"gap": MINUTE, "late": "correct", "keep": MINUTE}, "a late record may join two sessions"),
        (clicks.partial("count(*) AS n", by="k"), {}, "is partial"),
        (aside.rekey("id"), {"late": "set aside"}, "step 'aside.rekey' moves records, and behind it"),
    ):
        with pytest.raises(Refused, match=what):
            flow.windows("count(*) AS n", **(said | more))


@pytest.mark.parametrize("name", ["counted", "marked"])
def test_a_flow_may_be_called_what_steps_in_time_are_called_inside(name: str) -> None:
    pipeline = Pipeline("named", source="s3://landing/topics")
    clicks = pipeline.stream("clicks", key="k", partitions=1, time="make_timestamp(t)")
    named, again = clicks.select("t", name=name), clicks.select("t", name="again")
    named.windows("count(*) AS n", time="make_timestamp(t)", every=MINUTE, name="w").write("windows")
    times = (f"make_timestamp({name}.t)", "make_timestamp(again.t)")
    named.join_within(again, "again.t", times=times, within=MINUTE, how="left", name="j").write("pairs")
    rows = run(pipeline, {"clicks": [{"k": "a", "t": 0}, {"k": "b", "t": 600_000_000}]})
    assert [row["n"] for row in rows["windows"]] == [1]
    assert [row["k"] for row in rows["pairs"]] == ["a", "b"]


def test_a_window_has_one_row_for_each_key() -> None:
    pipeline = Pipeline("rows", source="s3://landing/topics")
    clicks = pipeline.stream("clicks", key="k", partitions=1, time="seen::TIMESTAMP")
    counted = clicks.windows("id, count(*) AS n", time="seen::TIMESTAMP", every=MINUTE)
    counted.write("counted")
    with pytest.raises(Refused, match="there is one row for each key and window, and this would make more"):
        run(pipeline, {"clicks": [{"k": "a", "id": 1, "seen": "2026-01-01 12:00"}]})


@pytest.mark.long
def test_what_comes_after_its_window_was_given_is_set_aside_and_proved(begun: Begun) -> None:
    windowed = _closed(begun, "set aside")
    windowed.land([Click("a", 3, 1), Click("a", 4, 46), Click("c", 5, _NEVER)], [Click("d", 6, 2)])
    ref = there(windowed.plan())
    run_and_publish(ref)
    ledger, plan = ref.load()
    found = sorted((one["stream"], one["step"], one["why"]) for one in set_aside_in(ledger, plan))
    late, timeless = (
        f"SQL failed: Invalid Input Error: {why}"
        for why in ("its window was given before it came", "it has no time that counts")
    )
    step = "counted.counted"
    assert found == [("clicks", step, timeless), ("clicks", step, late), ("views", step, late)]
    windowed.close()
    assert [window for window in windowed.windows() if window[0] in {"a", "c"}] == [
        ("a", 0, 1, 1),
        ("a", 45, 3, 22),
        ("c", 45, 2, 18),
    ]


def test_a_session_closes_after_its_gap_and_nothing_that_is_late_becomes_a_part_of_one(store: Store) -> None:
    windowed = Windowed(store, "sessions")
    windowed.batch([Click("a", 1, 0), Click("a", 2, GAP)], [Click("a", 3, 2 * GAP + 1), Click("b", 4, 0)])
    last = [Click(key, 9, GAP + LATE + 1 + GAP) for key in "cdefgh"]
    windowed.batch(last, last)
    assert windowed.windows() == []
    empty = there(windowed.plan())
    run_and_publish(empty)
    # The watermark is 15. What ended at 7 is over, and what ended at 15 is not.
    assert windowed.windows() == [("a", 0, 2, 3), ("b", 0, 1, 4)]
    windowed.land([Click("a", 5, GAP + 2), Click("b", 6, 15), Click("b", 7, _NEVER)], [])
    ref = there(windowed.plan())
    run_and_publish(ref)
    assert _dropped(ref) == (1, 2)
    windowed.close()
    assert [window for window in windowed.windows() if window[0] in {"a", "b"}] == [
        ("a", 0, 2, 3),
        ("a", 15, 1, 3),
        ("b", 0, 1, 4),
        ("b", 15, 1, 6),
    ]


_PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "windowed.py")


@pytest.mark.long
@pytest.mark.parametrize(("point", "late"), few(KILLED))
def test_a_batch_that_gives_windows_and_is_killed_gives_them_once(
    point: str, late: str, begun: Begun, tmp_path: Path
) -> None:
    assert _killed(point, late, begun, tmp_path) == [
        ("a", 0, 1, 1),
        ("a", 30, 1, 4),
        ("a", 45, 3, 21),
        ("b", 0, 1, 2),
        ("b", 45, 2, 18),
    ]


@pytest.mark.long
def test_a_batch_that_gives_sessions_and_is_killed_gives_them_once(begun: Begun, tmp_path: Path) -> None:
    assert _killed("verdict.after", "sessions", begun, tmp_path) == [
        ("a", 0, 1, 1),
        ("a", 40, 4, 25),
        ("b", 0, 1, 2),
        ("b", 45, 2, 18),
    ]


def _killed(point: str, late: str, begun: Begun, tmp_path: Path) -> list[Window]:
    """The windows of two keys after a batch that was killed there and run again, and all that is over."""
    windowed = _closed(begun, late)
    windowed.land([Click("a", 3, 46)], [Click("a", 4, 40)])
    killed_once(point, _PIPELINE, windowed.store.root, tmp_path, WINDOWED_SOURCE=windowed.source, WINDOWED_LATE=late)
    windowed.close()
    return [window for window in windowed.windows() if window[0] in {"a", "b"}]


@pytest.mark.long
@pytest.mark.parametrize("late", ["correct", "sessions"])
def test_a_backfill_gives_the_same_windows_by_the_same_watermarks(late: str, begun: Begun, tmp_path: Path) -> None:
    windowed = _closed(begun, late)
    windowed.batch([Click("a", 3, 1), Click("a", 4, 46)], [])
    windowed.close()
    asked = Asked(0, None, Settings.parse(scheme="tasks(2)"))
    backfill = run_again(windowed.pipeline, windowed.store, asked, tmp_path)
    assert str(actions.comparison(windowed.store, backfill)).startswith("identical: ")
