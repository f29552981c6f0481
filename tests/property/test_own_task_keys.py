"""Which keys are given a task of their own, against what is asked for of each by itself, and who owns what then."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from partitioning.model.reasons import AsAsked, OwnTask, OwnTasks
from partitioning.planning.stages.own_tasks import MOST_KEYS, hot_keys_of
from partitioning.planning.stages.split_partitions import LEAST, SHARE

WEIGHTS = st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(100, 50_000))
TASKS = st.integers(1, 12)
OTHERS = st.integers(0, 200_000)


@given(WEIGHTS, OTHERS, TASKS, st.lists(st.sampled_from("abcdefghijkl"), unique=True))
def test_a_key_has_a_task_if_and_only_if_it_is_as_heavy_as_half_of_the_tasks_without(
    weights: dict[str, int], others: int, tasks: int, before: list[str]
) -> None:
    taken = others + sum(weights.values())
    hot = hot_keys_of(weights, taken, tasks, before)
    assert len(set(hot)) == len(hot) <= min(MOST_KEYS, tasks)
    if tasks == 1:
        assert not hot
        return
    for key in hot:
        light = Fraction(taken - sum(weights[each] for each in hot), tasks)
        assert weights[key] >= LEAST
        assert weights[key] >= SHARE[key in before] * light
    if len(hot) < min(MOST_KEYS, tasks):
        # One more key would have too little beside what the others then have.
        for key in weights.keys() - set(hot):
            if weights[key] >= max((weights[each] for each in weights if each not in hot), default=0):
                light = Fraction(taken - sum(weights[each] for each in (*hot, key)), tasks)
                assert weights[key] < LEAST or weights[key] < SHARE[key in before] * light or before


@given(WEIGHTS, OTHERS, TASKS)
def test_a_key_loses_its_task_later_than_it_gets_one(weights: dict[str, int], others: int, tasks: int) -> None:
    taken = others + sum(weights.values())
    begun = hot_keys_of(weights, taken, tasks)
    again = hot_keys_of(weights, taken, tasks, begun)
    assert again[: len(begun)] == begun


@given(st.integers(2, 12), st.sampled_from([16, 32]), st.sets(st.integers(0, 191), max_size=MOST_KEYS))
def test_each_residue_is_one_task_s_and_of_the_task_that_had_it_unless_it_is_a_hot_key_s(
    tasks: int, parts: int, residues: set[int]
) -> None:
    cosets = tasks * parts
    keys = tuple(OwnTask(str(number), residue, 1) for number, residue in enumerate(r for r in residues if r < cosets))
    owners = OwnTasks(AsAsked(tasks), keys).owners(cosets)
    assert Counter(residue for owned in owners for residue in owned) == Counter(range(cosets))
    assert all(residue % tasks == task for task, owned in enumerate(owners[:tasks]) for residue in owned)
    assert all(owners[:tasks])
    assert list(owners[tasks:]) == [(key.residue,) for key in keys]
