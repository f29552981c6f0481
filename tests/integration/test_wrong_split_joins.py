"""Hot keys that tasks share, or that have a task of their own, wrongly: what is lost, doubled or swapped is caught.

Views are read in ranges, clicks are copied.
"""

from __future__ import annotations

from collections.abc import Callable

from coset.sources.reader import Reader
from partitioning.documents.store import Store
from partitioning.model.order import Order, Ordered, OrderedStream
from partitioning.model.reasons import OwnTasks
from partitioning.model.schemes import HotKeys
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.values import replace
from spark_jobs.engine import kernel
from spark_jobs.engine.kernel import TaskEnvironment
from spark_jobs.engine.take import LEFT, TAKEN, Take
from tests.hot import HOT, Met
from tests.judged import COVERED, IN_PLACE, MEET, PRODUCED
from tests.running import run_and_publish
from tests.wrong_tasks import (
    Patch,
    doubled,
    first,
    goes_by,
    lost,
    of_others,
    read_nothing,
    reading,
    refused,
    says,
    ways,
    writes,
)

# The tasks that share the hot key, and one that has other keys only.
FIRST, LAST = 4, 5
FAR = 0
ELSEWHERE = {COVERED, IN_PLACE, MEET}
TAKE, LOSE, TAKE_ANOTHER = first(LEFT, TAKEN, hot=True), first(TAKEN, LEFT, hot=True), first(LEFT, TAKEN, hot=False)


def read_as(patch: Patch, task: int, change: Callable[[PlannedPartition], PlannedPartition]) -> None:
    """A task reads partitions of views otherwise than its order says."""
    reader, make = kernel.reader, Take.__init__

    def changed(ordered: Ordered) -> Ordered:
        assert isinstance(ordered, OrderedStream)
        return replace(ordered, partitions=tuple(map(change, ordered.partitions)))

    def wrong(order: Order, ordered: Ordered, place: TaskEnvironment) -> Reader:
        is_it = (order.task.task, ordered.name) == (task, "views")
        return reader(order, changed(ordered) if is_it else ordered, place)

    def made(self: Take, order: Order, ordered: Ordered, planned: PlannedPartition, *more: object) -> None:
        is_it = (order.task.task, ordered.name) == (task, "views")
        make(self, order, ordered, change(planned) if is_it else planned, *more)  # type: ignore[arg-type]

    patch.setattr(kernel, "reader", wrong)
    patch.setattr(Take, "__init__", made)


def moved(start: int, end: int = 0) -> Callable[[PlannedPartition], PlannedPartition]:
    return lambda part: replace(part, start=part.start + start, end=part.end + end)


@ways
def test_tasks_that_share_a_hot_key_wrongly_are_refused_and_their_batch_is_published_once_nothing_is_wrong(
    some: str, store: Store
) -> None:
    met = Met(store, "left", HotKeys.SPLIT)
    met.land(1)
    met.run(None)
    met.land(2)
    split, plan = met.planned()
    (stage,) = plan.stages
    assert isinstance(stage.why, OwnTasks)
    assert [(key.key, key.ranged, key.tasks) for key in stage.why.keys] == [(HOT, "views", 2)]
    assert stage.shares == (range(FIRST, LAST + 1),)
    others, whole = of_others(split, FIRST), plan.stream("views").partitions
    assert others != FAR
    refused(split, some, {
        # Each record of the side in ranges is in exactly one of the tasks.
        "a task loses a record of its range": ({COVERED}, says(LAST, "views", LOSE)),
        "no task reads a range": ({COVERED}, lambda p: read_nothing(p, reading(LAST, "views"))),
        # The last task reads the whole partition, and so the first one's range again.
        "two read a range": ({COVERED}, lambda p: read_as(p, LAST, lambda part: whole[part.partition])),
        "ranges overlap": ({COVERED}, lambda p: read_as(p, LAST, moved(-20))),
        "ranges leave a gap between them": ({COVERED}, lambda p: read_as(p, LAST, moved(20))),
        # As many records are read as should be.
        "ranges move on by a record": ({COVERED}, lambda p: read_as(p, FIRST, moved(1, 1))),
        "the task of the others takes one too": (ELSEWHERE, says(others, "views", TAKE)),
        "the task of the others takes one in their place": (
            {IN_PLACE, MEET}, lambda p: [says(others, "views", TAKE)(p), says(FIRST, "views", LOSE)(p)]
        ),
        # All records of the other side are in each of them.
        "the first copy lacks one": ({COVERED}, says(FIRST, "clicks", LOSE)),
        "the last copy lacks one": ({COVERED}, says(LAST, "clicks", LOSE)),
        "a copy has another key": (ELSEWHERE, says(LAST, "clicks", TAKE_ANOTHER)),
        # As many records are copied as should be.
        "a copy has another record": (ELSEWHERE, says(LAST, "clicks", LOSE, TAKE_ANOTHER)),
        "a copy is not read": ({COVERED}, lambda p: read_nothing(p, reading(LAST, "clicks"))),
        "all copies lack the same": (
            {COVERED}, lambda p: [says(task, "clicks", LOSE)(p) for task in (FIRST, LAST)]
        ),
        "the task of the others has a copy": (ELSEWHERE, says(others, "clicks", TAKE)),
        # Every other key is in one task.
        "a task that shares takes another key": (ELSEWHERE, says(LAST, "views", TAKE_ANOTHER)),
        "nobody takes another key": ({COVERED}, says(others, "views", first(TAKEN, LEFT))),
        "a task takes all keys of its range": (ELSEWHERE, goes_by(LAST, None)),
        "a task goes by another residue": (ELSEWHERE, goes_by(LAST, 8)),
        "the task of the others keeps the key": (ELSEWHERE, goes_by(others, None)),
        # Each row of them is written once.
        "a row is lost when it is written": ({PRODUCED}, writes(FIRST, lost)),
        "a row is doubled when it is written": ({PRODUCED}, writes(LAST, doubled)),
    })  # fmt: skip
    run_and_publish(split)
    assert met.rows() == met.direct()


# The task of the hot key.
OWN = 4


@ways
def test_a_task_of_a_hot_key_that_goes_wrong_is_refused_and_its_batch_is_published_once_nothing_is(
    some: str, store: Store
) -> None:
    met = Met(store)
    met.land(1)
    met.run(None)
    met.land(2)
    own, plan = met.planned()
    (stage,) = plan.stages
    assert isinstance(stage.why, OwnTasks)
    assert [key.key for key in stage.why.keys] == [HOT]
    others = of_others(own, OWN)
    refused(own, some, {
        # Each record of the key is in its task.
        "it loses a record": ({COVERED}, says(OWN, "views", LOSE)),
        "it loses the other side": ({COVERED}, says(OWN, "clicks", LOSE)),
        "the task of the others takes one too": (ELSEWHERE, says(others, "views", TAKE)),
        "both take the other side": (ELSEWHERE, says(others, "clicks", TAKE)),
        "the task of the others takes one in its place": (
            {IN_PLACE, MEET}, lambda p: [says(others, "views", TAKE)(p), says(OWN, "views", LOSE)(p)]
        ),
        # No record of another key is in it.
        "it takes another key": (ELSEWHERE, says(OWN, "views", first(LEFT, TAKEN, hot=False))),
        "nobody takes another key": ({COVERED}, says(others, "views", first(TAKEN, LEFT))),
        # Each task goes by its residues and its files.
        "it takes all of its partitions": (ELSEWHERE, goes_by(OWN, None)),
        "it goes by another residue": (ELSEWHERE, goes_by(OWN, 8)),
        "the task of the others keeps the key": (ELSEWHERE, goes_by(others, None)),
        "it reads nothing": ({COVERED}, lambda p: read_nothing(p, lambda order, _: order.task.task == OWN)),
        # Each row of it is written once.
        "a row is lost when it is written": ({PRODUCED}, writes(OWN, lost)),
        "a row is doubled when it is written": ({PRODUCED}, writes(OWN, doubled)),
    })  # fmt: skip
    run_and_publish(own)
    assert met.rows() == met.direct()
