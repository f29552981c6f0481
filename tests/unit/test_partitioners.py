"""Custom partitioners: what they are given, that answers are checked, and the two that are there, beside Apex's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.errors import Refused
from partitioning.model.placement import MURMUR2, KeyFormat, Placement
from partitioning.model.plan import Plan, Stage, TaskRef
from partitioning.model.statistics import Statistics, TaskFigures
from partitioning.model.takes import Task
from partitioning.planning.partitioners.by_load import FINEST, ByThroughput, repartitioned
from partitioning.planning.partitioners.key_shares import Share, complete, reduced, residues_at, widest
from partitioning.planning.partitioners.partitioners import (
    ApexKeys,
    Changes,
    Even,
    PartitioningContext,
    Shares,
    apex_hash,
    assign_shares,
    changes,
    current_shares,
    notify,
)
from partitioning.planning.planner import plan_batch
from partitioning.values import replace
from partitioning.version import VERSION
from tests.plans import COLUMNS, arrived, dealt_stage, takers

VECTORS = Path(__file__).parents[1] / "vectors" / "apex"
TAIL = Placement("tailnum", KeyFormat.STRING, MURMUR2, 12)
seen: list[object] = []


@dataclass(frozen=True)
class Answers:
    """Gives the shares that the test put there, and remembers what it was given."""

    shares: Any = ()

    def define(self, current: tuple[Share, ...], context: PartitioningContext) -> Sequence[Share]:
        seen.append((current, context))
        return self.shares

    def accepted(self, changes: Changes) -> None:
        seen.append(changes)


def by(name: str, **arguments: Any) -> PartitionerRef:
    return PartitionerRef(
        f"{__name__ if name == 'Answers' else 'partitioning.planning.partitioners.partitioners'}:{name}", arguments
    )


def deal(
    ref: PartitionerRef | str,
    *,
    cosets: int = 8,
    previous: Stage | None = None,
    figures: dict[int, TaskFigures] | None = None,
    batch: int = 0,
) -> Shares:
    return assign_shares(
        ref, "flights", cosets=cosets, inputs=(TAIL,), previous=previous, figures=figures or {}, batch=batch
    )


def stage(cosets: int, *owners: tuple[int, ...], cooling: tuple[int, ...] = ()) -> Stage:
    return dealt_stage("flights", cosets, owners, cooling)


def plan(*stages: Stage) -> Plan:
    return Plan("delays", 0, None, VERSION, (), (), stages, (), 1, "balanced-sticky", (), {})


def refused(answer: Any) -> list[str]:
    with pytest.raises(Refused) as refusal:
        deal(by("Answers", shares=answer))
    assert all("Answers" in each.where and "stage flights" in each.where for each in refusal.value.findings)
    return [each.what for each in refusal.value.findings]


@pytest.mark.parametrize(
    "case", json.loads((VECTORS / "partition_keys.json").read_text()), ids=lambda case: str(case["partitions"])
)
def test_apex_keys_are_those_of_the_real_system(case: dict[str, Any]) -> None:
    shares = ApexKeys(case["partitions"]).define((), PartitioningContext("flights", 0, 1, ()))
    assert [(share.modulus - 1, list(share.residues)) for share in shares] == [
        (case["mask"], keys) for keys in case["keys"]
    ]


@pytest.mark.parametrize(
    "case", json.loads((VECTORS / "routing.json").read_text()), ids=lambda case: str(case["partitions"])
)
def test_with_apex_keys_and_hash_every_record_goes_where_apex_sends_it(case: dict[str, Any]) -> None:
    shares = deal(by("ApexKeys", tasks=case["partitions"]))

    def tasks(positive: int) -> list[int]:
        return [task for task, owned in enumerate(shares.owners) if positive % shares.cosets in owned]

    for signed, partitions in case["hash_to_partition"]:
        assert tasks(signed & 0x7FFFFFFF) == partitions, signed
    for text, signed, partitions in case["string_hash_partition"]:
        assert apex_hash(text) == signed & 0x7FFFFFFF
        assert tasks(apex_hash(text)) == partitions, text


def test_a_partitioner_is_given_the_shares_of_the_last_batch_with_what_each_took() -> None:
    seen.clear()
    took = TaskFigures(900, 9_000, 1.5)
    before = stage(4, (0, 3), (1,), (2,), cooling=(0, 7, 0))
    before = replace(before, tasks=(*before.tasks, Task(3, {"flights": (0,)}, null_keys=True)))
    shares = (Share(4, (0, 3), 0, took), Share(4, (1,), 1, cooling=7), Share(4, (2,), 2))
    deal(by("Answers", shares=shares), previous=before, figures={0: took, 3: took}, batch=5)
    assert seen == [(shares, PartitioningContext("flights", 5, 8, (TAIL,)))]


def test_at_first_and_after_a_stage_that_kept_no_keys_together_there_are_no_shares() -> None:
    seen.clear()
    deal(by("Answers", shares=[Share(1, (0,))]))
    assert seen == [((), PartitioningContext("flights", 0, 8, (TAIL,)))]
    assert current_shares(stage(2, (), ()), {}) == ()


def test_shares_of_different_moduli_are_brought_to_the_widest_and_equal_deals_are_equal() -> None:
    answer = [Share(4, (1,)), Share(8, (4,)), Share(4, (2, 3)), Share(8, (0,))]
    assert deal(by("Answers", shares=answer)) == Shares(8, ((1, 5), (4,), (2, 3, 6, 7), (0,)), ())
    one = [Share(2, (0,)), Share(4, (1,)), Share(4, (3,))]
    other = [Share(8, (0, 6, 4, 2)), Share(4, (1,)), Share(8, (7, 3))]
    assert deal(by("Answers", shares=one)) == deal(by("Answers", shares=other)) == Shares(4, ((0, 2), (1,), (3,)), ())


def test_what_need_not_wait_beyond_the_next_batch_is_not_remembered() -> None:
    answer = [Share(2, (0,), cooling=9), Share(4, (1,), cooling=8), Share(4, (3,), cooling=3)]
    assert deal(by("Answers", shares=answer), batch=7).cooling == (9, 0, 0)
    assert deal(by("Answers", shares=answer), batch=8).cooling == ()


def test_all_that_is_wrong_with_an_answer_is_said_at_once() -> None:
    assert refused([Share(0, (0,)), Share(4, ()), Share(4, (1, 4, -1)), Share(4, (2, 2))]) == [
        "share 0 has the modulus 0",
        "share 1 is empty",
        "share 2 has residues that modulus 4 does not have: 4, -1",
        "share 3 names a residue twice",
    ]
    assert refused([Share(8, (0, 3)), Share(4, (1,)), Share(2, (1,))]) == [
        "keys with h(key) mod 8 = 2, 4, 6 are in no share",
        "keys with h(key) mod 8 = 1 (shares 1, 2), 3 (shares 0, 2), 5 (shares 1, 2) are in several shares",
    ]


def test_answers_that_are_too_long_too_fine_or_no_shares_are_refused() -> None:
    assert refused([Share(64, (0,))]) == [
        "keys with h(key) mod 64 = 1, 2, 3, 4, 5, 6, 7, 8 and 55 more are in no share"
    ]
    assert refused([Share(1, (0,)), 1]) == ["it gives something else than shares"]
    answer = [Share(1009, tuple(range(1009))), Share(1013, (0,)), Share(1019, (0,))]
    assert refused(answer) == ["its moduli have 1,041,537,223 residues in common, more than 1,048,576"]


@pytest.mark.parametrize("answer", [None, [], (), {}])
def test_an_answer_without_shares_is_refused(answer: Any) -> None:
    assert refused(answer) == ["it gives no shares"]


@pytest.mark.parametrize(
    ("ref", "what"),
    [
        ("nowhere.parts:Own", "cannot be imported"),
        ("partitioning.planning.partitioners.partitioners:Nothing", "cannot be imported"),
        (PartitionerRef("partitioning.planning.partitioners.partitioners:Even", {"parts": 3}), "it cannot be made"),
        ("partitioning.planning.partitioners.partitioners:seen", "cannot be imported"),
        (f"{__name__}:TAIL", "is no function"),
        ("partitioning.errors:CosetError", "gives no partitioner but CosetError"),
    ],
)
def test_what_is_no_partitioner_is_refused(ref: PartitionerRef | str, what: str) -> None:
    with pytest.raises(Refused, match=what):
        deal(ref)


@pytest.mark.parametrize("kind", [ApexKeys, Even])
@pytest.mark.parametrize("tasks", [0, -1, 2.5, "3", True])
def test_a_number_of_tasks_that_is_none_is_refused_when_it_is_given(kind: Any, tasks: Any) -> None:
    with pytest.raises(Refused, match="give tasks as 1 or more"):
        kind(tasks)


def test_more_tasks_than_cosets_are_refused_with_the_scheme_that_would_do() -> None:
    with pytest.raises(Refused, match=r"8 cosets cannot be assigned to 9 tasks(.|\n)*tasks\(144\)"):
        deal(by("Even", tasks=9))


def test_what_was_kept_removed_and_made_shows_in_the_keys_owned() -> None:
    before, after = stage(4, (0, 3), (1,), (2,)), stage(8, (0, 4), (1, 5), (2, 6), (3, 7))
    found = changes(before, after)
    assert [(share.task, str(share)) for share in found.kept] == [(1, "h(key) mod 4 = 1"), (2, "h(key) mod 4 = 2")]
    assert [(share.task, str(share)) for share in found.removed] == [(0, "h(key) mod 4 in 0, 3")]
    assert [(share.task, str(share)) for share in found.new] == [(0, "h(key) mod 4 = 0"), (3, "h(key) mod 4 = 3")]


def test_the_partitioner_of_the_settings_is_told_once_its_plan_is_accepted() -> None:
    seen.clear()
    before, after, own = stage(2, (0,), (1,)), stage(2, (0, 1)), f"{__name__}:Answers"
    pipeline = Pipeline("delays", partitioners={"flights": own})
    notify(plan(after), plan(before), pipeline, Settings())
    notify(plan(after), None, Pipeline("delays"), Settings(partitioners={"flights": own}))
    notify(plan(after), plan(before), Pipeline("delays"), Settings(partitioners={"planes": own}))
    assert seen == [changes(before, after), Changes((), (), (Share(1, (0,), 0),))]
    seen.clear()
    pipeline = Pipeline("delays", partitioners={"flights": "partitioning.planning.partitioners.partitioners:Nothing"})
    notify(plan(stage(1, (0,))), None, pipeline, Settings(partitioners={"flights": f"{__name__}:Answers"}))
    assert len(seen) == 1


def test_even_shares_differ_by_one_coset_at_most_and_stay_where_they_are() -> None:
    for cosets in (1, 7, 48, 64, 100):
        before = None
        for tasks in range(1, cosets + 1):
            owners = [set(share.residues) for share in Even(tasks).define((), PartitioningContext("s", 0, cosets, ()))]
            assert sorted(residue for owned in owners for residue in owned) == list(range(cosets))
            assert {len(owned) for owned in owners} <= {cosets // tasks, -(-cosets // tasks)}
            if before is not None:
                assert all(now <= was for was, now in zip(before, owners[:-1], strict=True))
            before = owners


@pytest.mark.parametrize("tasks", [3, 5, 6, 7, *range(9, 16)])
def test_even_shares_beat_the_skew_and_the_moves_of_apex(tasks: int) -> None:
    apex = skew_and_moves(by("ApexKeys", tasks=tasks), by("ApexKeys", tasks=tasks + 1))
    even = skew_and_moves(by("Even", tasks=tasks), by("Even", tasks=tasks + 1))
    assert apex[0] >= Fraction(9, 8) > Fraction(16, 15) >= even[0]
    assert even[1] <= Fraction(1, tasks + 1) <= apex[1]


def skew_and_moves(one: PartitionerRef, more: PartitionerRef) -> tuple[Fraction, Fraction]:
    """Busiest task over the mean, and the part of the keys that another task has with one task more."""
    was, now = deal(one, cosets=256), deal(more, cosets=256)
    size = max(was.cosets, now.cosets)

    def owner(shares: Shares) -> list[int]:
        found = {residue: task for task, owned in enumerate(shares.owners) for residue in owned}
        return [found[residue % shares.cosets] for residue in range(size)]

    moved = sum(before != after for before, after in zip(owner(was), owner(now), strict=True))
    skew = Fraction(max(map(len, was.owners)) * len(was.owners), was.cosets)
    return skew, Fraction(moved, size)


def test_a_share_is_known_by_its_smallest_modulus() -> None:
    for modulus in range(1, 25):
        for pattern in range(1, 1 << min(modulus, 8)):
            share = Share(modulus, tuple(each for each in range(modulus) if pattern >> each % 8 & 1))
            smallest = min(
                m
                for m in range(1, modulus + 1)
                if modulus % m == 0
                and share.residues == tuple(e for e in range(modulus) if e % m in {r % m for r in share.residues})
            )
            found = reduced(share)
            assert found.modulus == smallest
            assert residues_at(found, modulus) == share.residues


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


def test_only_siblings_of_one_modulus_own_together_what_both_owned() -> None:
    shares = (Share(4, (0, 3), load=-1), Share(4, (1,)), Share(4, (2,), load=-1))
    assert keys(repartitioned(shares)) == [(4, (0, 2, 3)), (4, (1,))]
    assert keys(repartitioned([Share(8, (0, 1), load=-1), Share(8, (4, 5), load=-1), Share(4, (2, 3))])) == [
        (4, (0, 1)),
        (4, (2, 3)),
    ]
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
