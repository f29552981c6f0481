"""The graph that reads its exchanges: names of steps that are there twice, and the same tables as before."""

from __future__ import annotations

import duckdb
import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.model.graph import Graph
from tests.cutting import counted, exchanges, merged, rekeyed, stream


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline("p", source="s3://landing/topics")


def test_one_source_that_moves_two_ways_has_two_names(pipeline: Pipeline) -> None:
    a, b, c = stream(pipeline, "a"), stream(pipeline, "b"), stream(pipeline, "c", hash="java")
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
