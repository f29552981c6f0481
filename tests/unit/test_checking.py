"""The check of a whole plan: tasks, files, and what stages hand to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.model.placement import JAVA, MURMUR2, KeyFormat, Placement
from partitioning.model.plan import Plan
from partitioning.model.sources import KafkaSource
from partitioning.model.stage_inputs import ExchangeInput, ResultInput, StateInput
from partitioning.model.streams import InputFile, Layout, NullKeys
from partitioning.model.takes import Residues, Task
from partitioning.planning.check import check_plan
from partitioning.values import replace
from tests.checked import expect_said, said, with_stage, with_task
from tests.plans import arrived, plan_of, tails, tails_found

BY_DELAY = Placement("dep_delay", KeyFormat.STRING, MURMUR2, 5)


def four() -> Plan:
    """Four tasks, no filter: task t reads flights t, t+4, t+8 and planes t, t+4."""
    return plan_of(tails(), tails_found())


def twelve() -> Plan:
    """Twelve tasks, planes filtered by h mod 12."""
    return plan_of(tails(), tails_found(), scheme="tasks(12)")


def with_tasks(plan: Plan, change: Callable[[list[Task]], list[Task]]) -> Plan:
    return with_stage(plan, 0, tasks=tuple(change(list(plan.stages[0].tasks))))


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(1)", "tasks(3)", "tasks(5)", "elastic(3)", "tasks(24)"])
def test_what_the_schemes_make_is_sound(scheme: str) -> None:
    plan = plan_of(tails(), tails_found(), scheme=scheme)
    assert check_plan(plan) is plan


def wrong_tasks() -> Mapping[str, Plan]:
    plan, filtered = four(), twelve()
    zero, one = {"flights": (0, 4, 8), "planes": (1, 5)}, {"flights": (1, 5, 9), "planes": (0, 4)}
    first, second = plan.groups
    return {
        "a partition of no task": with_task(plan, 2, reads={"flights": (2, 6), "planes": (2, 6)}),
        "a partition of two tasks": with_task(plan, 0, reads={"flights": (0, 1, 4, 8), "planes": (0, 4)}),
        "a task without its filter and partition": with_task(filtered, 9, reads={"flights": (9,)}, filters={}),
        "a task without its filter": with_task(filtered, 9, filters={}),
        "another filter": with_task(filtered, 9, filters={"planes": Residues(24, (9,))}),
        "tasks that swap a stream": with_task(with_task(plan, 0, reads=zero, keyless=zero), 1, reads=one, keyless=one),
        "a task that is missing": with_tasks(plan, lambda tasks: tasks[:3]),
        "tasks out of order": with_tasks(plan, lambda tasks: tasks[::-1]),
        "a task in two groups": replace(plan, groups=(first, replace(second, tasks=second.tasks + first.tasks[:1]))),
        "a partition that is not there": with_task(plan, 0, reads={"flights": (0, 4, 8, 12), "planes": (0, 4)}),
        "keys of nobody": with_tasks(plan, lambda tasks: [replace(task, owns=()) for task in tasks]),
    }


def wrong_streams() -> Mapping[str, Plan]:
    plan = four()
    (flights, planes), (read, other) = plan.streams, plan.stages[0].inputs
    first, *others = flights.partitions
    extra = replace(flights, declared=replace(flights.declared, name="extra"))

    def reading(**changes: object) -> Plan:
        return with_stage(plan, 0, inputs=(replace(read, **changes), other))

    def lying(key: str, key_format: KeyFormat, hash: Any, partitions: int) -> Plan:
        return reading(placement=Placement(key, key_format, hash, partitions))

    return {
        "a partition fewer": replace(plan, streams=(replace(flights, partitions=tuple(others)), planes)),
        "a range that ends before it begins": replace(
            plan, streams=(replace(flights, partitions=(replace(first, start=9, end=3), *others)), planes)
        ),
        "a stream of no stage": replace(plan, streams=(*plan.streams, extra)),
        "another count": reading(partitions=8),
        "other null keys": reading(null_keys=NullKeys.REFUSE),
        "another key": lying("tail", KeyFormat.STRING, MURMUR2, 12),
        "another key format": lying("tailnum", KeyFormat.LONG, MURMUR2, 12),
        "another hash": lying("tailnum", KeyFormat.STRING, JAVA, 12),
        "by no divisor": lying("tailnum", KeyFormat.STRING, MURMUR2, 5),
        "by a multiple": lying("tailnum", KeyFormat.STRING, MURMUR2, 24),
        "by nothing": lying("tailnum", KeyFormat.STRING, MURMUR2, 0),
        "by a divisor that gives keys of others": lying("tailnum", KeyFormat.STRING, MURMUR2, 2),
        "no stream": reading(name="trains"),
    }


def test_a_stream_that_lies_by_a_divisor_of_its_count_is_read_as_it_may_be() -> None:
    plan = four()
    flights, planes = plan.stages[0].inputs
    assert check_plan(
        with_stage(plan, 0, inputs=(replace(flights, placement=replace(flights.placement, partitions=4)), planes))
    )


def keyless_in(plan: Plan, *numbers: tuple[int, ...]) -> Plan:
    """The tasks account for the records without a key in these partitions of flights, each in its turn."""
    tasks = enumerate(plan.stages[0].tasks)
    changes = [{**task.keyless, "flights": numbers[at]} if at < len(numbers) else task.keyless for at, task in tasks]
    return with_tasks(plan, lambda tasks: [replace(t, keyless=changes[t.task]) for t in tasks])


def test_what_a_task_does_not_read_it_cannot_account_for_whatever_it_claims() -> None:
    plan = keyless_in(four(), (0, 4, 8), (0, 1, 5, 9))
    assert check_plan(plan) is plan


def wrong_records_without_a_key() -> Mapping[str, Plan]:
    pipeline = Pipeline("p", source="s3://landing/topics")
    pipeline.stream("a", key="tailnum", partitions=2, null_keys="own task").filter("true").write("t")
    own, filtered, later = plan_of(pipeline, [arrived("a", [10, 10])]), twelve(), counted_by_delay("counted=tasks(12)")
    assert [dict(task.keyless).get("planes") for task in filtered.stages[0].tasks[:5]] == [
        (0, 4), (1, 5), (2, 6), (3, 7), None,
    ]  # fmt: skip
    assert [task.task for task in later.stages[1].tasks if 0 in task.reads["counted.state"]] == [0, 6]
    apart = with_task(later, 0, stage=1, keyless={"part.exchange": (0,)})
    return {
        "a task of their own for some": with_task(own, 2, reads={"a": (0,)}),
        "another task for some": with_task(with_task(own, 2, keyless={"a": (0,)}), 1, keyless={"a": (1,)}),
        "apart from their state": with_task(apart, 6, stage=1, keyless={"part.exchange": (6,), "counted.state": (0,)}),
        "one left out": keyless_in(four(), (0, 4)),
        "all left out": keyless_in(four(), ()),
        "left out by another task": keyless_in(four(), (0, 4, 8), (1, 5)),
        "not read by who has them": keyless_in(four(), (1, 4, 8), (0, 5, 9)),
        "of two tasks": with_task(filtered, 5, keyless={"flights": (5,), "planes": (1,)}),
    }


# ---- files


LANDED = "s3://landing/topics/flights"


def with_files(*files: InputFile, missing: int = 0, **changes: object) -> Plan:
    """The plan in which flights-3, offsets [0,250), is read from these files; `changes` are the declaration's."""
    plan = four()
    flights, planes = plan.streams
    partitions = [
        replace(each, files=files, missing=missing) if each.partition == 3 else each for each in flights.partitions
    ]
    declared = replace(flights.declared, **changes)
    return replace(plan, streams=(replace(flights, declared=declared, partitions=tuple(partitions)), planes))


def named(name: str, start: int, end: int, etag: str = "e") -> InputFile:
    return InputFile(f"{LANDED}/{name}", 10, etag, start, end)


def from_broker(number: int, etag: str) -> Plan:
    """Flights in a broker: partition 3 is read from the log of this one, which may be of another topic."""
    source = KafkaSource(("broker:9092",))
    log = InputFile(source.uri("flights", number), 10, etag, 0, 250)
    made = with_files(log, source="kafka://broker:9092", sparse=None)
    flights, planes = made.streams
    own = {
        each.partition: replace(log, path=source.uri("flights", each.partition), etag="topic")
        for each in flights.partitions
    }
    partitions = tuple(replace(each, files=((own | {3: log})[each.partition],)) for each in flights.partitions)
    return replace(made, streams=(replace(flights, partitions=partitions, topic="topic"), planes))


def wrong_files() -> Mapping[str, Plan]:
    begins, ends = named("partition=3/a.parquet", 0, 100), named("partition=3/b.parquet", 200, 250)
    whole, behind = named("partition=3/a.parquet", 0, 250), named("partition=3/b.parquet", 250, 300)
    longer, later = named("partition=3/a.parquet", 0, 150), named("partition=3/b.parquet", 100, 250)
    other = ("flights+4+0000000000", "planes+3+0000000000", "flights+3+0000000001")
    return {
        "no file": with_files(),
        "a gap": with_files(begins, ends),
        "a gap that the plan counts": with_files(begins, ends, missing=100),
        "a file fewer": with_files(begins),
        "a file too many": with_files(whole, behind),
        "a file twice": with_files(whole, whole),
        "files that overlap": with_files(longer, later),
        "files out of order": with_files(later, longer),
        "the folder of another partition": with_files(named("partition=4/flights+3+0000000000.parquet", 0, 250)),
        **{f"the name {name}": with_files(named(f"partition=3/{name}.parquet", 0, 250)) for name in other},
        "the log of another partition": from_broker(4, "topic"),
        "the log of another topic": from_broker(3, "before"),
    }


def test_files_that_say_which_they_are_are_those_that_are_meant() -> None:
    own, elsewhere = (named(f"partition={number}/flights+3+0000000000.parquet", 0, 250) for number in (3, 4))
    for plan in (with_files(own), with_files(elsewhere, layout=Layout.TIME), from_broker(3, "topic")):
        assert check_plan(plan) is plan


# ---- what stages hand to each other through exchanges, as results and as state


def counted_by_delay(scheme: str | None = None, fan_in: int | None = None) -> Plan:
    """Flights counted by their delay in a later wave, perhaps combined on the way, going on from a first batch."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    partial = pipeline.stream("a", key="tailnum", partitions=6).partial("count(*) AS n", by="dep_delay", name="part")
    partial.combine("sum(n) AS n", running=True, fan_in=fan_in, name="counted").to_stream().write("t")
    first = plan_of(pipeline, [arrived("a", [10] * 6)])
    return plan_of(pipeline, [arrived("a", [20] * 6)], batch=1, published=first, scheme=scheme)


def grown() -> Plan:
    """A stream that grew from 4 to 6 partitions."""

    def counting(partitions: int) -> Pipeline:
        pipeline = Pipeline("p", source="s3://landing/topics")
        pipeline.stream("a", key="tailnum", partitions=partitions).aggregate("count(*) AS n", name="n").write("t")
        return pipeline

    first = plan_of(counting(4), [arrived("a", [10] * 4)])
    return plan_of(counting(6), [arrived("a", [20] * 6)], batch=1, published=first)


def with_exchange(plan: Plan, number: int = 0, **changes: object) -> Plan:
    exchanges = list(plan.exchanges)
    exchanges[number] = replace(exchanges[number], **changes)
    return replace(plan, exchanges=tuple(exchanges))


def with_input(plan: Plan, number: int, **changes: object) -> Plan:
    """One input of the last stage changed."""
    inputs = list(plan.stages[-1].inputs)
    inputs[number] = replace(inputs[number], **changes)
    return with_stage(plan, len(plan.stages) - 1, inputs=tuple(inputs))


def test_exchanges_unifiers_state_and_changed_counts_as_they_are_planned_are_sound() -> None:
    moved, leveled, changed = counted_by_delay(), counted_by_delay(fan_in=2), grown()
    assert leveled.exchanges[0].unifiers == (3, 2)
    assert [len(stage.tasks) for stage in leveled.stages] == [6, 18, 12, 6]
    assert [type(read) for read in moved.stages[1].inputs] == [ExchangeInput, StateInput]
    assert changed.exchanges[0].only == (0, 1, 2, 3)
    assert [check_plan(plan) for plan in (moved, leveled, changed)] == [moved, leveled, changed]


def wrong_exchanges() -> Mapping[str, Plan]:
    """Of six tasks in each wave."""
    moved = counted_by_delay()
    moving, last = moved.stages

    def as_result(step: str) -> Plan:
        return with_stage(moved, 1, inputs=(last.inputs[0], ResultInput("counted.state", step, BY_DELAY)))

    return {
        "written by nobody": with_exchange(moved, stage="nobody"),
        "of another step": with_exchange(moved, source="counted"),
        "read by nobody": with_exchange(moved, name="other"),
        "in five partitions": with_exchange(moved, placement=BY_DELAY),
        "in no partition": with_exchange(moved, placement=replace(BY_DELAY, partitions=0)),
        "slices of others": with_task(moved, 0, stage=1, reads={"part.exchange": (0, 1)}),
        "residues of others": with_task(moved, 0, stage=1, owns=(0, 1)),
        "read before it is there": with_stage(moved, 1, wave=0),
        "written after it is read": with_stage(moved, 0, wave=2),
        "groups in another order": replace(moved, groups=moved.groups[::-1]),
        "state of this batch": with_input(moved, 1, batch=1),
        "state of a later batch": with_input(moved, 1, batch=2),
        "state of another step": with_input(moved, 1, step="part"),
        "a result that was left elsewhere": as_result("part"),
        "a result that is left later": as_result("counted"),
        "a result of nothing": as_result("nothing"),
        "a stage twice": replace(moved, stages=(moving, last, last)),
        "an input twice": with_input(moved, 1, name="part.exchange"),
    }


def wrong_levels() -> Mapping[str, Plan]:
    """Six tasks in the first wave and in the last, and in between three unifiers and then two for each of these."""
    leveled = counted_by_delay(fan_in=2)
    (step,) = leveled.stages[1].steps
    zero, one, *others = leveled.stages[1].tasks
    swapped = (replace(one, task=0), replace(zero, task=1), *others)
    changed: list[tuple[int, dict[str, object]]] = [
        (0, {"unifiers": (3, 3)}),
        (0, {"unifiers": (6,)}),
        (0, {"unifiers": (3, 0)}),
        (1, {"unifiers": (3,)}),
        (0, {"unifiers": ()}),
        (2, {"combine": "counted"}),
        (0, {"unifiers": (4, 2)}),
        (0, {"unifiers": (3,)}),
        (1, {"stage": "a"}),
        (0, {"combine": "part"}),
        (1, {"source": "counted"}),
        (2, {"combine": "counted", "unifiers": (1,)}),
    ]
    return {
        **{f"exchange {number}: {changes}": with_exchange(leveled, number, **changes) for number, changes in changed},
        "combined otherwise": with_stage(leveled, 1, steps=(replace(step, expressions=("max(n) AS n",)),)),
        "a unifier that reads nothing": with_task(leveled, 7, stage=1, reads={}, keyless={}),
        "a unifier that reads what another does": with_task(leveled, 7, stage=1, reads={"part.exchange.1": (6, 7)}),
        "unifiers that are swapped": with_stage(leveled, 1, tasks=swapped),
        # The third of the first of six partitions.
        "a unifier without the records that have no key": with_task(leveled, 12, stage=1, keyless={}),
    }


def two_ids() -> Plan:
    """Of a stream whose keys have two ids, the second stage takes what lies by the newer, and the first moves the
    others."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    schemas = {7: '"string"', 8: '"string"'}
    keys: dict[str, Any] = {"key": "id", "key_format": "avro", "key_schemas": schemas, "null_keys": "own task"}
    pipeline.stream("a", partitions=6, **keys).aggregate("count(*) AS n", name="counted").write("t")
    return plan_of(pipeline, [arrived("a", [10] * 6)])


def wrong_changeovers() -> Mapping[str, Plan]:
    changed, by_two = grown(), two_ids()
    older, newer = (stage.streams[0].placement.hash for stage in by_two.stages)
    both = by_two.streams[0].declared.hash
    assert (older, newer, both) == ("murmur2 of avro 7(string)", "murmur2 of avro 8(string)", f"{older} or {newer}")
    assert [task.task for stage in by_two.stages for task in stage.tasks if task.keyless] == [6]

    def lying(stage: int, hash: str) -> Plan:
        read, *others = by_two.stages[stage].inputs
        return with_stage(by_two, stage, inputs=(replace(read, placement=replace(read.placement, hash=hash)), *others))

    without = tuple(replace(task, reads={"a.changed.exchange": (task.task,)}) for task in by_two.stages[1].tasks)
    return {
        **{
            f"of six partitions {only} move": with_exchange(changed, only=only)
            for only in ((0, 1, 2), (0, 1), (0, 1, 2, 3, 4))
        },
        "only partition 5 is read where it lies": with_input(changed, 0, only=(5,)),
        **{
            f"stage {stage} reads {hash}": lying(stage, hash)
            for stage, hash in ((0, newer), (0, both), (1, older), (1, both), (0, MURMUR2))
        },
        "what lies by the newer id is not read": with_stage(
            by_two, 1, inputs=by_two.stages[1].inputs[1:], tasks=without
        ),
        "records without a key move with those of the older id": with_task(by_two, 0, keyless={"a": (0,)}),
    }


WRONG: dict[str, Callable[[], Mapping[str, Plan]]] = {
    each.__name__: each
    for each in (
        wrong_tasks, wrong_streams, wrong_records_without_a_key, wrong_files, wrong_exchanges, wrong_levels,
        wrong_changeovers,
    )
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_with_a_plan_is_said_where_it_is(kind: str) -> None:
    expect_said(f"{kind}.txt", WRONG[kind]())


def test_a_stream_may_be_read_by_several_stages_each_of_them_whole() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    a = pipeline.stream("a", key="tailnum", partitions=6)
    a.join(a.rekey("dep_delay", name="moved"), "1 AS one", name="both").write("t")
    plan = plan_of(pipeline, [arrived("a", [10] * 6)])
    assert [[read.name for read in stage.streams] for stage in plan.stages] == [["a"], ["a"]]
    broken = with_task(plan, 0, stage=1, reads={"moved.exchange": (0,)})
    assert said(broken).startswith("a-0, stage a+moved.exchange: its records do not reach")
