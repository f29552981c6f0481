"""The real system's physical plans beside ours: who gets which record, through which unifiers.

Each edge of a logical plan is taken for itself: M tasks upstream, N downstream. In Coset the tasks upstream
write the N partitions of an exchange, whose keys a partitioner dealt; the task downstream that owns a key reads
all M parts of its partition, after the levels of unifiers that the fan-in asks for. A parallel edge is no edge
at all: the step stays in its task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from partitioning.authoring.pipeline import Flow, Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.hashes import hash_of
from partitioning.model.placement import Placement
from partitioning.model.plan import Plan, Stage, TaskRef
from partitioning.model.statistics import Statistics, TaskFigures
from partitioning.planning.exchanges.unifiers import groups, levels
from partitioning.planning.partitioners.partitioners import Shares, dealt
from partitioning.planning.planner import plan_batch
from tests.plans import COLUMNS, arrived, plan_of

VECTORS = Path(__file__).parents[1] / "vectors" / "apex"
FILES = ("linear", "mxn", "cascade_full", "fan", "parallel", "random")
RESIDUES = 64  # finer than any mask of these plans
NO_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Edge:
    """An input port of an operator in one of the real system's plans: M partitions upstream, N downstream."""

    plan: dict[str, Any]
    stream: dict[str, Any]
    sink: dict[str, Any]

    @property
    def source(self) -> str:
        return str(self.stream["source"].split(".")[0])

    @property
    def operator(self) -> str:
        return str(self.sink["to"].split(".")[0])

    @property
    def port(self) -> str:
        return str(self.sink["to"].split(".")[1])

    @property
    def upstream(self) -> int:
        return len(self.plan["partitions"][self.source])

    @property
    def downstream(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.plan["partitions"][self.operator]
        return found

    @property
    def parallel(self) -> bool:
        return bool(self.sink.get("partition_parallel"))

    @property
    def keyed(self) -> bool:
        """Whether the port has keys; what has none gets everything in each of its partitions."""
        return all(self.port in each for each in self.downstream)

    @property
    def fan_in(self) -> int | None:
        """The limit as Coset would be given it: Apex takes 0 and 1 silently for none."""
        limit: int = self.stream.get("unifier_limit") or NO_LIMIT
        return limit if 1 < limit < NO_LIMIT else None

    def reached(self, partition: int, residue: int) -> list[int]:
        """The partitions downstream that the real system hands a record of this source partition, each as often."""
        found, at = [], [f"{self.source}#{partition}"]
        while at:
            here = at.pop()
            for _, start, end, port, mask, keys in self._edges():
                if start == here and (not mask or residue & mask in keys):
                    if port == "merge":
                        at.append(end)
                    elif end.startswith(f"{self.operator}#") and port == self.port:
                        found.append(int(end.split("#")[1]))
        return sorted(found)

    def unifiers(self) -> list[int]:
        """The fan-ins of all unifiers of the stream."""
        name = self.stream["name"]
        return [
            each["fan_in"]
            for each in self.plan["unifiers"]
            if each["name"].split(":")[1].split("@")[0].split("/")[0] == name
        ]

    def _edges(self) -> Iterator[list[Any]]:
        return (edge for edge in self.plan["edges"] if edge[0] == self.stream["name"])


def edges() -> Iterator[tuple[str, Edge]]:
    for file in FILES:
        for case in json.loads((VECTORS / f"{file}.json").read_text()):
            if case.get("error") is None:
                for stream in case["input"]["streams"]:
                    for sink in stream["sinks"]:
                        yield f"{case['id']} {stream['source']}-{sink['to']}", Edge(case["plan"], stream, sink)


EDGES = list(edges())


def shares(tasks: int) -> Shares:
    placement = Placement("key", "string", "partitioning.planning.partitioners.partitioners:apex_hash", tasks)
    ref = PartitionerRef("partitioning.planning.partitioners.partitioners:ApexKeys", {"tasks": tasks})
    return dealt(ref, "there", cosets=tasks, inputs=(placement,), previous=None, figures={}, batch=0)


def owners(dealt: Shares, residue: int) -> list[int]:
    return [task for task, owned in enumerate(dealt.owners) if residue % dealt.cosets in owned]


def arrivals(parts: int, fan_in: int | None) -> list[int]:
    """The parts that reach the reading task through the levels of unifiers, each as often as it does."""
    held = [[part] for part in range(parts)]
    for width in levels(parts, fan_in):
        held = [[part for index in group for part in held[index]] for group in groups(len(held), width)]
        assert len(held) == width
    assert fan_in is None or len(held) <= fan_in
    return sorted(part for each in held for part in each)


def kind(edge: Edge) -> str:
    if edge.parallel:
        return "parallel"
    return "keyed" if edge.keyed else "broadcast" if len(edge.downstream) > 1 else "gathered"


def of(*kinds: str) -> Any:
    chosen = [(name, edge) for name, edge in EDGES if kind(edge) in kinds]
    return pytest.mark.parametrize("edge", [edge for _, edge in chosen], ids=[name for name, _ in chosen])


@of("keyed", "gathered")
def test_each_record_goes_to_the_task_that_apex_sends_it_to_and_once(edge: Edge) -> None:
    dealt = shares(len(edge.downstream))
    for residue in range(RESIDUES):
        for partition in range(edge.upstream):
            assert edge.reached(partition, residue) == owners(dealt, residue)
    assert arrivals(edge.upstream, edge.fan_in) == list(range(edge.upstream))


@of("parallel")
def test_a_parallel_edge_stays_in_its_task(edge: Edge) -> None:
    for residue in range(RESIDUES):
        for partition in range(edge.upstream):
            # Where a parallel partitioner returns fewer partitions, the real system loses the others' records.
            expected = [partition] if partition < len(edge.downstream) else []
            assert edge.reached(partition, residue) == expected


@of("broadcast")
def test_a_port_that_apex_broadcasts_is_keyed_like_any_other(edge: Edge) -> None:
    """The deviation: every task of the real system gets every record of a port that was not connected first."""
    tasks = list(range(len(edge.downstream)))
    for residue in range(RESIDUES):
        assert all(edge.reached(partition, residue) == tasks for partition in range(edge.upstream))
        assert len(owners(shares(len(tasks)), residue)) == 1


@of("keyed", "gathered")
def test_each_task_downstream_has_one_unifier_and_no_tree_is_busier_than_that_of_apex(edge: Edge) -> None:
    """Ours is the task itself: M inputs, or as many as the last level leaves."""
    found = edge.unifiers()
    assert bool(found) == (edge.upstream > 1)
    busiest, left = 1, edge.upstream
    for width in levels(edge.upstream, edge.fan_in):
        busiest = max(busiest, *map(len, groups(left, width)))
        left = width
    assert max(busiest, left) <= max(found, default=1)
    if edge.fan_in is not None:
        assert max(busiest, left) <= edge.fan_in


def test_every_kind_of_edge_is_there() -> None:
    assert {kind(edge) for _, edge in EDGES} == {"keyed", "gathered", "parallel", "broadcast"}


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


def takers(stage: Stage, name: str, partitions: int, residue: int) -> list[int]:
    """The tasks that take a record of this hash from an input, wherever its partition puts it."""
    return [
        task.task
        for task in stage.tasks
        if residue % partitions in task.reads.get(name, ())
        and (name not in task.filters or residue % task.filters[name].modulus in task.filters[name].residues)
    ]


@pytest.mark.parametrize("case", [case for _, case in PLANS], ids=[name for name, _ in PLANS])
def test_a_whole_plan_has_as_many_tasks_as_that_of_apex_and_every_record_reaches_one_of_them(
    case: dict[str, Any],
) -> None:
    plan = plan_for(translated(case), scheme="cogroup")
    for stage in plan.stages:
        for each in stage.inputs:
            count = each.placement.partitions
            for residue in range(RESIDUES * count):
                assert len(takers(stage, each.name, count, residue)) == 1
    inputs = {operator["name"] for operator in case["input"]["operators"] if operator["kind"] == "input"}
    for operator, partitions in case["plan"]["partitions"].items():
        (stage,) = [
            stage for stage in plan.stages if operator in {step.name for step in stage.steps} | set(stage.streams)
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
    moved = flow.rekey("country").repartition(2, placement=f"{__name__}:country", name="by_country")
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
    totals.write("totals")
    (exchange,) = plan_for(pipeline).exchanges
    assert exchange.unifiers == levels(parts, fan_in) == unifiers
    assert exchange.combine == ("totals" if unifiers else None)


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
    totals.write("totals")
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
        owner = takers(after, "flights", 4, residue)
        assert takers(after, "totals.state", 2, residue) == owner
        assert len(owner) == 1
    assert after == planned(18, first, {0: 40, 1: 20}).stages[0]
