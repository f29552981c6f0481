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
from tests.exchanged import why


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
