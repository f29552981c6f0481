"""Which partitions are split because of hot keys, against what is asked for of each by itself."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from partitioning.cosets import ranges
from partitioning.planning.stages.split_partitions import HEAVIER, LEAST, MOST_TASKS, SHARE, split_partitions

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
