"""A stream partition's offsets dealt to several tasks: who may, what the plan says, and what the check catches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from msgspec import UNSET

from coset.sources.files import Files
from coset.sources.landed_reader import LandedReader
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.cosets import assign
from partitioning.diff.plan_diff import diff
from partitioning.documents.document import canonical, decode, digest, encode
from partitioning.errors import Refused
from partitioning.explain.explain import explain
from partitioning.explain.reason_texts import stage_reason
from partitioning.model.offsets import Span
from partitioning.model.order import Order, OrderedStream, order_of, read_together
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.reasons import InRanges
from partitioning.model.receipt import PartitionReceipt, Receipt, TaskReceipt
from partitioning.model.schemes import Scheme, records
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.statistics import KeyFigures, Statistics, TaskFigures, statistics_of
from partitioning.model.streams import Stream
from partitioning.model.takes import Task
from partitioning.pictures.drawing import drawing
from partitioning.planning.planner import plan_batch
from partitioning.planning.stages.bounds import most_waves
from partitioning.planning.task_sizes import sized
from partitioning.sections import markdown
from partitioning.sizing.hotkeys import COMBINE, SPLIT, SPREAD, HotPartition, hot_keys, hot_partitions
from partitioning.sizing.proposal import Targets, propose
from partitioning.sizing.workload import footprint
from partitioning.values import replace
from tests.checked import expect_said, with_stage, with_task
from tests.goldens import expect_golden
from tests.local_files import LocalFiles
from tests.orders import order
from tests.orders import planned as one_partition
from tests.plans import COLUMNS, arrived, plan_of, tails
from tests.refused import finding_of

# The second of the four partitions is hot; its ten files have 100 records each but for the last.
ENDS = (10, 950, 0, 130)
Build = Callable[[Flow], Flow]


def summed(flights: Flow, by: str | None = None) -> Flow:
    return flights.partial("count(*) AS n", by=by, name="parts").combine("sum(n) AS n", name="total")


def pipeline_of(build: Build = summed, **declared: object) -> Pipeline:
    pipeline = Pipeline("counts", source="s3://landing/topics")
    flights = pipeline.stream("flights", key="tailnum", partitions=len(ENDS), **declared)  # type: ignore[arg-type]
    build(flights).write("counts")
    return pipeline


def planned(build: Build = summed, scheme: str | None = "flights=records(200)", ends: Sequence[int] = ENDS) -> Plan:
    return plan_of(pipeline_of(build), [arrived("flights", ends)], scheme=scheme)


def read(plan: Plan) -> list[str]:
    """What each task of the first stage reads."""
    tasks = plan.stages[0].tasks
    streams = plan.stream("flights")
    return [f"{part.partition}@[{part.start},{part.end})" for task in tasks for part in streams.read_by(task)]


# ---- what is planned


def test_a_partition_with_more_records_than_a_task_may_take_is_dealt_evenly_and_the_others_are_not() -> None:
    hot = ["1@[0,190)", "1@[190,380)", "1@[380,570)", "1@[570,760)", "1@[760,950)"]
    plan = planned()
    assert read(plan) == ["0@[0,10)", *hot, "2@[0,0)", "3@[0,130)"]
    assert [task.span for task in plan.stages[0].tasks if task.reads != {"flights": (1,)}] == [None] * 3
    assert plan.stages[0].why == InRanges(4, 200)
    assert stage_reason(plan.stages[0]) == (
        "4 stream partitions in tasks of at most 200 records, 8 in all; each offset in one task, no filter; as given"
    )


def test_a_limit_that_nothing_reaches_gives_the_tasks_of_max() -> None:
    dealt, whole = (planned(scheme=f"flights={scheme}").stages[0] for scheme in ("records(950)", "max"))
    assert (dealt.tasks, dealt.cosets) == (whole.tasks, whole.cosets)


def test_a_task_has_the_files_that_meet_its_range_and_their_share_of_the_bytes() -> None:
    plan = planned()
    (third,) = plan.stream("flights").read_by(plan.stages[0].tasks[3])
    assert [(file.start, file.end) for file in third.files] == [(300, 400), (400, 500), (500, 600)]
    assert third.bytes == 200 + 1000 + 700
    (ordered,) = order_of(plan, digest(plan), TaskRef("flights", 3), 0, "s3://store", {}).inputs
    assert isinstance(ordered, OrderedStream)
    assert ordered.partitions == (third,)
    groups = [group for group in plan.groups if group.wave == 0]
    assert sum(group.records for group in groups) == sum(ENDS)
    assert sum(group.bytes for group in groups) == 10 * sum(ENDS)


def test_the_stages_behind_are_as_they_would_be_without() -> None:
    dealt, whole = planned(), planned(scheme=None)
    assert [replace(stage, name="") for stage in dealt.stages[1:]] == [
        replace(stage, name="") for stage in whole.stages[1:]
    ]
    by_carrier = [
        planned(lambda flights: summed(flights, "carrier"), scheme).stages[1] for scheme in (None, "flights=records(9)")
    ]
    assert by_carrier[0] == by_carrier[1]
    assert len(by_carrier[1].tasks) == 4


@pytest.mark.parametrize("name", ["flights", "parts"])
def test_rows_of_a_key_that_several_tasks_have_move_before_they_are_combined(name: str) -> None:
    """By the stream's own key they would lie right otherwise, and nothing would move."""

    def by_tail(flights: Flow) -> Flow:
        return summed(flights, "tailnum")

    assert [stage.name for stage in planned(by_tail, None).stages] == ["flights"]
    plan = planned(by_tail, f"{name}=records(200)")
    assert [(stage.name, len(stage.tasks)) for stage in plan.stages] == [("flights", 8), ("parts.exchange", 4)]
    asked = Settings.parse(scheme=f"{name}=records(200)")
    assert most_waves(pipeline_of(by_tail), asked) == most_waves(pipeline_of(by_tail)) + 1


def test_a_pipeline_may_ask_for_it_too() -> None:
    pipeline = Pipeline("counts", source="s3://landing/topics", schemes={"late": "records(100)"})
    pipeline.stream("flights", key="tailnum", partitions=2).filter("dep_delay > 60", name="late").write("late")
    assert read(plan_of(pipeline, [arrived("flights", (250, 20))])) == [
        "0@[0,83)",
        "0@[83,166)",
        "0@[166,250)",
        "1@[0,20)",
    ]


def test_what_an_exchange_brings_beside_a_stream_is_not_dealt() -> None:
    pipeline = Pipeline("both", source="s3://landing/topics")
    first, second = (pipeline.stream(name, key="tailnum", partitions=2) for name in ("one", "two"))
    moved = second.repartition(3, name="moved")
    first.filter("true", name="kept").merge(moved, name="both").write("both")
    found = [arrived("one", (250, 20)), arrived("two", (30, 30))]
    plan = plan_of(pipeline, found, scheme="both=records(100)")
    assert [(dict(task.reads), task.span) for task in plan.stages[-1].tasks] == [
        ({"one": (0,)}, Span(0, 83)),
        ({"one": (0,)}, Span(83, 166)),
        ({"one": (0,)}, Span(166, 250)),
        ({"one": (1,)}, None),
        *(({"two.exchange": (number,)}, None) for number in range(3)),
    ]


def test_unifiers_take_what_all_tasks_leave_and_airflow_lays_out_waves_for_as_many() -> None:
    pipeline = pipeline_of(lambda f: f.partial("count(*) AS n", name="parts").combine("sum(n) AS n", fan_in=3))
    plan = plan_of(pipeline, [arrived("flights", ENDS)], scheme="parts=records(100)")
    assert [len(stage.tasks) for stage in plan.stages] == [14, 5, 2, 1]
    assert len(plan.waves) <= most_waves(pipeline, Settings.parse(scheme="parts=records(100)"))
    pipeline = pipeline_of(lambda f: f.partial("count(*) AS n", name="parts").combine("sum(n) AS n", fan_in=2))
    plan = plan_of(pipeline, [arrived("flights", (3000, 0, 0, 0))], scheme="parts=records(1)")
    assert len(plan.stages[0].tasks) == 3003
    assert len(plan.waves) == 13
    assert 13 <= most_waves(pipeline, Settings.parse(scheme="parts=records(1)")) < 20


def test_ranges_share_nothing_and_spread_over_the_groups() -> None:
    plan = planned()
    (tasks, _) = sized(plan, pipeline_of().graph, None).values()
    assert [dict(task.reads) for task in tasks] == [{"flights": (0,)}, *[{}] * 5, {"flights": (2,)}, {"flights": (3,)}]
    assert [(task.records, task.bytes) for task in tasks[1:3]] == [(190, 1900), (190, 1900)]
    plan = planned(scheme="flights=records(100)", ends=(0, 800, 0, 0))
    groups = [group for group in plan.groups if group.wave == 0]
    assert all(len(tasks) == 1 for group in groups for tasks in read_together(plan, group))
    assert [group.records for group in groups] == [400, 400]


def test_of_a_file_that_several_ranges_meet_each_task_reads_the_row_groups_that_hold_its_own(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    # Row groups of three records.
    whole = one_partition(0, 0, 12, [files.land("views", 0, 0, ["a"] * 12)])
    task = Task(1, {"views": (0,)}, keyless={"views": (0,)}, offsets=Span(4, 8))
    (ordered,) = order(Stream("views", "s3://test", "k", 1), task, {0: whole.within(Span(4, 8))}, cosets=3).inputs
    assert isinstance(ordered, OrderedStream)
    batches = LandedReader(ordered, Files(), "p").batches(["_offset"])
    assert [offset for batch in batches for offset in batch.records["_offset"].to_pylist()] == [3, 4, 5, 6, 7, 8]


# ---- the documents


def test_the_plan_says_it_and_is_read_back_and_ranges_by_the_rule_take_no_room() -> None:
    plan = planned()
    assert decode(Plan, encode(plan), "here") == plan
    assert b"offsets" not in encode(plan)
    shifted = with_task(with_task(plan, 1, offsets=Span(0, 150)), 2, offsets=Span(150, 380))
    assert decode(Plan, encode(shifted), "here") == shifted
    assert b'"offsets":{"end":150,"start":0}' in encode(shifted)
    sent = order_of(plan, digest(plan), TaskRef("flights", 1), 0, "s3://store", {})
    assert decode(Order, encode(sent), "here") == sent


def test_tasks_without_a_range_are_stored_as_they_always_were() -> None:
    task = Task(0, {"flights": (0,)})
    assert (
        canonical(task) == b'{"filters":{},"keyless":{},"null_keys":false,"owns":[],"reads":{"flights":[0]},"task":0}'
    )


def test_the_plan_reads_as_the_golden_file() -> None:
    first = planned(scheme=None)
    second = plan_of(
        pipeline_of(),
        [arrived("flights", (500, 1950, 90, 700))],
        batch=1,
        parent=digest(first),
        published=first,
        scheme="flights=records(400)",
    )
    expect_golden("explain_ranges.md", markdown(explain(second, first)))


def test_a_picture_names_the_offsets() -> None:
    (stage,) = (box for part in drawing(planned()).parts for box in part.boxes if box.name == "stage flights")
    assert [box.lines[2] for box in stage.holds[:3]] == ["flights 0", "flights 1@[0,190)", "flights 1@[190,380)"]


def test_no_key_changes_hands_and_results_stay_where_rows_are_dealt() -> None:
    before = planned(scheme=None)
    after = plan_of(
        pipeline_of(), [arrived("flights", (500, 960, 0, 700))], batch=1, published=before, scheme="parts=records(90)"
    )
    assert diff(before, after).handovers == ()
    before, after = (
        planned(lambda flights: summed(flights, "tailnum"), scheme) for scheme in (None, "parts=records(90)")
    )
    assert diff(before, after).sentences[-1].startswith("Results stay the same")


# ---- who may not


def refusal(build: Build, scheme: str = "flights=records(200)", **declared: object) -> list[tuple[str, str]]:
    """What is refused, and what to do instead."""
    with pytest.raises(Refused) as refused:
        plan_of(pipeline_of(build, **declared), [arrived("flights", ENDS)], scheme=scheme)
    return [(place.what, place.then) for finding in refused.value.findings for place in finding.places]


OTHERS = "cogroup, elastic(F) or tasks(L)"


def test_an_aggregate_needs_a_partial_step_in_front() -> None:
    assert refusal(lambda flights: flights.aggregate("count(*) AS n", name="counted")) == [
        (
            "scheme records(200) keeps no keys together, but counted needs them together",
            f"aggregate by partial() and combine(), and give the scheme to the partial step alone; or use {OTHERS}",
        )
    ]


def test_a_join_cannot_be_dealt_so() -> None:
    def joined(flights: Flow) -> Flow:
        return flights.filter("dep_delay > 60", name="late").join(flights, "1 AS one", name="met")

    assert refusal(joined) == [
        (
            "scheme records(200) keeps no keys together, but met needs them together",
            f"use {OTHERS}, which assign records by key",
        )
    ]


def test_a_step_that_needs_all_records_at_once_cannot_be_dealt_so() -> None:
    def gathered(flights: Flow) -> Flow:
        return flights.process("tests.functions:same", {"tailnum": "VARCHAR"}, partitionable=False, name="all")

    ((what, _),) = refusal(gathered, "all=records(200)")
    assert what == "all needs all records in one task, but the scheme is records(200)"
    # What only brings the records there can.
    assert [len(stage.tasks) for stage in planned(gathered).stages] == [8, 1]


def test_records_without_a_key_that_have_a_task_of_their_own_are_in_the_way() -> None:
    ((what, then),) = refusal(summed, null_keys="own task")
    assert what == "records of flights without a key have a task of their own, which reads whole partitions"
    assert then == 'declare null_keys="drop" or "refuse", or leave records(200) out'


def test_what_is_no_stream_of_records_cannot_be_dealt() -> None:
    pipeline = Pipeline("planes", source="s3://landing/topics")
    pipeline.table("planes", key="tailnum", partitions=2).filter("true").to_stream().write("planes")
    with pytest.raises(Refused, match="planes is a table: of each key only the latest record counts"):
        plan_of(pipeline, [arrived("planes", (250, 20))], scheme="records(100)")
    moved = pipeline_of(lambda flights: flights.repartition(3, name="moved").filter("true", name="kept"))
    with pytest.raises(Refused, match="it reads no stream, so there are no offsets for records\\(9\\) to assign"):
        plan_of(moved, [arrived("flights", ENDS)], scheme="kept=records(9)")
    even = PartitionerRef("partitioning.planning.partitioners.partitioners:Even", {"tasks": 2})
    asked = replace(Settings.parse(scheme="flights=records(9)"), partitioners={"flights": even})
    with pytest.raises(Refused, match="keeps no keys together, so a partitioner has none to assign"):
        plan_of(pipeline_of(), [arrived("flights", ENDS)], settings=asked)
    with pytest.raises(Refused, match="goes by the records of a batch, of which partition counts say nothing"):
        assign([("views", 4)], records(100))


def test_more_tasks_than_can_be_meant_are_refused() -> None:
    finding = finding_of(planned, scheme="flights=records(1)", ends=(20_000, 0, 0, 0))
    assert finding.what == "scheme records(1) makes 20,003 tasks, more than 10,000"
    assert finding.then == "allow more records a task: the largest stream partition has 20,000 records"


@pytest.mark.parametrize("text", ["records", "records(0)", "records(-1)", "records(many)"])
def test_a_scheme_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(Refused, match=r"records\(N\)"):
        Scheme.parse(text)


# ---- what the check of a plan catches, whoever made it


def wrong_plans() -> Mapping[str, Plan]:
    plan, kept = planned(), planned(lambda flights: flights.filter("true", name="kept"), "flights=tasks(4)")
    both, elsewhere = {"flights": (1, 2)}, {"flights": (3,)}
    owned = plan_of(tails(), [arrived("flights", [250] * 12), arrived("planes", [100] * 8)])
    all_in_ranges = tuple(replace(task, offsets=Span(0, 125)) for task in owned.stages[0].tasks)
    return {
        "a gap": with_task(plan, 1, offsets=Span(0, 189)),
        "an overlap": with_task(plan, 1, offsets=Span(0, 191)),
        "a late beginning": with_task(plan, 1, offsets=Span(1, 190)),
        "a late end": with_task(plan, 5, offsets=Span(760, 951)),
        "an early end": with_task(plan, 5, offsets=Span(760, 949)),
        "a range twice": with_task(plan, 2, offsets=Span(0, 190)),
        "an empty range": with_task(with_task(plan, 1, offsets=Span(0, 0)), 2, offsets=Span(0, 380)),
        "all of the partition": with_task(plan, 2, offsets=UNSET),
        "a range of two partitions": with_task(plan, 2, reads=both, keyless=both),
        "nobody for records without a key": with_task(plan, 2, keyless={}),
        "another partition": with_task(plan, 2, reads=elsewhere, keyless=elsewhere),
        "ranges where keys are owned, beside a table": with_stage(owned, 0, tasks=all_in_ranges),
        "a range for a task that owns keys": with_task(kept, 1, offsets=Span(0, 950)),
    }


def test_ranges_by_which_records_are_not_read_once_are_found() -> None:
    expect_said("wrong_ranges.txt", wrong_plans())


# ---- sizes


def test_a_hot_partition_is_named_with_the_setting_that_spreads_it() -> None:
    whole = planned(scheme=None)
    assert hot_partitions(whole) == (
        HotPartition("flights", "flights", 1, 950, Fraction(950 * 4, sum(ENDS)), records(280)),
    )
    assert hot_partitions(planned(scheme="flights=records(280)")) == ()
    assert hot_partitions(planned(scheme=None, ends=(10, 10, 19, 0))) == ()
    table = plan_of(tails(), [arrived("flights", [250] * 12), arrived("planes", [100] * 7 + [900])])
    assert hot_partitions(table) == ()


def test_figures_of_a_stage_are_of_its_ranges_which_a_proposal_leaves() -> None:
    plan = planned()
    figures = footprint(plan, plan.stages[0])
    assert (figures.tasks, figures.heaviest, figures.work, figures.amplification) == (8, 1900, 1900, Fraction(1))
    (sized, _) = propose(planned(), (), Targets(bytes=1)).stages
    assert (sized.scheme, sized.tasks) == (None, 8)
    assert sized.why == "stays at records(200): its tasks go by the records of each batch"


def test_a_stream_has_the_records_of_all_ranges_however_many_stages_read_it() -> None:
    plan = planned()
    receipts = [
        TaskReceipt(TaskRef(stage, number), (_seen(part),), (), 1)
        for stage, tasks in (("flights", plan.stages[0].tasks), ("whole", planned(scheme=None).stages[0].tasks))
        for number, task in enumerate(tasks)
        for part in plan.stream("flights").read_by(task)
    ]
    dealt, whole = (tuple(r for r in receipts if r.task.stage == stage) for stage in ("flights", "whole"))
    both = replace(
        plan, stages=(*plan.stages, replace(plan.stages[0], name="whole", tasks=planned(scheme=None).stages[0].tasks))
    )
    for some in (dealt, whole, dealt + whole):
        assert statistics_of(both, [Receipt("sha256:0", 0, 0, some)]).records["flights"] == sum(ENDS)
    assert [statistics_of(both, [Receipt("sha256:0", 0, 0, dealt)]).tasks[TaskRef("flights", 2)].bytes] == [1900]


def _seen(part: PlannedPartition) -> PartitionReceipt:
    """All records of what was read, taken."""
    count = part.end - part.start
    return PartitionReceipt(
        "flights", part.partition, part.start, part.end, count, count, 0, 0, "0", 0, 0, 0, 0, (), ()
    )


def test_a_hot_key_that_is_only_counted_is_dealt_by_a_partial_step() -> None:
    def figures(plan: Plan) -> Statistics:
        took = {
            TaskRef("flights", task): TaskFigures(count, 10 * count) for task, count in enumerate((100, 900, 80, 80))
        }
        return Statistics(0, tasks=took, keys=(KeyFigures(TaskRef("flights", 1), "N1", {"flights": 880}),))

    counted = planned(lambda flights: flights.aggregate("count(*) AS n", name="counted"), None)
    (hot,) = hot_keys(counted, figures(counted))
    assert (hot.remedy, hot.scheme) == (COMBINE, records(290))
    assert hot.why.startswith("partial() and combine() in place of aggregate(), and records(290) for the partial step")

    def written_too(flights: Flow) -> Flow:
        some = flights.filter("true", name="some")
        some.write("some")
        return summed(some, "tailnum")

    as_written = planned(written_too, None)
    (hot,) = hot_keys(as_written, figures(as_written))
    assert (hot.remedy, hot.scheme) == (SPREAD, records(290))
    assert hot.why == "--scheme 'parts=records(290)' assigns its records to several tasks, their rows to one"
    in_parts = planned(lambda flights: summed(flights, "tailnum"), None)
    (hot,) = hot_keys(in_parts, figures(in_parts))
    assert (hot.remedy, hot.scheme) == (SPLIT, None)
    assert hot.why.startswith("hot_keys = 'split' gives ranges of its stream partition to several tasks")


def test_nothing_to_read_is_no_plan() -> None:
    first = planned()
    again = plan_batch(
        pipeline_of(), [arrived("flights", ENDS)], {"counts": COLUMNS}, batch=1, published=first,
        settings=Settings.parse(scheme="flights=records(200)"),
    )  # fmt: skip
    assert again is None
