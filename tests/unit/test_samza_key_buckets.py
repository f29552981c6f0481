"""Samza's key buckets, held against the answers of the real classes, and what Coset does instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.cosets.assignment import assign
from partitioning.errors import Refused
from partitioning.hashes import hash_of, java_hash
from partitioning.model.schemes import Scheme
from partitioning.samza.key_buckets import ELASTIC_FINAL, RELEASE, key_bucket
from tests.plans import arrived, plan_of, takers
from tests.samza import answers

# Java's type of a key: the format it has here, and how the answers write it.
TYPES: dict[str, tuple[str, Callable[[Any], object]]] = {
    "String": ("string", str),
    "Integer": ("int", int),
    "Long": ("long", int),
    "Double": ("double", float),
    "Boolean": ("string", bool),
    "null": ("string", lambda _: None),
}


def test_hashes_and_buckets_are_samzas_in_every_case_of_both_builds() -> None:
    for case in answers("key_buckets"):
        key_format, read = TYPES[case["type"]]
        key, offset = read(case["key"]), case["offset"]
        if case["type"] != "Boolean":
            assert java_hash(offset if key is None else key, key_format) == case["javaHash"], case
        for build, expected in ((RELEASE, case["bucket"]), (ELASTIC_FINAL, case["bucketElasticFinal"])):
            found = {
                factor: key_bucket(key, offset, int(factor), key_format=key_format, build=build) for factor in expected
            }
            assert found == expected, (case, build)


def test_a_record_with_neither_key_nor_offset_is_in_the_first_bucket_and_one_factor_has_none() -> None:
    assert key_bucket(None, None, 4) == 0
    assert key_bucket("user-1", "0", 1) == -1


def test_both_booleans_have_the_hashes_of_java() -> None:
    assert [key_bucket(key, "0", 10_000) for key in (True, False)] == [1231, 1237]


@pytest.mark.parametrize(("factor", "build"), [(0, RELEASE), (-1, ELASTIC_FINAL), (2, "1.8.0")])
def test_a_factor_or_build_that_does_not_exist_is_refused(factor: int, build: str) -> None:
    with pytest.raises(Refused):
        key_bucket("user-1", "0", factor, build=build)


@pytest.mark.parametrize(
    ("key", "key_format"), [("polygenelubricants", "string"), (-(2**31), "int"), (2**31, "long"), (-0.0, "double")]
)
def test_a_key_whose_hash_java_cannot_make_positive_has_no_task_in_samza_but_one_here(
    key: object, key_format: str
) -> None:
    assert java_hash(key, key_format) == -(2**31)
    assert key_bucket(key, "0", 3, key_format=key_format) < 0
    assert all(key_bucket(key, "0", factor, key_format=key_format, build=ELASTIC_FINAL) < 0 for factor in range(3, 17))
    tasks = assign([("views", 8)], Scheme.parse("elastic(3)")).tasks
    for hash in ("murmur2", "java"):
        h = hash_of(hash, "here")(key, key_format)
        assert takers(tasks, "views", h % 8, h) == [h % 24]


def test_the_placement_java_gives_the_releases_buckets_and_nought_for_the_negative_ones() -> None:
    h = hash_of("java", "here")
    for case in answers("key_buckets"):
        key_format, read = TYPES[case["type"]]
        if case["type"] in ("null", "Boolean"):
            continue
        for factor, expected in case["bucket"].items():
            ours = h(read(case["key"]), key_format) % int(factor)
            assert ours == (0 if case["javaHash"] == -(2**31) else expected), case


@pytest.mark.parametrize(("key_format", "placement"), [("int", "java"), ("string", "murmur2")])
def test_streams_whose_keys_are_hashed_in_two_ways_do_not_meet_in_samza_but_through_an_exchange_here(
    key_format: str, placement: str
) -> None:
    assert key_bucket(10, "0", 4, key_format="int") != key_bucket("10", "0", 4)
    pipeline = Pipeline("met", source="s3://landing/topics")
    views = pipeline.stream("views", key="tailnum", key_format=key_format, partitions=4, hash=placement)
    clicks = pipeline.stream("clicks", key="tailnum", partitions=4, hash="java")
    views.join(clicks, "views.dep_delay", name="met").write("met")
    plan = plan_of(pipeline, [arrived("views", [1] * 4), arrived("clicks", [1] * 4)])
    (exchange,) = plan.exchanges
    (stage,) = [stage for stage in plan.stages if any(step.keyed for step in stage.steps)]
    hashed = {(each.placement.hash, each.placement.key_format) for each in stage.inputs}
    assert len(hashed) == 1
    assert exchange.name in {each.name for each in stage.inputs}
