"""Samza's groupings and its partition mapper, held against the answers of the real classes."""

from __future__ import annotations

from typing import Any

import pytest

from partitioning.errors import Refused
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
