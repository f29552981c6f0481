"""Where exchanges stand and why, on pipelines as people write them."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pytest

from partitioning.authoring.pipeline import Flow, Pipeline
from partitioning.model.graph import Graph
from partitioning.model.statistics import Statistics
from partitioning.planning.exchanges.cuts import Cut, cuts
from partitioning.planning.exchanges.placements import placements
from partitioning.planning.exchanges.vertex_cut import vertex_cut
from tests.exchanged import paths

COUNT = "count(*) AS n"


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline("p", source="s3://landing/topics")


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


def test_nothing_moves_where_no_keyed_step_follows(pipeline: Pipeline) -> None:
    merged(pipeline).filter("v > 1").write("t")
    assert exchanges(pipeline) == (pipeline.graph, ())


def test_of_a_merge_only_the_dirty_input_moves(pipeline: Pipeline) -> None:
    counted(merged(pipeline), "n")
    graph, (cut,) = exchanges(pipeline, {"a": 900, "b": 100})
    assert graph == pipeline.graph
    assert cut == Cut(
        "kb",
        "k",
        "string",
        "murmur2",
        None,
        ("n",),
        "dirty since kb, wanted by n; a stays where it is: moves 100 of 1,000 records",
        100,
        900,
        ("m",),
    )


def test_without_counts_the_place_is_the_same_and_no_number_is_made_up(pipeline: Pipeline) -> None:
    counted(merged(pipeline), "n")
    _, (cut,) = exchanges(pipeline)
    assert (cut.source, cut.moves, cut.spares) == ("kb", None, None)
    assert cut.why == "dirty since kb, wanted by n; a stays where it is"


def test_the_dirty_inputs_of_nested_merges_share_one_exchange(pipeline: Pipeline) -> None:
    inner = merged(pipeline)
    c, d = stream(pipeline, "c"), stream(pipeline, "d")
    counted(inner.merge(c, rekeyed(d, "kd"), name="outer"), "n")
    graph, (cut,) = exchanges(pipeline, {"a": 900, "b": 100, "c": 50, "d": 7})
    assert (cut.source, cut.readers, cut.moves, cut.spares) == ("outer.moved", ("outer",), 107, 950)
    assert cut.why == "dirty since kb and kd, wanted by n; a and c stay where they are: moves 107 of 1,057 records"
    assert {step.name: step.inputs for step in graph.steps if step.op == "merge"} == {
        "outer.moved": ("kb", "kd"),
        "outer": ("a", "c", "outer.moved"),
    }


def test_a_merge_of_dirty_inputs_only_moves_behind_itself(pipeline: Pipeline) -> None:
    a, b = (rekeyed(stream(pipeline, name), f"k{name}") for name in "ab")
    counted(a.merge(b, name="m"), "n")
    assert sources(pipeline) == ["m"]


def test_filters_stay_before_the_exchange(pipeline: Pipeline) -> None:
    counted(rekeyed(stream(pipeline, "a"), "ka").select("v", name="s").filter("v > 1", name="f"), "n")
    assert sources(pipeline) == ["f"]


def test_two_aggregates_behind_different_selects_share_one_exchange(pipeline: Pipeline) -> None:
    dirty = rekeyed(stream(pipeline, "a"), "ka")
    counted(dirty.select("v", name="s1"), "n1")
    counted(dirty.select("v + 1 AS v", name="s2"), "n2")
    _, (cut,) = exchanges(pipeline, {"a": 100})
    assert (cut.source, cut.readers, cut.wanted_by) == ("ka", ("s1", "s2"), ("n1", "n2"))
    assert cut.why == "dirty since ka, wanted by n1 and n2: moves 100 of 200 records"


def test_nothing_is_shared_where_two_filters_are_known_to_leave_less(pipeline: Pipeline) -> None:
    dirty = rekeyed(stream(pipeline, "a"), "ka")
    counted(dirty.filter("v > 1", name="f1"), "n1")
    counted(dirty.filter("v < 1", name="f2"), "n2")
    assert sources(pipeline) == ["ka"]
    assert sources(pipeline, {"a": 100, "f1": 40, "f2": 50}) == ["f1", "f2"]
    assert sources(pipeline, {"a": 100, "f1": 70, "f2": 50}) == ["ka"]


def test_placed_records_move_only_if_fewer_are_left_behind_the_merge(pipeline: Pipeline) -> None:
    counted(merged(pipeline).filter("v > 1", name="f"), "n")
    _, (cut,) = exchanges(pipeline, {"a": 900, "b": 100, "f": 10})
    assert (cut.source, cut.readers, cut.moves) == ("f", ("n",), 10)
    assert cut.why == (
        "dirty since kb, wanted by n; a moves too, as 10 are left after f and 100 would move without a: "
        "moves 10 records"
    )
    assert sources(pipeline, {"a": 900, "b": 100, "f": 100}) == ["kb"]
    assert sources(pipeline, {"a": 0, "b": 0, "f": 0}) == ["kb"]


def test_a_table_behind_the_merge_does_not_wait_for_the_exchange(pipeline: Pipeline) -> None:
    flow = merged(pipeline)
    flow.write("all")
    flow.filter("v > 1", name="f").write("some")
    counted(flow, "n")
    graph, (cut,) = exchanges(pipeline)
    assert (cut.source, cut.readers) == ("kb", ("m",))
    assert {write.table: write.step for write in graph.writes} == {"all": "m.early", "some": "f", "n": "n"}
    assert {step.name: step.inputs for step in graph.steps if step.name in {"m", "m.early", "f", "n"}} == {
        "m.early": ("a", "kb"),
        "m": ("a", "kb"),
        "f": ("m.early",),
        "n": ("m",),
    }


def test_before_a_merge_whose_records_get_other_keys_nothing_moves(pipeline: Pipeline) -> None:
    counted(rekeyed(merged(pipeline), "km"), "n")
    assert sources(pipeline) == ["km"]


def test_a_stream_merged_with_a_rekeyed_copy_of_itself_moves_the_copy(pipeline: Pipeline) -> None:
    a = stream(pipeline, "a")
    counted(a.merge(rekeyed(a, "ka"), name="m"), "n")
    _, (cut,) = exchanges(pipeline)
    assert cut.source == "ka"
    assert cut.why == "dirty since ka, wanted by n; a stays where it is"


def test_what_is_rekeyed_after_a_shared_step_reads_unmoved_records(pipeline: Pipeline) -> None:
    dirty = rekeyed(stream(pipeline, "a"), "ka")
    filtered = dirty.filter("v > 1", name="f")
    counted(filtered, "n1")
    counted(dirty, "n2")
    counted(rekeyed(filtered, "again"), "n3")
    graph, found = exchanges(pipeline)
    assert [(cut.source, cut.wanted_by) for cut in found] == [("ka", ("n1", "n2")), ("again", ("n3",))]
    assert all(len(path.exchanges) == 1 for path in paths(pipeline.graph, graph, found))
    assert [step.inputs for step in graph.steps if step.name == "again.j"] == [("f.early",)]


def test_streams_of_different_counts_need_no_exchange(pipeline: Pipeline) -> None:
    a, b = (pipeline.stream(name, key="k", partitions=count) for name, count in (("a", 8), ("b", 12)))
    counted(a.merge(b, name="m"), "n")
    a.join(b, "1 AS one", name="j").write("t")
    assert sources(pipeline) == []


def test_a_python_step_with_state_behind_a_rekey_gets_its_exchange(pipeline: Pipeline) -> None:
    dirty = rekeyed(stream(pipeline, "a"), "ka")
    dirty.process("shop.steps:enrich", {"k": "VARCHAR"}, name="stateless").write("t")
    dirty.process("shop.steps:sessions", {"k": "VARCHAR"}, stateful=True, name="sessions").write("u")
    _, (cut,) = exchanges(pipeline)
    assert (cut.source, cut.readers, cut.wanted_by) == ("ka", ("sessions",), ("sessions",))


def test_a_step_with_state_that_gives_other_keys_makes_its_records_dirty(pipeline: Pipeline) -> None:
    step = stream(pipeline, "a").process(
        "shop.steps:sessions", {"s": "VARCHAR"}, key="s", stateful=True, name="sessions"
    )
    counted(step, "n")
    _, (cut,) = exchanges(pipeline)
    assert (cut.source, cut.key, cut.wanted_by) == ("sessions", "s", ("n",))
    assert cut.why == "dirty since sessions, wanted by n"


def test_an_explicit_repartition_always_moves_and_shares_with_nothing(pipeline: Pipeline) -> None:
    a = stream(pipeline, "a")
    a.repartition(6, name="r1").write("t1")
    a.repartition(placement="shop.codecs:country", name="r2").write("t2")
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
    assert [cut.why for cut in found] == [
        "r1 asks for it, into 6 partitions: moves 5 records",
        "r2 asks for it: moves 5 records",
        "dirty since ka, wanted by n: moves 5 records",
        "r3 asks for it, into 12 partitions: moves 5 records",
    ]


def test_a_step_that_runs_in_one_task_gets_all_records_gathered(pipeline: Pipeline) -> None:
    a = stream(pipeline, "a")
    one = a.process("shop.steps:rank", {"k": "VARCHAR"}, partitionable=False, name="rank")
    one.process("shop.steps:rank", {"k": "VARCHAR"}, partitionable=False, name="again").write("t")
    counted(one, "n")
    _, (cut,) = exchanges(pipeline)
    assert (cut.source, cut.key, cut.partitions, cut.readers) == ("a", "", 1, ("rank",))
    assert cut.why == "gathered into one task for rank"


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
    assert cut.why == (
        "b lies by murmur2 of long keys, not by murmur2 of string keys, wanted by j; a stays where it is: "
        "moves 5 records"
    )
    _, (cut,) = exchanges(pipeline, {"a": 5, "b": 7})
    assert (cut.source, cut.key_format) == ("a", "long")


def test_opaque_streams_meet_but_move_beside_records_that_move(pipeline: Pipeline) -> None:
    a, b = (stream(pipeline, name, placement="opaque") for name in "ab")
    a.join(b, "1 AS one", name="j").write("t")
    assert sources(pipeline) == []
    a.join(rekeyed(b, "kb"), "1 AS one", name="j2").write("t2")
    _, found = exchanges(pipeline)
    assert [(cut.source, cut.hash) for cut in found] == [("a", "murmur2"), ("kb", "murmur2")]
    assert found[0].why == "a is opaque and others cannot be moved to it, wanted by j2"


def test_records_that_all_move_go_by_the_hash_of_their_streams(pipeline: Pipeline) -> None:
    a, b = (stream(pipeline, name, placement="java") for name in "ab")
    rekeyed(a, "ka").aggregate("max(v) AS v", name="n").join(b, "1 AS one", name="j").write("t")
    _, (cut,) = exchanges(pipeline)
    assert (cut.source, cut.hash) == ("ka", "java")


def test_one_source_that_moves_two_ways_has_two_names(pipeline: Pipeline) -> None:
    a, b, c = stream(pipeline, "a"), stream(pipeline, "b"), stream(pipeline, "c", placement="java")
    dirty = rekeyed(a, "ka")
    dirty.join(b, "1 AS one", name="with_b").write("t")
    dirty.join(c, "1 AS one", name="with_c").write("u")
    graph, found = exchanges(pipeline)
    assert [(cut.source, cut.hash, cut.readers) for cut in found] == [
        ("ka", "java", ("with_c",)),
        ("ka.moved", "murmur2", ("with_b",)),
    ]
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


def test_what_several_exchanges_spare_together_is_counted_once(pipeline: Pipeline) -> None:
    a, b, c = (stream(pipeline, name) for name in "abc")
    kb, kc = rekeyed(b, "kb"), rekeyed(c, "kc")
    counted(kc, "n1")
    counted(a.merge(kb, kc, name="m"), "n2")
    _, found = exchanges(pipeline, {"a": 900, "b": 100, "c": 10})
    assert [(cut.source, cut.moves, cut.spares) for cut in found] == [("kb", 100, 910), ("kc", 10, 0)]


def test_placements_tell_since_which_step_records_are_dirty(pipeline: Pipeline) -> None:
    counted(rekeyed(merged(pipeline), "again").filter("v > 1", name="f"), "n")
    placed = placements(pipeline.graph)
    assert [(origin.name, origin.since) for origin in placed["m"].origins] == [("a", None), ("b", "kb")]
    assert [(origin.name, origin.since) for origin in placed["f"].origins] == [("a", "again"), ("b", "again")]
    assert [(origin.name, origin.since) for origin in placed["n"].origins] == [("n", None)]


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


def every_rewriting() -> Pipeline:
    """A pipeline in which merges are regrouped, steps are there twice and a source moves two ways."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    a, b, c = stream(pipeline, "a"), stream(pipeline, "b"), stream(pipeline, "c", placement="java")
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


def contents(graph: Graph) -> dict[str, list[tuple[object, ...]]]:
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


def test_the_graph_with_exchanges_gives_the_same_tables() -> None:
    pipeline = every_rewriting()
    graph, found = exchanges(pipeline)
    names = [step.name for step in graph.steps]
    assert len(set(names)) == len(names)
    assert {"outer.early", "inner.early", "kb.moved", "three.moved"} <= set(names)
    assert len(found) == 4
    assert contents(graph) == contents(pipeline.graph)


def test_steps_name_in_their_inputs_what_their_sql_reads() -> None:
    graph, _ = exchanges(every_rewriting())
    before: set[str] = {each.name for each in graph.streams}
    for step in graph.steps:
        assert set(step.inputs) <= before, step
        assert all(f'"{name}"' in step.sql for name in step.inputs), step
        before.add(step.name)
