"""The check of a whole plan: tasks, files, and what stages hand to each other."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.checked import said, with_stage
from tests.plans import arrived, plan_of, tails, tails_found


@pytest.fixture
def plan() -> Plan:
    """Four tasks, no filter: task t reads flights t, t+4, t+8 and planes t, t+4."""
    return plan_of(tails(), tails_found())


@pytest.fixture
def filtered() -> Plan:
    """Twelve tasks, planes filtered by h mod 12."""
    return plan_of(tails(), tails_found(), scheme="tasks(12)")


def with_tasks(plan: Plan, change: Callable[[list[Task]], list[Task]]) -> Plan:
    (stage,) = plan.stages
    return replace(plan, stages=(replace(stage, tasks=tuple(change(list(stage.tasks)))),))


def with_task(plan: Plan, number: int, **changes: object) -> Plan:
    return with_tasks(plan, lambda tasks: [replace(t, **changes) if t.task == number else t for t in tasks])


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(1)", "tasks(3)", "tasks(5)", "elastic(3)", "tasks(24)"])
def test_what_the_schemes_make_is_sound(scheme: str) -> None:
    plan = plan_of(tails(), tails_found(), scheme=scheme)
    assert check_plan(plan) is plan


def test_a_partition_that_reaches_no_task_or_two_is_found(plan: Plan) -> None:
    broken = with_task(plan, 2, reads={"flights": (2, 6), "planes": (2, 6)})
    assert said(broken).splitlines() == [
        "flights-10, stage flights+planes: its records do not reach exactly one task each (tasks that read it: none)",
        "stage flights+planes: records without a key in flights 10 are not exactly one task's",
    ]
    broken = with_task(plan, 0, reads={"flights": (0, 1, 4, 8), "planes": (0, 4)})
    assert (
        "flights-1, stage flights+planes: its records do not reach exactly one task each (tasks that read it: 0, 1)"
        in said(broken)
    )


def test_a_filter_that_is_missing_or_another_is_found(filtered: Plan) -> None:
    broken = with_task(filtered, 9, reads={"flights": (9,)}, filters={})
    assert (
        "planes-1, stage flights+planes: its records do not reach exactly one task each (tasks that read it: 1, 5)"
        in said(broken)
    )
    assert "planes-1, stage flights+planes: its records do not reach exactly one task each" in said(
        with_task(filtered, 9, filters={})
    )
    assert "planes-1, stage flights+planes: its records" in said(
        with_task(filtered, 9, filters={"planes": Residues(24, (9,))})
    )


def test_tasks_that_swap_a_stream_are_found_because_keys_do_not_meet(plan: Plan) -> None:
    zero, one = {"flights": (0, 4, 8), "planes": (1, 5)}, {"flights": (1, 5, 9), "planes": (0, 4)}
    swapped = with_task(with_task(plan, 0, reads=zero, keyless=zero), 1, reads=one, keyless=one)
    assert said(swapped).splitlines() == [
        "stage flights+planes: task 0 takes keys of planes that belong to other tasks",
        "stage flights+planes: task 1 takes keys of planes that belong to other tasks",
    ]


def test_tasks_that_are_missing_out_of_order_or_in_two_groups_are_found(plan: Plan) -> None:
    found = said(with_tasks(plan, lambda tasks: tasks[:3]))
    assert "keys with h(key) mod 4 = 3 are not exactly one task's" in found
    assert "tasks and groups do not agree on flights+planes/3" in found
    assert "tasks are not numbered" in said(with_tasks(plan, lambda tasks: tasks[::-1]))
    first, second = plan.groups
    doubled = replace(plan, groups=(first, replace(second, tasks=second.tasks + first.tasks[:1])))
    assert said(doubled) == f"batch 0: tasks are in two groups: {first.tasks[0]}"


def test_what_is_not_there_to_be_read_or_not_read_is_found(plan: Plan) -> None:
    flights, planes = plan.streams
    first, *others = flights.partitions
    short = replace(plan, streams=(replace(flights, partitions=tuple(others)), planes))
    assert "stream 'flights': the plan does not hold every partition once, in order" in said(short)
    backward = replace(flights, partitions=(replace(first, start=9, end=3), *others))
    assert said(replace(plan, streams=(backward, planes))) == "flights-0: [9,3) is no range of offsets"
    extra = replace(plan.streams[0], declared=replace(plan.streams[0].declared, name="extra"))
    assert said(replace(plan, streams=(*plan.streams, extra))) == "batch 0: streams are in no stage: extra"
    found = said(with_task(plan, 0, reads={"flights": (0, 4, 8, 12), "planes": (0, 4)}))
    assert found == "stage flights+planes: task 0 reads flights-12, which is not there to be read"
    broken = with_tasks(plan, lambda tasks: [replace(task, owns=()) for task in tasks])
    assert "no task owns keys, but joined needs them together" in said(broken)


def test_records_without_a_key_have_the_task_that_was_declared_and_meet_their_state() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    pipeline.stream("a", key="tailnum", partitions=2, null_keys="own task").filter("true").write("t")
    plan = plan_of(pipeline, [arrived("a", [10, 10])])
    assert "do not have one task of their own" in said(with_task(plan, 2, reads={"a": (0,)}))
    elsewhere = with_task(with_task(plan, 2, keyless={"a": (0,)}), 1, keyless={"a": (1,)})
    assert said(elsewhere) == "stage a: records without a key do not have one task of their own, as declared"
    plan = counted_by_delay("counted=tasks(12)")
    stage = plan.stages[1]
    assert [task.task for task in stage.tasks if 0 in task.reads["counted.state"]] == [0, 6]
    apart = {0: {"part.exchange": (0,)}, 6: {"part.exchange": (6,), "counted.state": (0,)}}
    tasks = tuple(replace(task, keyless=apart.get(task.task, task.keyless)) for task in stage.tasks)
    what = "records without a key are not one task's, but those of 0, 6"
    assert said(with_stage(plan, 1, tasks=tasks)) == f"stage part.exchange: {what}"


def keyless_in(plan: Plan, *numbers: tuple[int, ...]) -> Plan:
    """The tasks account for the records without a key in these partitions of flights, each in its turn."""
    tasks = enumerate(plan.stages[0].tasks)
    changes = [{**task.keyless, "flights": numbers[at]} if at < len(numbers) else task.keyless for at, task in tasks]
    return with_tasks(plan, lambda tasks: [replace(t, keyless=changes[t.task]) for t in tasks])


@pytest.mark.parametrize(
    ("numbers", "lost"),
    [
        ([(0, 4)], "8"),
        ([()], "0, 4, 8"),
        ([(0, 4, 8), (1, 5)], "9"),
        ([(1, 4, 8), (0, 5, 9)], "0, 1"),
        ([(0, 4, 8), (0, 1, 5, 9)], None),
    ],
    ids=["one left out", "all left out", "left out by another task", "not read by who has them", "not read besides"],
)
def test_records_without_a_key_that_are_no_tasks_are_found(
    plan: Plan, numbers: list[tuple[int, ...]], lost: str | None
) -> None:
    """What a task does not read it cannot account for, whatever it claims."""
    broken = keyless_in(plan, *numbers)
    if lost is None:
        assert check_plan(broken) is broken
    else:
        what = f"records without a key in flights {lost} are not exactly one task's"
        assert said(broken) == f"stage flights+planes: {what}"


def test_records_without_a_key_that_are_two_tasks_are_found(filtered: Plan) -> None:
    assert [dict(task.keyless).get("planes") for task in filtered.stages[0].tasks[:6]] == [
        (0, 4),
        (1, 5),
        (2, 6),
        (3, 7),
        None,
        None,
    ]
    doubled = with_task(filtered, 5, keyless={"flights": (5,), "planes": (1,)})
    what = "records without a key in planes 1 are not exactly one task's"
    assert said(doubled) == f"stage flights+planes: {what}"


@pytest.mark.parametrize(
    "changes",
    [
        {"partitions": 8},
        {"null_keys": NullKeys.REFUSE},
        {"placement": Placement("tail", KeyFormat.STRING, MURMUR2, 12)},
        {"placement": Placement("tailnum", KeyFormat.LONG, MURMUR2, 12)},
        {"placement": Placement("tailnum", KeyFormat.STRING, JAVA, 12)},
        {"placement": Placement("tailnum", KeyFormat.STRING, MURMUR2, 5)},
        {"placement": Placement("tailnum", KeyFormat.STRING, MURMUR2, 24)},
        {"placement": Placement("tailnum", KeyFormat.STRING, MURMUR2, 0)},
    ],
    ids=["count", "null keys", "key", "key format", "hash", "no divisor", "a multiple", "nothing"],
)
def test_a_stream_that_is_read_otherwise_than_it_is_declared_is_found(plan: Plan, changes: dict[str, object]) -> None:
    (flights, planes) = plan.stages[0].inputs
    broken = with_stage(plan, 0, inputs=(replace(flights, **changes), planes))
    assert said(broken) == "stage flights+planes: it reads flights differently from its declaration"


def test_a_stream_that_lies_by_a_divisor_of_its_count_is_read_as_it_may_be(plan: Plan) -> None:
    flights, planes = plan.stages[0].inputs
    grown = replace(flights, placement=replace(flights.placement, partitions=4))
    assert check_plan(with_stage(plan, 0, inputs=(grown, planes)))
    shared = replace(flights, placement=replace(flights.placement, partitions=2))
    assert "task 0 takes keys of flights that belong to other tasks" in said(
        with_stage(plan, 0, inputs=(shared, planes))
    )


def test_what_is_read_as_a_stream_and_is_none_is_found(plan: Plan) -> None:
    flights, planes = plan.stages[0].inputs
    broken = with_stage(plan, 0, inputs=(replace(flights, name="trains"), planes))
    assert said(broken) == "stage flights+planes: it reads trains, which is no stream"


# ---- files


LANDED = "s3://landing/topics/flights"


def with_files(*files: InputFile, **changes: object) -> Plan:
    """The plan in which flights-3, offsets [0,250), is read from these files; `changes` are the declaration's."""
    plan = plan_of(tails(), tails_found())
    flights, planes = plan.streams
    partitions = [replace(each, files=files) if each.partition == 3 else each for each in flights.partitions]
    declared = replace(flights.declared, **changes)
    return replace(plan, streams=(replace(flights, declared=declared, partitions=tuple(partitions)), planes))


def named(name: str, start: int, end: int, etag: str = "e") -> InputFile:
    return InputFile(f"{LANDED}/{name}", 10, etag, start, end)


def test_files_that_are_missing_too_many_twice_or_overlap_are_found() -> None:
    assert said(with_files()) == "flights-3: flights-3@[0,250) is in no file, and nothing says why"
    first, last = named("partition=3/a.parquet", 0, 100), named("partition=3/b.parquet", 200, 250)
    assert said(with_files(first, last)) == "flights-3: flights-3@[100,200) is in no file, and nothing says why"
    assert said(with_files(first)) == "flights-3: flights-3@[100,250) is in no file, and nothing says why"
    all_there, behind = named("partition=3/a.parquet", 0, 250), named("partition=3/b.parquet", 250, 300)
    assert said(with_files(all_there, behind)) == (
        f"flights-3: {behind.path} holds [250,300), nothing of what is planned, [0,250)"
    )
    one = named("partition=3/a.parquet", 0, 250)
    assert f"flights-3: {one.path} is planned twice" in said(with_files(one, one))
    first, second = named("partition=3/a.parquet", 0, 150), named("partition=3/b.parquet", 100, 250)
    assert f"flights-3: {second.path} begins at 100, before the end of {first.path}, 150" in said(
        with_files(first, second)
    )
    assert f"flights-3: {first.path} begins at 0, before the end of {second.path}, 250" in said(
        with_files(second, first)
    )


def test_files_of_another_partition_stream_or_offset_are_found_by_their_names_where_these_say_it() -> None:
    in_folder = named("partition=4/flights+3+0000000000.parquet", 0, 250)
    assert said(with_files(in_folder)) == f"flights-3: {in_folder.path} lies in the folder of partition 4"
    for name in ("flights+4+0000000000", "planes+3+0000000000", "flights+3+0000000001"):
        other = named(f"partition=3/{name}.parquet", 0, 250)
        assert (
            said(with_files(other)) == f"flights-3: {other.path} is, by its name, not the file of flights-3 from 0 on"
        )
    right = with_files(named("partition=3/flights+3+0000000000.parquet", 0, 250))
    assert check_plan(right) is right
    of_a_time = with_files(named("partition=4/flights+3+0000000000.parquet", 0, 250), layout=Layout.TIME)
    assert check_plan(of_a_time) is of_a_time


def test_the_log_of_another_partition_or_topic_is_found() -> None:
    source = KafkaSource(("broker:9092",))

    def from_broker(path: str, etag: str) -> Plan:
        made = with_files(InputFile(path, 10, etag, 0, 250), source="kafka://broker:9092", sparse=None)
        flights, planes = made.streams
        others = tuple(
            replace(each, files=(InputFile(source.uri("flights", each.partition), 10, "topic", 0, 250),))
            if each.partition != 3
            else each
            for each in flights.partitions
        )
        return replace(made, streams=(replace(flights, partitions=others, topic="topic"), planes))

    mine, theirs = source.uri("flights", 3), source.uri("flights", 4)
    right = from_broker(mine, "topic")
    assert check_plan(right) is right
    assert said(from_broker(theirs, "topic")) == f"flights-3: {theirs} is not its log, {mine}"
    assert said(from_broker(mine, "before")) == f"flights-3: {mine} is of the topic before, planned is topic"


def test_a_gap_that_nobody_explains_is_found_though_the_plan_counts_it() -> None:
    first, last = named("partition=3/a.parquet", 0, 100), named("partition=3/b.parquet", 200, 250)
    plan = with_files(first, last)
    flights, planes = plan.streams
    partitions = [replace(each, missing=100) if each.partition == 3 else each for each in flights.partitions]
    counted = replace(plan, streams=(replace(flights, partitions=tuple(partitions)), planes))
    assert said(counted) == "flights-3: flights-3@[100,200) is in no file, and nothing says why"


# ---- what stages hand to each other through exchanges, as results and as state


def counted_by_delay(scheme: str | None = None, fan_in: int | None = None) -> Plan:
    """Flights counted by their delay in a later wave, perhaps combined on the way, going on from a first batch."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    partial = pipeline.stream("a", key="tailnum", partitions=6).partial("count(*) AS n", by="dep_delay", name="part")
    partial.combine("sum(n) AS n", running=True, fan_in=fan_in, name="counted").to_stream().write("t")
    first = plan_of(pipeline, [arrived("a", [10] * 6)])
    return plan_of(pipeline, [arrived("a", [20] * 6)], batch=1, published=first, scheme=scheme)


@pytest.fixture
def moved() -> Plan:
    """Six tasks in each wave."""
    return counted_by_delay()


@pytest.fixture
def leveled() -> Plan:
    """Six tasks in the first wave and in the last, and in between three unifiers and then two for each of these."""
    return counted_by_delay(fan_in=2)


@pytest.fixture
def changed() -> Plan:
    """A stream that grew from 4 to 6 partitions."""

    def counting(partitions: int) -> Pipeline:
        pipeline = Pipeline("p", source="s3://landing/topics")
        pipeline.stream("a", key="tailnum", partitions=partitions).aggregate("count(*) AS n", name="n").write("t")
        return pipeline

    first = plan_of(counting(4), [arrived("a", [10] * 4)])
    return plan_of(counting(6), [arrived("a", [20] * 6)], batch=1, published=first)


def with_exchange(plan: Plan, **changes: object) -> Plan:
    (exchange,) = plan.exchanges
    return replace(plan, exchanges=(replace(exchange, **changes),))


def with_input(plan: Plan, number: int, **changes: object) -> Plan:
    """One input of the last stage changed."""
    inputs = list(plan.stages[-1].inputs)
    inputs[number] = replace(inputs[number], **changes)
    return with_stage(plan, len(plan.stages) - 1, inputs=tuple(inputs))


def test_exchanges_unifiers_state_and_changed_counts_as_they_are_planned_are_sound(
    moved: Plan, leveled: Plan, changed: Plan
) -> None:
    assert leveled.exchanges[0].unifiers == (3, 2)
    assert [len(stage.tasks) for stage in leveled.stages] == [6, 18, 12, 6]
    assert [type(read) for read in moved.stages[1].inputs] == [ExchangeInput, StateInput]
    assert [check_plan(plan) for plan in (moved, leveled, changed)] == [moved, leveled, changed]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"stage": "nobody"}, "there is no stage nobody to write it"),
        ({"source": "counted"}, "stage a has no counted to move"),
        ({"name": "other"}, "there is no exchange part.exchange"),
        ({"name": "other"}, "no stage reads it"),
        ({"placement": Placement("dep_delay", KeyFormat.STRING, MURMUR2, 5)}, "holds other records, or elsewhere"),
        ({"placement": Placement("dep_delay", KeyFormat.STRING, MURMUR2, 0)}, "it has 0 partitions"),
    ],
)
def test_an_exchange_that_is_not_written_read_or_combined_as_it_must_be_is_found(
    moved: Plan, changes: dict[str, object], what: str
) -> None:
    assert what in said(with_exchange(moved, **changes))


def with_level(plan: Plan, number: int, **changes: object) -> Plan:
    """One of the exchanges of a plan changed."""
    exchanges = list(plan.exchanges)
    exchanges[number] = replace(exchanges[number], **changes)
    return replace(plan, exchanges=tuple(exchanges))


@pytest.mark.parametrize(
    ("number", "changes", "what"),
    [
        (0, {"unifiers": (3, 3)}, "its unifiers do not narrow what 6 tasks write: 3, 3"),
        (0, {"unifiers": (6,)}, "its unifiers do not narrow what 6 tasks write: 6"),
        (0, {"unifiers": (3, 0)}, "its unifiers do not narrow what 6 tasks write: 3, 0"),
        (1, {"unifiers": (3,)}, "its unifiers do not narrow what 3 tasks write: 3"),
        (0, {"unifiers": ()}, "it has unifiers and no step to combine by, or a step and no unifiers"),
        (2, {"combine": "counted"}, "it has unifiers and no step to combine by, or a step and no unifiers"),
        (0, {"unifiers": (4, 2)}, "part.exchange.1 holds other records, or elsewhere, than it reads"),
        (0, {"unifiers": (3,)}, "stage part.exchange.1: it does not leave what it combines of part.exchange.1"),
        (1, {"stage": "a"}, "stage part.exchange.1: it does not leave what it combines of part.exchange.1"),
        (0, {"combine": "part"}, "stage part.exchange.1: it does not belong to the unifiers of part.exchange.1"),
        (1, {"source": "counted"}, "stage part.exchange.1 has no counted to move"),
        (2, {"combine": "counted", "unifiers": (1,)}, "stage part.exchange: it reads part.exchange apart and does not"),
    ],
)
def test_levels_that_do_not_pass_on_all_that_is_to_be_combined_are_found(
    leveled: Plan, number: int, changes: dict[str, object], what: str
) -> None:
    assert what in said(with_level(leveled, number, **changes))


def test_levels_that_combine_otherwise_or_do_not_account_for_all_are_found(leveled: Plan) -> None:
    (step,) = leveled.stages[1].steps
    other = replace(step, expressions=("max(n) AS n",))
    what = "stage part.exchange.1: it does not combine as counted does"
    assert said(with_stage(leveled, 1, steps=(other,))) == what
    tasks = leveled.stages[1].tasks
    lost = replace(tasks[7], reads={}, keyless={})
    assert "part.exchange.1-7, stage part.exchange.1: its records do not reach exactly one task each" in said(
        with_stage(leveled, 1, tasks=(*tasks[:7], lost, *tasks[8:]))
    )
    doubled = replace(tasks[7], reads={"part.exchange.1": (6, 7)})
    assert "part.exchange.1-6, stage part.exchange.1: its records do not reach exactly one task each" in said(
        with_stage(leveled, 1, tasks=(*tasks[:7], doubled, *tasks[8:]))
    )
    swapped = (replace(tasks[1], task=0), replace(tasks[0], task=1), *tasks[2:])
    what = "stage part.exchange.1: its tasks are not numbered as what they read of part.exchange.1"
    assert said(with_stage(leveled, 1, tasks=swapped)) == what
    tasks = leveled.stages[1].tasks
    # The third unifier of the first of six partitions.
    without = (*tasks[:12], replace(tasks[12], keyless={}), *tasks[13:])
    what = "stage part.exchange.1: records without a key in part.exchange.1 12 are not exactly one task's"
    assert said(with_stage(leveled, 1, tasks=without)) == what


def test_slices_and_residues_of_others_are_found(moved: Plan) -> None:
    last = moved.stages[1]
    tasks = (replace(last.tasks[0], reads={"part.exchange": (0, 1)}), *last.tasks[1:])
    found = said(with_stage(moved, 1, tasks=tasks))
    assert "stage part.exchange: task 0 takes keys of part.exchange that belong to other tasks" in found
    assert "part.exchange-1, stage part.exchange: its records do not reach exactly one task each" in found
    assert "counted.state-0, stage part.exchange: its records do not reach" in found
    tasks = (replace(last.tasks[0], owns=(0, 1)), *last.tasks[1:])
    assert "keys with h(key) mod 6 = 1 are not exactly one task's" in said(with_stage(moved, 1, tasks=tasks))


def test_what_is_read_before_it_is_there_or_was_left_by_another_is_found(moved: Plan) -> None:
    early = with_stage(moved, 1, wave=0)
    assert "part.exchange is not there before wave 0" in said(early)
    assert "stages are not in the order of their waves" in said(with_stage(moved, 0, wave=2))
    assert "group 2 of wave 1 has tasks of other waves" in said(early)
    assert "groups are not numbered" in said(replace(moved, groups=moved.groups[::-1]))
    for changes in ({"batch": 1}, {"batch": 2}, {"step": "part"}):
        assert "counted.state is no state that a step of it left" in said(with_input(moved, 1, **changes))


def test_a_result_that_was_left_elsewhere_or_never_is_found(moved: Plan) -> None:
    moving, last = moved.stages
    placement = Placement("dep_delay", KeyFormat.STRING, MURMUR2, 5)
    for step, what in (
        ("part", "part is left in 6 partitions, not 5"),
        ("counted", "counted is not there before wave 1"),
        ("nothing", "nothing is not there before wave 1"),
    ):
        inputs = (last.inputs[0], ResultInput("counted.state", step, placement))
        assert what in said(replace(moved, stages=(moving, replace(last, inputs=inputs))))


def test_partitions_of_a_changed_stream_that_neither_move_nor_are_read_are_found(changed: Plan) -> None:
    (exchange,) = changed.exchanges
    assert exchange.only == (0, 1, 2, 3)
    assert "stage a: it does not read every partition of a once" in said(with_exchange(changed, only=(0, 1, 2)))
    assert "stage a.changed: it does not read every partition of a once" in said(with_exchange(changed, only=(0, 1)))
    assert "stage a.changed does not read all that moves of a" in said(with_exchange(changed, only=(0, 1, 2, 3, 4)))
    assert "stage a: it does not read every partition of a once" in said(with_input(changed, 0, only=(5,)))


@pytest.fixture
def by_two() -> Plan:
    """Of a stream whose keys have two ids, the second stage takes what lies by the newer, and the first moves the
    others."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    schemas = {7: '"string"', 8: '"string"'}
    keys: dict[str, Any] = {"key": "id", "key_format": "avro", "key_schemas": schemas, "null_keys": "own task"}
    pipeline.stream("a", partitions=6, **keys).aggregate("count(*) AS n", name="counted").write("t")
    return plan_of(pipeline, [arrived("a", [10] * 6)])


def test_what_lies_by_either_of_two_hashes_must_be_taken_where_it_lies_or_move_and_not_both(by_two: Plan) -> None:
    first, second = (stage.streams[0] for stage in by_two.stages)
    older, newer, both = first.placement.hash, second.placement.hash, by_two.streams[0].declared.hash
    assert (older, newer, both) == ("murmur2 of avro 7(string)", "murmur2 of avro 8(string)", f"{older} or {newer}")

    def lying(stage: int, hash: str) -> Plan:
        read = by_two.stages[stage].streams[0]
        others = by_two.stages[stage].inputs[1:]
        return with_stage(by_two, stage, inputs=(replace(read, placement=replace(read.placement, hash=hash)), *others))

    not_once = "stage a: it does not read every partition of a once"
    for stage, hash in ((0, newer), (0, both), (1, older), (1, both)):
        assert not_once in said(lying(stage, hash))
    assert "it reads a differently from its declaration" in said(lying(0, MURMUR2))
    without = tuple(replace(task, reads={"a.changed.exchange": (task.task,)}) for task in by_two.stages[1].tasks)
    assert not_once in said(with_stage(by_two, 1, inputs=by_two.stages[1].inputs[1:], tasks=without))


def test_records_without_a_key_do_not_move_with_those_of_an_older_id(by_two: Plan) -> None:
    moving, stage = by_two.stages
    assert [dict(task.keyless) for task in moving.tasks] == [{}] * 6
    assert [task.task for task in stage.tasks if task.keyless] == [6]
    tasks = (replace(moving.tasks[0], keyless={"a": (0,)}), *moving.tasks[1:])
    what = "records without a key in a 0 are not exactly one task's"
    assert said(with_stage(by_two, 0, tasks=tasks)) == f"stage a.changed: {what}"


def test_names_that_are_there_twice_are_found_before_anything_else(moved: Plan) -> None:
    assert said(replace(moved, stages=(*moved.stages, moved.stages[1]))) == (
        "batch 1: stages are there twice: part.exchange\nbatch 1: steps are there twice: counted"
    )
    assert "inputs are there twice: part.exchange" in said(with_input(moved, 1, name="part.exchange"))


def test_a_stream_may_be_read_by_several_stages_each_of_them_whole() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    a = pipeline.stream("a", key="tailnum", partitions=6)
    a.join(a.rekey("dep_delay", name="moved"), "1 AS one", name="both").write("t")
    plan = plan_of(pipeline, [arrived("a", [10] * 6)])
    assert [[read.name for read in stage.streams] for stage in plan.stages] == [["a"], ["a"]]
    tasks = (replace(plan.stages[1].tasks[0], reads={"moved.exchange": (0,)}), *plan.stages[1].tasks[1:])
    assert said(with_stage(plan, 1, tasks=tasks)).startswith("a-0, stage a+moved.exchange: its records do not reach")
