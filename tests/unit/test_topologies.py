"""Topologies that Kafka Streams itself planned, planned here; and in how many waves a pipeline can run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.model.graph import Graph, Op, StateSpec, Step, Write
from partitioning.model.statistics import Statistics
from partitioning.model.streams import Stream
from partitioning.planning.exchanges.cuts import Cut, cuts
from partitioning.planning.exchanges.derived_placements import derive_placements, target
from partitioning.planning.stages.bounds import most_waves
from tests.exchanged import paths, tables, tables_of_one_task
from tests.plans import arrived, plan_of

COUNT = "count(*) AS n"


def filtered(planes: Flow) -> Flow:
    return planes.filter("true")


def counted(planes: Flow) -> Flow:
    return planes.aggregate(COUNT)


def rekeyed(planes: Flow) -> Flow:
    return counted(planes.rekey("maker"))


def rekeyed_twice(planes: Flow) -> Flow:
    return rekeyed(planes).rekey("n", key_format="long").aggregate("count(*) AS makers")


def there_and_back(planes: Flow) -> Flow:
    return planes.join(rekeyed(planes).rekey("tailnum", name="back"), "1 AS one")


def repartitioned(planes: Flow) -> Flow:
    return planes.repartition(5)


def gathered(planes: Flow) -> Flow:
    return planes.partial(COUNT).combine("sum(n) AS n")


def ranked_twice(planes: Flow) -> Flow:
    ranked = planes.process("shop.steps:rank", {"tailnum": "VARCHAR"}, partitionable=False)
    return ranked.process("shop.steps:rank", {"tailnum": "VARCHAR"}, partitionable=False)


def on_dataframes(planes: Flow) -> Flow:
    return planes.spark("shop.frames:scored", {"tailnum": "VARCHAR"}, name="scored")


def on_dataframes_twice(planes: Flow) -> Flow:
    scored = on_dataframes(planes)
    return scored.spark("shop.frames:joined", {"tailnum": "VARCHAR"}, scored.filter("n"), planes).filter("n")


def on_dataframes_then_counted(planes: Flow) -> Flow:
    return planes.spark("shop.frames:spread", {"n": "BIGINT"}, key="n", key_format="long").aggregate(COUNT)


@pytest.mark.parametrize(
    ("follow", "waves"),
    [
        (on_dataframes, 1),
        (on_dataframes_twice, 3),
        (on_dataframes_then_counted, 2),
        (filtered, 1),
        (counted, 1),
        (rekeyed, 2),
        (rekeyed_twice, 3),
        (there_and_back, 3),
        (repartitioned, 2),
        (gathered, 2),
        (ranked_twice, 2),
    ],
)
def test_a_table_whose_count_never_changes_runs_in_as_many_waves_as_there_are_exchanges_behind_each_other(
    follow: Callable[[Flow], Flow], waves: int
) -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    follow(pipeline.table("planes", key="tailnum", partitions=4)).to_stream().write("t")
    plan = plan_of(pipeline, [arrived("planes", [10] * 4)])
    assert (most_waves(pipeline), len(plan.waves)) == (waves, waves)


def test_tables_that_lie_by_different_hashes_meet_in_a_second_wave() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    planes, makers = (pipeline.table(name, key="k", partitions=4, hash=name) for name in ("murmur2", "java"))
    planes.join(makers, "1 AS one").to_stream().write("t")
    plan = plan_of(pipeline, [arrived("murmur2", [10] * 4), arrived("java", [10] * 4)])
    assert (most_waves(pipeline), len(plan.waves)) == (2, 2)


@pytest.mark.parametrize(
    ("follow", "scheme", "waves"), [(filtered, "tasks(8)", 2), (counted, None, 2), (rekeyed, "flights=tasks(8)", 3)]
)
def test_a_stream_whose_count_has_changed_may_have_to_move_first(
    follow: Callable[[Flow], Flow], scheme: str | None, waves: int
) -> None:
    def pipeline(partitions: int) -> Pipeline:
        made = Pipeline("p", source="s3://landing/topics")
        follow(made.stream("flights", key="tailnum", partitions=partitions)).to_stream().write("t")
        return made

    before = plan_of(pipeline(4), [arrived("flights", [10] * 4)], scheme=scheme)
    now = plan_of(pipeline(6), [arrived("flights", [20] * 6)], batch=1, published=before, scheme=scheme)
    assert most_waves(pipeline(6)) == waves
    assert (len(before.waves), len(now.waves)) == (waves - 1, waves)


@pytest.mark.parametrize(
    ("fan_in", "scheme", "waves", "planned"),
    [(2, None, 6, 4), (4, None, 4, 3), (16, None, 3, 2), (4, "tasks(40)", 5, 4), (4, "elastic(10)", 5, 4)],
)
def test_levels_of_unifiers_are_counted_for_more_tasks_than_there_are(
    fan_in: int, scheme: str | None, waves: int, planned: int
) -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    parts = pipeline.table("planes", key="tailnum", partitions=5).partial(COUNT)
    parts.combine("sum(n) AS n", fan_in=fan_in, name="totals").to_stream().write("t")
    settings = Settings.parse(scheme=[f"planes={scheme}"] if scheme else None)
    plan = plan_of(pipeline, [arrived("planes", [10] * 5)], settings=settings)
    assert (most_waves(pipeline, settings), len(plan.waves)) == (waves, planned)


def test_a_stream_of_unknown_hash_is_never_moved() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    filtered(pipeline.stream("flights", key="tailnum", partitions=4, hash="opaque")).to_stream().write("t")
    assert most_waves(pipeline) == 1


Topology = Mapping[str, Any]

FOUND: list[Topology] = json.loads((Path(__file__).parents[1] / "vectors/kafka-streams/topologies.json").read_text())[
    "topologies"
]
RECORDS = 100


def never_moved_by_kafka(topology: Topology) -> list[str]:
    """Python steps with state behind a key change: Kafka moves nothing before them, and their results are wrong."""
    stateful = {op["id"] for op in topology["ops"] if op["op"].startswith("process") and op["stateful"]}
    inputs = topology["derived"]["stateful_inputs"]
    return [
        each["stateful_op"]
        for each in inputs
        if each["stateful_op"] in stateful and any(origin["dirty"] for origin in each["origins"])
    ]


# Where more moves here than in Kafka. There is no other reason than `never_moved_by_kafka`.
MORE_THAN_KAFKA = {
    "stateful_process_values_after_rekey": "Kafka gives it unplaced records; one key then has state in several tasks"
}


@dataclass
class Translation:
    """A topology as a graph; `steps` names for each op the step that gives its records."""

    streams: list[Stream] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    gives: dict[str, str] = field(default_factory=dict)

    def op(self, op: Mapping[str, Any], topics: Mapping[str, int]) -> None:
        """Add one op: each by what it does to keys and whether it keeps state, not by its name."""
        inputs = [self.gives[name] for name in op["inputs"]]
        args = op.get("args") or {}
        if not inputs:
            self._source(op, args["topics"], topics)
        elif op["op"] in {"sink", "foreach"}:
            self.writes.append(Write(f"{op['id']}.table", inputs[0], "k", False, ()))
        elif op["op"].startswith("group_by") and not op["key_changing"]:
            self.gives[op["id"]] = inputs[0]
        elif {"fk", "foreign"} & {*op["op"].split("_")}:
            self._foreign_key_join(op["id"], inputs)
        else:
            # What is not keyed and no merge looks things up in its other inputs, which every task has whole.
            kept = inputs if op["stateful"] or op["op"] == "merge" else inputs[:1]
            self._step(op["id"], kept, **_options(op, args))

    def graph(self) -> Graph:
        """The graph; what nothing reads is a table."""
        read = {name for step in self.steps for name in step.inputs} | {write.step for write in self.writes}
        last = [step.name for step in self.steps if step.name not in read]
        writes = [*self.writes, *(Write(f"{name}.table", name, "k", False, ()) for name in last)]
        return Graph(tuple(self.streams), tuple(self.steps), tuple(writes))

    def _source(self, op: Mapping[str, Any], names: list[str], topics: Mapping[str, int]) -> None:
        # A topic that does not exist is refused when it is discovered; here it only needs some count.
        table = op["op"] != "source"
        added = [Stream(f"{op['id']}.{name}", "s3://t", "k", topics.get(name, 1), table=table) for name in names]
        self.streams.extend(added)
        self.gives[op["id"]] = added[0].name
        if len(added) > 1:
            self._step(op["id"], [stream.name for stream in added], op=Op.MERGE)

    def _foreign_key_join(self, name: str, inputs: list[str]) -> None:
        """By the foreign key, and back: the result has the left table's key again."""
        self._step(f"{name}.foreign", inputs[:1], op=Op.REKEY, rekeys=True)
        self._step(f"{name}.joined", [f"{name}.foreign", inputs[1]], op=Op.JOIN, keyed=True)
        self._step(f"{name}.back", [f"{name}.joined"], op=Op.REKEY, rekeys=True)
        self._step(name, [f"{name}.back"], op=Op.AGGREGATE, keyed=True)

    def _step(self, name: str, inputs: list[str], **options: Any) -> None:
        self.steps.append(Step(name, inputs=tuple(inputs), sql="", expressions=(name,), key="k", **options))
        self.gives[name] = name


def _options(op: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    if op["op"] in {"merge", "repartition"}:
        return {"op": Op(op["op"]), "partitions": args.get("partitions")}
    if op["op"].startswith("process"):
        return {
            "op": Op.PROCESS,
            "keyed": op["stateful"],
            "state": op["stateful"] and StateSpec(),
            "rekeys": op["key_changing"],
        }
    if op["stateful"]:
        joins = len(op["inputs"]) > 1
        return {"op": Op.JOIN if joins else Op.AGGREGATE, "keyed": True, "rekeys": op["key_changing"]}
    if op["key_changing"]:
        return {"op": Op.REKEY, "rekeys": True}
    return {"op": Op.SELECT if op["value_changing"] or op["op"] == "peek" else Op.FILTER}


def graph_of(topology: Topology) -> Graph:
    """The topology as a graph."""
    made = Translation()
    for op in topology["ops"]:
        made.op(op, topology["topics"])
    return made.graph()


def planned(topology: Topology) -> tuple[Graph, Graph, tuple[Cut, ...]]:
    """The topology as a graph, what became of it, and the exchanges, if each stream gives a hundred records."""
    graph = graph_of(topology)
    return graph, *cuts(graph, Statistics(0, {stream.name: RECORDS for stream in graph.streams}))


def in_kafka(topology: Topology) -> tuple[int, int]:
    """How many internal topics Kafka makes without its optimiser and with it.

    None count where it fails without; where it fails with it, those without do.
    """
    none, best = (topology["kafka"][mode] for mode in ("none", "all"))
    plain = len(none.get("repartition_topics", ()))
    return plain, plain if best.get("build_error") else len(best["repartition_topics"])


def totals() -> Mapping[str, int]:
    """Exchanges over all topologies: here, and in Kafka Streams without and with its optimiser."""
    kafka = [in_kafka(topology) for topology in FOUND]
    here = sum(len(planned(topology)[2]) for topology in FOUND)
    return {"coset": here, "none": sum(none for none, _ in kafka), "all": sum(best for _, best in kafka)}


def named(which: list[Topology]) -> list[Any]:
    return [pytest.param(topology, id=topology["id"]) for topology in which]


@pytest.mark.parametrize("topology", named(FOUND))
def test_no_topology_fails_and_equal_keys_meet(topology: Topology) -> None:
    graph, made, found = planned(topology)
    assert tables(made, found) == tables_of_one_task(graph)


@pytest.mark.parametrize("topology", named(FOUND))
def test_never_more_exchanges_than_kafka_with_its_optimiser(topology: Topology) -> None:
    _, best = in_kafka(topology)
    assert len(planned(topology)[2]) <= best + len(never_moved_by_kafka(topology))


def test_moves_are_more_only_where_kafka_is_wrong_and_fewer_in_all() -> None:
    more = {topology["id"] for topology in FOUND if len(planned(topology)[2]) > in_kafka(topology)[1]}
    assert more == {topology["id"] for topology in FOUND if never_moved_by_kafka(topology)}
    assert set(MORE_THAN_KAFKA) <= more
    found = totals()
    assert found["coset"] < found["all"] < found["none"]


MIXED = [topology for topology in FOUND if topology["derived"]["mixed_input"]]


@pytest.mark.parametrize("topology", named(MIXED))
def test_where_clean_and_dirty_meet_only_dirty_records_move(topology: Topology) -> None:
    graph, made, found = planned(topology)
    placed = derive_placements(graph)
    steps = {step.name: step for step in graph.steps}
    assert len(MIXED) >= 7
    crossed: dict[tuple[str, str, bool], set[int]] = {}
    for path in paths(graph, made, found):
        dirty = not placed[path.start].lies(target(steps[path.wants], placed))
        for origin in placed[path.start].origins:
            crossed.setdefault((path.wants, op_of(origin.name), dirty), set()).add(len(path.exchanges))
    assert crossed == {
        (each["stateful_op"], origin["origin"], dirty): {int(dirty)}
        for each in topology["derived"]["stateful_inputs"]
        for origin in each["origins"]
        for dirty in (True, False)
        if origin["dirty" if dirty else "clean"]
    }


def op_of(name: str) -> str:
    """The op of a stream or step."""
    return name.partition(".")[0]


if __name__ == "__main__":
    print(totals())
