"""Which keys have a task of their own, and which partitions are split, against what is asked for of each by itself."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from partitioning.cosets import ranges
from partitioning.model.reasons import AsAsked, OwnTask, OwnTasks
from partitioning.planning.stages.hot_ranges import HEAVIER, LEAST, MOST_TASKS, SHARE, split_partitions
from partitioning.planning.stages.own_tasks import MOST_KEYS, hot_keys_of

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


HELD = st.lists(st.integers(0, 50_000), min_size=1, max_size=8).map(lambda counts: dict(enumerate(counts)))


@st.composite
def skewed(draw: st.DrawFn) -> tuple[dict[int, int], dict[int, Fraction]]:
    held = draw(HELD)
    some = draw(st.sets(st.sampled_from(sorted(held))))
    shares = st.fractions(0, 1, max_denominator=100)
    return held, {number: draw(shares) * held[number] for number in some}


def light(held: dict[int, int], split: set[int], tasks: int, beside: int) -> Fraction:
    """The mean of the tasks that read no split partition."""
    rest = sum(count for number, count in held.items() if number not in split)
    return Fraction(rest, max(1, tasks - len(split))) + Fraction(beside, tasks)


def heaviest(held: dict[int, int], keys: dict[int, Fraction], number: int, tasks: int, beside: int) -> Fraction:
    """The records of the task that has the heaviest key of a partition, counted key by key: others are spread evenly
    over the tasks that share the partition."""
    readers = max(Fraction(1), Fraction(tasks, len(held)))
    key = keys.get(number, Fraction(0))
    return key + (held[number] - key) / readers + Fraction(beside, tasks)


@given(skewed(), st.integers(1, 12), st.integers(0, 20_000), st.sets(st.integers(0, 7)))
def test_a_partition_is_split_if_and_only_if_its_key_makes_its_task_heavy(
    made: tuple[dict[int, int], dict[int, Fraction]], tasks: int, beside: int, before: set[int]
) -> None:
    held, keys = made
    most, found = split_partitions(held, keys, tasks, beside, before)
    split = set(found)
    assert list(found) == sorted(split)
    assert split <= keys.keys()
    if tasks == 1:
        assert not split
        return
    measure = light(held, split, tasks, beside)
    for number in keys.keys() - split:
        stays = number in before
        assert (
            held[number] < LEAST
            or heaviest(held, keys, number, tasks, beside) < HEAVIER[stays] * measure
            or keys[number] < SHARE[stays] * measure
        )
    for number in split:
        assert held[number] >= LEAST
        pieces = ranges(0, held[number], most)
        assert len(pieces) <= MOST_TASKS
        assert pieces[0].start == 0
        assert pieces[-1].end == held[number]
        assert all(one.end == other.start for one, other in pairwise(pieces))


@given(skewed(), st.integers(2, 12), st.integers(0, 20_000))
def test_no_task_has_more_than_the_heaviest_without_a_split_key(
    made: tuple[dict[int, int], dict[int, Fraction]], tasks: int, beside: int
) -> None:
    held, keys = made
    most, split = split_partitions(held, keys, tasks, beside)
    if not split:
        return
    others = [heaviest(held, keys, number, tasks, beside) for number in held if number not in split]
    small = Fraction(sum(held.values()) + beside, 4 * tasks)
    coarse = max(Fraction(held[number], MOST_TASKS) for number in split)
    assert most <= max([*others, small, coarse]) + 1


@given(skewed(), st.integers(2, 12))
def test_what_was_split_is_given_up_later_than_it_is_begun(
    made: tuple[dict[int, int], dict[int, Fraction]], tasks: int
) -> None:
    held, keys = made
    _, begun = split_partitions(held, keys, tasks)
    _, again = split_partitions(held, keys, tasks, before=begun)
    assert set(begun) <= set(again)


@given(st.integers(1_000, 100_000), st.integers(2, 16))
def test_a_key_with_two_fifths_is_spread_to_a_third_over_the_mean(total: int, tasks: int) -> None:
    """The longest task is at most 1.3 times the mean of those that read something."""
    key = total * 4 // 10
    each = max(1, (total - key) // tasks)
    held = dict.fromkeys(range(tasks), each) | {0: each + key}
    most, split = split_partitions(held, {0: Fraction(key)}, tasks)
    if not split:
        assert held[0] < LEAST or tasks < 3 or key < each
        return
    read = [span.end - span.start for span in ranges(0, held[0], most)] + [each] * (tasks - 1)
    assert max(read) * len(read) * 10 <= 13 * sum(read) + 10 * len(read)
