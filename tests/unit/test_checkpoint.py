"""The checkpoint that judges a batch, its findings, and Data Docs: a page for each attempt, and an index of all."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from coset.reports.batch_index import published
from coset.reports.site import Site
from expectations.checkpoint import judge
from expectations.questions import Evidence, user_expectations
from partitioning.authoring.words import NullKey
from partitioning.documents.document import digest
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan
from partitioning.model.takes import Disposition
from partitioning.model.verdict import Commit, Judged
from partitioning.values import replace
from tests.evidence import TAILS, batch, evidence, judged
from tests.memory_store import MemoryStore
from tests.reference import Seen, log, pipeline, planned, run

ROOT = Path(__file__).parents[2]

SEATS = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "seats", "max_value": 500}}


def where(seen: list[Seen], stream: str, key: str) -> int:
    return next(place for place, each in enumerate(seen) if (each.stream, each.key) == (stream, key))


@pytest.mark.parametrize("scheme", ["cogroup", "elastic(3)", "tasks(3)", "tasks(1)"])
@pytest.mark.parametrize("null_keys", ["drop", "own task"])
def test_a_correct_batch_is_proved(scheme: str, null_keys: NullKey) -> None:
    plan, seen = batch(null_keys=null_keys, scheme=scheme)
    judgement = judged(plan, seen)
    assert judgement.findings == ()
    assert judgement.success
    keys = {
        (each.task, each.stream, each.partition, each.key)
        for each in seen
        if each.key and each.disposition == Disposition.TAKEN
    }
    assert judgement.why == Judged(records=70, partitions=6, keys=len(keys), key_sample=1, expectations=12, met=12)
    assert str(judgement.why) == (
        f"70 records in 6 stream partitions, {len(keys)} keys compared, all 12 expectations met"
    )


def test_a_foreign_record_is_named_with_its_key_partition_offset_and_the_next_step() -> None:
    plan, seen = batch()
    place = where(seen, "flights", "N3")
    here = seen[place].partition
    intruder = next(key for key in (f"X{n}" for n in range(99)) if placement_hash(key) % 4 != here)
    seen[place] = replace(seen[place], key=intruder)
    judgement = judged(plan, seen)
    assert not judgement.success
    finding = next(each for each in judgement.findings if each.what.startswith("Placement"))
    home = placement_hash(intruder) % 4
    at = f"flights-{here} at offset {seen[place].offset}"
    assert f"key {intruder!r}, {at}, belongs in partition {home} of 4" in finding.what
    assert finding.where == "batch 0 of delays"
    for command in ("coset report delays", "coset run delays", "coset replan delays"):
        assert command in finding.then


def test_records_without_a_key_are_named_where_they_are_refused() -> None:
    plan, seen = batch(null_keys="refuse")
    judgement = judged(plan, seen)
    whats = "\n".join(each.what for each in judgement.findings)
    assert "Every record has a key, where its stream refuses records without one." in whats
    assert "flights-0 at offset 0 has no key, and flights refuses records without one" in whats


def test_offenders_beyond_the_first_are_only_counted() -> None:
    plan, seen = batch()
    seen = [each for each in seen if each.offset > 0]
    finding = judged(plan, seen).findings[0]
    assert finding.what.endswith("and more: 6 in all")


def rows(seats: int = 100) -> dict[str, pd.DataFrame]:
    return {"delays": pd.DataFrame({"tailnum": TAILS, "seats": [*[100] * 29, seats], "_task": 0})}


def test_a_pipelines_own_expectation_is_judged_too() -> None:
    plan, seen = batch(SEATS)
    assert judged(plan, seen, rows()).success
    judgement = judged(plan, seen, rows(999))
    (finding,) = judgement.findings
    flight, plane = seen[where(seen, "flights", "N29")], seen[where(seen, "planes", "N29")]
    assert finding.what == (
        "Result table delays, not met: seats values must be less than or equal to 500.\n"
        f"    - 999 of key 'N29' (_task 0; its key is in flights-{flight.partition} at offset {flight.offset}, "
        f"planes-{plane.partition} at offset {plane.offset})"
    )


def test_a_description_says_it_in_the_users_words() -> None:
    plan, seen = batch(SEATS | {"description": "No plane has more than 500 seats."})
    (finding,) = judged(plan, seen, rows(999)).findings
    assert finding.what.startswith("Result table delays, not met: No plane has more than 500 seats.\n")


def test_cosets_own_expectations_may_be_asked_of_a_result_table() -> None:
    plan, seen = batch({"type": "expect_keys_to_meet_in_one_task", "kwargs": {"key_columns": ["tailnum"]}})
    assert judged(plan, seen, rows()).success


def test_an_expectation_on_a_column_that_is_not_there_is_a_finding() -> None:
    plan, seen = batch({"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "seat"}})
    (finding,) = judged(plan, seen, rows()).findings
    assert "cannot be evaluated" in finding.what
    assert '"seat"' in finding.what


def test_missing_values_of_pandas_own_kind_can_be_shown(tmp_path: Path) -> None:
    plan, seen = batch({"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "seats"}})
    outputs = rows()
    outputs["delays"]["seats"] = pd.array([*[1] * 29, None], dtype="Int64")
    judgement = judged(plan, seen, outputs, site=Site(tmp_path, MemoryStore()))
    assert "None of key 'N29'" in judgement.findings[0].what
    json.dumps(judgement.results, allow_nan=False)


@pytest.mark.parametrize(
    "wrong", [{"type": "expect_nothing"}, {"kwargs": {}}, {"type": SEATS["type"], "kwargs": {"colum": "seats"}}]
)
def test_an_expectation_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    plan, _ = batch(wrong)
    with pytest.raises(Refused, match=r"is no expectation[\s\S]*table 'delays'"):
        user_expectations(plan.pipeline, plan.writes())


def test_rows_of_a_table_that_something_is_expected_of_must_be_given() -> None:
    plan, seen = batch(SEATS)
    with pytest.raises(Refused, match="no rows of table 'delays' were given"):
        judged(plan, seen)


def test_nothing_is_sent_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried = []

    def refuse(*arguments: Any, **_: Any) -> None:
        tried.append(arguments)
        raise OSError("no network in this test")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    plan, seen = batch()
    assert judged(plan, seen, site=Site(tmp_path, MemoryStore())).success
    assert tried == []


def test_the_same_batch_gives_the_same_judgement() -> None:
    plan, seen = batch()
    assert judged(plan, seen[1:]).results == judged(plan, seen[1:]).results


def test_who_logs_at_info_reads_nothing_of_great_expectations_itself() -> None:
    # To look for garbage takes a fifth of the import.
    code = "import gc, logging; gc.disable(); logging.basicConfig(level=logging.INFO); import expectations.checkpoint"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "great_expectations" not in done.stderr


def test_a_warning_keeps_no_batch_from_being_published_and_stands_on_its_page(tmp_path: Path) -> None:
    rule = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "seats", "max_value": 3}}
    outputs = {"delays": pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [2, 9], "_task": [0, 1]})}
    plan, seen = batch(rule | {"severity": "warning"})
    judgement = judged(plan, seen, outputs, site=Site(tmp_path, MemoryStore()))
    assert judgement.success
    assert judgement.findings == ()
    (warning,) = judgement.warnings
    assert warning.what.startswith("Result table delays, not met: seats values must be less than or equal to 3.")
    assert judgement.why.met == judgement.why.expectations - 1
    page = Path(judgement.page or "").read_text()
    assert "! proved, 1 warning." in page
    assert "✓ proved" not in page
    assert "Warning; it does not keep the batch from being published." in page
    plan, seen = batch(rule)
    failed = judged(plan, seen, outputs)
    assert not failed.success
    assert failed.warnings == ()


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
