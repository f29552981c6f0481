"""A plan's digest and what it looks up, worked out once; and orders, which are a task's own slice of it."""

from __future__ import annotations

import json
import re

import pytest

from partitioning.documents.document import decode, digest, encode
from partitioning.model.order import STATE_KEYS_COMPARED, Order, OrderedParts, OrderedStream, order_of
from partitioning.model.placement import MURMUR2, OPAQUE, HashName, KeyFormat, Placement
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.stage_inputs import StateInput, StateRun
from partitioning.values import replace
from tests.plans import plan_of, tails, tails_found, wide


def test_a_digest_is_worked_out_once_and_looking_at_a_document_changes_nothing() -> None:
    plan = plan_of(tails(), tails_found())
    first = digest(plan)
    assert digest(plan) is first
    changed = replace(plan, batch=7)
    assert digest(changed) == json.loads(encode(changed))["digest"] != first
    assert digest(replace(changed, batch=plan.batch)) == first
    assert digest(decode(Plan, encode(changed), "a plan")) == digest(changed)
    one, other = plan_of(tails(), tails_found()), plan_of(tails(), tails_found())
    digest(one)
    one.stream("flights")
    assert one == other
    assert encode(one) == encode(other)


def test_what_a_plan_looks_up_is_that_of_the_value_after_a_change_too() -> None:
    plan = plan_of(tails(), tails_found())
    assert plan.stream("flights").partitions[0].end == 250
    (stage,) = plan.stages
    assert plan.stage(stage.name) is stage
    later = replace(plan.streams[0], partitions=(replace(plan.streams[0].partitions[0], end=9),))
    changed = replace(plan, streams=(later, plan.streams[1]), stages=(replace(stage, cosets=3),))
    assert changed.stream("flights").partitions[0].end == 9
    assert changed.stage(stage.name).cosets == 3


STAGE = "flights+planes"
ROOT = "s3://lake/coset"


@pytest.fixture(scope="module")
def few() -> Plan:
    return wide(10)


@pytest.fixture(scope="module")
def many() -> Plan:
    return wide(10_000)


def sent(plan: Plan, task: int) -> bytes:
    return encode(order_of(plan, digest(plan), TaskRef(STAGE, task), 0, ROOT, {}))


def test_orders_of_few_and_of_many_tasks_differ_in_their_figures_alone(few: Plan, many: Plan) -> None:
    short, long = ({len(sent(plan, task)) for task in range(tasks)} for tasks, plan in ((10, few), (10_000, many)))
    print(
        f"orders of 10 tasks: {min(short):,} to {max(short):,} bytes; of 10,000 tasks: {min(long):,} to {max(long):,}"
    )
    assert max(long) - max(short) < 100
    assert without_figures(sent(few, 7)) == without_figures(sent(many, 7)) == without_figures(sent(many, 9_999))


def without_figures(order: bytes) -> str:
    return re.sub(r"sha256:[0-9a-f]+|\d+", "0", order.decode())


def test_an_order_names_its_own_files_and_no_others() -> None:
    plan = wide(30)
    order = sent(plan, 7).decode()
    files = {
        (stream.name, partition.partition, file.path)
        for stream in plan.streams
        for partition in stream.partitions
        for file in partition.files
    }
    # Paths of the two streams are alike here.
    assert {number for _, number, path in files if f'"{path}"' in order} == {7}


def test_an_order_says_what_the_plan_says_of_its_task() -> None:
    plan = plan_of(tails(), tails_found(), scheme="elastic(2)")
    stage = plan.stage(STAGE)
    for task in stage.tasks:
        order = order_of(plan, digest(plan), TaskRef(STAGE, task.task), 3, ROOT, {})
        assert decode(Order, encode(order), "an order") == order
        assert (order.plan, order.pipeline, order.batch, order.attempt) == (digest(plan), plan.pipeline, plan.batch, 3)
        assert (order.stage, order.cosets, order.task, order.ref) == (STAGE, 8, task, TaskRef(STAGE, task.task))
        assert (order.steps, order.writes, order.key_sample) == (stage.steps, stage.writes, plan.key_sample)
        for ordered, read in zip(order.inputs, stage.inputs, strict=True):
            stream = plan.stream(read.name)
            assert isinstance(ordered, OrderedStream)
            assert (ordered.read, ordered.declared, ordered.columns) == (read, stream.declared, stream.columns)
            assert ordered.partitions == tuple(stream.partitions[number] for number in task.reads[read.name])


@pytest.mark.parametrize("kept", [1, STATE_KEYS_COMPARED, 1_000_000])
@pytest.mark.parametrize("sample", [1, 7])
def test_fewer_keys_of_a_large_state_are_compared_and_each_is_one_of_the_batchs(kept: int, sample: int) -> None:
    def compared(hash: HashName) -> int:
        placed = Placement("k", KeyFormat.STRING, hash, 4)
        state = StateInput("counted.state", "counted", placed, 0, (), (StateRun(0, "sha256:0", kept),))
        return OrderedParts(state, ()).compared(sample)

    assert compared(OPAQUE) == sample
    assert compared(MURMUR2) % sample == 0
    assert kept // compared(MURMUR2) <= STATE_KEYS_COMPARED
    assert compared(MURMUR2) == sample or kept // (compared(MURMUR2) - sample) > STATE_KEYS_COMPARED
