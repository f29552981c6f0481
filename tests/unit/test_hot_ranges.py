"""Hot keys that are split by offset ranges: which stages allow it, what the plan says, and what the check catches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.diff.plan_diff import diff
from partitioning.documents.document import decode, encode
from partitioning.explain.reason_texts import exchange_reason, stage_reason
from partitioning.hashes import placement_hash
from partitioning.model.graph import Op
from partitioning.model.offsets import Span
from partitioning.model.plan import Plan, Stage
from partitioning.model.reasons import HotRanges
from partitioning.model.schemes import HotKeys
from partitioning.model.stage_inputs import Input, StreamInput
from partitioning.model.statistics import HeavyShare, Statistics
from partitioning.model.takes import Residues, takes
from partitioning.planning.stages.bounds import most_waves
from partitioning.values import replace
from tests.checked import expect_said, with_stage, with_task
from tests.plans import arrived, plan_of

PARTITIONS = 4
# A key has 8,000 of the 9,000 records of partition 1; the others have 1,000 each.
ENDS = (1_000, 9_000, 1_000, 1_000)
HEAVY = (HeavyShare("flights", 1, "N1", 8_000, 9_000),)
SPLIT = Settings(hot_keys=HotKeys.SPLIT)
Build = Callable[[Flow], Flow]


def summed(flights: Flow) -> Flow:
    late = flights.filter("dep_delay > 60", name="late")
    return late.partial("count(*) AS n", by="tailnum", name="parts").combine("sum(n) AS n", name="total")


def pipeline_of(build: Build = summed, **declared: Any) -> Pipeline:
    pipeline = Pipeline("counts", source="s3://landing/topics")
    build(pipeline.stream("flights", key="tailnum", partitions=PARTITIONS, **declared)).to_stream().write("counts")
    return pipeline


def planned(
    build: Build = summed,
    ends: Sequence[int] = ENDS,
    heavy: Sequence[HeavyShare] = HEAVY,
    settings: Settings = SPLIT,
    published: Plan | None = None,
    **declared: Any,
) -> Plan:
    statistics = Statistics(0, heavy=tuple(heavy))
    found = [arrived("flights", ends)]
    return plan_of(pipeline_of(build, **declared), found, settings=settings, statistics=statistics, published=published)


def names(plan: Plan) -> list[str]:
    return [stage.name for stage in plan.stages]


# ---- what is planned


def test_the_partition_of_a_hot_key_is_read_in_ranges_a_wave_before_and_the_others_as_ever() -> None:
    plan = planned()
    hot, stage = plan.stages
    assert (hot.name, hot.wave, stage.name, stage.wave) == ("flights.hot", 0, "flights", 1)
    flights = plan.stream("flights")
    assert [[part.partition for part in flights.read_by(task)] for task in stage.tasks] == [[0], [], [2], [3]]
    spans = [(part.partition, part.start, part.end) for task in hot.tasks for part in flights.read_by(task)]
    assert spans == [(1, 1_000 * number, 1_000 * (number + 1)) for number in range(9)]
    assert [step.name for step in hot.steps] == ["late.hot", "parts.hot"]
    # The steps of the stage are those that they are without hot keys.
    (whole,) = planned(settings=Settings()).stages
    assert (stage.steps, stage.cosets, stage.why) == (whole.steps, whole.cosets, whole.why)


def test_the_plan_says_why_and_later_steps_are_as_ever() -> None:
    plan = planned()
    assert stage_reason(plan.stages[0]) == (
        "ranges of at most 1,000 records for flights: partition 1 in 9, as 'N1' has 67 % of the records"
    )
    (exchange,) = plan.exchanges
    assert exchange_reason(exchange) == "flights combines what the tasks of its hot keys left, wanted by total"
    assert decode(Plan, encode(plan), "a plan") == plan
    assert names(planned(filtered_after)) == ["flights.hot", "flights"]


def test_a_plan_differs_by_the_stage_that_reads_ranges_and_by_no_step() -> None:
    found = diff(planned(settings=Settings()), planned())
    assert [change.what for change in found.changes] == [
        "exchange parts.hot.exchange",
        "stage flights: wave",
        "stage flights: reads flights",
        "stage flights: reads parts.hot.exchange",
        "stage flights.hot",
        "task groups",
    ]
    assert found.results.same == ("counts",)


def test_each_record_reaches_one_task_and_each_key_the_task_that_owns_it() -> None:
    """By `takes`, which tasks obey, for keys in every partition; what ranges left is looked up where it is read."""
    for scheme in ("cogroup", "tasks(3)", "tasks(8)", "tasks(6)"):
        plan = planned(settings=Settings.parse(scheme=scheme, base=SPLIT))
        hot, stage = plan.stages
        (exchange,) = plan.exchanges
        owners: dict[int, set[int]] = {}
        for number in range(400):
            h = placement_hash(f"N{number}")
            partition, offset = h % PARTITIONS, number % ENDS[h % PARTITIONS]
            every = [(each, task) for each in (hot, stage) for task in each.tasks]
            record = "flights", partition, h, offset
            ((name, task),) = [(each.name, task.task) for each, task in every if takes(task, *record)]
            assert (name == hot.name) == (partition == 1)
            if name == hot.name:
                place = h % exchange.placement.partitions
                (task,) = (each.task for each in stage.tasks if takes(each, exchange.name, place, h))
            owners.setdefault(h % stage.cosets, set()).add(task)
        assert all(len(tasks) == 1 for tasks in owners.values())


@pytest.mark.parametrize(
    ("heavy", "ends"),
    [
        ((), ENDS),
        ([HeavyShare("flights", 1, "N1", 500, 9_000)], ENDS),
        (HEAVY, (9_000, 9_000, 9_000, 9_000)),
        (HEAVY, (100, 900, 100, 100)),
        ([HeavyShare("planes", 1, "N1", 8_000, 9_000)], ENDS),
    ],
    ids=["no heavy key", "a key that is not heavy", "a task like the others", "few records", "another stream"],
)
def test_where_there_is_nothing_to_split_the_plan_is_as_without_the_setting(
    heavy: Sequence[HeavyShare], ends: Sequence[int]
) -> None:
    assert encode(planned(heavy=heavy, ends=ends)) == encode(planned(heavy=heavy, ends=ends, settings=Settings()))


def joined(flights: Flow) -> Flow:
    return flights.filter("true", name="kept").join(flights, "1 AS one", name="met")


def grouped(flights: Flow) -> Flow:
    return flights.aggregate("count(*) AS n", name="counted")


def written_too(flights: Flow) -> Flow:
    flights.write("raw")
    return summed(flights)


def filtered_after(flights: Flow) -> Flow:
    return summed(flights).filter("n > 1", name="many")


def by_day(flights: Flow) -> Flow:
    return flights.partial("count(*) AS n", by="dep_delay", key_format="double").combine("sum(n) AS n")


@pytest.mark.parametrize("build", [joined, grouped, written_too, by_day])
def test_a_stage_whose_steps_need_the_records_of_a_key_together_is_left(build: Build) -> None:
    assert encode(planned(build)) == encode(planned(build, settings=Settings()))


@pytest.mark.parametrize("declared", [{"null_keys": "own task"}, {"hash": "opaque"}])
def test_a_stream_that_must_be_read_whole_is_left(declared: Mapping[str, Any]) -> None:
    assert "flights.hot" not in names(planned(**declared))


def test_a_setting_says_it_and_a_dag_has_a_wave_more() -> None:
    settings = Settings.read('hot_keys = "split"', "settings.toml")
    assert settings == SPLIT
    assert most_waves(pipeline_of(), settings) == most_waves(pipeline_of()) + 1
    assert len({stage.wave for stage in planned().stages}) <= most_waves(pipeline_of(), settings)


# ---- what the check of a plan catches, whoever made it


def reading_all(stage: Stage) -> tuple[Input, ...]:
    return tuple(replace(read, only=None) if isinstance(read, StreamInput) else read for read in stage.inputs)


def wrong_plans() -> Mapping[str, Plan]:
    plan = planned()
    hot, stage = plan.stages
    (exchange,) = plan.exchanges
    why = hot.why
    assert isinstance(why, HotRanges)
    some = (replace(stage.inputs[0], only=(0, 2)), *stage.inputs[1:])
    other = replace(hot.steps[0], expressions=("dep_delay > 90",))
    ungrouped = replace(stage.steps[2], op=Op.AGGREGATE)
    return {
        "a gap": with_task(plan, 1, offsets=Span(1_001, 2_000)),
        "an overlap": with_task(plan, 1, offsets=Span(999, 2_000)),
        "one range twice": with_task(plan, 1, offsets=Span(0, 1_000)),
        "the stage reads it too": with_stage(plan, 1, inputs=reading_all(stage)),
        "nobody reads another": with_stage(plan, 1, inputs=some),
        "for no stage": with_stage(plan, 0, why=replace(why, stage="planes")),
        "a step that does otherwise": with_stage(plan, 0, steps=(other, hot.steps[1])),
        "rows that are not combined": with_stage(plan, 1, steps=(*stage.steps[:2], ungrouped)),
        "rows that nobody reads": with_stage(plan, 1, inputs=stage.inputs[:1]),
        "rows that are not left": replace(plan, exchanges=()),
        "records that are left to others": with_task(plan, 0, filters={"flights": Residues(4, (1,))}),
        "rows put elsewhere": replace(
            plan, exchanges=(replace(exchange, placement=replace(exchange.placement, partitions=3)),)
        ),
        "rows that come too late": with_stage(plan, 0, wave=1),
    }


def test_a_plan_that_splits_a_hot_key_wrongly_is_refused() -> None:
    expect_said("wrong_hot_ranges.txt", wrong_plans())
