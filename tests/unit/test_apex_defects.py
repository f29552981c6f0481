"""Faults of partitioning in Apex, and what Coset does instead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.cosets import assign
from partitioning.errors import Refused
from partitioning.model.leaving import unifier_groups, unifier_levels
from partitioning.model.plan import Stage
from partitioning.model.schemes import Scheme
from partitioning.model.statistics import TaskFigures
from partitioning.planning.partitioners.by_load import ByThroughput, repartitioned
from partitioning.planning.partitioners.key_shares import Share, complete, residues_at, widest
from partitioning.planning.partitioners.partitioners import ApexKeys, Even, PartitioningContext, assign_shares, changes
from tests.plans import arrived, dealt_stage, plan_of, takers

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors" / "apex"
HERE = PartitioningContext("flights", 1, 8, ())


def answer(file: str, case: str) -> dict[str, Any]:
    """What the real system gave in one case."""
    found: dict[str, Any] = next(
        each for each in json.loads((VECTORS / f"{file}.json").read_text()) if each["id"] == case
    )
    return found


def apex_shares(plan: dict[str, Any], operator: str, port: str = "in1") -> list[Share]:
    return [Share(each[port]["mask"] + 1, tuple(each[port]["keys"])) for each in plan["partitions"][operator]]


def owners(shares: Sequence[Share]) -> Counter[int]:
    """In how many shares each residue is."""
    modulus = widest(shares)
    found = Counter(residue for share in shares for residue in residues_at(share, modulus))
    return Counter({residue: found[residue] for residue in range(modulus)})


def stage(shares: Sequence[Share]) -> Stage:
    modulus = widest(shares)
    return dealt_stage("flights", modulus, [residues_at(share, modulus) for share in shares])


def test_1_merging_cold_shares_loses_and_doubles_no_keys_and_a_deal_that_does_is_refused() -> None:
    apex = apex_shares(answer("dynamic", "merge-all-of-3")["steps"][0]["plan"], "B")
    assert owners(apex) == {0: 2, 1: 0}

    ours = repartitioned([Share(4, (0, 3), load=-1), Share(4, (1,), load=-1), Share(4, (2,), load=-1)])
    assert set(owners(ours).values()) == {1}
    assert len(ours) == len(apex)
    with pytest.raises(Refused) as refusal:
        complete(apex, "stage flights")
    assert [each.what for each in refusal.value.findings] == [
        "keys with h(key) mod 2 = 1 are in no share",
        "keys with h(key) mod 2 = 0 (shares 0, 1) are in several shares",
    ]


def test_2_one_hot_share_beside_a_normal_one_is_split() -> None:
    case = answer("throughput_partitioner", "one-hot-one-normal")
    assert (case["reports"], case["repartition_required_count"]) == (60, 0)

    hot, normal = Share(2, (0,), 0, TaskFigures(100, 0)), Share(2, (1,), 1, TaskFigures(5, 0))
    after = ByThroughput(3, 10, per="batch").define((hot, normal), HERE)
    assert [str(share) for share in after] == ["h(key) mod 4 = 0", "h(key) mod 2 = 1", "h(key) mod 4 = 2"]


def test_3_the_same_input_gives_the_same_unifiers_and_shares_in_every_process() -> None:
    assert "object hash order" in answer("dynamic", "cascade-4-to-5-limit2")["note"]

    code = """
from partitioning.planning.partitioners.by_load import repartitioned
from partitioning.planning.partitioners.key_shares import Share
from partitioning.model.leaving import unifier_groups, unifier_levels
print([unifier_groups(5, width) for width in unifier_levels(5, 2)])
print(repartitioned([Share(12, (each, each + 6), load=-1) for each in range(6)]))
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in range(4)
    }
    assert len(said) == 1


def test_4_a_partitioner_that_returns_too_few_shares_is_refused() -> None:
    """Apex takes fewer parallel partitions than there are upstream, and drops the records of the others."""
    with pytest.raises(Refused, match="h\\(key\\) mod 4 = 0, 3 are in no share"):
        complete(ApexKeys(3).define((), HERE)[1:], "stage flights")


def test_4_every_unifier_is_fed_and_feeds_something() -> None:
    for parts in range(1, 100):
        left = parts
        for width in unifier_levels(parts, 3):
            taken = unifier_groups(left, width)
            assert all(taken)
            assert [part for group in taken for part in group] == list(range(left))
            left = width


@pytest.mark.parametrize(("tasks", "apex"), [(3, "3/2"), (5, "5/4"), (7, "7/4"), (9, "9/8"), (15, "15/8")])
def test_5_shares_are_even_whatever_their_number(tasks: int, apex: str) -> None:
    def skew(shares: Sequence[Share]) -> Fraction:
        modulus = widest(shares)
        return Fraction(max(len(residues_at(share, modulus)) for share in shares) * len(shares), modulus)

    assert skew(ApexKeys(tasks).define((), HERE)) == Fraction(apex)
    assert skew(Even(tasks).define((), PartitioningContext("flights", 0, tasks, ()))) == 1
    assert skew(Even(tasks).define((), PartitioningContext("flights", 0, 256, ()))) <= Fraction(16, 15)


@pytest.mark.parametrize("scheme", ["cogroup", "elastic(2)", "tasks(3)"])
def test_6_both_inputs_of_a_join_are_keyed_alike(scheme: str) -> None:
    case = answer("fan", "fanin-join-b-connected-first")["plan"]
    assert {port for partition in case["partitions"]["J"] for port in partition} == {"in2"}
    assert {edge[3] for edge in case["edges"] if edge[2].startswith("J#")} == {"in1", "in2"}

    pipeline = Pipeline("delays", source="s3://landing/topics")
    flights = pipeline.stream("flights", key="tailnum", partitions=12)
    planes = pipeline.table("planes", key="tailnum", partitions=8)
    flights.join(planes, "flights.dep_delay", name="joined").write("delays")
    (joining,) = plan_of(pipeline, [arrived("flights", [9] * 12), arrived("planes", [9] * 8)], scheme=scheme).stages
    for h in range(2 * 12 * 8):
        met = [takers(joining.tasks, name, h % count, h) for name, count in (("flights", 12), ("planes", 8))]
        assert met[0] == met[1]
        assert len(met[0]) == 1


def test_7_a_unifier_of_any_level_has_the_records_of_one_task_downstream_only() -> None:
    case = answer("cascade_full", "cascade-4x3-limit2")["plan"]
    into = [edge for edge in case["edges"] if edge[2].startswith("cascade:")]
    assert into
    assert all(mask is None for *_, mask, _ in into)

    # Of 120,000 records that 4 tasks wrote evenly for 3, a first unifier takes 2 parts of 4.
    apex = 120_000 * len({edge[1] for edge in into if edge[2] == into[0][2]}) // 4
    ours = max(120_000 // 3 * len(group) // 4 for group in unifier_groups(4, unifier_levels(4, 2)[0]))
    assert (apex, ours) == (60_000, 20_000)


def test_8_counts_and_limits_that_mean_nothing_are_refused_when_they_are_read_all_at_once() -> None:
    late = answer("validation", "partition-count-negative")["error"]
    assert late.endswith("partitions collection cannot be empty")
    unlimited = answer("cascade_full", "cascade-6x2-limit1")
    assert [each["kind"] for each in unlimited["plan"]["unifiers"]] == ["mxn", "mxn"]

    with pytest.raises(Refused) as refusal:
        Settings.read('scheme = "tasks(0)"\ngroups = 0\n[steps.totals]\nfan_in = 1', "settings.toml")
    assert len(refusal.value.findings) == 3
    with pytest.raises(Refused, match="0 tasks"):
        assign_shares(
            PartitionerRef("partitioning.planning.partitioners.partitioners:ApexKeys", {"tasks": 0}),
            "flights",
            cosets=8,
            inputs=(),
            previous=None,
            figures={},
            batch=0,
        )
    flow = Pipeline("delays", source="s3://landing/topics").stream("flights", key="tailnum", partitions=4)
    with pytest.raises(Refused, match="-1 partitions asked for"):
        flow.repartition(-1)
    with pytest.raises(Refused, match="a fan-in of 1 combines nothing"):
        flow.partial("count(*) AS n").combine("sum(n) AS n", fan_in=1)


def test_9_what_a_repartition_does_not_touch_stays_as_it_is() -> None:
    case = answer("dynamic", "split-1-to-2-to-3")["steps"][1]
    assert {"B#0", "C#0", "mxn:B_C@C#0.in1"} == set(case["undeployed"])

    before = [Share(2, (0,), load=1), Share(2, (1,))]
    found = changes(stage(before), stage(repartitioned(before)))
    assert [share.task for share in found.kept] == [1]
    assert [str(share) for share in found.removed] == ["h(key) mod 2 = 0"]
    assert [str(share) for share in found.new] == ["h(key) mod 4 = 0", "h(key) mod 4 = 2"]


def test_10_nine_parts_with_a_limit_of_eight_are_shared_out_evenly() -> None:
    """Apex gives eight to one unifier and hands the ninth on as it is."""
    (width,) = unifier_levels(9, 8)
    assert [len(group) for group in unifier_groups(9, width)] == [5, 4]


def test_11_a_partition_more_of_one_stream_moves_none_of_another() -> None:
    """Apex deals the partitions of all topics in turn, so what follows the new one moves to another instance."""

    def in_turn(*counts: int) -> list[int]:
        numbers = iter(range(sum(counts)))
        return [[next(numbers) % 4 for _ in range(count)] for count in counts][1]

    assert in_turn(8, 12) != in_turn(9, 12)

    def readers(*counts: int) -> list[tuple[int, ...]]:
        tasks = assign([("views", counts[0]), ("clicks", counts[1])], Scheme.parse("tasks(4)")).tasks
        return [task.reads["clicks"] for task in tasks]

    assert readers(8, 12) == readers(9, 12)
