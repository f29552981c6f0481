"""Coset's expectations in a user's own suite."""

from __future__ import annotations

import gc
import importlib
import sys
from contextlib import nullcontext
from typing import Any

import great_expectations as gx
import pandas as pd
import pytest
from great_expectations.render.renderer.inline_renderer import InlineRenderer

import expectations
from expectations.production import ExpectTablesToBeTheirQueries
from partitioning.hashes import hash_of, placement_hash


def validated(frame: pd.DataFrame, *suite: Any) -> list[dict[str, Any]]:
    """The results of a plain suite on a pandas batch, as a user would run it."""
    context = gx.get_context(mode="ephemeral")
    asset = context.data_sources.add_pandas("mine").add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    answer = batch.validate(gx.ExpectationSuite(name="mine", expectations=list(suite)))
    results: list[dict[str, Any]] = answer.to_json_dict()["results"]
    return results


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


@pytest.mark.parametrize("frame", [KEPT, SPLIT, SPLIT[["leg"]]], ids=["good", "bad", "without the key"])
def test_great_expectations_validator_answers_as_the_expectation_itself(frame: pd.DataFrame) -> None:
    meet = expectations.ExpectKeysToMeetInOneTask(key_columns=["tailnum"])
    itself: Any = meet.answer("mine", frame).to_json_dict()
    (asked,) = validated(frame, meet)
    assert itself["success"] is asked["success"]
    assert itself["result"] == asked["result"]
    assert itself["exception_info"]["raised_exception"] is asked["exception_info"]["raised_exception"]


def test_keys_of_several_columns_are_compared_as_a_whole_and_offenders_shown_with_what_is_asked() -> None:
    both = expectations.ExpectKeysToMeetInOneTask(key_columns=["tailnum", "leg"])
    assert validated(SPLIT, both)[0]["success"]
    shown = expectations.ExpectKeysToMeetInOneTask(key_columns=["tailnum"], shown_columns=["_offset"])
    (bad,) = validated(SPLIT, shown)
    assert bad["result"]["partial_unexpected_list"] == ["'N1' is in _task 0 (_offset 5) and in _task 2 (_offset 7)"]
    frame = pd.DataFrame({"k": [f"N{n}" for n in range(50)] * 2, "_task": [0] * 50 + [1] * 50})
    (bad,) = validated(frame, expectations.ExpectKeysToMeetInOneTask(key_columns=["k"]))
    assert bad["result"]["unexpected_count"] == 50
    assert len(bad["result"]["partial_unexpected_list"]) == 20


def test_more_may_be_bad_than_there_are_tables() -> None:
    rows = [{"table": "t", "rows": 2, "unseen": None, "key": None, "there": None, "right": None}]
    rows += [{"table": "t", "rows": None, "unseen": None, "key": key, "there": "1", "right": "2"} for key in "ab"]
    (found,) = validated(pd.DataFrame(rows), ExpectTablesToBeTheirQueries())
    assert not found["success"]
    assert found["result"]["unexpected_count"] == 2


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


# What a result says of misplaced keys where nothing explains them.
NOTHING = {"hash that fits": None, "partitions before": None, "hash of the others": None}
NOTHING |= {"keys in several partitions": None}


@pytest.mark.parametrize(
    ("old", "before", "found"), [(range(24), 4, 4), (range(24), 1, 1), (range(3), 4, None), (range(24), 7, None)]
)
def test_the_count_by_which_keys_lay_before_their_topic_grew_is_named(
    old: range, before: int, found: int | None
) -> None:
    keys = [f"user-{number}" for number in range(40)]
    homes = [placement_hash(key) % (before if place in old else 6) for place, key in enumerate(keys)]
    frame = pd.DataFrame({"k": keys, "p": [home % 6 for home in homes]})
    expectation = expectations.ExpectKeysToHashToTheirPartition(key_column="k", partition_column="p", partitions=6)
    (bad,) = validated(frame, expectation)
    assert bad["result"]["details"] == NOTHING | {"partitions before": found}


def test_the_hash_by_which_all_keys_lie_where_they_do_is_named() -> None:
    keys = [f"user-{number}" for number in range(20)]
    frame = pd.DataFrame({"k": keys, "p": [hash_of("crc32", "here")(key, "string") % 5 for key in keys]})
    expectation = expectations.ExpectKeysToHashToTheirPartition(key_column="k", partition_column="p", partitions=5)
    (bad,) = validated(frame, expectation)
    assert bad["result"]["details"] == NOTHING | {"hash that fits": "crc32"}
    (one_elsewhere,) = validated(frame.assign(p=(frame["p"] + (frame["k"] == "user-7")) % 5), expectation)
    assert one_elsewhere["result"]["details"] == NOTHING
    told = expectations.ExpectKeysToHashToTheirPartition(
        key_column="k", partition_column="p", partitions=5, hash="crc32"
    )
    assert validated(frame, told)[0]["success"]


def test_an_empty_key_hides_no_hash_that_puts_it_anywhere() -> None:
    keys = ["", "", *(f"user-{number}" for number in range(20))]
    places = [3, 4, *(hash_of("crc32", "here")(key, "string") % 5 for key in keys[2:])]
    frame = pd.DataFrame({"k": keys, "p": places})
    declared: dict[str, Any] = {"key_column": "k", "partition_column": "p", "partitions": 5}
    (bad,) = validated(frame, expectations.ExpectKeysToHashToTheirPartition(**declared))
    assert bad["result"]["details"] == NOTHING | {"hash that fits": "crc32"}
    (good,) = validated(frame, expectations.ExpectKeysToHashToTheirPartition(**declared, hash="crc32"))
    assert good["success"]
    (kept,) = validated(frame, expectations.ExpectKeysToHashToTheirPartition(**declared, hash="crc32_consistent"))
    assert not kept["success"]


@pytest.mark.parametrize(
    ("by_the_other", "records", "found"),
    [(24, 1, {"hash of the others": "fnv1a"}), (3, 1, {}), (24, 3, {"hash of the others": "fnv1a"})],
)
def test_keys_of_two_sorts_of_producers_are_told_by_their_hashes(
    by_the_other: int, records: int, found: dict[str, str]
) -> None:
    keys = [f"user-{number}" for number in range(40)]
    names = ["fnv1a" if place < by_the_other else "murmur2" for place in range(len(keys))]
    rows = [(key, hash_of(name, "here")(key, "string") % 6) for key, name in zip(keys, names, strict=True)] * records
    expectation = expectations.ExpectKeysToHashToTheirPartition(key_column="k", partition_column="p", partitions=6)
    (bad,) = validated(pd.DataFrame(rows, columns=["k", "p"]), expectation)
    assert bad["result"]["details"] == NOTHING | found


def test_keys_that_nothing_places_are_told_from_a_hash_that_nobody_knows() -> None:
    keys = [f"user-{number}" for number in range(40)]
    in_turn = pd.DataFrame({"k": keys * 3, "p": [number % 7 for number in range(120)]})
    expectation = expectations.ExpectKeysToHashToTheirPartition(key_column="k", partition_column="p", partitions=7)
    (bad,) = validated(in_turn, expectation)
    assert bad["result"]["details"] == NOTHING | {"keys in several partitions": 40}
    by_length = pd.DataFrame({"k": keys * 3, "p": [len(key) * 3 % 7 for key in keys * 3]})
    assert validated(by_length, expectation)[0]["result"]["details"] == NOTHING


def test_a_key_that_the_format_cannot_hold_fails() -> None:
    expectation = expectations.ExpectKeysToHashToTheirPartition(
        key_column="k", partition_column="p", partitions=5, key_format="long"
    )
    (bad,) = validated(pd.DataFrame({"k": ["x"], "p": [0]}), expectation)
    assert "'x' is no long key" in bad["result"]["partial_unexpected_list"][0]


@pytest.mark.parametrize("wrong", [{"partitions": 0}, {"key_format": "avro"}, {"hash": "opaque"}])
def test_an_impossible_declaration_is_no_expectation(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"key_column": "k", "partitions": 12} | wrong
    with pytest.raises(ValueError, match=next(iter(wrong))):
        expectations.ExpectKeysToHashToTheirPartition(**given)


COVERED = {
    "stage": "flights+planes",
    "input": "flights",
    "partition": 3,
    "table": False,
    "start": 1000,
    "end": 3500,
    "planned": 2500,
    "read_min": 2500,
    "read_max": 2500,
    "taken": 2490,
    "dropped": 8,
    "set_aside": 2,
    "refused_nulls": 0,
    "digest_planned": "ab",
    "digest_found": "ab",
    "disorder": 0,
    "copies_differ": 0,
    "foreign": 0,
    "stray": 0,
}
EXACTLY_ONCE = "expect_offsets_to_be_covered_exactly_once"
IN_PLACE = "expect_records_to_lie_where_their_keys_hash"
HAVE_KEYS = "expect_records_to_have_keys"


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        (EXACTLY_ONCE, {"read_min": 2499}, "a task read 2,499 of 2,500 records"),
        (EXACTLY_ONCE, {"read_max": 2501}, "a task read 2,501 of 2,500 records"),
        (EXACTLY_ONCE, {"taken": 1290}, "1,200 records of 2,500 not taken by any task"),
        (EXACTLY_ONCE, {"dropped": 9}, "1 record more taken than the 2,500 planned"),
        (EXACTLY_ONCE, {"digest_found": "cd"}, "the offsets taken are not those planned (digest cd, not ab)"),
        (EXACTLY_ONCE, {"disorder": 2}, "2 offsets missing, repeated or out of order"),
        (EXACTLY_ONCE, {"copies_differ": 1}, "1 task did not copy the records of a hot key that the others did"),
        (IN_PLACE, {"foreign": 1}, "1 record with a key that hashes to another partition"),
        (IN_PLACE, {"stray": 3}, "3 records taken by a task that does not own the key"),
        (HAVE_KEYS, {"refused_nulls": 4}, "4 records without a key"),
    ],
)
def test_a_fault_in_a_coverage_table_fails_what_it_concerns(kind: str, change: dict[str, Any], says: str) -> None:
    kinds = [{"type": each, "kwargs": {}} for each in (EXACTLY_ONCE, IN_PLACE, HAVE_KEYS)]
    assert all(each["success"] for each in validated(pd.DataFrame([COVERED]), *kinds))
    results = validated(pd.DataFrame([COVERED, COVERED | change]), *kinds)
    failed = {each["expectation_config"]["type"]: each["result"] for each in results if not each["success"]}
    assert list(failed) == [kind]
    assert failed[kind]["partial_unexpected_list"] == [f"flights-3@[1000,3500): {says}"]


CONTINUES = "expect_batch_to_continue_the_previous"
FIRST = {"stream": "flights", "partition": 3, "whole": False, "beginning": 40, "start": 40, "end": 3500}
FIRST |= {"published": None, "asked": None, "found": None}
LATER = FIRST | {"start": 1000, "published": 1000}


@pytest.mark.parametrize(
    ("row", "change", "says"),
    [
        (LATER, {"start": 1010}, "the last published batch ended at 1,000: 10 records left out"),
        (LATER, {"start": 999}, "the last published batch ended at 1,000: 1 record before it would count twice"),
        (LATER, {"asked": 2000, "start": 2000}, "the last published batch ended at 1,000: 1,000 records left out"),
        (LATER, {"whole": True}, "the table begins at offset 40, but is read from 1,000 on"),
        (FIRST, {"start": 41}, "it begins at 40: 1 record left out"),
        (FIRST, {"start": 0}, "it begins at 40: 40 records before it would count twice"),
        (FIRST, {"found": 30}, "it begins at 30: 10 records left out"),
        (FIRST, {"found": 30, "whole": True}, "the table begins at offset 30, but is read from 40 on"),
        (FIRST, {"asked": 100}, "it begins at 100: 60 records before it would count twice"),
        (FIRST, {"asked": 100, "start": 140}, "it begins at 100: 40 records left out"),
        (FIRST, {"whole": True, "asked": 100, "start": 100}, "the table begins at offset 40, but is read from 100 on"),
    ],
)
def test_a_stream_partition_that_does_not_go_on_where_it_has_to_is_named(
    row: dict[str, Any], change: dict[str, Any], says: str
) -> None:
    continues = {"type": CONTINUES, "kwargs": {}}
    good = [LATER, FIRST, FIRST | {"asked": 100, "start": 100}, FIRST | {"whole": True, "published": 900}]
    (passed,) = validated(ends(*good), continues)
    assert passed["success"], passed
    (failed,) = validated(ends(*good, row | change), continues)
    assert failed["result"]["partial_unexpected_list"] == [f"flights-3: {says}"]


def ends(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(rows).astype({"published": "Int64", "asked": "Int64", "found": "Int64"})


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([LATER], "1 stream partition, all continued"),
        ([LATER, FIRST], "2 stream partitions, 1 of them for the first time"),
        (
            [LATER, FIRST, FIRST | {"asked": 100, "start": 100}],
            "3 stream partitions, 2 of them for the first time; 60 records skipped in 1 of these, as [starts] asks",
        ),
        ([LATER, FIRST | {"whole": True}], "2 stream partitions, all continued"),
    ],
)
def test_what_was_asked_to_be_skipped_is_counted(rows: list[dict[str, Any]], says: str) -> None:
    (passed,) = validated(ends(*rows), {"type": CONTINUES, "kwargs": {}})
    assert passed["result"]["observed_value"] == says


HOLD = "expect_tables_to_hold_the_previous_batch"
HELD = {"table": "delays", "log_batch": 4, "log_plan": "sha256:4", "ledger_batch": 4, "ledger_plan": "sha256:4"}
EMPTY = HELD | dict.fromkeys(("log_batch", "log_plan", "ledger_batch", "ledger_plan"))


@pytest.mark.parametrize(
    ("row", "change", "says"),
    [
        (HELD, {"log_batch": 3}, "its log says batch 3, the ledger batch 4"),
        (HELD, {"log_batch": None, "log_plan": None}, "its log says no batch, the ledger batch 4"),
        (EMPTY, {"log_batch": 0, "log_plan": "sha256:0"}, "its log says batch 0, the ledger no batch"),
        (HELD, {"log_plan": "sha256:5"}, "batch 4 in its log is of the plan sha256:5, in the ledger of sha256:4"),
    ],
)
def test_a_table_that_does_not_hold_what_was_published_last_is_named(
    row: dict[str, Any], change: dict[str, Any], says: str
) -> None:
    hold = {"type": HOLD, "kwargs": {}}
    # A log that was compacted no longer says which plan it was.
    good = [HELD, EMPTY, HELD | {"log_plan": None}]
    kinds = {"log_batch": "Int64", "log_plan": "string", "ledger_batch": "Int64", "ledger_plan": "string"}
    (passed,) = validated(pd.DataFrame(good).astype(kinds), hold)
    assert (passed["success"], passed["result"]["observed_value"]) == (True, "3 result tables")
    (failed,) = validated(pd.DataFrame([*good, row | change]).astype(kinds), hold)
    assert failed["result"]["partial_unexpected_list"] == [f"delays: {says}"]


@pytest.mark.parametrize("collecting", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_whether_garbage_is_collected_is_after_the_import_as_it_was(
    collecting: bool, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    was, switch = gc.isenabled(), {True: gc.enable, False: gc.disable}
    if fails:
        monkeypatch.setitem(sys.modules, "expectations.colocation", None)
    switch[collecting]()
    try:
        with pytest.raises(ImportError) if fails else nullcontext():
            importlib.reload(expectations)
        assert gc.isenabled() == collecting
    finally:
        switch[was]()


def test_every_expectation_has_a_sentence_for_people() -> None:
    context = gx.get_context(mode="ephemeral")
    asset = context.data_sources.add_pandas("mine").add_dataframe_asset("rows")
    data = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": pd.DataFrame([COVERED])})
    suite = gx.ExpectationSuite(
        name="mine",
        expectations=[
            *({"type": each, "kwargs": {}} for each in (EXACTLY_ONCE, CONTINUES, IN_PLACE, HAVE_KEYS)),
            {"type": HOLD, "kwargs": {}},
            expectations.ExpectKeysToMeetInOneTask(key_columns=["tailnum", "leg"]),
            expectations.ExpectKeysToHashToTheirPartition(key_column="tailnum", partitions=12),
        ],
    )
    answer = data.validate(suite)
    configurations = [result.expectation_config for result in answer.results if result.expectation_config]
    texts = [InlineRenderer(render_object=each).get_rendered_content()[0].value for each in configurations]
    assert "Every planned offset is read" in (texts[0].template or "")
    *_, meet, lie = ({name: param["value"] for name, param in (text.params or {}).items()} for text in texts)
    assert (meet["key_columns"], meet["task_column"]) == ("tailnum, leg", "_task")
    assert lie["key_format"] == "string"


def test_noughts_that_differ_in_their_sign_are_one_key_that_has_to_meet() -> None:
    signed = pd.DataFrame({"k": [0.0, -0.0], "_task": [0, 1]})
    (bad,) = validated(signed, expectations.ExpectKeysToMeetInOneTask(key_columns=["k"]))
    assert bad["result"]["partial_unexpected_list"] == ["0.0 is in _task 0.0 and in _task 1.0"]
