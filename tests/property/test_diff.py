"""Diff held against an oracle that looks at every hash value one by one."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import lcm

from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning.diff.moved_keys import Portion, handovers, kept
from partitioning.diff.plan_diff import diff
from partitioning.model.plan import Plan, TaskRef
from partitioning.values import replace
from tests.examples import examples
from tests.shown import tails

counts = st.integers(1, 12)


@st.composite
def labelled(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """A modulus and a label for each of its residues."""
    modulus = draw(counts)
    return modulus, [(residue, draw(st.integers(0, 3))) for residue in range(modulus)]


@st.composite
def plans(draw: st.DrawFn, batch: int) -> Plan:
    """A plan of flights and planes under any scheme, its cosets dealt to any number of tasks, or not at all."""
    scheme = f"tasks({draw(counts)})"
    cosets = int(scheme[6:-1])
    dealt = None
    if draw(st.booleans()):
        owners = [draw(st.integers(0, 3)) for _ in range(cosets)]
        dealt = [[coset for coset in range(cosets) if owners[coset] == each] for each in sorted(set(owners))]
    return tails(scheme, flights=draw(counts), batch=batch, groups=draw(st.integers(1, 3)), dealt=dealt)


@settings(deadline=None)
@given(labelled(), labelled())
def test_the_share_that_stays_is_that_of_all_hash_values(
    before: tuple[int, list[tuple[int, int]]], now: tuple[int, list[tuple[int, int]]]
) -> None:
    old, new = dict(before[1]), dict(now[1])
    hashes = range(lcm(before[0], now[0]))
    stays = sum(old[h % before[0]] == new[h % now[0]] for h in hashes)
    assert kept(before, now) == Fraction(stays, len(hashes))


@given(counts, counts)
def test_tasks_by_the_coset_rule_keep_the_share_that_arithmetic_gives(before: int, now: int) -> None:
    sides = ((count, [(task, task) for task in range(count)]) for count in (before, now))
    assert kept(*sides) == Fraction(min(before, now), lcm(before, now))


@settings(deadline=None, max_examples=examples(60))
@given(plans(0), plans(1))
def test_groups_partitions_records_and_tasks_are_those_that_a_look_at_each_hash_finds(before: Plan, now: Plan) -> None:
    (old,), (new,) = before.stages, now.stages
    found = {each.name: each for each in handovers(before, now)}
    for read in new.inputs:
        count = read.placement.partitions
        hashes = range(lcm(old.cosets, new.cosets, count))
        in_groups = Counter(h % count for h in hashes if _group(before, h) != _group(now, h))
        share = Fraction(sum(in_groups.values()), len(hashes))
        each = found.get(read.name)
        assert (each.groups if each else 0) == share
        if old.cosets != new.cosets:
            moving = Counter(h % count for h in hashes if _task(before, h) != _task(now, h))
            assert (each.keys if each else 0) == Fraction(sum(moving.values()), len(hashes))
            if each and each.keys:
                assert each.partitions == Portion(len(moving), count)
                assert each.records is not None
                assert each.records.some == round(Fraction(250 * count * sum(moving.values()), len(hashes)))
                taking = {_task(now, h) for h in hashes if _task(before, h) != _task(now, h)}
                assert each.tasks == Portion(len(taking), len(new.tasks))


@settings(deadline=None, max_examples=examples(40))
@given(plans(0), plans(1))
def test_a_plan_of_other_offsets_only_changes_nothing_and_any_plan_leaves_the_results(before: Plan, now: Plan) -> None:
    assert diff(before, replace(before, batch=1)).sentences == ("Nothing changed but the offsets.",)
    assert diff(before, now).results.same == ("tail_activity",)


def _task(plan: Plan, h: int) -> int:
    (stage,) = plan.stages
    (owner,) = [task.task for task in stage.tasks if h % stage.cosets in task.owns]
    return owner


def _group(plan: Plan, h: int) -> int:
    ref = TaskRef(plan.stages[0].name, _task(plan, h))
    (group,) = [group.group for group in plan.groups if ref in group.tasks]
    return group
