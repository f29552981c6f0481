"""Where exchanges stand and why, on pipelines as people write them."""

from __future__ import annotations

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.model.graph import Op
from partitioning.model.placement import MURMUR2, KeyFormat
from partitioning.model.reasons import Unplaced
from partitioning.planning.exchanges.cuts import Cut
from partitioning.planning.exchanges.vertex_cut import vertex_cut
from tests.cutting import counted, exchanges, merged, rekeyed, sources, stream
from tests.exchanged import paths, why


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline("p", source="s3://landing/topics")


def test_nothing_moves_where_no_keyed_step_follows(pipeline: Pipeline) -> None:
    merged(pipeline).filter("v > 1").write("t")
    assert exchanges(pipeline) == (pipeline.graph, ())


def test_of_a_merge_only_the_dirty_input_moves(pipeline: Pipeline) -> None:
    counted(merged(pipeline), "n")
    graph, (cut,) = exchanges(pipeline, {"a": 900, "b": 100})
    assert graph == pipeline.graph
    reason = Unplaced(("kb",), (), None, ("a",))
    assert cut == Cut("kb", "k", KeyFormat.STRING, MURMUR2, None, ("n",), reason, 100, 900, ("m",))
    assert why(cut) == "dirty since kb, wanted by n; a stays where it is; 100 of 1,000 records move"


def test_without_counts_the_place_is_the_same_and_no_number_is_made_up(pipeline: Pipeline) -> None:
    counted(merged(pipeline), "n")
    _, (cut,) = exchanges(pipeline)
    assert (cut.source, cut.moves, cut.spares) == ("kb", None, None)
    assert why(cut) == "dirty since kb, wanted by n; a stays where it is"


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
    assert why(cut) == "dirty since ka, wanted by n1 and n2; 100 of 200 records move"


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
    assert why(cut) == (
        "dirty since kb, wanted by n; a moves too, as 10 are left after f and 100 would move without a; 10 records move"
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
    assert why(cut) == "dirty since ka, wanted by n; a stays where it is"


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
    dirty.process("shop.steps:sessions", {"k": "VARCHAR"}, state={"k": "VARCHAR"}, name="sessions").write("u")
    _, (cut,) = exchanges(pipeline)
    assert (cut.source, cut.readers, cut.wanted_by) == ("ka", ("sessions",), ("sessions",))


def test_a_step_with_state_that_gives_other_keys_makes_its_records_dirty(pipeline: Pipeline) -> None:
    step = stream(pipeline, "a").process(
        "shop.steps:sessions", {"s": "VARCHAR"}, key="s", state={"k": "VARCHAR"}, name="sessions"
    )
    counted(step, "n")
    _, (cut,) = exchanges(pipeline)
    assert (cut.source, cut.key, cut.wanted_by) == ("sessions", "s", ("n",))
    assert why(cut) == "dirty since sessions, wanted by n"


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
