"""Sizing against brute force: hashes are dealt out one by one, and every number of tasks is tried."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.model.placement import MURMUR2, OPAQUE
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.statistics import Statistics
from partitioning.planning.planner import plan_batch
from partitioning.sizing.proposal import NEAR, Targets, propose
from partitioning.sizing.workload import LEFT, Load, Workload, footprint
from partitioning.values import replace
from tests.examples import examples
from tests.plans import COLUMNS, arrived

MOST = 30
STAGE = "flights+planes"
Sizes = tuple[tuple[int, ...], tuple[int, ...]]

counts = st.sampled_from([1, 2, 3, 4, 6, 8, 9, 12])
sizes: st.SearchStrategy[Sizes] = st.tuples(counts, counts).flatmap(
    lambda two: st.tuples(*(st.lists(st.integers(0, 50), min_size=n, max_size=n).map(tuple) for n in two))
)


def joined(of: Sizes, hash: str = MURMUR2) -> Pipeline:
    pipeline = Pipeline("tails", source="s3://landing/topics")
    flights = pipeline.stream("flights", key="tailnum", partitions=len(of[0]), hash=hash)
    planes = pipeline.stream("planes", key="tailnum", partitions=len(of[1]), hash=hash)
    flights.join(planes, "flights.dep_delay", name="joined").write("tails")
    return pipeline


def planned(of: Sizes, scheme: str | None = None, hash: str = MURMUR2, times: int = 1) -> Plan:
    """A plan whose stream partitions have these bytes."""
    found = [arrived("flights", [1] * len(of[0])), arrived("planes", [1] * len(of[1]))]
    made = plan_batch(joined(of, hash), found, {"tails": COLUMNS}, settings=Settings.parse(scheme=scheme))
    assert made is not None
    return replace(
        made, streams=tuple(_sized(stream, parts, times) for stream, parts in zip(made.streams, of, strict=True))
    )


def _sized(stream: PlannedStream, parts: Sequence[int], times: int) -> PlannedStream:
    sized = zip(stream.partitions, parts, strict=True)
    return replace(stream, partitions=tuple(replace(part, bytes=size * times) for part, size in sized))


def dealt(of: Sizes, tasks: int) -> Load:
    """The work of each task, by giving every residue of a hash to its partitions and its task."""
    modulus = lcm(tasks, *map(len, of))
    work = [Fraction()] * tasks
    for parts in of:
        share = Fraction(len(parts), modulus)
        kept = [[Fraction()] * len(parts) for _ in range(tasks)]
        for h in range(modulus):
            kept[h % tasks][h % len(parts)] += parts[h % len(parts)] * share
        held = {(h % tasks, h % len(parts)) for h in range(modulus)}
        for task, part in held:
            work[task] += kept[task][part] + LEFT * (parts[part] - kept[task][part])
    return Load(sum(work, Fraction()) / tasks, max(work))


def cost(of: Sizes, tasks: int, skew: float) -> Fraction:
    load = dealt(of, tasks)
    whole = all(len(parts) % tasks == 0 for parts in of)
    return max(load.mean, load.heaviest / Fraction(skew)) / (NEAR if whole else 1)


@settings(deadline=None, max_examples=examples(60))
@given(sizes, st.integers(1, MOST))
def test_the_work_of_tasks_is_what_dealing_out_hashes_gives(of: Sizes, tasks: int) -> None:
    plan = planned(of)
    assert Workload.of(plan, plan.stages[0]).load(tasks) == dealt(of, tasks)


@settings(deadline=None, max_examples=examples(60))
@given(sizes, st.integers(1, MOST))
def test_the_figures_of_a_planned_stage_are_those_that_sizing_goes_by(of: Sizes, tasks: int) -> None:
    plan = planned(of, f"tasks({tasks})")
    figures, load = footprint(plan, plan.stages[0]), dealt(of, tasks)
    assert (figures.tasks, figures.work) == (tasks, round(load.heaviest))
    reads = {(h % tasks, name, h % len(parts)) for name, parts in enumerate(of) for h in range(tasks * len(parts))}
    assert figures.reads == len(reads)
    read = [sum(of[name][part] for task, name, part in reads if task == one) for one in range(tasks)]
    assert (figures.heaviest, figures.mean) == (max(read), Fraction(sum(read), tasks))
    total = sum(map(sum, of))
    assert figures.amplification == (Fraction(sum(read), total) if total else 1)


@settings(deadline=None, max_examples=examples(60))
@given(sizes, st.integers(1, 200), st.sampled_from([1.0, 1.5, 2.0]), st.integers(1, 6), st.integers(6, MOST))
def test_it_is_the_fewest_worthwhile_tasks_that_reach_the_target(
    of: Sizes, target: int, skew: float, low: int, high: int
) -> None:
    (found,) = propose(planned(of), (), Targets(target, skew=skew, min_tasks=low, max_tasks=high, gain=1)).stages
    costs = {tasks: cost(of, tasks, skew) for tasks in range(low, high + 1)}
    reached = max(Fraction(target), NEAR * min(costs.values()))
    worthwhile = [
        tasks
        for tasks, own in costs.items()
        if not any(NEAR * other < own for number, other in costs.items() if number <= NEAR * tasks)
    ]
    assert found.tasks == min(tasks for tasks in worthwhile if costs[tasks] <= reached)


@settings(deadline=None, max_examples=examples(100))
@given(
    sizes,
    st.integers(1, 300),
    st.integers(1, 9),
    st.integers(1, MOST),
    st.sampled_from([1.0, 1.25, 2.0]),
    st.sampled_from([MURMUR2, OPAQUE]),
)
def test_more_bytes_never_propose_fewer_tasks(
    of: Sizes, target: int, times: int, before: int, gain: float, hash: str
) -> None:
    past = (Statistics(0, cosets={STAGE: before}),)
    targets = Targets(target, max_tasks=MOST, gain=gain)
    one, more = (propose(planned(of, hash=hash, times=n), past, targets) for n in (1, times))
    assert one.stages[0].tasks <= more.stages[0].tasks


@settings(deadline=None, max_examples=examples(100))
@given(
    sizes,
    st.integers(1, 300),
    st.integers(1, 12),
    st.integers(12, MOST),
    st.lists(st.integers(1, 2 * MOST), max_size=6),
    st.sampled_from([MURMUR2, OPAQUE]),
)
def test_what_is_proposed_is_within_the_bounds_can_be_planned_and_is_always_the_same(
    of: Sizes, target: int, low: int, high: int, past: list[int], hash: str
) -> None:
    history = [Statistics(batch, cosets={STAGE: tasks}) for batch, tasks in enumerate(past)]
    plan, targets = planned(of, hash=hash), Targets(target, min_tasks=low, max_tasks=high)
    proposal = propose(plan, history, targets)
    (found,) = proposal.stages
    assert proposal == propose(plan, history, targets)
    planned(of, str(found.scheme), hash)
    possible = [
        tasks for tasks in range(1, high + 1) if hash == MURMUR2 or all(len(parts) % tasks == 0 for parts in of)
    ]
    assert found.tasks >= min(low, max(possible))
    assert found.tasks <= high


@settings(deadline=None, max_examples=examples(60))
@given(sizes, st.integers(1, 300), st.lists(st.integers(1, 3), min_size=1, max_size=8), st.integers(0, 4))
def test_nothing_changes_within_the_cool_down(of: Sizes, target: int, past: list[int], cooldown: int) -> None:
    history = [Statistics(batch, cosets={STAGE: tasks}) for batch, tasks in enumerate(past)]
    run = next((age for age in range(1, len(past)) if past[-age - 1] != past[-1]), None)
    (found,) = propose(planned(of), history, Targets(target, cooldown=cooldown, max_tasks=MOST, gain=1)).stages
    (free,) = propose(planned(of), history, Targets(target, cooldown=0, max_tasks=MOST, gain=1)).stages
    assert found.tasks == (past[-1] if run is not None and run < cooldown else free.tasks)


@settings(deadline=None, max_examples=examples(40))
@given(sizes, st.integers(1, 60), st.integers(1, 60))
def test_a_controller_that_follows_every_proposal_comes_to_rest(of: Sizes, target: int, before: int) -> None:
    plan, targets = planned(of), Targets(target, max_tasks=MOST, cooldown=2)
    history = [Statistics(0, cosets={STAGE: before})]
    for batch in range(1, 9):
        (found,) = propose(plan, history, targets).stages
        history.append(Statistics(batch, cosets={STAGE: found.tasks}))
    assert len({each.cosets[STAGE] for each in history[1:]}) == 1
