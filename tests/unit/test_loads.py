"""Repartition by load: against the real system's answers where those are right, and right where they are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.errors import Refused
from partitioning.model.plan import Plan, Stage, TaskRef
from partitioning.model.statistics import Statistics, TaskFigures
from partitioning.planning.partitioners.by_load import FINEST, ByThroughput, repartitioned
from partitioning.planning.partitioners.key_shares import Share, complete, widest
from partitioning.planning.partitioners.partitioners import ApexKeys, PartitioningContext, assign_shares
from partitioning.planning.planner import plan_batch
from partitioning.values import replace
from tests.plans import COLUMNS, arrived, dealt_stage, takers

VECTORS = Path(__file__).parents[1] / "vectors" / "apex"
Keys = tuple[int, tuple[int, ...]]


def read(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text())


def steps() -> Iterator[tuple[str, list[Share], list[Keys], bool]]:
    """All answers of the real system: what it is, shares before, keys after, whether each key is in one of them."""
    for case in read("repartition_by_load"):
        before = [Share(each["mask"] + 1, tuple(each["keys"]), load=each["load"]) for each in case["before"]]
        after = [(each["keys"]["mask"] + 1, tuple(each["keys"]["keys"])) for each in case["after"]]
        yield case["id"], before, after, case["coverage"]["exactly_once"]
    for case in read("repartition_sequences"):
        for number, step in enumerate(case["steps"]):
            pairs = zip(step["before"], step["loads"], strict=True)
            before = [Share(mask + 1, tuple(keys), load=load) for (mask, keys), load in pairs]
            after = [(mask + 1, tuple(keys)) for _, mask, keys in step["after"]]
            yield f"seed {case['seed']} step {number}", before, after, step["exactly_once"]


STEPS = list(steps())


def keys(shares: tuple[Share, ...]) -> list[Keys]:
    return [(share.modulus, share.residues) for share in shares]


def loaded(cosets: int) -> Stage:
    return dealt_stage("views", cosets, [(number,) for number in range(cosets)])


@pytest.mark.parametrize(("name", "before", "apex", "right"), STEPS, ids=[step[0] for step in STEPS])
def test_a_step_is_that_of_the_real_system_unless_that_loses_or_doubles_keys(
    name: str, before: list[Share], apex: list[Keys], right: bool
) -> None:
    after = complete(repartitioned(before), name)
    if right:
        assert sorted(keys(after)) == sorted(apex)
    else:
        assert sorted(keys(after)) != sorted(apex)


@pytest.mark.parametrize(("tasks", "after"), [(3, [(2, (0,)), (2, (1,))]), (5, [(4, (each,)) for each in range(4)])])
def test_where_every_residue_of_cold_shares_has_a_cold_sibling_they_become_even(tasks: int, after: list[Keys]) -> None:
    """Apex means to do the same, but has some of the new partitions twice and others not at all."""
    context = PartitioningContext("views", 0, 1, ())
    assert keys(repartitioned([replace(each, load=-1) for each in ApexKeys(tasks).define((), context)])) == after


def test_where_some_have_none_two_siblings_own_what_both_owned() -> None:
    shares = (Share(4, (0, 3), load=-1), Share(4, (1,)), Share(4, (2,), load=-1))
    assert keys(repartitioned(shares)) == [(4, (0, 2, 3)), (4, (1,))]
    assert keys(repartitioned([Share(8, (0, 1), load=-1), Share(8, (4, 5), load=-1), Share(4, (2, 3))])) == [
        (4, (0, 1)),
        (4, (2, 3)),
    ]


def test_cold_shares_of_different_moduli_are_no_siblings() -> None:
    cold = (Share(4, (0,), load=-1), Share(4, (2,)), Share(2, (1,), load=-1))
    assert repartitioned(cold) == cold


def test_shares_by_any_modulus_can_be_merged_down_to_one_task() -> None:
    for cosets in range(1, 60):
        shares = tuple(Share(cosets, (coset,), load=-1) for coset in range(cosets))
        while len(shares) > 1:
            merged = complete(repartitioned(shares), "here")
            assert len(merged) < len(shares)
            shares = tuple(Share(share.modulus, share.residues, load=-1) for share in merged)
        assert keys(shares) == [(1, (0,))]


def test_shares_keep_their_place_and_new_ones_come_last() -> None:
    shares = (Share(4, (0,), load=1), Share(4, (1,)), Share(4, (2,), load=1), Share(4, (3,)))
    assert keys(repartitioned(shares)) == [(8, (0,)), (4, (1,)), (8, (2,)), (4, (3,)), (8, (4,)), (8, (6,))]


def test_one_hot_key_does_not_cut_the_key_space_ever_finer() -> None:
    shares: tuple[Share, ...] = (Share(3, (0,)), Share(3, (1,)), Share(3, (2,)))
    for _ in range(40):
        hot = 7 % widest(shares)
        shares = repartitioned([Share(s.modulus, s.residues, load=hot % s.modulus in s.residues) for s in shares])
    assert FINEST / 2 < widest(shares) <= FINEST
    assert len(complete(shares, "here")) == len(shares) < 20


def test_a_throughput_above_or_below_its_bounds_is_hot_or_cold_as_in_the_real_system() -> None:
    timeline = next(case for case in read("throughput_partitioner") if case["id"] == "timeline")
    partitioner = ByThroughput(timeline["minimum_events"], timeline["maximum_events"], per="batch")
    reported = {each["tuples_psma"] for each in timeline["timeline"] if "tuples_psma" in each}
    loads = {taken: partitioner.load(Share(1, (0,), 0, TaskFigures(taken, 0))) for taken in reported}
    assert loads == {2: -1, 3: 0, 5: 0, 10: 0, 11: 1, 100: 1}


def test_throughput_is_per_second_of_work_unless_it_is_asked_for_per_batch() -> None:
    share = Share(1, (0,), 0, TaskFigures(60_000, 0, seconds=3.0))
    assert ByThroughput(10_000, 30_000).load(share) == 0
    assert ByThroughput(10_000, 30_000, per="batch").load(share) == 1


@pytest.mark.parametrize("figures", [None, TaskFigures(60_000, 0), TaskFigures(60_000, 0, 0.0)])
def test_what_was_not_measured_is_neither_hot_nor_cold(figures: TaskFigures | None) -> None:
    assert ByThroughput(10_000, 30_000).load(Share(1, (0,), 0, figures)) == 0


def test_hot_shares_are_split_until_all_are_within_bounds_each_after_its_cool_down() -> None:
    """Half of the keys, with even hashes, have 160,000 records in each batch, the other half 20,000."""
    arguments = {"minimum": 10_000, "maximum": 30_000, "cool_down": 2, "per": "batch"}
    partitioner = PartitionerRef("partitioning.planning.partitioners.by_load:ByThroughput", arguments)
    stage, history = loaded(2), []
    for batch in range(1, 8):
        records = [(20_000 if residue % 2 else 160_000) * 2 // stage.cosets for residue in range(stage.cosets)]
        figures = {task.task: TaskFigures(sum(records[residue] for residue in task.owns), 0) for task in stage.tasks}
        shares = assign_shares(partitioner, "views", cosets=2, inputs=(), previous=stage, figures=figures, batch=batch)
        stage = dealt_stage("views", shares.cosets, shares.owners, shares.cooling)
        history.append((len(stage.tasks), shares.cooling))
    assert history == [
        (3, (3, 0, 3)), (3, ()), (5, (5, 0, 5, 5, 5)), (5, ()), (9, (7, 0, 7, 7, 7, 7, 7, 7, 7)), (9, ()), (9, ()),
    ]  # fmt: skip
    assert (stage.cosets, stage.tasks[1].owns) == (16, (1, 3, 5, 7, 9, 11, 13, 15))


def test_at_first_each_coset_of_the_scheme_is_a_share() -> None:
    context = PartitioningContext("views", 0, 3, ())
    assert keys(tuple(ByThroughput(1, 2).define((), context))) == [(3, (0,)), (3, (1,)), (3, (2,))]


def test_all_that_is_wrong_with_the_bounds_is_said_at_once() -> None:
    with pytest.raises(Refused) as refusal:
        ByThroughput(20, 30, cool_down=0, per="hour")
    assert [each.what for each in refusal.value.findings] == [
        "a maximum of 30 is less than twice the minimum of 20",
        "a cool-down of 0 batches",
        "throughput per 'hour' is not known",
    ]
    with pytest.raises(Refused, match="is no number"):
        ByThroughput("20", 30)  # type: ignore[arg-type]


def test_a_hot_task_is_split_in_the_next_batch_and_its_state_goes_with_its_keys() -> None:
    pipeline = Pipeline("delays", source="s3://landing/topics")
    flow = pipeline.stream("flights", key="tailnum", partitions=4)
    totals = flow.partial("count(*) AS n", by="tailnum").combine("sum(n) AS n", running=True, name="totals")
    totals.to_stream().write("totals")
    ref = PartitionerRef(
        "partitioning.planning.partitioners.by_load:ByThroughput", {"minimum": 10, "maximum": 30, "per": "batch"}
    )
    settings = Settings.parse(scheme="tasks(2)", base=Settings(partitioners={"totals": ref}))

    def planned(end: int, published: Plan | None, took: dict[int, int]) -> Plan:
        plan = plan_batch(
            pipeline,
            [arrived("flights", [end] * 4)],
            {"totals": COLUMNS},
            batch=0 if published is None else published.batch + 1,
            published=published,
            settings=settings,
            statistics=Statistics(
                0, tasks={TaskRef("flights", task): TaskFigures(records, 0) for task, records in took.items()}
            ),
        )
        assert plan is not None
        return plan

    first = planned(9, None, {})
    second = planned(18, first, {0: 40, 1: 20})
    (before,), (after,) = first.stages, second.stages
    assert [task.owns for task in before.tasks] == [(0,), (1,)]
    assert [task.owns for task in after.tasks] == [(0,), (1, 3), (2,)]
    assert {each.name: each.placement.partitions for each in after.inputs} == {"flights": 4, "totals.state": 2}
    for residue in range(4):
        owner = takers(after.tasks, "flights", residue % 4, residue)
        assert takers(after.tasks, "totals.state", residue % 2, residue) == owner
        assert len(owner) == 1
    assert after == planned(18, first, {0: 40, 1: 20}).stages[0]
