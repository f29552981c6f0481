"""The real system's physical plans beside ours as a whole, and how to get what they do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.hashes import hash_of
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.statistics import Statistics, TaskFigures
from partitioning.model.unifiers import levels
from partitioning.planning.planner import plan_batch
from tests.apex import FILES, RESIDUES, VECTORS
from tests.plans import COLUMNS, arrived, plan_of, takers


def whole_plans() -> Iterator[tuple[str, dict[str, Any]]]:
    """The logical plans that are pipelines: each operator takes one input, or several that are not parallel."""
    for file in FILES:
        for case in json.loads((VECTORS / f"{file}.json").read_text()):
            sinks = [sink for stream in case["input"]["streams"] for sink in stream["sinks"]]
            into = [sink["to"].split(".")[0] for sink in sinks]
            joined = {operator for operator in into if into.count(operator) > 1}
            own = any(operator.get("custom_partitioner_returns") for operator in case["input"]["operators"])
            mixed = any(sink.get("partition_parallel") and sink["to"].split(".")[0] in joined for sink in sinks)
            if case.get("error") is None and not own and not mixed:
                yield case["id"], case


PLANS = list(whole_plans())


def translated(case: dict[str, Any]) -> Pipeline:
    """A stream for each input operator; a repartition, a merge of them, or a step that stays, for each other one."""
    pipeline = Pipeline(case["id"], source="s3://landing/topics")
    logical, flows = case["input"], dict[str, Flow]()
    for operator in logical["operators"]:
        if operator["kind"] == "input":
            flows[operator["name"]] = pipeline.stream(
                operator["name"], key="key", partitions=operator["partitions"] or 1
            )
    waiting = [operator for operator in logical["operators"] if operator["kind"] != "input"]
    while waiting:
        operator = waiting.pop(0)
        name = operator["name"]
        edges = [
            (stream["source"].split(".")[0], sink)
            for stream in logical["streams"]
            for sink in stream["sinks"]
            if sink["to"].startswith(f"{name}.")
        ]
        if any(source not in flows for source, _ in edges):
            waiting.append(operator)
        elif len(edges) == 1:
            ((source, sink),) = edges
            parallel, tasks = sink.get("partition_parallel"), operator["partitions"] or 1
            flow = flows[source]
            flows[name] = flow.filter("true", name=name) if parallel else flow.repartition(tasks, name=name)
        else:
            tasks = operator["partitions"] or 1
            moved = [flows[source].repartition(tasks, name=sink["to"]) for source, sink in edges]
            flows[name] = moved[0].merge(*moved[1:], name=name)
    for name, flow in flows.items():
        flow.write(f"table_{name}")
    return pipeline


@pytest.mark.parametrize("case", [case for _, case in PLANS], ids=[name for name, _ in PLANS])
def test_a_whole_plan_has_as_many_tasks_as_that_of_apex_and_every_record_reaches_one_of_them(
    case: dict[str, Any],
) -> None:
    plan = plan_for(translated(case), scheme="cogroup")
    for stage in plan.stages:
        for each in stage.inputs:
            count = each.placement.partitions
            for residue in range(RESIDUES * count):
                assert len(takers(stage.tasks, each.name, residue % count, residue)) == 1
    inputs = {operator["name"] for operator in case["input"]["operators"] if operator["kind"] == "input"}
    for operator, partitions in case["plan"]["partitions"].items():
        (stage,) = [
            stage
            for stage in plan.stages
            if operator in {step.name for step in stage.steps} | {read.name for read in stage.streams}
        ]
        assert len(stage.tasks) == len(partitions) or operator in inputs
    for exchange in plan.exchanges:
        assert {exchange.name} <= {each.name for stage in plan.stages for each in stage.inputs}


def flights(partitions: int) -> tuple[Pipeline, Flow]:
    pipeline = Pipeline("delays", source="s3://landing/topics")
    return pipeline, pipeline.stream("flights", key="tailnum", partitions=partitions)


def plan_for(pipeline: Pipeline, scheme: str | None = None) -> Plan:
    return plan_of(pipeline, [arrived(each.name, [9] * each.partitions) for each in pipeline.streams], scheme=scheme)


def test_a_linear_run_stays_in_its_tasks() -> None:
    """Parallel partitioning needs no flag: O1 in 2 partitions, O2 and O3 behind it, and O4 apart."""
    pipeline, flow = flights(2)
    run = flow.filter("dep_delay > 0", name="O1").select("dep_delay", name="O2").aggregate("max(dep_delay) AS most")
    run.write("worst")
    (stage,) = plan_for(pipeline).stages
    assert (len(stage.tasks), len(stage.steps), plan_for(pipeline).exchanges) == (2, 3, ())


def test_a_step_that_is_not_partitionable_runs_in_one_task_behind_a_gathering() -> None:
    pipeline, flow = flights(3)
    flow.process("shop.rates:convert", {"tailnum": "VARCHAR"}, partitionable=False, name="converted").write("rates")
    plan = plan_for(pipeline)
    (stage,) = [stage for stage in plan.stages if "converted" in {step.name for step in stage.steps}]
    (exchange,) = plan.exchanges
    assert (len(stage.tasks), exchange.placement.key, exchange.placement.partitions) == (1, "", 1)


def country(key: str) -> int:
    """The guide's stream codec: half of the records are of one country."""
    return 0 if key == "XYZ" else 1


def test_a_custom_placement_function_sends_half_of_the_records_to_a_task_of_their_own() -> None:
    keys = ["XYZ"] * 500 + [f"C{number % 50}" for number in range(500)]
    h = hash_of(f"{__name__}:country", "here")
    assert [sum(h(key, "string") % 2 == task for key in keys) for task in (0, 1)] == [500, 500]

    pipeline, flow = flights(3)
    moved = flow.rekey("country").repartition(2, hash=f"{__name__}:country", name="by_country")
    moved.aggregate("count(*) AS n").write("countries")
    plan = plan_for(pipeline)
    (exchange,) = plan.exchanges
    assert (exchange.placement.hash, exchange.placement.partitions) == (f"{__name__}:country", 2)
    (stage,) = [stage for stage in plan.stages if "by_country" in {step.name for step in stage.steps}]
    assert [task.reads[exchange.name] for task in stage.tasks] == [(0,), (1,)]


@pytest.mark.parametrize(("parts", "fan_in", "unifiers"), [(9, 8, (2,)), (5, 2, (3, 2)), (8, 8, ()), (3, None, ())])
def test_partial_results_are_combined_in_levels_within_the_fan_in(
    parts: int, fan_in: int | None, unifiers: tuple[int, ...]
) -> None:
    pipeline, flow = flights(parts)
    totals = flow.partial("sum(dep_delay) AS total").combine("sum(total) AS total", fan_in=fan_in, name="totals")
    totals.to_stream().write("totals")
    plan = plan_for(pipeline)
    exchange, *later = plan.exchanges
    assert exchange.unifiers == levels(parts, fan_in) == unifiers
    assert exchange.combine == ("totals" if unifiers else None)
    assert [each.unifiers for each in later] == [unifiers[level:] for level in range(1, len(unifiers) + 1)]
    assert [len(stage.tasks) for stage in plan.stages] == [parts, *unifiers, 1]


def test_a_partitioner_named_in_the_settings_deals_the_tasks_of_its_stage() -> None:
    pipeline, flow = flights(8)
    flow.aggregate("count(*) AS n", name="counted").write("counts")
    found = plan_batch(
        pipeline,
        [arrived("flights", [9] * 8)],
        {"counts": COLUMNS},
        settings=Settings.read(
            '[steps.counted]\npartitioner = {use = "partitioning.planning.partitioners.partitioners:Even", tasks = 3}',
            "settings.toml",
        ),
    )
    assert found is not None
    (stage,) = found.stages
    assert [task.owns for task in stage.tasks] == [(0, 1, 2), (4, 5, 6), (3, 7)]
    assert [task.reads["flights"] for task in stage.tasks] == [(0, 1, 2), (4, 5, 6), (3, 7)]
    assert not any(task.filters for task in stage.tasks)


def test_a_hot_task_is_split_in_the_next_batch_and_its_state_goes_with_its_keys() -> None:
    pipeline, flow = flights(4)
    totals = flow.partial("count(*) AS n", by="tailnum").combine("sum(n) AS n", running=True, name="totals")
    totals.to_stream().write("totals")
    ref = PartitionerRef(
        "partitioning.planning.partitioners.by_load:ByThroughput", {"minimum": 10, "maximum": 30, "per": "batch"}
    )
    settings = Settings.parse(scheme="tasks(2)", base=Settings(partitioners={"totals": ref}))

    def planned(end: int, published: Plan | None, took: dict[int, int]) -> Plan:
        plan = plan_batch(
            pipeline,
            [arrived("flights", [end] * 4)],
            {"totals": COLUMNS},
            batch=0 if published is None else published.batch + 1,
            published=published,
            settings=settings,
            statistics=Statistics(
                0, tasks={TaskRef("flights", task): TaskFigures(records, 0) for task, records in took.items()}
            ),
        )
        assert plan is not None
        return plan

    first = planned(9, None, {})
    second = planned(18, first, {0: 40, 1: 20})
    (before,), (after,) = first.stages, second.stages
    assert [task.owns for task in before.tasks] == [(0,), (1,)]
    assert [task.owns for task in after.tasks] == [(0,), (1, 3), (2,)]
    assert {each.name: each.placement.partitions for each in after.inputs} == {"flights": 4, "totals.state": 2}
    for residue in range(4):
        owner = takers(after.tasks, "flights", residue % 4, residue)
        assert takers(after.tasks, "totals.state", residue % 2, residue) == owner
        assert len(owner) == 1
    assert after == planned(18, first, {0: 40, 1: 20}).stages[0]
