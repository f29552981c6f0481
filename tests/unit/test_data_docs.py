"""Data Docs: a page for each attempt, and an index of all."""

from __future__ import annotations

import json
import re
from pathlib import Path

from coset.reports.batch_index import published
from coset.reports.site import Site
from expectations.checkpoint import judge
from expectations.questions import Evidence
from partitioning.documents.document import digest
from partitioning.model.plan import Plan
from partitioning.model.verdict import Commit
from partitioning.values import replace
from tests.evidence import batch, evidence, judged
from tests.memory_store import MemoryStore
from tests.reference import log, pipeline, planned, run


def prove(plan: Plan, found: Evidence, site: Site, attempt: int = 0) -> None:
    """Judge an attempt, and say that it was published: only then the pages of lists have it."""
    judge(plan, found, {}, attempt=attempt, site=site)
    published(site, plan.pipeline, attempt, Commit(digest(plan), plan.batch, "", ()), {})


def test_pages_accumulate_and_the_index_lists_them_newest_first(tmp_path: Path) -> None:
    plan, seen = batch()
    site = Site(tmp_path, MemoryStore())
    for number in (0, 1, 2):
        prove(replace(plan, batch=number), evidence(plan, seen), site)
    names = [f"batch-{number}-attempt-0.html" for number in (2, 1, 0)]
    for text in (
        (tmp_path / "delays" / "index.html").read_text(),
        (site.store.get("delays/docs/index.html") or b"").decode(),
    ):
        listed = text[text.index("<table>") :]
        places = [listed.index(f'href="{name}"') for name in names]
        assert places == sorted(places)
    for name in names:
        assert site.store.get(f"delays/docs/{name}") == (tmp_path / "delays" / name).read_bytes()


def test_a_fresh_machine_lists_earlier_pages_without_links_that_lead_nowhere(tmp_path: Path) -> None:
    plan, seen = batch()
    found, kept = evidence(plan, seen), MemoryStore()
    for number in (0, 1):
        prove(replace(plan, batch=number), found, Site(tmp_path / str(number), kept))
    text = (tmp_path / "1" / "delays" / "index.html").read_text()
    assert 'href="batch-1-attempt-0.html"' in text
    assert 'href="batch-0-attempt-0.html"' not in text
    assert '<td class="n">0</td>' in text
    assert "memory://store/delays/docs" in text


def test_the_index_has_the_newest_batches_and_earlier_ones_have_lists_of_a_hundred(tmp_path: Path) -> None:
    plan, seen = batch()
    found, site = evidence(plan, seen), Site(tmp_path, MemoryStore())
    rows = [
        {"batch": number, "attempt": 0, "success": True, "summary": f"of {number}", "page": f"batch-{number}.html"}
        for number in range(349, -1, -1)
    ]
    site.store.put("delays/docs/index.json", json.dumps(rows).encode())

    def listed(name: str) -> list[tuple[int, int]]:
        return [(row["batch"], row["attempt"]) for row in json.loads(site.store.get(f"delays/docs/{name}.json") or b"")]

    prove(replace(plan, batch=350), found, site)
    assert listed("index") == [(number, 0) for number in range(350, 99, -1)]
    assert listed("batches-0") == [(number, 0) for number in range(99, -1, -1)]
    assert 'href="index.html"' in (tmp_path / "delays" / "batches-0.html").read_text()
    # One of long ago is tried again.
    prove(replace(plan, batch=7), found, site, attempt=1)
    prove(replace(plan, batch=430), found, site)
    assert listed("index") == [(430, 0), *((number, 0) for number in range(350, 199, -1))]
    assert listed("batches-100") == [(number, 0) for number in range(199, 99, -1)]
    assert listed("batches-0") == sorted(
        [*((number, 0) for number in range(100)), (7, 1)], key=lambda row: (-row[0], -row[1])
    )
    index = (site.store.get("delays/docs/index.html") or b"").decode()
    assert [link for link in re.findall(r'href="([^"]+)"', index) if link.startswith("batches")] == [
        "batches-100.html",
        "batches-0.html",
    ]
    assert "batches 0 to 99" in index
    for older in (
        (site.store.get("delays/docs/batches-0.html") or b"").decode(),
        (tmp_path / "delays" / "batches-0.html").read_text(),
    ):
        assert 'href="index.html"' in older
        assert 'href="batch-7-attempt-1.html"' in older
        assert "<h1>delays: batches 0 to 99</h1>" in older


def test_judging_again_replaces_the_page_and_a_failed_one_shows_the_findings(tmp_path: Path) -> None:
    plan, seen = batch()
    site = Site(tmp_path, MemoryStore())
    judged(plan, seen[1:], site=site)
    judgement = judged(plan, seen, site=site)
    assert len(json.loads(site.store.get("delays/docs/index.json") or b"")) == 1
    assert judgement.page == str(tmp_path / "delays" / "batch-0-attempt-0.html")
    assert "✓ proved." in Path(judgement.page).read_text()
    judgement = judged(plan, seen[1:], site=Site(tmp_path, MemoryStore()))
    text = Path(judgement.page or "").read_text()
    assert "Not proved: nothing of this attempt is published." in text
    assert "1 record of" in text
    assert "coset report delays" in text


def test_pages_load_nothing_and_run_nothing_even_from_keys(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    made = pipeline(null_keys="drop")
    records = log(made, {"flights": ["N1", "N2", "N3", "N4"], "planes": ["N1"]})
    plan = planned(made, records)
    seen = [replace(each, key=evil) if each.stream == "flights" else each for each in run(plan, records)]
    judgement = judged(plan, seen, site=Site(tmp_path, MemoryStore()))
    text = Path(judgement.page or "").read_text()
    assert not judgement.success
    assert "alert(1)" in text
    assert "<script" not in text
    assert "default-src 'none'" in text
    for loaded in ("<link", "<img", "src=", "@import", "url("):
        assert loaded not in text


def test_what_great_expectations_renders_is_whole(tmp_path: Path) -> None:
    made = pipeline(null_keys="drop")
    records = log(made, {"flights": [f"N{number}" for number in range(40)], "planes": ["N1"]})
    plan = planned(made, records)
    seen = [replace(each, key="\x1b[31m<b>" * 300) if each.stream == "flights" else each for each in run(plan, records)]
    text = Path(judged(plan, seen, site=Site(tmp_path, MemoryStore())).page or "").read_text()
    assert "\x1b" not in text
    assert "<b>" not in text
    opened, closed = (len(re.findall(rf"<{slash}(?:div|table|span)\b", text)) for slash in ("", "/"))
    assert opened == closed
