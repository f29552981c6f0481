"""What finds no partner in time is given alone, once, wherever batches were cut and whatever tasks there were."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from coset.batches import steps
from coset.testing import run
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.errors import Refused
from tests.examples import few
from tests.histories import Click
from tests.outer import END, LATE, MINUTE, WITHIN, Outer, Pair, pairs_of, some
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged, task_receipts
from tests.there import there

# A minute of the year 11,476, which no step believes.
_NEVER = 5_000_000_000


@pytest.mark.parametrize(
    ("batches", "seed", "how"), few([(3, 0, "full"), (7, 1, "left"), (20, 40, "full"), (1, 0, "left")])
)
def test_the_same_records_give_the_same_pairs_wherever_batches_are_cut(
    store: Store, batches: int, seed: int, how: str
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
def test_what_was_given_alone_is_no_partner_of_what_comes_later_while_it_is_kept(store: Store, how: str) -> None:
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
        clicks.join_within(views, "views.id", times=times, within=minute, how="right")


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
