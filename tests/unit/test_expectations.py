"""Coset's expectations in a user's own suite, and the checkpoint that judges a batch."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import great_expectations as gx
import pandas as pd
import pytest
from great_expectations.render.renderer.inline_renderer import InlineRenderer

import expectations
from batches.audit import Audit, audit
from expectations.checkpoint import Judgement, judge, user_expectations
from expectations.docs import Site
from partitioning.documents.store import MemoryStore
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan
from tests.reference import Seen, log, pipeline, planned, run, store

TAILS = [f"N{number}" for number in range(30)]
KEYS = {"flights": [None, *TAILS, *TAILS[:9]], "planes": TAILS}
SEATS = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "seats", "max_value": 500}}


def validated(frame: pd.DataFrame, *suite: Any) -> list[dict[str, Any]]:
    """The results of a plain suite on a pandas batch, as a user would run it."""
    context = gx.get_context(mode="ephemeral")
    asset = context.data_sources.add_pandas("mine").add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    answer = batch.validate(gx.ExpectationSuite(name="mine", expectations=list(suite)))
    return answer.to_json_dict()["results"]


def batch(*expect: dict[str, Any], null_keys: str = "drop", scheme: str | None = None) -> tuple[Plan, list[Seen]]:
    made = pipeline(null_keys=null_keys, expect=expect)
    records = log(made, KEYS)
    plan = planned(made, records, scheme)
    return plan, run(plan, records)


def audited(plan: Plan, seen: list[Seen]) -> Audit:
    return audit(store(plan, seen), plan, 0)


def judged(plan: Plan, seen: list[Seen], outputs: dict[str, pd.DataFrame] | None = None, **more: Any) -> Judgement:
    found = audited(plan, seen)
    return judge(plan, found.coverage, found.keys, found.violations, outputs or {}, attempt=0, **more)


def where(seen: list[Seen], stream: str, key: str) -> int:
    return next(place for place, each in enumerate(seen) if (each.stream, each.key) == (stream, key))


# ---- in a user's own suite


KEPT = pd.DataFrame({"tailnum": ["N1", "N2", "N1", None, None], "_task": [0, 1, 0, 0, 1]})
SPLIT = pd.DataFrame({"tailnum": ["N1", "N2", "N1"], "leg": [1, 1, 2], "_task": [0, 1, 2], "_offset": [5, 6, 7]})


@pytest.mark.parametrize(
    "expectation",
    [
        expectations.ExpectKeysToMeetInOneTask(key_columns=["tailnum"]),
        {"type": "expect_keys_to_meet_in_one_task", "kwargs": {"key_columns": ["tailnum"]}},
    ],
    ids=["by class", "by name"],
)
def test_keys_that_meet_are_told_from_keys_that_do_not(expectation: Any) -> None:
    (good,) = validated(KEPT, expectation)
    assert good["success"]
    assert good["result"]["observed_value"] == "2 keys in 2 tasks"
    (bad,) = validated(SPLIT, expectation)
    assert not bad["success"]
    assert bad["result"]["partial_unexpected_list"] == ["'N1' is in _task 0 and in _task 2"]


def test_a_key_of_several_columns_is_compared_as_a_whole() -> None:
    both = expectations.ExpectKeysToMeetInOneTask(key_columns=["tailnum", "leg"])
    assert validated(SPLIT, both)[0]["success"]


def test_the_columns_asked_for_are_shown_with_an_offender() -> None:
    shown = expectations.ExpectKeysToMeetInOneTask(key_columns=["tailnum"], shown_columns=["_offset"])
    (bad,) = validated(SPLIT, shown)
    assert bad["result"]["partial_unexpected_list"] == ["'N1' is in _task 0 (_offset 5) and in _task 2 (_offset 7)"]


def test_offenders_are_counted_but_only_the_first_are_shown() -> None:
    frame = pd.DataFrame({"k": [f"N{n}" for n in range(50)] * 2, "_task": [0] * 50 + [1] * 50})
    (bad,) = validated(frame, expectations.ExpectKeysToMeetInOneTask(key_columns=["k"]))
    assert bad["result"]["unexpected_count"] == 50
    assert len(bad["result"]["partial_unexpected_list"]) == 20


def test_a_missing_column_fails_and_is_named_beside_those_there_are() -> None:
    (bad,) = validated(KEPT, expectations.ExpectKeysToMeetInOneTask(key_columns=["tail"]))
    assert not bad["success"]
    assert bad["result"]["observed_value"] == "there is no column tail; there are tailnum, _task"


@pytest.mark.parametrize(
    ("key_format", "keys"),
    [
        ("string", ["N14228", "é", ""]),
        ("long", [1, -5, 2**40]),
        ("int", [1, -5, 2**30]),
        ("double", [0.5, -2.0, 1e300]),
        ("uuid", ["123e4567-e89b-12d3-a456-426614174000"]),
        ("bytes", [b"", b"\x00\xff"]),
    ],
)
def test_keys_of_every_format_are_hashed_again(key_format: str, keys: list[Any]) -> None:
    homes = [placement_hash(key, key_format) % 12 for key in keys]
    expectation = {
        "type": "expect_keys_to_hash_to_their_partition",
        "kwargs": {"key_column": "k", "partition_column": "p", "partitions": 12, "key_format": key_format},
    }
    (good,) = validated(pd.DataFrame({"k": keys, "p": homes}), expectation)
    assert good["success"], good
    wrong = [(home + 1) % 12 for home in homes]
    (bad,) = validated(pd.DataFrame({"k": keys, "p": wrong}), expectation)
    assert bad["result"]["unexpected_count"] == len(keys)


def test_integers_beside_nulls_are_still_integers() -> None:
    frame = pd.DataFrame({"k": [7, None], "p": [placement_hash(7, "long") % 5, 0]})
    assert frame["k"].dtype == "float64"
    expectation = expectations.ExpectKeysToHashToTheirPartition(
        key_column="k", partition_column="p", partitions=5, key_format="long"
    )
    assert validated(frame, expectation)[0]["success"]


def test_a_key_in_a_wrong_partition_is_shown_with_the_right_one() -> None:
    frame = pd.DataFrame({"k": ["N14228"], "_partition": [3], "_offset": [41]})
    expectation = expectations.ExpectKeysToHashToTheirPartition(
        key_column="k", partitions=12, shown_columns=["_offset"]
    )
    (bad,) = validated(frame, expectation)
    assert bad["result"]["partial_unexpected_list"] == ["'N14228' is in _partition 3, _offset 41, but belongs in 8"]


def test_a_key_that_the_format_cannot_hold_fails() -> None:
    expectation = expectations.ExpectKeysToHashToTheirPartition(
        key_column="k", partition_column="p", partitions=5, key_format="long"
    )
    (bad,) = validated(pd.DataFrame({"k": ["x"], "p": [0]}), expectation)
    assert "'x' is no long key" in bad["result"]["partial_unexpected_list"][0]


@pytest.mark.parametrize("wrong", [{"partitions": 0}, {"key_format": "avro"}])
def test_an_impossible_declaration_is_no_expectation(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        expectations.ExpectKeysToHashToTheirPartition(**{"key_column": "k", "partitions": 12} | wrong)


COVERED = {
    "stream": "flights",
    "partition": 3,
    "table": False,
    "beginning": 0,
    "committed": 1000,
    "start": 1000,
    "end": 3500,
    "planned": 2500,
    "read_min": 2500,
    "read_max": 2500,
    "taken": 2490,
    "dropped": 10,
    "refused_nulls": 0,
    "digest_planned": "ab",
    "digest_found": "ab",
    "disorder": 0,
    "foreign": 0,
    "stray": 0,
}
EXACTLY_ONCE = "expect_offsets_to_be_covered_exactly_once"
CONTINUES = "expect_batch_to_continue_the_previous"
IN_PLACE = "expect_records_to_lie_where_their_keys_hash"
HAVE_KEYS = "expect_records_to_have_keys"


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        (EXACTLY_ONCE, {"read_min": 2499}, "a task read 2,499 of 2,500 records"),
        (EXACTLY_ONCE, {"read_max": 2501}, "a task read 2,501 of 2,500 records"),
        (EXACTLY_ONCE, {"taken": 1290}, "1,200 records of 2,500 not taken by any task"),
        (EXACTLY_ONCE, {"dropped": 11}, "1 record more taken than the 2,500 planned"),
        (EXACTLY_ONCE, {"digest_found": "cd"}, "the offsets taken are not those planned (digest cd, not ab)"),
        (EXACTLY_ONCE, {"disorder": 2}, "2 offsets missing, repeated or out of order"),
        (CONTINUES, {"start": 1010}, "10 records from offset 1,000 on left out"),
        (CONTINUES, {"start": 990}, "10 records before offset 1,000 published already"),
        (CONTINUES, {"table": True}, "the table begins at offset 0"),
        (IN_PLACE, {"foreign": 1}, "1 record with a key that hashes to another partition"),
        (IN_PLACE, {"stray": 3}, "3 records taken by a task that does not own the key"),
        (HAVE_KEYS, {"refused_nulls": 4}, "4 records without a key"),
    ],
)
def test_a_fault_in_a_coverage_table_fails_what_it_concerns(kind: str, change: dict[str, Any], says: str) -> None:
    kinds = [{"type": each, "kwargs": {}} for each in (EXACTLY_ONCE, CONTINUES, IN_PLACE, HAVE_KEYS)]
    assert all(each["success"] for each in validated(pd.DataFrame([COVERED]), *kinds))
    results = validated(pd.DataFrame([COVERED, COVERED | change]), *kinds)
    failed = {each["expectation_config"]["type"]: each["result"] for each in results if not each["success"]}
    assert list(failed) == [kind]
    start = change.get("start", 1000)
    assert failed[kind]["partial_unexpected_list"] == [f"flights-3@[{start},3500): {says}"]


def test_every_expectation_has_a_sentence_for_people() -> None:
    context = gx.get_context(mode="ephemeral")
    asset = context.data_sources.add_pandas("mine").add_dataframe_asset("rows")
    data = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": pd.DataFrame([COVERED])})
    suite = gx.ExpectationSuite(
        name="mine",
        expectations=[
            *({"type": each, "kwargs": {}} for each in (EXACTLY_ONCE, CONTINUES, IN_PLACE, HAVE_KEYS)),
            expectations.ExpectKeysToMeetInOneTask(key_columns=["tailnum", "leg"]),
            expectations.ExpectKeysToHashToTheirPartition(key_column="tailnum", partitions=12),
        ],
    )
    answer = data.validate(suite)
    texts = [InlineRenderer(render_object=e.expectation_config).get_rendered_content()[0].value for e in answer.results]
    assert "Every planned offset is read" in texts[0].template
    assert texts[4].params["key_columns"]["value"] == "tailnum, leg"
    assert texts[4].params["task_column"]["value"] == "_task"
    assert texts[5].params["key_format"]["value"] == "string"


# ---- the checkpoint


@pytest.mark.parametrize("scheme", ["cogroup", "elastic(3)", "tasks(3)", "tasks(1)"])
@pytest.mark.parametrize("null_keys", ["drop", "own task"])
def test_a_correct_batch_is_proved(scheme: str, null_keys: str) -> None:
    plan, seen = batch(null_keys=null_keys, scheme=scheme)
    judgement = judged(plan, seen)
    assert judgement.findings == ()
    assert judgement.success
    assert judgement.summary == "70 records in 6 stream partitions, " + (
        f"{len({(s.task, s.stream, s.partition, s.key) for s in seen if s.key and s.fate == 'taken'})} keys compared, "
        "all 7 expectations met"
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
    assert finding.where == "batch 0 of delays, attempt 0"
    for command in ("coset report delays", "coset run delays", "coset abandon delays"):
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
        user_expectations(plan.writes())


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


# ---- Data Docs


def test_pages_accumulate_and_the_index_lists_them_newest_first(tmp_path: Path) -> None:
    plan, seen = batch()
    site = Site(tmp_path, MemoryStore())
    for number in (0, 1, 2):
        found = audited(plan, seen)
        later = replace(plan, batch=number)
        judge(later, found.coverage, found.keys, found.violations, {}, attempt=0, site=site)
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
    found, kept = audited(plan, seen), MemoryStore()
    for number in (0, 1):
        site = Site(tmp_path / str(number), kept)
        later = replace(plan, batch=number)
        judge(later, found.coverage, found.keys, found.violations, {}, attempt=0, site=site)
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
