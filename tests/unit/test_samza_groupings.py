"""Samza's groupings and its partition mapper, held against the answers of the real classes."""

from __future__ import annotations

from math import gcd, lcm
from typing import Any

import pytest

from partitioning.cosets.assignment import assign
from partitioning.errors import Refused
from partitioning.model.schemes import COGROUP
from partitioning.samza.groupings import (
    Grouping,
    SystemPartition,
    group_by_partition,
    group_by_stream_partition,
    previous_partition,
)
from partitioning.samza.key_buckets import ELASTIC_FINAL, RELEASE
from tests.samza import answers


def as_samza_wrote(grouping: Grouping) -> dict[str, list[str]]:
    return {task: [as_text(part) for part in parts] for task, parts in grouping.items()}


def as_text(part: SystemPartition) -> str:
    return "/".join(
        map(str, (part.system, part.stream, part.partition, *([] if part.bucket is None else [part.bucket])))
    )


@pytest.mark.parametrize(
    ("name", "group"), [("group_by_partition", group_by_partition), ("group_by_ssp", group_by_stream_partition)]
)
def test_groupings_are_samzas_in_every_case_of_both_builds(name: str, group: Any) -> None:
    for case in answers(name):
        inputs = {stream.replace("/", "."): count for stream, count in case["inputs"].items()}
        for build, expected in (
            (RELEASE, case["result"]),
            (ELASTIC_FINAL, case.get("resultElasticFinal", case["result"])),
        ):
            asked = {"broadcast": case["broadcast"], "factor": case["elasticityFactor"], "build": build}
            if "error" in expected:
                with pytest.raises(Refused):
                    group(inputs, **asked)
            elif set(expected) == {"tasks"}:  # Of a large answer only the number of tasks was kept.
                assert len(group(inputs, **asked)) == expected["tasks"]
            else:
                assert as_samza_wrote(group(inputs, **asked)) == expected, (case["id"], build)
                assert list(group(inputs, **asked)) == sorted(expected), "tasks are in Samza's order"


def test_the_mapper_is_samzas_in_every_case() -> None:
    for case in answers("hash_ssp_mapper"):
        counts = (case["partition"], case["previousPartitionCount"], case["currentPartitionCount"])
        if isinstance(case["previousPartition"], int):
            assert previous_partition(*counts) == case["previousPartition"], case["id"]
        else:
            with pytest.raises(Refused, match="no multiple"):
                previous_partition(*counts)


def test_a_stream_that_had_no_partitions_is_refused_where_samza_divides_by_zero() -> None:
    with pytest.raises(Refused):
        previous_partition(0, 0, 4)


def test_everything_wrong_with_a_grouping_is_found_at_once() -> None:
    with pytest.raises(Refused) as refused:
        group_by_partition({"views": 1}, broadcast="kafka.views, kafka.a#[1-2", factor=0, build="1.8.0")
    assert [finding.where for finding in refused.value.findings] == [
        "factor", "build", "inputs", "broadcast", "broadcast",
    ]  # fmt: skip


def split(tasks: dict[str, list[tuple[str, int]]], counts: dict[str, int]) -> list[int]:
    """The hashes that are in different tasks in some two streams, of all that can be told apart."""
    owner = {(stream, number): task for task, parts in tasks.items() for stream, number in parts}
    return [h for h in range(lcm(*counts.values())) if len({owner[stream, h % n] for stream, n in counts.items()}) > 1]


def streams_of(grouping: Grouping) -> dict[str, list[tuple[str, int]]]:
    return {
        task: [(f"{part.system}/{part.stream}", part.partition) for part in parts] for task, parts in grouping.items()
    }


def test_cogroup_keeps_the_keys_together_that_group_by_partition_splits() -> None:
    cases = [case for case in answers("group_by_partition") if "everyKeyCoLocated" in case]
    splitting = 0
    for case in cases:
        counts: dict[str, int] = case["inputs"]
        theirs = group_by_partition({stream.replace("/", "."): count for stream, count in counts.items()})
        assert (split(streams_of(theirs), counts) == []) is case["everyKeyCoLocated"], case["id"]
        splitting += not case["everyKeyCoLocated"]
        ours = {
            str(task.task): [(stream, number) for stream, numbers in task.reads.items() for number in numbers]
            for task in assign([(stream.replace("/", "."), n) for stream, n in counts.items()], COGROUP).tasks
        }
        ours = {task: [(stream.replace(".", "/"), number) for stream, number in parts] for task, parts in ours.items()}
        assert split(ours, counts) == [], case["id"]
        assert len(ours) == gcd(*counts.values())
    print(f"keys are split in {splitting} of {len(cases)} groupings of Samza's, in 0 of Coset's")
    assert splitting


def test_the_share_of_keys_that_meet_is_one_in_three_for_8_and_12_partitions() -> None:
    counts = {"kafka/views": 8, "kafka/clicks": 12}
    theirs = group_by_partition({"kafka.views": 8, "kafka.clicks": 12})
    assert len(split(streams_of(theirs), counts)) * 3 == 24 * 2
