"""Split partitions: which stream partitions are read in ranges, because of a hot key, and how large the ranges are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

# A partition with fewer records is never split: its tasks would cost more than they save.
LEAST = 1_000
# A partition is split if its heaviest task has this many times what a task without split partitions has, and one key
# at least this share of that. If it was split in the last batch, it stays so down to the second figures.
HEAVIER = Fraction(5, 4), Fraction(11, 10)
SHARE = Fraction(1, 2), Fraction(1, 4)
# No partition is split into more tasks, and no range is less than this part of a mean task.
MOST_TASKS = 64
PART = Fraction(1, 4)


def split_partitions(
    held: Mapping[int, int], keys: Mapping[int, Fraction], tasks: int, beside: int = 0, before: Collection[int] = ()
) -> tuple[int, tuple[int, ...]]:
    """The most records of a range, and the partitions to split, ascending; none if no task is that heavy.

    `held` has the records of each partition of a stream, `keys` those of the heaviest key of some. A stage of so many
    `tasks` reads them, and `beside` records of other streams. Partitions in `before` were split in the last batch.

    A key has 40 of 100 thousand records, spread over 8 partitions and tasks:

    >>> split_partitions({0: 47_500} | dict.fromkeys(range(1, 8), 7_500), {0: Fraction(40_000)}, 8)
    (7500, (0,))

    What a task without hot keys has is the measure, so partitions are looked at again while one more is hot.
    """
    if tasks < 2:
        return 0, ()
    # If several tasks share a partition, one of them has the key.
    readers = max(Fraction(1), Fraction(tasks, len(held)))
    whole = Fraction(beside, tasks)
    loads = {
        number: whole + keys.get(number, Fraction()) + (count - keys.get(number, Fraction())) / readers
        for number, count in held.items()
    }
    split = set[int]()
    while True:
        rest = sum(count for number, count in held.items() if number not in split)
        light = whole + Fraction(rest, max(1, tasks - len(split)))
        more = {
            number
            for number in keys.keys() - split
            if held[number] >= LEAST
            and loads[number] >= HEAVIER[number in before] * light
            and keys[number] >= SHARE[number in before] * light
        }
        if not more:
            break
        split |= more
    bounds = [PART * Fraction(sum(held.values()) + beside, tasks)]
    bounds += [Fraction(held[number], MOST_TASKS) if number in split else load for number, load in loads.items()]
    most = max(bounds)
    return -(-most.numerator // most.denominator), tuple(sorted(split))
