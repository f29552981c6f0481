"""The proof as a whole, against faults made on purpose: all are caught, and a correct run never is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.takes import Disposition
from partitioning.values import replace
from tests.evidence import judged
from tests.examples import examples
from tests.reference import Log, Seen, log, pipeline, planned, run

Fault = Callable[[st.DataObject, Plan, list[Seen]], list[Seen]]

keys = st.text("ABCé0123456789", min_size=1, max_size=5)
calm = settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def batches(draw: st.DrawFn, *, refuse: bool = False) -> tuple[Plan, Log]:
    """A plan for random partition counts, scheme, null-key policy and records."""
    made = pipeline(
        draw(st.integers(1, 6)),
        draw(st.integers(1, 6)),
        "refuse" if refuse else draw(st.sampled_from(["drop", "own task"])),
    )
    some = draw(st.lists(keys, min_size=2, max_size=12, unique=True))
    nulls = [None] if not refuse else []
    records = log(
        made,
        {
            "flights": draw(st.lists(st.sampled_from([*some, *nulls]), min_size=2, max_size=30)),
            "planes": draw(st.lists(st.sampled_from(some), min_size=2, max_size=12)),
        },
    )
    return planned(made, records, draw(st.sampled_from(["cogroup", "elastic(2)", "elastic(3)", "tasks(5)"]))), records


def caught(plan: Plan, seen: Sequence[Seen]) -> bool:
    """Whether the audit refuses these receipts or the checkpoint is not content with them."""
    try:
        return not judged(plan, seen).success
    except Refused:
        return True


def _pick(data: st.DataObject, seen: Sequence[Seen], which: Callable[[Seen], bool]) -> int:
    places = [place for place, each in enumerate(seen) if which(each)]
    assume(places)
    return data.draw(st.sampled_from(places))


def _accounted(each: Seen) -> bool:
    return each.disposition in {Disposition.TAKEN, Disposition.DROPPED}


def _keyed(each: Seen) -> bool:
    return each.disposition is Disposition.TAKEN and each.key is not None


def drop_one(data: st.DataObject, plan: Plan, seen: list[Seen]) -> list[Seen]:
    """A record is never read by the task that owns it."""
    place = _pick(data, seen, _accounted)
    return seen[:place] + seen[place + 1 :]


def leave_one(data: st.DataObject, plan: Plan, seen: list[Seen]) -> list[Seen]:
    """A record is read, but every task leaves it to another."""
    place = _pick(data, seen, _accounted)
    return [*seen[:place], replace(seen[place], disposition=Disposition.LEFT), *seen[place + 1 :]]


def duplicate_one(data: st.DataObject, plan: Plan, seen: list[Seen]) -> list[Seen]:
    """A task takes a record twice."""
    place = _pick(data, seen, _accounted)
    return [*seen[:place], seen[place], *seen[place:]]


def replace_one(data: st.DataObject, plan: Plan, seen: list[Seen]) -> list[Seen]:
    """A record is lost and its neighbour taken twice, so that all counts agree."""
    place = _pick(data, seen, _accounted)
    lost = seen[place]
    near = _pick(data, seen, lambda each: _accounted(each) and each != lost and _same_place(each, lost))
    return [*seen[:place], replace(seen[near], task=lost.task), *seen[place + 1 :]]


def swap_two_offsets(data: st.DataObject, plan: Plan, seen: list[Seen]) -> list[Seen]:
    """Two records of a partition change places, so that counts and digests agree."""
    one = _pick(data, seen, _accounted)
    other = _pick(
        data, seen, lambda each: each.task == seen[one].task and each != seen[one] and _same_place(each, seen[one])
    )
    swapped = list(seen)
    swapped[one] = replace(seen[one], offset=seen[other].offset)
    swapped[other] = replace(seen[other], offset=seen[one].offset)
    return swapped


def move_one_key(data: st.DataObject, plan: Plan, seen: list[Seen]) -> list[Seen]:
    """A foreign producer puts a record where its key does not belong; every task that reads it sees that."""
    place = _pick(data, seen, _keyed)
    there = seen[place]
    count = len(plan.stream(there.stream).partitions)
    assume(count > 1)
    key = data.draw(keys.filter(lambda key: placement_hash(key) % count != there.partition))
    return [replace(each, key=key) if _same_record(each, there) else each for each in seen]


def wrong_task(data: st.DataObject, plan: Plan, seen: list[Seen]) -> list[Seen]:
    """A record is taken by a task that does not own its key, and not by the one that does."""
    place = _pick(data, seen, _keyed)
    there = seen[place]
    cosets = plan.stage(there.task.stage).cosets
    assume(cosets > 1)
    other = TaskRef(
        there.task.stage, data.draw(st.integers(0, cosets - 1).filter(lambda task: task != there.task.task))
    )
    moved = [replace(each, disposition=Disposition.LEFT) if each == there else each for each in seen]
    taken = replace(there, task=other)
    for at, each in enumerate(moved):
        if each.task == other and _same_record(each, there):
            moved[at] = taken
            return moved
    return [*moved, taken]


def _same_place(one: Seen, other: Seen) -> bool:
    return (one.stream, one.partition) == (other.stream, other.partition)


def _same_record(one: Seen, other: Seen) -> bool:
    return _same_place(one, other) and one.offset == other.offset


FAULTS = (drop_one, leave_one, duplicate_one, replace_one, swap_two_offsets, move_one_key, wrong_task)


@calm
@given(batches())
def test_a_correct_run_is_never_flagged(batch: tuple[Plan, Log]) -> None:
    plan, records = batch
    assert not caught(plan, run(plan, records))


@calm
@given(batches(refuse=True))
def test_a_correct_run_of_streams_that_refuse_records_without_keys_is_never_flagged(batch: tuple[Plan, Log]) -> None:
    plan, records = batch
    assert not any(each.disposition is Disposition.REFUSED for each in run(plan, records))
    assert not caught(plan, run(plan, records))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@calm
@given(batches(), st.data())
def test_every_fault_is_caught(fault: Fault, batch: tuple[Plan, Log], data: st.DataObject) -> None:
    plan, records = batch
    seen = run(plan, records)
    broken = fault(data, plan, seen)
    assert broken != seen
    assert caught(plan, broken)
