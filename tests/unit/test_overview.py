"""The page of all pipelines: what waits, what is late, how far each was behind, and what is run again."""

from __future__ import annotations

import re
import time
from typing import Any

from coset.reports.batch_index import add, published
from coset.reports.overview import note, note_backfill, note_run, of_rows, overview_of, put_overview
from coset.reports.site import Site
from coset.reports.timeliness import ScheduledBy, ScheduledRun, after_run, timeliness
from partitioning.model.journal import as_time
from partitioning.model.verdict import Commit, TableVersion
from tests.memory_store import MemoryStore

HOUR = 3_600_000


def row(batch: int, **more: Any) -> dict[str, Any]:
    told = {"success": True, "outcome": "proved", "summary": "", "page": f"batch-{batch}-attempt-0.html"}
    return {"batch": batch, "attempt": 0, "began": "2026-11-01 10:00:00 UTC", **told, **more}


def ago(milliseconds: int) -> int:
    return time.time_ns() // 1_000_000 - milliseconds


def page(store: MemoryStore) -> str:
    return (store.get("docs/index.html") or b"").decode()


def hourly(until: int) -> list[dict[str, Any]]:
    """The rows of a pipeline that published each hour, newest first."""
    return [row(number, published=until - (20 - number) * HOUR) for number in range(20, -1, -1)]


def test_a_pipeline_that_is_quiet_for_longer_than_usual_is_late() -> None:
    for quiet, late in ((20 * 60_000, False), (5 * HOUR, True)):
        store = MemoryStore()
        put_overview(Site(None, store), "delays", of_rows(hourly(ago(quiet))))
        assert ("✗ late" in page(store)) is late
        assert "usually every 60 min" in page(store)


def test_a_pipeline_whose_first_batch_is_not_checked_yet_is_there_without_a_link() -> None:
    store = MemoryStore()
    note(store, "planned", {"open": {"batch": 0, "since": "2026-11-24 10:00:00 UTC", "waits": ""}})
    assert overview_of(store, ["planned", "nothing"], "/{}".format) is not None
    put_overview(Site(None, store), "delays", of_rows(hourly(ago(HOUR))))
    text = page(store)
    assert "… not run</strong>,<br>batch 0" in text
    assert "Batch 0 is open since 2026-11-24 10:00:00 UTC." in text
    # It has no history yet.
    assert re.findall('href="([^"]+)"', text) == ["../delays/docs/index.html"]
    assert text.index("planned") < text.index(">delays<")


def test_with_a_schedule_a_pipeline_is_late_when_a_run_should_have_published_and_did_not() -> None:
    start = 1_795_514_400_000
    known: dict[str, Any] = {}

    def run(hour: float, next: float, *, up_to_date: float | None = None, published: float | None = None) -> None:
        found = None if up_to_date is None else at(up_to_date)
        known.update(after_run(known, ScheduledRun(at(hour), at(next)), found))
        known.update({} if published is None else {"published": at(published)})

    def at(hour: float) -> int:
        return start + int(hour * HOUR)

    def late(hour: float) -> bool:
        return timeliness(known, at(hour)).late

    # It published in half an hour: the next may take as long, and six minutes more.
    run(0, 1, published=0.5)
    assert [late(hour) for hour in (0.9, 1.5, 1.59, 1.61)] == [False, False, False, True]
    assert timeliness(known, at(0.9)).due == at(1)
    # A run that fails or is still running leaves it due.
    run(1, 2)
    run(2, 3)
    assert (late(1.5), late(2.5), timeliness(known, at(2.5)).due) == (False, True, at(1))
    run(3, 4, published=3.2)
    assert (late(3.9), late(4.2), late(4.4)) == (False, False, True)
    # Nothing to do is as good; the next run is after a weekend.
    run(4, 76, up_to_date=4.01)
    assert (late(50), late(83), late(84)) == (False, False, True)
    assert timeliness(known, at(50)).due == at(76)
    # By hand, in between.
    known["published"] = at(30)
    assert (late(76), late(110)) == (False, True)
    # Who runs it without a schedule takes away what the DAG says only if he is the DAG.
    assert after_run(known, ScheduledRun(at(90), None, ScheduledBy.PROJECT), None) == {}
    known.update(after_run(known, ScheduledRun(at(90), None), None))
    assert timeliness(known | {"late_after": 3600.0}, at(90)).late is True


def test_the_page_says_when_a_scheduled_pipeline_is_due() -> None:
    store = MemoryStore()
    put_overview(Site(None, store), "delays", of_rows(hourly(ago(5 * HOUR))))
    assert "✗ late" in page(store)
    note_run(store, "delays", ScheduledRun(ago(HOUR), ago(-23 * HOUR)), ago(HOUR - 60_000))
    put_overview(Site(None, store), "delays", {})
    assert "✗ late" not in page(store)
    assert f"due {as_time(ago(-23 * HOUR))[:13]}" in page(store)


def test_what_is_usual_is_not_known_of_a_young_pipeline() -> None:
    store = MemoryStore()
    put_overview(Site(None, store), "delays", of_rows(hourly(ago(99 * HOUR))[-2:]))
    assert "✗ late" not in page(store)
    assert "usually" not in page(store)


def test_an_open_batch_says_since_when_and_why_it_waits_until_it_is_published() -> None:
    store = MemoryStore()
    site = Site(None, store)
    add(site, "calm", row(3))
    add(site, "late", row(0, began="2026-11-09 10:00:00 UTC"))
    assert page(store).index(">calm<") < page(store).index(">late<")
    note(store, "late", {"open": {"batch": 1, "since": "2026-11-02 10:00:00 UTC", "waits": "it waits for <you>"}})
    add(site, "calm", row(4))
    assert "Batch 1 is open since 2026-11-02 10:00:00 UTC: it waits for &lt;you&gt;." in page(store)
    assert page(store).index(">late<") < page(store).index(">calm<")
    put_overview(site, "late", {"open": None})
    assert "is open" not in page(store)


def test_lag_and_running_backfills_are_shown() -> None:
    store = MemoryStore()
    site = Site(None, store)
    note_backfill(site, "delays", 0, "backfill 0 of delays: batch 3, begun today")
    note_backfill(site, "delays", 1, "backfill 1 of delays: batch 4, begun today")
    add(site, "delays", row(5, lag_records=1234, lag_seconds=7200.0))
    assert "1,234 records,<br>2 h" in page(store)
    assert "Backfill 0 of delays: batch 3, begun today." in page(store)
    note_backfill(site, "delays", 0, None)
    assert "Backfill 0 of delays" not in page(store)
    assert "Backfill 1 of delays: batch 4, begun today." in page(store)


def test_what_was_published_when_is_told_by_the_row_of_its_attempt() -> None:
    store = MemoryStore()
    site = Site(None, store)
    add(site, "delays", row(0))
    commit = Commit("sha256:1", 0, "sha256:2", (TableVersion("delays", 7),))
    published(site, "delays", 0, commit, {"published": ago(5 * HOUR)})
    assert "5 h before" in page(store)
