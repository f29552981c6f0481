"""Where exchanges move records to: into one partition, by which key format and hash, and what stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.model.statistics import Statistics
from partitioning.planning.exchanges.derived_placements import derive_placements
from tests.cutting import counted, exchanges, merged, rekeyed, sources, stream
from tests.exchanged import why


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline("p", source="s3://landing/topics")


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
