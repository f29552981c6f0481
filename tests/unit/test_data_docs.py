"""Data Docs: a page for each attempt, and an index of all."""

from __future__ import annotations

import json
from pathlib import Path

from expectations.checkpoint import judge
from expectations.docs import Site
from partitioning.values import replace
from tests.evidence import batch, evidence, judged
from tests.memory_store import MemoryStore
from tests.reference import log, pipeline, planned, run


def test_pages_accumulate_and_the_index_lists_them_newest_first(tmp_path: Path) -> None:
    plan, seen = batch()
    site = Site(tmp_path, MemoryStore())
    for number in (0, 1, 2):
        judge(replace(plan, batch=number), evidence(plan, seen), {}, attempt=0, site=site)
    names = [f"batch-{number}-attempt-0.html" for number in (2, 1, 0)]
    for text in (
        (tmp_path / "delays" / "index.html").read_text(),
        (site.store.get("delays/docs/index.html") or b"").decode(),
    ):
        places = [text.index(f'href="{name}"') for name in names]
        assert places == sorted(places)
    for name in names:
        assert site.store.get(f"delays/docs/{name}") == (tmp_path / "delays" / name).read_bytes()


def test_a_fresh_machine_lists_earlier_pages_without_links_that_lead_nowhere(tmp_path: Path) -> None:
    plan, seen = batch()
    found, kept = evidence(plan, seen), MemoryStore()
    for number in (0, 1):
        judge(replace(plan, batch=number), found, {}, attempt=0, site=Site(tmp_path / str(number), kept))
    text = (tmp_path / "1" / "delays" / "index.html").read_text()
    assert 'href="batch-1-attempt-0.html"' in text
    assert 'href="batch-0-attempt-0.html"' not in text
    assert "batch-0-attempt-0.html" in text
    assert "memory://store/delays/docs" in text


def test_judging_again_replaces_the_page_and_keeps_one_row(tmp_path: Path) -> None:
    plan, seen = batch()
    site = Site(tmp_path, MemoryStore())
    judged(plan, seen[1:], site=site)
    judgement = judged(plan, seen, site=site)
    assert len(json.loads(site.store.get("delays/docs/index.json") or b"")) == 1
    assert judgement.page == str(tmp_path / "delays" / "batch-0-attempt-0.html")
    assert "Proved." in Path(judgement.page).read_text()


def test_a_failed_page_shows_the_findings(tmp_path: Path) -> None:
    plan, seen = batch()
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
