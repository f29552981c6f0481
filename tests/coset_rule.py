"""The coset rule, as an oracle: which tasks and which stream partitions share keys, and whose a record is.

A producer puts key k into partition `h(k) mod n`. Task t of L owns the coset `{k : h(k) mod L = t}`.
Then partition p and task t share keys if and only if p ≡ t (mod gcd(n, L)).
"""

from __future__ import annotations

from math import gcd

from partitioning.model.streams import NullKeys
from partitioning.model.takes import Disposition

WITHOUT_KEY = {
    NullKeys.OWN_TASK: Disposition.TAKEN,
    NullKeys.DROP: Disposition.DROPPED,
    NullKeys.REFUSE: Disposition.REFUSED,
}


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


def disposition(task: int, tasks: int, h: int | None, null_keys: NullKeys, keyless: int) -> Disposition:
    """What a task does with a record whose key has the hash h, None without a key. `tasks` own a coset each; records
    without a key are those of the task `keyless`, which may be one more.

    >>> [str(disposition(1, 4, h, NullKeys.DROP, keyless=1)) for h in (9, 11, None)]
    ['taken', 'left', 'dropped']
    >>> [str(disposition(task, 4, None, NullKeys.OWN_TASK, keyless=4)) for task in (1, 4)]
    ['left', 'taken']
    """
    if h is None:
        return WITHOUT_KEY[null_keys] if task == keyless else Disposition.LEFT
    return Disposition.TAKEN if h % tasks == task else Disposition.LEFT
