"""Samza's checkpoints over changes of the elasticity factor: the real answers, and what Coset makes of the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import lcm
from typing import Any

import pytest

from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.samza.checkpoints import (
    Again,
    Checkpoint,
    SlotClaims,
    Start,
    bucket_of,
    claims_of,
    read_checkpoints,
    starts,
)
from partitioning.samza.groupers import ELASTIC_FINAL, key_bucket
from tests.refused import finding_of
from tests.samza import answers

# What Samza does with a stream partition that it finds no checkpoint for: by default it starts at its end.
UPCOMING = 100


def checkpoints(stored: dict[str, dict[str, str] | None]) -> list[Checkpoint]:
    """Checkpoints as the answers write them; one that is null or empty says nothing."""
    return [
        Checkpoint(task, system, stream, int(partition), int(offset))
        for task, offsets in stored.items()
        for name, offset in (offsets or {}).items()
        for system, stream, partition in [name.split("/")]
    ]


def least_done(found: Sequence[Checkpoint], task: tuple[int, int], where: str) -> int:
    """How far all of a task's keys are done, slot by slot: the oracle."""
    done = [
        (bucket_of(each.task), each.offset + 1)
        for each in found
        if f"{each.system}/{each.stream}/{each.partition}" == where
    ]
    slots = lcm(task[1], *(factor for (_, factor), _ in done))
    return min(
        max((offset for (bucket, factor), offset in done if slot % factor == bucket), default=0)
        for slot in range(slots)
        if slot % task[1] == task[0]
    )


def test_a_task_starts_where_the_slot_that_is_furthest_behind_does_and_loses_nothing() -> None:
    """Samza resumes beyond that in some cases (records are lost), before it in others (more is replayed)."""
    outcome: Counter[str] = Counter()
    for case in answers("elastic_checkpoints"):
        found, task = checkpoints(case["checkpoints"]), bucket_of(case["task"])
        for where in case["inputs"]:
            system, stream, partition = where.split("/")
            ours = claims_of(found, system, stream, int(partition)).start(*task, beginning=0)
            assert ours == least_done(found, task, where), case
            theirs = int(case["result"][where]) + 1 if where in case["result"] else UPCOMING
            outcome["the same" if ours == theirs else "Samza loses" if theirs > ours else "Samza replays more"] += 1
    print(dict(outcome))
    assert outcome["the same"]
    assert outcome["Samza loses"]


def whose(task: str) -> str | None:
    """Kind, stream and partition of a task, by its name."""
    match = re.match(r"Partition \d+|SystemStreamPartition \[[^,]+, [^,]+, \d+", task)
    return match[0] if match else None


def test_a_claim_counts_for_those_tasks_alone_all_of_whose_keys_it_covers() -> None:
    """Samza takes any other factor's task for an ancestor, although 2 does not divide 3: those are the losses."""
    wrong = 0
    for case in answers("elastic_lineage"):
        if whose(case["task"]) is None:
            assert (case["ancestors"], case["descendants"]) == ([], [])
            continue
        bucket, factor = bucket_of(case["task"])
        for other in (each for each in answers_universe() if whose(each) == whose(case["task"])):
            claims = SlotClaims().claim(*bucket_of(other), 10)
            covers = claims.start(bucket, factor, beginning=0) == 10
            ancestor = other in case["ancestors"]
            if factor % bucket_of(other)[1] == 0:
                assert covers is ancestor, (case["task"], other)
            else:
                assert not covers, (case["task"], other)
                wrong += ancestor
    assert wrong


def answers_universe() -> list[str]:
    """All tasks that are named by some case."""
    return sorted({name for case in answers("elastic_lineage") for name in [case["task"], *case["descendants"]]})


def names_of(parts: dict[str, Any]) -> set[str]:
    """The names that Samza's groupers give to a task of these parts: under a factor, and without one."""
    bucket, factor = parts["keyBucket"], parts["elasticityFactor"]
    if parts["system"]:
        whole = f"{parts['system']}, {parts['stream']}, {parts['partition']}"
        under, without = f"SystemStreamPartition [{whole}, {bucket}]_{factor}", f"SystemStreamPartition [{whole}]"
    else:
        under, without = f"Partition {parts['partition']}_{bucket}_{factor}", f"Partition {parts['partition']}"
    return {under, without} if factor == 1 else {under}


def test_task_names_are_read_as_samza_reads_them_if_its_groupers_make_them_and_refused_otherwise() -> None:
    """Samza also takes names that merely begin so, those of 1.8.0 among them, and guesses the factor 1 for the rest."""
    read = 0
    for case in answers("elastic_task_names"):
        name, parts = case["taskName"], case["parts"]
        if "error" not in parts and name in names_of(parts) and parts["keyBucket"] < parts["elasticityFactor"]:
            assert bucket_of(name) == (parts["keyBucket"], parts["elasticityFactor"]), name
            read += 1
        else:
            with pytest.raises(Refused, match="does not say which keys"):
                bucket_of(name)
    assert read


def test_a_start_up_never_begins_beyond_what_is_done_as_samzas_does() -> None:
    later = 0
    for case in answers("elastic_offset_manager"):
        found = checkpoints({task: {"kafka/views/0": offset} for task, offset in case["checkpoints"].items()})
        if any(re.fullmatch(r"Partition \d+ \d+", each.task) for each in found):
            with pytest.raises(Refused, match="does not say which keys"):
                starts(found, "kafka", "views", [0])
            continue
        for task, theirs in case["startingOffsets"].items():
            try:
                own = bucket_of(task)
            except Refused:  # A name of 1.8.0: its keys are not known, so they start at the beginning.
                assert re.fullmatch(r"Partition \d+ \d+", task)
                continue
            ours = claims_of(found, "kafka", "views", 0).start(*own, beginning=0)
            assert ours == least_done(found, own, "kafka/views/0")
            later += int(theirs) > ours
    assert later


# What Samza 1.8.0 checkpoints under a factor is empty, so that a plain restart begins at the default offset.
LOSES_ITS_CHECKPOINT = ("release",)


def test_a_plain_restart_goes_on_where_it_stopped_under_any_factor() -> None:
    for case in answers("elastic_restart"):
        factor = case["elasticityFactor"]
        claims = SlotClaims()
        for task in range(factor):
            claims = claims.claim(task, factor, 41 + task)
        ours = [claims.start(task, factor, beginning=0) for task in range(factor)]
        assert ours == [41 + task for task in range(factor)]
        theirs = [int(offset) for _, offset in sorted(case["startingOffsetsAfterRestart"].items())]
        lost = case["build"] in LOSES_ITS_CHECKPOINT and factor > 1
        assert (theirs == ours) is not lost, case


def by_samzas_slot(key: str) -> int:
    """The slot of a key that the last elastic build deals to its buckets, 31 of them."""
    return key_bucket(key, None, 31, build=ELASTIC_FINAL)


def replayed(case: dict[str, Any], h: Any) -> tuple[int, int]:
    """Lost and replayed records if each task stops where it did in Samza, and claims are kept by slot."""
    keys, claims = case["keys"], SlotClaims()
    times = [0] * len(keys)
    lost = set()
    for generation, factor in zip(case["generations"], case["history"], strict=True):
        stopped = {bucket_of(task): int(offset) for task, offset in generation["committed"].items()}
        ends = stopped if generation is not case["generations"][-1] else {(t, factor): len(keys) for t in range(factor)}
        for (task, tasks), last in ends.items():
            before = claims
            for offset in range(before.start(task, tasks, beginning=0), min(last + 1, len(keys))):
                if h(keys[offset]) % tasks == task and not before.holds(h(keys[offset]), offset):
                    times[offset] += 1
            claims = claims.claim(task, tasks, last + 1)
        lost |= {o for o, key in enumerate(keys) if not times[o] and claims.holds(h(key), o)}
    assert all(times), "the last tasks read to the end"
    return len(lost), sum(count - 1 for count in times)


@pytest.mark.parametrize("h", [by_samzas_slot, placement_hash], ids=["Samza's slots", "placement hash"])
def test_no_record_is_lost_or_replayed_over_any_history_of_factors(h: Any) -> None:
    cases = answers("elastic_histories")
    lost = sum(len(generation["lostOffsets"]) for case in cases for generation in case["generations"])
    again = sum(generation["replayed"] for case in cases for generation in case["generations"])
    ours = [replayed(case, h) for case in cases]
    print(f"{len(cases)} histories: Samza loses {lost} and replays {again}; slot claims: {sorted(set(ours))}")
    assert ours == [(0, 0)] * len(cases)
    assert lost
    assert again


def test_the_first_batch_starts_where_the_slowest_key_bucket_is_and_says_what_it_reads_again() -> None:
    found = [
        Checkpoint(f"Partition 0_{bucket}_3", "kafka", "views", 0, offset) for bucket, offset in enumerate([50, 20, 50])
    ]
    assert starts(found, "kafka", "views", [5, 7]) == (
        Start(StreamPartition("views", 0), 21, (Again(OffsetRange.parse("views-0@[21,51)"), (0, 2), 3),)),
        Start(StreamPartition("views", 1), 7, ()),
    )


def test_a_bucket_without_a_checkpoint_starts_at_the_beginning_and_never_at_the_end() -> None:
    found = [Checkpoint("Partition 0_0_2", "kafka", "views", 0, 41)]
    (start,) = starts(found, "kafka", "views", [3])
    assert start.offset == 3
    assert [str(each) for each in start.again] == ["views-0@[3,42) of key buckets 0 out of 2"]


def test_two_tasks_that_processed_the_same_keys_are_refused() -> None:
    found = [Checkpoint(f"Partition {task}", "kafka", "rates", 0, offset) for task, offset in enumerate([40, 7])]
    with pytest.raises(Refused, match="'Partition 0' and 'Partition 1' both processed rates-0"):
        starts(found, "kafka", "rates", [0])


def test_what_the_checkpoint_tool_prints_is_read_and_any_other_line_is_refused() -> None:
    text = "# of job views\n\ntasknames.Partition 0_1_2.systems.kafka.streams.views.eu.partitions.12=41\n"
    assert read_checkpoints(text, "offsets") == (Checkpoint("Partition 0_1_2", "kafka", "views.eu", 12, 41),)
    finding = finding_of(read_checkpoints, text + "tasknames.Partition 0=41\nviews", "offsets")
    assert [each.where for each in finding.places] == ["line 4 of offsets", "line 5 of offsets"]
