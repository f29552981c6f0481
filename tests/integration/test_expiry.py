"""Keys expire by the watermark, and are given once, wherever batches were cut and whatever tasks there were."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coset.batches import steps
from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.kept import kept_state, rows_kept
from coset.batches.ref import BatchRef
from coset.cli import metrics, state, status
from coset.cli.output import Answer, Table
from coset.testing import run
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from tests.backfilled import run_again
from tests.begun import Begun
from tests.examples import few
from tests.expiring import KEEP, Expiring, lives_of, pipeline_of
from tests.histories import Click
from tests.killed import killed_once
from tests.outer import LATE, MINUTE, some
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged, task_receipts
from tests.there import there
from tests.windowed import both

# A minute of the year 11,476, which no step believes.
_NEVER = 5_000_000_000
_PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "expiring.py")


@pytest.mark.parametrize(
    ("batches", "seed", "how"),
    few([(4, 0, "combine"), (4, 0, "latest"), (7, 2, "moved"), (8, 40, "combine"), (1, 1, "latest")]),
)
def test_the_same_keys_expire_wherever_batches_are_cut(store: Store, batches: int, seed: int, how: str) -> None:
    chance = random.Random(seed)
    arrived = some(chance, 60)
    expiring = Expiring(store, how)
    expiring.all_in(arrived, batches, chance)
    assert expiring.rows("ended") == lives_of(both(arrived), how)
    # All are over by now, and an upserted table has no row of a key that is.
    assert expiring.rows("totals") == []


def _at(minute: int) -> list[Click]:
    return [Click(key, 9, minute) for key in "cdefgh"]


def _counted(ref: BatchRef) -> list[int]:
    """How many lives were over, were given, how many records came when their time was over, and have no time."""
    closed = [one for task in task_receipts(ref) for one in task.closed]
    sums = (sum(getattr(one, part).rows for one in closed) for part in ("over", "met", "alone"))
    over, met, given = sums
    assert met == 0
    return [over, given, sum(one.late for one in closed), sum(one.dropped for one in closed)]


def _kept(store: Store) -> list[object]:
    ledger = Ledger(store, "outer")
    with rows_kept(ledger, kept_state(ledger, "found")) as rows:
        return sorted(rows.read_all()["k"].to_pylist())


def _tables(answer: Answer) -> list[Table]:
    return [block for block in answer.text if isinstance(block, Table)]


def _begin(store: Store) -> None:
    expiring = Expiring(store, "combine")
    expiring.batch([Click("a", 1, 0)], [Click("a", 2, KEEP), Click("b", 3, 0)])
    expiring.batch(_at(2 * KEEP + LATE + 1), _at(2 * KEEP + LATE + 1))
    assert expiring.rows("ended") == []


@pytest.fixture
def expired(begun: Begun) -> Expiring:
    """What a and b have is over, and nothing has been given of it."""
    return Expiring(begun.by(_begin), "combine")


def test_a_batch_without_a_record_gives_what_expired_once_forgets_it_and_is_proved(
    expired: Expiring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expiring, store = expired, expired.store
    monkeypatch.setenv("EXPIRING_SOURCE", expiring.source)
    monkeypatch.setenv("EXPIRING_HOW", "combine")
    assert _kept(store) == [*"abcdefgh"]
    ref = there(expiring.plan())
    run_and_publish(ref, tmp_path)
    assert ref.load()[1].records == 0
    assert expiring.rows("ended") == [("a", KEEP, 2, 3), ("b", 0, 1, 3)]
    assert _counted(ref) == [2, 2, 0, 0]
    assert _kept(store) == [*"cdefgh"]
    stands, *_ = _tables(status.standing(_PIPELINE, store.root))
    assert "Batch 2 let 2 keys expire." in stands.notes
    assert 'coset_batch_expired_keys{pipeline="outer"} 2' in metrics.printed(_PIPELINE, store.root).text
    *_, shown = _tables(state.kept(_PIPELINE, store.root, "found", None, "c", None))
    last_at = "1970-01-01 00:46:00"
    assert (shown.columns, [*shown.rows]) == (
        ["k", "n", "ids", "seen", "lives since", "last record at", "records"],
        [("c", 2, 18, datetime.fromisoformat(last_at), last_at, last_at, 2)],
    )
    assert expiring.plan() is None
    # What comes too late is given at once, and begins nothing.
    expiring.land([Click("a", 4, 1), Click("b", 5, _NEVER), Click("b", 6, 50)], [])
    late = there(expiring.plan())
    run_and_publish(late, tmp_path)
    assert _counted(late) == [1, 1, 1, 1]
    assert expiring.rows("ended") == [("a", 1, 1, 4), ("a", KEEP, 2, 3), ("b", 0, 1, 3)]
    assert expiring.rows("totals")[0] == ("b", 50, 1, 6)
    assert _kept(store) == [*"bcdefgh"]
    said = "".join(page.read_text() for page in tmp_path.rglob("*.html"))
    assert "1 key expired in 4 steps of tasks, 1 given; 1 came late; 1 dropped" in said


def test_the_records_of_a_stream_expire_as_they_come() -> None:
    pipeline = Pipeline("straight", source="s3://landing/topics")
    clicks = pipeline.stream("clicks", key="k", partitions=1, time="make_timestamp(t)")
    newest = clicks.latest("t", time="make_timestamp(t)", keep=timedelta(microseconds=60), name="newest")
    newest.expired(name="ended").write("ended")
    rows = run(pipeline, {"clicks": [{"k": "a", "t": 0}, {"k": "b", "t": 1}, {"k": "c", "t": 61}]})
    assert [row["k"] for row in rows["ended"]] == ["a"]


def test_keys_that_cannot_expire_are_refused() -> None:
    pipeline = Pipeline("refused", source="s3://landing/topics")
    clicks = pipeline.stream("clicks", key="k", partitions=2, time="seen")
    views = pipeline.stream("views", key="k", partitions=2)
    said: dict[str, Any] = {"time": "seen", "keep": MINUTE, "running": True}
    for flow, more, what in (
        (views, {}, "stream 'views' does not say when its records happened, so none is ever over"),
        (clicks, {"keep": 0 * MINUTE}, "keep is 0:00:00"),
        (clicks, {"keep": None}, "nothing for how long it is kept"),
        (clicks, {"time": None}, "nothing since when"),
        (clicks, {"running": False}, "it is not running, so it keeps nothing that could expire"),
        (clicks.partial("count(*) AS n", by="k"), {}, "is partial: a row of it is of records of any time"),
    ):
        with pytest.raises(Refused, match=what):
            flow.combine("sum(n) AS n", **(said | more))
    with pytest.raises(Refused, match="nothing since when"):
        clicks.latest("seen", keep=MINUTE)
    with pytest.raises(Refused, match=r"nothing of clicks\.latest expires"):
        clicks.latest("seen").expired()


@pytest.mark.long
@pytest.mark.parametrize("point", few(("group-0.before", "group-0.after", "verdict.after", "delta.after")))
def test_a_batch_in_which_keys_expire_and_that_is_killed_gives_them_once(
    point: str, expired: Expiring, tmp_path: Path
) -> None:
    expiring, store = expired, expired.store
    expiring.land([Click("a", 4, 60)], [])
    killed_once(point, _PIPELINE, store.root, tmp_path, EXPIRING_SOURCE=expiring.source, EXPIRING_HOW="combine")
    expiring.close()
    assert [row for row in expiring.rows("ended") if row[0] in {"a", "b"}] == [
        ("a", 20, 2, 3),
        ("a", 60, 1, 4),
        ("b", 0, 1, 3),
    ]


@pytest.mark.long
@pytest.mark.parametrize("how", ["combine", "latest"])
def test_a_backfill_with_other_tasks_gives_the_same_keys_that_expired(how: str, store: Store, tmp_path: Path) -> None:
    expiring = Expiring(store, how)
    expiring.batch([Click("a", 1, 0)], [Click("a", 2, KEEP), Click("b", 3, 0)])
    expiring.batch(_at(46), _at(46))
    expiring.batch([Click("a", 4, 47)], [Click("a", 4, 1)])
    expiring.close()
    asked = Asked(0, None, Settings.parse(scheme="tasks(2)"))
    backfill = run_again(expiring.pipeline, store, asked, tmp_path)
    assert str(actions.comparison(store, backfill)).startswith("identical: ")


@pytest.mark.long
@pytest.mark.parametrize("undone", [True, False])
def test_what_expires_is_given_once_after_a_backfill_is_put_in_place_and_taken_back(
    undone: bool, store: Store, tmp_path: Path
) -> None:
    """A backfill keeps keys longer, so that one of them has not expired."""
    expiring = Expiring(store, "combine")
    arrived = [Click("a", 1, 0), Click("b", 2, 40), *_at(30), *_at(46)], [Click("a", 3, 47), *_at(46)]
    expiring.batch(arrived[0][:-6], _at(46))
    expiring.batch(arrived[0][-6:], arrived[1][:1])
    ref = there(expiring.plan())
    run_and_publish_unjudged(ref)
    before = expiring.rows("ended"), expiring.rows("totals")
    assert ("a", 0, 1, 1) in before[0]
    longer = pipeline_of(expiring.source, "combine", KEEP + 27)
    asked = Asked(0, None, Settings.parse(scheme="tasks(2)", go_on=["totals.upsert"]))
    backfill = run_again(longer, store, asked, tmp_path)
    found = actions.comparison(store, backfill)
    actions.swap(store, backfill, digest(found), "")
    assert expiring.rows("ended") == []
    if undone:
        actions.undo(store, backfill, "")
        assert (expiring.rows("ended"), expiring.rows("totals")) == before
    expiring.keep = KEEP if undone else KEEP + 27
    expiring.close()
    every = [*arrived[0], *arrived[1]]
    assert expiring.rows("ended") == lives_of(every, "combine", expiring.keep)
    assert expiring.rows("totals") == []


def test_another_time_to_keep_begins_anew_by_name_only(expired: Expiring) -> None:
    expiring, store = expired, expired.store
    longer = pipeline_of(expiring.source, "combine", KEEP + 1)
    with pytest.raises(Refused, match="its expiry changed from 0:20:00 after seen to 0:21:00 after seen"):
        steps.plan(longer, store.root, Settings())
    ref = next_batch(longer, store.root, Settings.parse(begin_anew=["found"], go_on=["totals.upsert"]))
    run_and_publish_unjudged(ref)
    assert expiring.rows("ended") == []
