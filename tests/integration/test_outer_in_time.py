"""Joins in time: what finds no partner is given alone, and records their version, once, wherever batches were cut."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from coset.batches import planning, steps
from coset.cli.status import standing
from coset.testing import run
from coset.testing.runs import Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import How, MissingVersion
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.explain.watermarks import Period
from partitioning.sections import Section
from tests.as_of import AsOf, versions_of
from tests.examples import few
from tests.histories import Click
from tests.outer import END, LATE, MINUTE, WITHIN, Outer, Pair, pairs_of, some
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged, task_receipts
from tests.there import there

# A minute of the year 11,476, which no step believes.
_NEVER = 5_000_000_000


@pytest.mark.parametrize(
    ("batches", "seed", "how"), few([(3, 0, "full"), (7, 1, "left"), (8, 40, "full"), (1, 0, "left")])
)
def test_the_same_records_give_the_same_pairs_wherever_batches_are_cut(
    store: Store, batches: int, seed: int, how: How
) -> None:
    chance = random.Random(seed)
    arrived, outer = some(chance, 40), Outer(store, how)
    outer.all_in(arrived, batches, chance)
    assert outer.pairs() == pairs_of(arrived, how)


def test_a_batch_without_a_record_gives_what_is_over_once_and_is_proved(store: Store) -> None:
    outer = Outer(store, "left")
    outer.batch([Click("a", 1, 0), Click("b", 2, 0)], [Click("b", 3, 5)])
    assert outer.pairs() == [("b", 2, 3)]
    last = [Click(key, END, END) for key in "abcdefgh"]
    outer.batch(last, last)
    assert outer.pairs() == [("b", 2, 3)]
    ref = there(outer.plan())
    run_and_publish(ref)
    assert ref.load()[1].records == 0
    assert outer.pairs() == [("a", 1, None), ("b", 2, 3)]
    closed = [one for task in task_receipts(ref) for one in task.closed]
    assert {one.step for one in closed} == {"pairs.clicks"}
    sums = [sum(getattr(one, part).rows for one in closed) for part in ("over", "met", "alone")]
    assert sums == [2, 1, 1]
    assert outer.plan() is None


def test_what_comes_when_its_time_is_over_is_given_at_once_and_changes_nothing_that_was_given(store: Store) -> None:
    outer = Outer(store, "full")
    outer.batch([Click("a", 1, 0)], [Click("b", 2, 0)])
    last = [Click(key, END, 100) for key in "abcdefgh"]
    outer.batch(last, last)
    empty = there(outer.plan())
    run_and_publish_unjudged(empty)
    late = outer.batch([Click("b", 3, 1), Click("c", 4, 1)], [Click("a", 5, 1), Click("c", 6, 1)])
    alone = [("a", 1, None), ("a", None, 5), ("b", 3, None), ("b", None, 2)]
    assert outer.pairs() == [*alone, ("c", 4, 6)]
    assert sum(one.late for task in task_receipts(late) for one in task.closed) == 4


@pytest.mark.long
@pytest.mark.parametrize("how", ["left", "full"])
def test_what_was_given_alone_is_no_partner_of_what_comes_later_while_it_is_kept(store: Store, how: How) -> None:
    outer = Outer(store, how)
    outer.batch([Click("a", 1, 10), Click("c", 2, 11)], [Click("b", 3, 10), Click("d", 4, 11)])
    # What happened at 10 is over by this watermark, what happened at 11 is not, and both are kept.
    last = [Click(key, END, 11 + WITHIN + LATE) for key in "efghijklm"]
    outer.batch(last, last)
    # Two records come when they are over, and one of them with a partner.
    outer.batch([Click("e", 5, 10), Click("f", 6, 10)], [Click("f", 7, 12)])
    outer.batch([Click("b", 8, 12), Click("d", 9, 12)], [Click(key, 8, 12) for key in "ace"])
    outer.close()
    late: list[Pair] = [("b", 8, None), ("b", None, 3)] if how == "full" else [("b", 8, 3)]
    given: list[Pair] = [("a", 1, None), *late, ("c", 2, 8), ("d", 9, 4), ("e", 5, None), ("f", 6, 7)]
    if how == "full":
        given += [("a", None, 8), ("e", None, 8)]
    assert outer.pairs() == sorted(given, key=repr)


@pytest.mark.long
@pytest.mark.parametrize("within", [WITHIN - 4, WITHIN + 4])
def test_another_time_to_wait_begins_anew_by_name_only(store: Store, within: int) -> None:
    """By it, some that were given alone would be given again, or never, and some would have partners that they did not
    meet."""
    outer = Outer(store, "full")
    outer.batch([Click("a", 1, 10), Click("b", 2, 13)], [Click("c", 3, 10)])
    last = [Click(key, END, 11 + WITHIN + LATE) for key in "efghijklm"]
    outer.batch(last, last)
    ref = there(outer.plan())
    run_and_publish_unjudged(ref)
    outer.within = within
    outer.land([Click("z", 7, 30)], [])
    with pytest.raises(Refused, match=f"its time to wait changed from 0:10:00 to 0:{within:02}:00") as refused:
        outer.plan()
    assert [finding.where for finding in refused.value.findings] == [
        f"state of pairs.{side}, left by batch 2" for side in ("clicks", "views")
    ]
    anew = Settings.parse(begin_anew=["pairs.clicks", "pairs.views"])
    run_and_publish_unjudged(next_batch(outer.pipeline, store.root, anew))
    outer.close()
    assert outer.pairs() == [("a", 1, None), ("c", None, 3), ("z", 7, None)]


def test_what_was_kept_for_too_short_a_time_to_be_given_alone_begins_anew_by_name_only(store: Store) -> None:
    """Some would be given alone whose partners are not known any more."""

    def joined(**said: Any) -> Pipeline:
        made = Pipeline("outer", source=outer.source)
        clicks, views = (made.stream(name, key="k", partitions=3, time="seen") for name in ("clicks", "views"))
        times, columns = ("clicks.seen", "views.seen"), "clicks.id AS click, views.id AS view"
        clicks.join_within(views, columns, times=times, name="pairs", **said).write("pairs")
        return made

    outer = Outer(store, "inner")
    outer.land([Click("a", 1, 10)], [Click("a", 2, 12)])
    run_and_publish_unjudged(next_batch(joined(within=10 * MINUTE, keep=15 * MINUTE), store.root))
    outer.land([Click("b", 3, 20)], [])
    with pytest.raises(Refused, match=r"its time to keep records changed from 0:15:00 to 0:20:00"):
        steps.plan(joined(within=10 * MINUTE, how="left"), store.root)
    with pytest.raises(Refused, match=r"its time to wait changed from 0:10:00 to 0:07:00"):
        steps.plan(joined(within=7 * MINUTE, how="left"), store.root)
    run_and_publish_unjudged(next_batch(joined(within=10 * MINUTE, keep=20 * MINUTE), store.root))
    outer.land([Click("c", 4, 20)], [])
    # The table has none that were alone.
    with pytest.raises(Refused, match="it would have rows of both queries"):
        steps.plan(joined(within=10 * MINUTE, how="left"), store.root)
    assert steps.plan(joined(within=10 * MINUTE, how="left"), store.root, Settings(go_on=("pairs",)))[0] is not None


def test_records_without_a_time_that_counts_are_given_alone_in_their_own_batch(store: Store) -> None:
    outer = Outer(store, "left")
    outer.batch([Click("a", 1, _NEVER), Click(None, 2, 0)], [Click("a", 3, _NEVER)])
    assert outer.pairs() == [("a", 1, None)]


def test_a_join_that_cannot_know_what_is_over_is_refused() -> None:
    pipeline = Pipeline("outer", source="s3://landing/topics")
    minute = timedelta(minutes=1)
    clicks = pipeline.stream("clicks", key="k", partitions=2, time="seen")
    views = pipeline.stream("views", key="k", partitions=2)
    times = ("clicks.seen", "views.seen")
    with pytest.raises(Refused, match="stream 'views' does not say when its records happened, so none is ever over"):
        clicks.join_within(views, "views.id", times=times, within=minute, how="left")
    with pytest.raises(Refused, match=r"keep is 0:01:00, and a record that is given alone is kept for twice within"):
        clicks.join_within(views, "views.id", times=times, within=minute, keep=minute, how="left")
    with pytest.raises(Refused, match="unknown join 'right'"):
        clicks.join_within(views, "views.id", times=times, within=minute, how="right")  # type: ignore[arg-type]


def test_keys_of_two_columns_meet_in_time_and_those_with_a_null_are_given_alone() -> None:
    pipeline = Pipeline("outer", source="s3://landing/topics")
    minute = timedelta(minutes=1)
    clicks, views = (
        pipeline.stream(name, key="k", partitions=1, time="seen::TIMESTAMP").rekey(("k", "country"))
        for name in ("clicks", "views")
    )
    columns, times = "clicks.id AS click, views.id AS view", ("clicks.seen::TIMESTAMP", "views.seen::TIMESTAMP")
    clicks.join_within(views, columns, times=times, within=minute, how="full", name="pairs").write("pairs")

    def record(identity: int, country: str | None, seen: str) -> dict[str, object]:
        return {"k": "a", "country": country, "id": identity, "seen": f"2026-01-01 {seen}"}

    first = [record(1, "DE", "12:00"), record(2, None, "12:00")]
    rows = run(pipeline, {"clicks": [*first, record(9, "x", "13:00")], "views": [*first, record(9, "y", "13:00")]})
    found = sorted((row["click"] or 0, row["view"] or 0) for row in rows["pairs"])
    assert found == [(0, 2), (1, 1), (2, 0)]


# ---- as of a time


_ALL = "abcdefgh"


@pytest.mark.parametrize(
    ("batches", "seed", "missing"), few([(3, 0, "null"), (7, 1, "drop"), (8, 40, "null"), (1, 0, "drop")])
)
def test_the_same_records_have_the_same_versions_wherever_batches_are_cut(
    store: Store, batches: int, seed: int, missing: MissingVersion
) -> None:
    chance = random.Random(seed)
    arrived, pipeline = some(chance, 40), AsOf(store, missing, chance.choice((0, 7)))
    pipeline.all_in(arrived, batches, chance)
    assert pipeline.pairs() == versions_of(arrived, missing)


def test_a_record_waits_for_a_version_that_comes_late_and_what_comes_later_still_is_counted(store: Store) -> None:
    # Records may come 5 minutes late, and wait for 8 more.
    pipeline = AsOf(store, wait=8)
    pipeline.batch([Click("a", 1, 10), Click("b", 2, 10)], [Click("a", 3, 0)])
    passes = [Click(key, END, 20) for key in _ALL]
    pipeline.batch(passes, passes)
    # By the watermark, 12:15, this version is late.
    pipeline.batch([], [Click("a", 5, 9)])
    assert pipeline.pairs() == []
    last = [Click(key, END, 100) for key in _ALL]
    pipeline.batch(last, last)
    ref = pipeline.plan()
    assert ref is not None
    run_and_publish(ref)
    assert pipeline.pairs() == [("a", 1, 5), ("b", 2, None)]
    late = pipeline.batch([Click("b", 6, 11)], [Click("b", 7, 9)])
    assert pipeline.pairs() == [("a", 1, 5), ("b", 2, None), ("b", 6, 7)]
    closed = [one for task in task_receipts(late) for one in task.closed]
    assert sum(one.late for one in closed) == 1
    assert sum(one.versions.late for one in closed if one.versions) == 1


def test_daily_landings_give_the_sessions_of_a_day_in_the_next_batch_with_their_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hour, first = timedelta(hours=1), datetime.fromisoformat("2026-01-05")
    pipeline = Pipeline("daily", source="s3://landing/topics")
    clicks, prices = (
        pipeline.stream(name, key="k", partitions=1, time="seen", late=3 * hour) for name in ("clicks", "prices")
    )
    sessions = clicks.windows("count(*) AS n", time="seen", every=24 * hour, gap=hour, name="sessions")
    times, columns = ("sessions.window_start", "prices.seen"), "sessions.window_start, prices.id"
    sessions.join_as_of(prices, columns, times=times, keep=hour, name="priced").write("priced")

    def of(day: int) -> dict[str, list[dict[str, object]]]:
        seen = [{"k": "a", "id": day, "seen": first + (24 * day + at) * hour} for at in (0, 1, 10, 19, 23, 23.9)]
        return {"clicks": seen, "prices": seen}

    found, when = [], []
    monkeypatch.setattr("coset.cli.pipelines.load", lambda _: pipeline)
    with Trial.made(pipeline) as trial:
        for day in range(3):
            trial.land(of(day))
            trial.run()
            found.append([(str(row["window_start"])[8:13], row["id"]) for row in trial.tables()["priced"]])
            (*_, said) = standing("daily", trial.root, Period.parse("2026-01-05T10")).text
            assert isinstance(said, Section)
            when.append([row[1:] for row in said.rows if row[0] == "priced"])
        trial.close()
        last = trial.tables()["priced"]
    # The last session of a day may get records until 3:00 of the next.
    yesterday = [("05 00", 0), ("05 10", 0), ("05 19", 0)]
    assert found == [[], yesterday, [*yesterday, ("05 23", 0), ("06 00", 1), ("06 10", 1), ("06 19", 1)]]
    assert len(last) == 11
    # A session that began at 10:00 may last until midnight.
    assert when == [
        [("the first batch", "clicks", "2026-01-06 03:00:00 or later", "0")],
        [("batch 2",)],
        [("batch 2, or came before",)],
    ]


def test_versions_that_are_silent_hold_a_record_back_until_they_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    hour, noon = timedelta(hours=1), datetime.fromisoformat("2026-01-05 12:00")
    now = [0]
    monkeypatch.setattr(planning, "_minute", lambda: now[0])
    pipeline = Pipeline("silent", source="s3://landing/topics")
    clicks, prices = (
        pipeline.stream(name, key="k", partitions=1, time="seen", idle=2 * hour) for name in ("clicks", "prices")
    )
    times, columns = ("clicks.seen", "prices.seen"), "clicks.seen, prices.id"
    clicks.join_as_of(prices, columns, times=times, keep=hour, name="priced").write("priced")
    found = []
    with Trial.made(pipeline) as trial:
        trial.land({"prices": [{"k": "a", "id": 7, "seen": noon}]})
        for batch in range(6):
            trial.land({"clicks": [{"k": "a", "id": 0, "seen": noon + (batch + 1) * hour}]})
            trial.run()
            now[0] += hour // timedelta(microseconds=1)
            found.append(len(trial.tables()["priced"]))
    # The plan of 1:00 is the first that finds none, and that of 3:00 waits no longer.
    assert found == [0, 0, 0, 2, 3, 4]


@pytest.mark.long
def test_a_version_that_is_older_than_what_is_kept_is_still_valid_until_another_follows_or_it_is_deleted(
    store: Store,
) -> None:
    pipeline = AsOf(store)
    pipeline.batch([Click("a", 1, 0)], [Click("a", 2, 0), Click("b", 3, 0), Click("c", 5, 0), Click("c", 6, 1)])
    for minute in (100, 200, 300):
        passes = [Click(key, END, minute) for key in _ALL if key not in "abc"]
        pipeline.batch(passes, passes)
    later = [Click(key, number, 301) for number, key in enumerate("abc", 10)]
    pipeline.batch(later, [Click("b", 4, 300)])
    pipeline.close()
    assert pipeline.pairs() == [("a", 1, 2), ("a", 10, 2), ("b", 11, None), ("c", 12, 6)]


def test_a_record_without_a_time_that_counts_has_no_version(store: Store) -> None:
    pipeline = AsOf(store)
    pipeline.batch([Click("a", 1, _NEVER), Click(None, 2, 0)], [Click("a", 3, 0), Click(None, 5, 0)])
    assert pipeline.pairs() == [("a", 1, None)]
    pipeline.close()
    assert pipeline.pairs() == [("a", 1, None), (None, 2, None)]


def test_a_join_that_cannot_know_what_was_valid_is_refused() -> None:
    pipeline = Pipeline("outer", source="s3://landing/topics")
    minute = timedelta(minutes=1)
    clicks = pipeline.stream("clicks", key="k", partitions=2, time="seen")
    views = pipeline.stream("views", key="k", partitions=2)
    prices = pipeline.stream("prices", key="k", partitions=2, time="seen")
    planes = pipeline.table("planes", key="k", partitions=2)
    times = ("clicks.seen", "views.seen")
    with pytest.raises(Refused, match="stream 'views' does not say when its records happened, so none is ever over"):
        clicks.join_as_of(views, "views.id", times=times, keep=minute)
    with pytest.raises(Refused, match="planes comes from tables only, which have no times"):
        clicks.join_as_of(planes, "planes.id", times=times, keep=minute)
    with pytest.raises(Refused, match="keep is 0:01:00, wait is 0:02:00"):
        clicks.join_as_of(prices, "prices.id", times=times, keep=minute, wait=2 * minute)
    with pytest.raises(Refused, match=r"wait is -1 day, 23:59:00"):
        clicks.join_as_of(prices, "prices.id", times=times, keep=minute, wait=-minute)
    wait: Any = "wait"
    with pytest.raises(Refused, match=r"(?s)unknown missing 'wait'.*deletes is empty"):
        clicks.join_as_of(prices, "prices.id", times=times, keep=minute, missing=wait, deletes=" ")
    with pytest.raises(Refused, match="their keys have different numbers of columns"):
        clicks.join_as_of(prices.rekey(("k", "seen")), "prices.id", times=times, keep=minute)
    unkeyed = prices.partial("count(*) AS n")
    with pytest.raises(Refused, match="is partial"):
        clicks.join_as_of(unkeyed, "n", times=times, keep=minute)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"times": ("clicks.seen", "prices.since")}, "since"),
        ({"deletes": "gone"}, "gone"),
        ({"times": ("clicks.id > 1", "prices.seen")}, "TIMESTAMP"),
    ],
)
def test_a_time_or_a_deletion_that_the_streams_do_not_have_is_refused(wrong: dict[str, object], said: str) -> None:
    pipeline = Pipeline("outer", source="s3://landing/topics")
    clicks, prices = (
        pipeline.stream(name, key="k", partitions=1, time="seen::TIMESTAMP") for name in ("clicks", "prices")
    )
    given = {"times": ("clicks.seen::TIMESTAMP", "prices.seen::TIMESTAMP"), "keep": timedelta(minutes=1), **wrong}
    clicks.join_as_of(prices, "prices.id AS price", name="priced", **given).write("priced")  # type: ignore[arg-type]
    row = {"k": "a", "id": 1, "seen": "2026-01-01 12:00"}
    with pytest.raises(Refused, match=said):
        run(pipeline, {"clicks": [row], "prices": [row]})


def test_keys_of_two_columns_have_versions_and_one_with_a_null_has_none() -> None:
    pipeline = Pipeline("outer", source="s3://landing/topics")
    clicks, prices = (
        pipeline.stream(name, key="k", partitions=1, time="seen::TIMESTAMP").rekey(("k", "country"))
        for name in ("clicks", "prices")
    )
    times = ("clicks.seen::TIMESTAMP", "prices.seen::TIMESTAMP")
    columns = "clicks.id AS click, prices.id AS price"
    clicks.join_as_of(prices, columns, times=times, keep=timedelta(minutes=1), name="priced").write("priced")

    def record(identity: int, country: str | None, seen: str) -> dict[str, object]:
        return {"k": "a", "country": country, "id": identity, "seen": f"2026-01-01 {seen}"}

    first = [record(1, "DE", "12:00"), record(2, None, "12:00"), record(3, "FR", "12:00")]
    prices_then = [record(5, "DE", "11:00"), record(6, None, "11:00"), record(7, "FR", "12:01")]
    end = [record(9, "x", "13:00")]
    rows = run(pipeline, {"clicks": [*first, *end], "prices": [*prices_then, *end]})
    assert sorted((row["click"], row["price"]) for row in rows["priced"]) == [(1, 5), (2, None), (3, None)]
