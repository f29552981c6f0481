"""The history of a pipeline and the overview of all: what became of attempts, since when, and what comes first."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from coset.reports.batch_index import add, compare, exchange, give_up, made_anew, page_of, published, rows_since, since
from coset.reports.overview import note, note_backfill, note_run, of_rows, overview_of, put_overview
from coset.reports.plots import DRAWN
from coset.reports.site import Site, listed, outcome
from coset.reports.timeliness import ScheduledBy, ScheduledRun, after_run, timeliness
from partitioning.documents.store import Entry, Store
from partitioning.model.figures import BEFORE
from partitioning.model.journal import as_time
from partitioning.model.verdict import Commit, Outcome, TableVersion
from tests.memory_store import MemoryStore


def row(batch: int, attempt: int = 0, *, proved: bool = True, records: int = 10, day: int = 1) -> dict[str, Any]:
    return {
        "batch": batch,
        "attempt": attempt,
        "success": proved,
        "outcome": Outcome.PROVED if proved else Outcome.FAILED,
        "summary": f"of {batch}",
        "page": f"batch-{batch}-attempt-{attempt}.html",
        "began": f"2026-11-{day:02} 10:00:00 UTC",
        "records": records,
    }


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, MemoryStore())


def seed(site: Site, rows: list[dict[str, Any]]) -> None:
    """Let the index have these rows; the next one that is added deals the older of them into lists."""
    site.store.put("delays/docs/index.json", json.dumps(rows[::-1]).encode())


def page(store: Store, key: str) -> str:
    return (store.get(key) or b"").decode()


def outcomes(store: Store, pipeline: str = "delays", name: str = "index") -> dict[tuple[int, int], Outcome]:
    return {(each["batch"], each["attempt"]): outcome(each) for each in listed(store, pipeline, name)}


def test_a_failure_says_since_when_and_what_was_proved_last() -> None:
    before = [row(8, 1, proved=False, day=4), row(8, 0, proved=False, day=3), row(7, day=2), row(6)]
    assert list(since(before, row(8, 2, proved=False, day=5))) == [
        "This is failure 3 in a row; the first attempt began 2026-11-03 10:00:00 UTC.",
        "The last batch that was proved is batch 7, 2026-11-02 10:00:00 UTC.",
    ]
    assert list(since(before, row(8, 2))) == []
    assert list(since([], row(0, proved=False))) == []
    assert list(since([row(7)], row(8, proved=False))) == [
        "The last batch that was proved is batch 7, 2026-11-01 10:00:00 UTC."
    ]


def test_what_is_usual_is_learned_from_what_was_proved_before() -> None:
    before = [row(9, 0, proved=False, records=900), *(row(number) for number in range(8, -1, -1))]
    assert list(since(before, row(9, 1, records=900))) == ["Records: 900; usual is 9 to 11."]
    assert list(since(before, row(9, 1, records=10))) == []
    later = [row(5, proved=False), *(row(number) for number in range(4, -1, -1))]
    assert list(since(later, row(3, 1, proved=False))) == [
        "The last batch that was proved is batch 3, 2026-11-01 10:00:00 UTC."
    ]


def test_a_batch_that_was_given_up_says_why(site: Site) -> None:
    add(site, "delays", row(0, proved=False))
    give_up(site, "delays", 0, 1, "the <shop> closed", "2026-11-02 10:00:00 UTC")
    assert outcomes(site.store) == {(0, 1): Outcome.GIVEN_UP, (0, 0): Outcome.FAILED}
    text = page(site.store, "delays/docs/index.html")
    assert "– given up" in text
    assert "the &lt;shop&gt; closed" in text
    # What has no page has no link.
    assert 'href=""' not in text
    assert "given up" in (site.folder or Path()).joinpath("delays", "index.html").read_text()


def test_the_history_says_first_where_the_pipeline_stands_and_what_was_proved_with_warnings(site: Site) -> None:
    add(site, "delays", row(0) | {"set_aside": 4})
    add(site, "delays", row(1) | {"set_aside": 6, "warnings": 1, "tables": {"delays": {"rows": 7}}})
    stands = {
        "tables": {"delays": {"rows": 1234, "before": 1_795_514_400_000_000}, "planes": {"rows": None, "before": None}},
        "watermarks": {"flights": 1_795_518_000_000_000, "views": None},
    }
    tables = Commit("sha256:1", 1, "sha256:2", (TableVersion("delays", 7),))
    published(site, "delays", 0, tables, {"published": 1_795_514_400_000, "stands": stands})
    add(site, "delays", row(2, proved=False) | {"warnings": 2})
    text = page(site.store, "delays/docs/index.html")
    top = text[text.index("<h1>") : text.index("<h2>Batch by batch")]
    said = " ".join(re.sub("<[^>]*>", " ", top).split())
    for words in (
        "✓ 1 proved , ! 1 proved with warnings , ✗ 1 failed .",
        "Batch 1 is the newest that is published: ! proved, 1 warning .",
        "It set 6 records aside, the batches below 10 in all.",
        "delays 1,234 7 2026-11-24 10:00:00 planes – – –",
        "of flights before 2026-11-24 11:00:00, of views none is known yet",
    ):
        assert words in said
    # What was proved with warnings is said by no colour alone, and not in that of what has none.
    assert '<td class="whole warned">! proved, 1 warning</td>' in text
    assert '<td class="whole proved">✓ proved</td>' in text
    assert '<strong class="failed">✗ failed</strong>' in page(site.store, "docs/index.html")
    assert "! proved, 1 warning." in "".join(made_anew(row(1) | {"warnings": 1}, "delays").values())


def test_batches_that_a_backfill_replaced_say_so_until_it_is_taken_back(site: Site) -> None:
    seed(site, [row(number) for number in range(350)])
    add(site, "delays", row(350, proved=False))
    exchange(site, "delays", [3, 4, 349, 350], dict.fromkeys((3, 349, 350), "delays.backfill-0"))
    assert outcomes(site.store, name="batches-0")[3, 0] is Outcome.BACKFILLED
    assert outcomes(site.store, name="batches-0")[4, 0] is Outcome.PROVED
    assert outcomes(site.store)[349, 0] is Outcome.BACKFILLED
    assert outcomes(site.store)[350, 0] is Outcome.FAILED
    assert "↺ backfilled" in page(site.store, "delays/docs/batches-0.html")
    exchange(site, "delays", [3, 4, 349, 350], {})
    assert set(outcomes(site.store, name="batches-0").values()) == {Outcome.PROVED}
    assert "↺" not in page(site.store, "delays/docs/batches-0.html")


def test_the_page_of_an_attempt_says_what_became_of_it_later(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first = row(0) | {"run": "scheduled__2026-11-24T10:00:00+00:00"}
    text = f"<main>{'<p>between</p>'.join(made_anew(first, 'delays').values())}<p>the rest</p></main>"
    site.store.put("delays/docs/batch-0-attempt-0.html", text.encode())
    site.write("delays", "batch-0-attempt-0.html", text)
    add(site, "delays", first)
    here = (site.folder or Path()) / "delays" / "batch-0-attempt-0.html"
    assert "coset run delays" in here.read_text()

    commit = Commit("sha256:1", 0, "sha256:2", (TableVersion("delays", 7),))
    published(site, "delays", 0, commit, {"published": 1_795_514_400_000, "publish_seconds": 0.4})
    told = here.read_text()
    assert "Published 2026-11-24 10:00:00 UTC: delays at version 7." in told
    assert "publish 0.4 s" in told
    assert "there is nothing to do" in told
    assert told.endswith("<p>the rest</p></main>")
    assert told == page(site.store, "delays/docs/batch-0-attempt-0.html")
    assert "Run of Airflow: scheduled__2026-11-24T10:00:00+00:00" in told

    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.shop/prod/")
    again = {"number": 3, "summary": "identical: 9 rows", "same": True, "page": "backfill-3.html"}
    compare(site, "delays", again, [0])
    told = here.read_text()
    assert '<a href="backfill-3.html">Backfill 3</a> ran it again: identical: 9 rows.' in told
    run = "https://airflow.shop/prod/dags/delays/runs/scheduled__2026-11-24T10%3A00%3A00%2B00%3A00"
    assert f'<a href="{run}">' in told

    exchange(site, "delays", [0], {0: "delays.backfill-3"})
    told = here.read_text()
    assert "↺ backfilled." in told
    assert "coset undo delays 3" in told
    exchange(site, "delays", [0], {})
    assert page(site.store, "delays/docs/batch-0-attempt-0.html") == here.read_text()


def test_rows_of_a_time_come_from_as_many_lists_as_they_need(site: Site) -> None:
    seed(site, [row(number, day=1 + number // 40) for number in range(319)])
    add(site, "delays", row(319, day=8))
    assert rows_since(site.store, "delays", "2026-11-08 10:00:01 UTC") == []
    for day, first in ((1, 0), (3, 80), (8, 280)):
        found = rows_since(site.store, "delays", f"2026-11-{day:02} 10:00:00 UTC")
        assert [each["batch"] for each in found] == list(range(319, first - 1, -1))


def test_a_page_to_send_leads_nowhere(site: Site) -> None:
    for number in range(7):
        add(site, "delays", row(number))
    text = page_of(site.store, "delays", listed(site.store, "delays", "index"), "since then")
    assert "href=" not in text
    assert "leads to" not in text
    assert "<h1>delays: since then</h1>" in text
    # A table of each batch, and one beside the plot.
    assert text.count("<tr>") == 2 * 8


def test_the_overview_has_what_is_not_proved_first_and_then_the_oldest(site: Site) -> None:
    add(site, "calm", row(4, day=9))
    add(site, "quiet", row(2, day=2))
    add(site, "broken", row(0, day=3))
    add(site, "broken", row(1, proved=False, day=8))
    for text, link in (
        (page(site.store, "docs/index.html"), "../{}/docs/index.html"),
        ((site.folder or Path()).joinpath("index.html").read_text(), "{}/index.html"),
    ):
        assert re.findall(r'<a href="([^"]+)"', text) == [link.format(name) for name in ("broken", "quiet", "calm")]
        assert "batch 0, 2026-11-03 10:00:00 UTC" in text
        assert "✗ failed" in text
    # A backfill's ledger is no pipeline.
    add(site, "calm.backfill-0", row(4))
    assert "calm.backfill-0" not in page(site.store, "docs/index.html")


def test_another_machine_links_in_its_folder_what_is_there(site: Site, tmp_path: Path) -> None:
    add(site, "delays", row(0))
    other = Site(tmp_path / "other", site.store)
    add(other, "planes", row(0))
    text = (tmp_path / "other" / "index.html").read_text()
    assert re.findall(r'<a href="([^"]+)"', text) == ["planes/index.html"]
    assert "delays" in text


def test_what_one_more_batch_reads_and_writes_does_not_grow() -> None:
    moved = []
    for before in (450, 9_950):
        site = Site(None, store := Counting())
        seed(site, [row(number) for number in range(before)])
        add(site, "delays", row(before))
        store.moved.clear()
        for number in range(before + 1, before + 4):
            add(site, "delays", row(number))
        moved.append(sum(store.moved))
    # The names of more lists, and longer numbers, are a little more.
    assert moved[1] <= 1.3 * moved[0]


class Counting(MemoryStore):
    """A store that notes the size of each object that is read or written."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = list[int]()

    def get(self, key: str) -> bytes | None:
        found = super().get(key)
        self.moved.append(len(found or b""))
        return found

    def put(self, key: str, data: bytes) -> Entry:
        self.moved.append(len(data))
        return super().put(key, data)


def test_rows_of_earlier_versions_only_say_whether_they_were_proved() -> None:
    old = [{"batch": n, "attempt": 0, "success": n == 1, "summary": "", "page": f"{n}.html"} for n in (1, 0)]
    store = MemoryStore()
    store.put("delays/docs/index.json", json.dumps(old).encode())
    add(Site(None, store), "delays", row(2))
    assert list(outcomes(store).values()) == [Outcome.PROVED, Outcome.PROVED, Outcome.FAILED]


def test_what_is_usual_is_known_at_the_first_batch_that_is_drawn(site: Site) -> None:
    for newest in (300, 329, 330, 401):
        seed(site, [row(number) for number in range(newest)])
        add(site, "delays", row(newest))
        kept = [each["batch"] for each in listed(site.store, "delays", "index")]
        assert kept[-1] <= newest + 1 - DRAWN - BEFORE


HOUR = 3_600_000


def pipeline_row(batch: int, **more: Any) -> dict[str, Any]:
    told = {"success": True, "outcome": "proved", "summary": "", "page": f"batch-{batch}-attempt-0.html"}
    return {"batch": batch, "attempt": 0, "began": "2026-11-01 10:00:00 UTC", **told, **more}


def ago(milliseconds: int) -> int:
    return time.time_ns() // 1_000_000 - milliseconds


def overview(store: MemoryStore) -> str:
    return (store.get("docs/index.html") or b"").decode()


def hourly(until: int) -> list[dict[str, Any]]:
    """The rows of a pipeline that published each hour, newest first."""
    return [pipeline_row(number, published=until - (20 - number) * HOUR) for number in range(20, -1, -1)]


def test_a_pipeline_is_late_when_it_is_quiet_for_longer_than_usual_which_a_young_one_does_not_know() -> None:
    for quiet, late in ((20 * 60_000, False), (5 * HOUR, True)):
        store = MemoryStore()
        put_overview(Site(None, store), "delays", of_rows(hourly(ago(quiet))))
        assert ("✗ late" in overview(store)) is late
        assert "usually every 60 min" in overview(store)
    store = MemoryStore()
    put_overview(Site(None, store), "delays", of_rows(hourly(ago(99 * HOUR))[-2:]))
    assert "✗ late" not in overview(store)
    assert "usually" not in overview(store)


def test_a_pipeline_whose_first_batch_is_not_checked_yet_is_there_without_a_link() -> None:
    store = MemoryStore()
    note(store, "planned", {"open": {"batch": 0, "since": "2026-11-24 10:00:00 UTC", "waits": ""}})
    assert overview_of(store, ["planned", "nothing"], "/{}".format) is not None
    put_overview(Site(None, store), "delays", of_rows(hourly(ago(HOUR))))
    text = overview(store)
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
    assert "✗ late" in overview(store)
    note_run(store, "delays", ScheduledRun(ago(HOUR), ago(-23 * HOUR)), ago(HOUR - 60_000))
    put_overview(Site(None, store), "delays", {})
    assert "✗ late" not in overview(store)
    assert f"due {as_time(ago(-23 * HOUR))[:13]}" in overview(store)


def test_an_open_batch_says_since_when_and_why_it_waits_until_it_is_published() -> None:
    store = MemoryStore()
    site = Site(None, store)
    add(site, "calm", pipeline_row(3))
    add(site, "late", pipeline_row(0, began="2026-11-09 10:00:00 UTC"))
    assert overview(store).index(">calm<") < overview(store).index(">late<")
    note(store, "late", {"open": {"batch": 1, "since": "2026-11-02 10:00:00 UTC", "waits": "it waits for <you>"}})
    add(site, "calm", pipeline_row(4))
    assert "Batch 1 is open since 2026-11-02 10:00:00 UTC: it waits for &lt;you&gt;." in overview(store)
    assert overview(store).index(">late<") < overview(store).index(">calm<")
    put_overview(site, "late", {"open": None})
    assert "is open" not in overview(store)


def test_lag_and_running_backfills_are_shown() -> None:
    store = MemoryStore()
    site = Site(None, store)
    note_backfill(site, "delays", 0, "backfill 0 of delays: batch 3, begun today")
    note_backfill(site, "delays", 1, "backfill 1 of delays: batch 4, begun today")
    add(site, "delays", pipeline_row(5, lag_records=1234, lag_seconds=7200.0))
    assert "1,234 records,<br>2 h" in overview(store)
    assert "Backfill 0 of delays: batch 3, begun today." in overview(store)
    note_backfill(site, "delays", 0, None)
    assert "Backfill 0 of delays" not in overview(store)
    assert "Backfill 1 of delays: batch 4, begun today." in overview(store)


def test_what_was_published_when_is_told_by_the_row_of_its_attempt() -> None:
    store = MemoryStore()
    site = Site(None, store)
    add(site, "delays", pipeline_row(0))
    commit = Commit("sha256:1", 0, "sha256:2", (TableVersion("delays", 7),))
    published(site, "delays", 0, commit, {"published": ago(5 * HOUR)})
    assert "5 h before" in overview(store)
