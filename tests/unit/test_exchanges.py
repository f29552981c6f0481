"""Exchanges: where they stand and why, where records move to, and the graph that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from typing import Any

import duckdb
import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.model.graph import Graph, Op
from partitioning.model.placement import MURMUR2, OPAQUE, KeyFormat, Placement
from partitioning.model.plan import Exchange, Plan
from partitioning.model.reasons import AskedFor, Unplaced
from partitioning.model.stage_inputs import ExchangeInput, PlannedStream, ResultInput, StateInput
from partitioning.model.statistics import Statistics
from partitioning.planning.exchanges.cuts import Cut, cuts
from partitioning.planning.exchanges.derived_placements import derive_placements
from partitioning.planning.exchanges.vertex_cut import vertex_cut
from partitioning.sizing.proposal import Targets, propose
from partitioning.sizing.workload import Traffic, Workload, footprint, traffic
from partitioning.values import replace
from tests.exchanged import why
from tests.plans import plan_of, tails, tails_found

COUNT = "count(*) AS n"


def stream(pipeline: Pipeline, name: str, **more: object) -> Flow:
    return pipeline.stream(name, key="k", partitions=4, **more)  # type: ignore[arg-type]


def rekeyed(flow: Flow, name: str, **more: object) -> Flow:
    """The flow with other keys in the same column, so that it can be merged."""
    return flow.rekey("j", sql="v", name=f"{name}.j").rekey("k", name=name, **more)  # type: ignore[arg-type]


def counted(flow: Flow, name: str) -> None:
    flow.aggregate(COUNT, name=name).write(name)


def exchanges(pipeline: Pipeline, records: Mapping[str, int] | None = None) -> tuple[Graph, tuple[Cut, ...]]:
    return cuts(pipeline.graph, Statistics(0, records) if records else None)


def sources(pipeline: Pipeline, records: Mapping[str, int] | None = None) -> list[str]:
    return [cut.source for cut in exchanges(pipeline, records)[1]]


def merged(pipeline: Pipeline) -> Flow:
    """The merge of KAFKA-7294: a as it is, b with other keys."""
    return stream(pipeline, "a").merge(rekeyed(stream(pipeline, "b"), "kb"), name="m")


# ---- where they stand


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline("p", source="s3://landing/topics")


def test_of_a_merge_only_the_dirty_input_moves(pipeline: Pipeline) -> None:
    counted(merged(pipeline), "n")
    graph, (cut,) = exchanges(pipeline, {"a": 900, "b": 100})
    assert graph == pipeline.graph
    reason = Unplaced(("kb",), (), None, ("a",))
    assert cut == Cut("kb", "k", KeyFormat.STRING, MURMUR2, None, ("n",), reason, 100, 900, ("m",))
    assert why(cut) == "dirty since kb, wanted by n; a stays where it is; 100 of 1,000 records move"


def test_the_dirty_inputs_of_nested_merges_share_one_exchange(pipeline: Pipeline) -> None:
    inner = merged(pipeline)
    c, d = stream(pipeline, "c"), stream(pipeline, "d")
    counted(inner.merge(c, rekeyed(d, "kd"), name="outer"), "n")
    graph, (cut,) = exchanges(pipeline, {"a": 900, "b": 100, "c": 50, "d": 7})
    assert (cut.source, cut.readers, cut.moves, cut.spares) == ("outer.moved", ("outer",), 107, 950)
    assert why(cut) == "dirty since kb and kd, wanted by n; a and c stay where they are; 107 of 1,057 records move"
    assert {step.name: step.inputs for step in graph.steps if step.op is Op.MERGE} == {
        "outer.moved": ("kb", "kd"),
        "outer": ("a", "c", "outer.moved"),
    }


def test_two_aggregates_behind_different_selects_share_one_exchange(pipeline: Pipeline) -> None:
    dirty = rekeyed(stream(pipeline, "a"), "ka")
    counted(dirty.select("v", name="s1"), "n1")
    counted(dirty.select("v + 1 AS v", name="s2"), "n2")
    _, (cut,) = exchanges(pipeline, {"a": 100})
    assert (cut.source, cut.readers, cut.wanted_by) == ("ka", ("s1", "s2"), ("n1", "n2"))
    assert why(cut) == "dirty since ka, wanted by n1 and n2; 100 of 200 records move"


def test_placed_records_move_only_if_fewer_are_left_behind_the_merge(pipeline: Pipeline) -> None:
    counted(merged(pipeline).filter("v > 1", name="f"), "n")
    _, (cut,) = exchanges(pipeline, {"a": 900, "b": 100, "f": 10})
    assert (cut.source, cut.readers, cut.moves) == ("f", ("n",), 10)
    assert why(cut) == (
        "dirty since kb, wanted by n; a moves too, as 10 are left after f and 100 would move without a; 10 records move"
    )
    assert sources(pipeline, {"a": 900, "b": 100, "f": 100}) == ["kb"]
    assert sources(pipeline, {"a": 0, "b": 0, "f": 0}) == ["kb"]


def test_an_explicit_repartition_always_moves_and_shares_with_nothing(pipeline: Pipeline) -> None:
    a = stream(pipeline, "a")
    a.repartition(6, name="r1").write("t1")
    a.repartition(hash="shop.codecs:country", name="r2").write("t2")
    dirty = rekeyed(a, "ka")
    counted(dirty, "n")
    counted(dirty.repartition(12, name="r3"), "n3")
    _, found = exchanges(pipeline, {"a": 5})
    assert [(cut.source, cut.hash, cut.partitions, cut.wanted_by, cut.readers) for cut in found] == [
        ("a", "murmur2", 6, ("r1",), ("r1",)),
        ("a.moved", "shop.codecs:country", None, ("r2",), ("r2",)),
        ("ka", "murmur2", None, ("n",), ("n",)),
        ("ka.moved", "murmur2", 12, ("r3",), ("r3",)),
    ]
    assert [why(cut) for cut in found] == [
        "r1 asks for it, into 6 partitions; 5 records move",
        "r2 asks for it; 5 records move",
        "dirty since ka, wanted by n; 5 records move",
        "r3 asks for it, into 12 partitions; 5 records move",
    ]


def test_what_several_exchanges_spare_together_is_counted_once(pipeline: Pipeline) -> None:
    a, b, c = (stream(pipeline, name) for name in "abc")
    kb, kc = rekeyed(b, "kb"), rekeyed(c, "kc")
    counted(kc, "n1")
    counted(a.merge(kb, kc, name="m"), "n2")
    _, found = exchanges(pipeline, {"a": 900, "b": 100, "c": 10})
    assert [(cut.source, cut.moves, cut.spares) for cut in found] == [("kb", 100, 910), ("kc", 10, 0)]


def test_long_pipelines_are_planned_too(pipeline: Pipeline) -> None:
    flow = stream(pipeline, "a")
    for number in range(100):
        flow = flow.merge(rekeyed(stream(pipeline, f"s{number}"), f"k{number}"), name=f"m{number}")
    for number in range(2000):
        flow = flow.filter("v > 1", name=f"f{number}")
    counted(flow, "n")
    assert sources(pipeline) == ["m99.moved"]


def test_a_heavier_vertex_is_not_taken_to_save_vertices() -> None:
    before: dict[str, list[str]] = {"a": [], "b": [], "m": ["a", "b"]}
    assert vertex_cut(before, {"a": 1, "b": 1, "m": 3}, ["a", "b"], ["m"]) == {"a", "b"}
    assert vertex_cut(before, {"a": 1, "b": 1, "m": 2}, ["a", "b"], ["m"]) == {"m"}


# ---- where records go


def test_a_step_that_runs_in_one_task_gets_all_records_gathered(pipeline: Pipeline) -> None:
    a = stream(pipeline, "a")
    one = a.process("shop.steps:rank", {"k": "VARCHAR"}, partitionable=False, name="rank")
    one.process("shop.steps:rank", {"k": "VARCHAR"}, partitionable=False, name="again").write("t")
    counted(one, "n")
    _, (cut,) = exchanges(pipeline)
    assert (cut.source, cut.key, cut.partitions, cut.readers) == ("a", "", 1, ("rank",))
    assert why(cut) == "gathered into one task for rank"


def test_partial_results_without_a_key_are_gathered_behind_the_partial(pipeline: Pipeline) -> None:
    partial = stream(pipeline, "a").partial("sum(v) AS v", name="each")
    partial.combine("sum(v) AS v", name="total").write("t")
    _, (cut,) = exchanges(pipeline)
    assert (cut.source, cut.key, cut.partitions, cut.wanted_by) == ("each", "", 1, ("total",))


def test_partial_results_by_the_key_there_is_stay(pipeline: Pipeline) -> None:
    a = stream(pipeline, "a")
    a.partial("sum(v) AS v", by="k").combine("sum(v) AS v").write("t")
    assert sources(pipeline) == []
    a.partial("sum(v) AS v", by="v", name="by_v").combine("sum(v) AS v").write("u")
    assert sources(pipeline) == ["by_v"]


def test_naming_the_key_column_that_there_is_leaves_records_placed(pipeline: Pipeline) -> None:
    a = stream(pipeline, "a")
    counted(a.rekey("k", name="same"), "n")
    assert sources(pipeline) == []
    counted(a.rekey("k", key_format="long", name="other_format"), "n2")
    counted(a.rekey("k", sql="upper(k)", name="made"), "n3")
    assert sources(pipeline) == ["other_format", "made"]


def test_of_streams_with_different_key_formats_the_smaller_moves(pipeline: Pipeline) -> None:
    a, b = stream(pipeline, "a"), stream(pipeline, "b", key_format="long")
    a.join(b, "1 AS one", name="j").write("t")
    _, (cut,) = exchanges(pipeline, {"a": 7, "b": 5})
    assert (cut.source, cut.key_format) == ("b", "string")
    assert why(cut) == (
        "b lies by murmur2 of long keys, not by murmur2 of string keys, wanted by j; a stays where it is; "
        "5 records move"
    )
    _, (cut,) = exchanges(pipeline, {"a": 5, "b": 7})
    assert (cut.source, cut.key_format) == ("a", "long")


def test_opaque_streams_meet_but_move_beside_records_that_move(pipeline: Pipeline) -> None:
    a, b = (stream(pipeline, name, hash="opaque") for name in "ab")
    a.join(b, "1 AS one", name="j").write("t")
    assert sources(pipeline) == []
    a.join(rekeyed(b, "kb"), "1 AS one", name="j2").write("t2")
    _, found = exchanges(pipeline)
    assert [(cut.source, cut.hash) for cut in found] == [("a", "murmur2"), ("kb", "murmur2")]
    assert why(found[0]) == "a is opaque and others cannot be moved to it, wanted by j2"


def test_records_that_all_move_go_by_the_hash_of_their_streams(pipeline: Pipeline) -> None:
    a, b = (stream(pipeline, name, hash="java") for name in "ab")
    rekeyed(a, "ka").aggregate("max(v) AS v", name="n").join(b, "1 AS one", name="j").write("t")
    _, (cut,) = exchanges(pipeline)
    assert (cut.source, cut.hash) == ("ka", "java")


def test_placements_tell_since_which_step_records_are_dirty(pipeline: Pipeline) -> None:
    counted(rekeyed(merged(pipeline), "again").filter("v > 1", name="f"), "n")
    placed = derive_placements(pipeline.graph)
    assert [(origin.name, origin.since) for origin in placed["m"].origins] == [("a", None), ("b", "kb")]
    assert [(origin.name, origin.since) for origin in placed["f"].origins] == [("a", "again"), ("b", "again")]
    assert [(origin.name, origin.since) for origin in placed["n"].origins] == [("n", None)]


def test_steps_that_keep_something_lie_in_one_way_whatever_a_batch_brings(pipeline: Pipeline) -> None:
    a, b = stream(pipeline, "a", hash="java"), stream(pipeline, "b")
    a.merge(b, name="both").latest("v", name="newest").to_stream().write("newest")
    times: dict[str, Any] = {"times": ("a.v", "b.v"), "within": timedelta(minutes=1)}
    a.join_within(b, "1 AS one", name="near", **times).write("near")
    a.join(b, "1 AS one", name="joined").write("joined")
    for counts, most in (({"a": 5, "b": 7}, "murmur2"), ({"a": 7, "b": 5}, "java")):
        placed = derive_placements(pipeline.graph, Statistics(0, counts))
        names = ("newest", "near.a", "near.b", "joined")
        # What keeps nothing goes where the most records lie.
        assert [placed[name].origins[0].key_hash.hash for name in names] == ["java", "java", "java", most]


# ---- the graph that reads its exchanges


def test_one_source_that_moves_two_ways_has_two_names(pipeline: Pipeline) -> None:
    a, b, c = stream(pipeline, "a"), stream(pipeline, "b"), stream(pipeline, "c", hash="java")
    dirty = rekeyed(a, "ka")
    dirty.join(b, "1 AS one", name="with_b").write("t")
    dirty.join(c, "1 AS one", name="with_c").write("u")
    near = dirty.join_within(b, "1 AS one", times=("ka.v", "b.v"), within=timedelta(minutes=1), name="near")
    near.write("v")
    graph, found = exchanges(pipeline)
    assert [(cut.source, cut.hash, cut.readers) for cut in found] == [
        ("ka", "java", ("with_c",)),
        ("ka.moved", "murmur2", ("with_b", "near.ka")),
    ]
    # What it keeps, and what it says of times, is of the same records.
    (kept,) = (step.state for step in graph.steps if step.name == "near.ka")
    assert kept
    assert {text.partition(" SELECT")[0] for text in (kept.sql, kept.apart)} == {
        'WITH "ka" AS (SELECT * FROM "ka.moved")'
    }
    assert [step.sql[:41] for step in graph.steps if step.name == "with_b"] == [
        'WITH "ka" AS (SELECT * FROM "ka.moved") S'
    ]


def test_a_name_that_is_taken_gets_the_ending_again(pipeline: Pipeline) -> None:
    flow = merged(pipeline)
    flow.write("all")
    counted(flow, "n")
    stream(pipeline, "m.early").write("other")
    graph, _ = exchanges(pipeline)
    assert [write.step for write in graph.writes] == ["m.early.early", "n", "m.early"]


def every_rewriting() -> Pipeline:
    """A pipeline in which merges are regrouped, steps are there twice and a source moves two ways."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    a, b, c = stream(pipeline, "a"), stream(pipeline, "b"), stream(pipeline, "c", hash="java")
    kb = rekeyed(b, "kb")
    inner = a.merge(kb, name="inner")
    outer = inner.merge(rekeyed(a, "ka"), name="outer")
    outer.select("v", name="s").write("some")
    counted(outer.filter("v <> '1'", name="f"), "n")
    outer.filter("v <> '2'", name="g").write("g")
    inner.write("inner")
    kb.join(c, "c.v AS cv", name="with_c").write("with_c")
    kb.join([outer.aggregate("max(v) AS v", name="top"), a], "top.v AS tv, a.v AS av", how="left", name="with_a").write(
        "w"
    )
    counted(a.merge(rekeyed(b, "k1"), rekeyed(a, "k2"), name="three"), "n3")
    inner.cogroup("max(v) AS iv", (kb.filter("v <> '3'", name="h"), "min(v) AS hv"), name="both").write("both")
    return pipeline


def contents(graph: Graph) -> dict[str, list[str]]:
    """The rows of each table, as DuckDB gives them for small streams."""
    connection = duckdb.connect()
    for number, each in enumerate(graph.streams):
        connection.execute(
            f'CREATE TABLE "{each.name}" AS SELECT CAST((i * 7 + {number}) % 5 AS VARCHAR) AS k,'
            f" CAST((i * 3 + {number}) % 4 AS VARCHAR) AS v FROM range(12) t(i)"
        )
    for step in graph.steps:
        connection.execute(f'CREATE VIEW "{step.name}" AS {step.sql}')
    return {
        write.table: sorted(map(repr, connection.execute(f'SELECT * FROM "{write.step}"').fetchall()))
        for write in graph.writes
    }


def test_the_graph_with_exchanges_gives_the_same_tables_and_names_its_inputs() -> None:
    pipeline = every_rewriting()
    graph, found = exchanges(pipeline)
    names = [step.name for step in graph.steps]
    assert len(set(names)) == len(names)
    assert {"outer.early", "inner.early", "kb.moved", "three.moved"} <= set(names)
    assert len(found) == 4
    assert contents(graph) == contents(pipeline.graph)
    graph, _ = exchanges(every_rewriting())
    before: set[str] = {each.name for each in graph.streams}
    for step in graph.steps:
        assert set(step.inputs) <= before, step
        assert all(f'"{name}"' in step.sql for name in step.inputs), step
        before.add(step.name)


# ---- what passes, and what that adds to the work behind


PLACED = Placement("tailnum", KeyFormat.STRING, MURMUR2, 4)


def moved(source: str, *, only: tuple[int, ...] | None = None, moves: int | None = None) -> Exchange:
    why = AskedFor(None)
    return Exchange(f"{source}.exchange", source, "flights+planes", PLACED, ("joined",), why, only, moves=moves)


def fed(*exchanges: Exchange, kind: type[ExchangeInput | ResultInput] = ExchangeInput) -> Plan:
    """A plan whose stage reads planes, and flights from these exchanges."""
    plan = plan_of(tails(), tails_found())
    (stage,) = plan.stages
    read = tuple(kind(each.name, each.source, each.placement) for each in exchanges)
    names = {each.name for each in exchanges}
    tasks = tuple(
        replace(task, reads={"planes": task.reads["planes"], **dict.fromkeys(names, (task.task,))}, filters={})
        for task in stage.tasks
    )
    planes = tuple(each for each in stage.inputs if each.name == "planes")
    return replace(plan, exchanges=exchanges, stages=(replace(stage, inputs=planes + read, tasks=tasks),))


def test_traffic_is_all_that_moves_at_the_mean_size_and_unknown_where_nothing_was_counted() -> None:
    plan = fed(moved("flights"), moved("planes", only=(0, 3)))
    assert traffic(plan, plan.exchanges[0]) == Traffic(12 * 250, 12 * 2500)
    assert traffic(plan, plan.exchanges[1]) == Traffic(2 * 100, 2 * 1000)
    plan = fed(moved("flights.filter", moves=70))
    assert traffic(plan, plan.exchanges[0]) == Traffic(70, 700)
    plan = replace(plan, streams=tuple(_heavier(each) for each in plan.streams))
    assert traffic(plan, moved("joined", moves=38)) == Traffic(38, (30 * 10 + 8 * 20))
    plan = fed(moved("flights.filter"))
    assert traffic(plan, plan.exchanges[0]) == Traffic(None, None)
    figures = footprint(plan, plan.stages[0])
    assert (figures.exchanges, figures.moved) == (1, Traffic(None, None))


def _heavier(stream: PlannedStream) -> PlannedStream:
    if stream.name == "flights":
        return stream
    return replace(stream, partitions=tuple(replace(part, bytes=part.bytes * 2) for part in stream.partitions))


def test_an_exchange_has_as_many_partitions_as_tasks_need() -> None:
    plan = fed(moved("flights"))
    workload = Workload.of(plan, plan.stages[0])
    # 8 kB of planes in 8 partitions, and 30 kB moved.
    assert [workload.load(tasks).mean for tasks in (1, 4, 8)] == [38_000, 9500, 4750]
    assert workload.load(16).heaviest == Fraction(30_000, 16) + 1000 * (Fraction(1, 2) + Fraction(43, 200))
    figures = footprint(plan, plan.stages[0])
    assert (figures.mean, figures.heaviest, figures.reads) == (Fraction(9500), 9500, 8)
    assert propose(plan, (), Targets(bytes=4750)).stages[0].tasks == 8


@pytest.mark.parametrize("kind", [ExchangeInput, ResultInput])
def test_what_has_no_size_yet_leaves_the_number_of_tasks_as_it_is(kind: type[ExchangeInput | ResultInput]) -> None:
    plan = fed(moved("flights.filter"), kind=kind)
    (stage,) = propose(plan, (), Targets(bytes=1)).stages
    assert (stage.scheme, stage.tasks) == (None, 4)
    assert stage.why == "stays at 4: the size of flights.filter.exchange is known only once it is written"


def test_a_partitioner_and_a_step_that_needs_all_records_choose_for_themselves() -> None:
    plan = plan_of(tails(), tails_found())
    (stage,) = plan.stages
    dealt = replace(plan, stages=(replace(stage, partitioner="shop.parts:ByBytes"),))
    (found,) = propose(dealt, (), Targets(bytes=1)).stages
    assert (found.scheme, found.why) == (None, "stays at 4: its partitioner shop.parts:ByBytes chooses")
    steps = tuple(replace(step, key="") for step in stage.steps)
    (found,) = propose(replace(plan, stages=(replace(stage, steps=steps),)), (), Targets(bytes=1)).stages
    assert found.why == "stays at 4: joined must have all records together"


def test_state_of_an_unknown_size_does_not_hinder() -> None:
    plan = fed(moved("flights"))
    state = StateInput("joined.state", "joined", PLACED, 0)
    (stage,) = plan.stages
    kept = replace(plan, stages=(replace(stage, inputs=(*stage.inputs, state)),))
    assert propose(kept, (), Targets(bytes=4750)).stages[0].tasks == 8
    assert footprint(kept, kept.stages[0]).mean == 9500


def test_rows_read_where_they_lie_need_their_keys_together_and_only_partitions_read_there_count() -> None:
    plan = plan_of(tails(), tails_found())
    (stage,) = plan.stages
    free = replace(stage, steps=tuple(replace(step, keyed=False) for step in stage.steps))
    assert Workload.of(replace(plan, stages=(free,)), free).whole is not None
    later = replace(stage, name="later", wave=1, inputs=(ResultInput("joined.result", "joined", PLACED),))
    assert Workload.of(replace(plan, stages=(free, later)), free).whole is None
    flights, planes = stage.inputs
    changed = replace(flights, only=(9, 10, 11), placement=replace(flights.placement, partitions=6, hash=OPAQUE))
    workload = Workload.of(plan, replace(stage, inputs=(changed, planes)))
    assert workload.sizes[6] == (0, 0, 0, 2500, 2500, 2500)
    assert [workload.allows(tasks) for tasks in (3, 4, 6, 12)] == [True, False, True, False]
