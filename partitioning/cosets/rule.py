"""The coset rule: which tasks and which stream partitions share keys.

A producer puts key k into partition `h(k) mod n`. Task t of L owns the coset `{k : h(k) mod L = t}`.
Then partition p and task t share keys if and only if p ≡ t (mod gcd(n, L)).
"""

from __future__ import annotations

from math import gcd


def partitions_of(task: int, tasks: int, partitions: int) -> tuple[int, ...]:
    """The partitions (of `partitions`) that can hold keys of `task` (of `tasks`), ascending.

    SAMZA-71's AdClicks, 12 partitions, over 4 tasks:

    >>> partitions_of(3, 4, 12)
    (3, 7, 11)
    >>> partitions_of(5, 6, 4)
    (1, 3)
    """
    step = gcd(partitions, tasks)
    return tuple(range(task % step, partitions, step))


def tasks_of(partition: int, partitions: int, tasks: int) -> tuple[int, ...]:
    """The tasks (of `tasks`) that share keys with `partition` (of `partitions`), ascending.

    >>> tasks_of(1, 4, 6)
    (1, 3, 5)
    """
    return partitions_of(partition, partitions, tasks)


def needs_filter(tasks: int, partitions: int) -> bool:
    """Whether a task must leave out records of other tasks: only if L does not divide n.

    >>> needs_filter(4, 12), needs_filter(8, 12)
    (False, True)
    """
    return partitions % tasks != 0
