"""Ranges: a stream partition's offsets assigned to several tasks, where not all of its records have to meet in one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from partitioning.model.offsets import Span
from partitioning.model.reasons import OwnTask, OwnTasks
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.takes import Task
from partitioning.values import replace

# More tasks than this are never useful. Airflow's DAG, which is laid out before there is a plan, relies on the limit.
MOST_RANGES = 10_000


def ranges(start: int, end: int, most: int) -> tuple[Span, ...]:
    """The offsets [start, end) in as few ranges as have `most` offsets each at most, as even as can be.

    >>> [str(span) for span in ranges(100, 110, 4)], [str(span) for span in ranges(7, 7, 4)]
    (['[100,103)', '[103,106)', '[106,110)'], ['[7,7)'])
    """
    return evenly(start, end, how_many(start, end, most))


def evenly(start: int, end: int, count: int) -> tuple[Span, ...]:
    """The offsets [start, end) in so many ranges, as even as can be.

    >>> [str(span) for span in evenly(100, 110, 3)]
    ['[100,103)', '[103,106)', '[106,110)']
    """
    bounds = [start + (end - start) * number // count for number in range(count + 1)]
    return tuple(map(Span, bounds, bounds[1:]))


def how_many(start: int, end: int, most: int) -> int:
    """Into how many ranges `ranges` assigns: one, if there is nothing."""
    return max(1, -(-(end - start) // most))


def assign_ranges(
    tasks: Sequence[Task], streams: Mapping[str, Sequence[PlannedPartition]], most: int
) -> tuple[Task, ...]:
    """Several tasks in place of each that reads more than `most` records of a stream partition.

    `streams` has the partitions of each. The tasks read one partition each, and keep their order: a partition's ranges
    follow one another.
    """
    assigned = [piece for task in tasks for piece in _pieces(task, streams, most)]
    return tuple(replace(task, task=number) for number, task in enumerate(assigned))


def assign_shares_of_keys(
    tasks: Sequence[Task], why: OwnTasks, streams: Mapping[str, Sequence[PlannedPartition]]
) -> tuple[Task, ...]:
    """Several tasks in place of each that owns a hot key which is to be shared.

    Each takes a range of the key's partition of one stream, and all that there is of the key elsewhere. The tasks keep
    their order.
    """
    keys = dict(enumerate(why.keys, why.of.cosets))
    assigned = [share for task in tasks for share in _shares(task, keys.get(task.task), streams)]
    return tuple(replace(task, task=number) for number, task in enumerate(assigned))


def _shares(task: Task, own: OwnTask | None, streams: Mapping[str, Sequence[PlannedPartition]]) -> Iterator[Task]:
    numbers = task.reads.get(own.ranged, ()) if own and own.tasks > 1 and own.ranged in streams else ()
    if own is None or len(numbers) != 1:
        yield task
        return
    planned = streams[own.ranged][numbers[0]]
    spans = evenly(planned.start, planned.end, own.tasks)
    yield from (replace(task, offsets=span, ranged=own.ranged) for span in spans)


def _pieces(task: Task, streams: Mapping[str, Sequence[PlannedPartition]], most: int) -> Iterator[Task]:
    ((name, (number,)),) = task.reads.items()
    if name not in streams:
        yield task
        return
    planned = streams[name][number]
    spans = ranges(planned.start, planned.end, most)
    yield from (replace(task, offsets=span) for span in spans) if len(spans) > 1 else (task,)
