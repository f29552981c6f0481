"""The pipeline API: the graph it makes, the SQL it compiles, what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from partitioning.errors import Refused
from partitioning.graph import Write
from partitioning.pipeline import Flow, Pipeline


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline("activity", source="s3://landing/topics")


@pytest.fixture
def flights(pipeline: Pipeline) -> Flow:
    return pipeline.stream("flights", key="tailnum", partitions=12)


@pytest.fixture
def planes(pipeline: Pipeline) -> Flow:
    return pipeline.table("planes", key="tail", partitions=8)


def sql(pipeline: Pipeline) -> str:
    return pipeline.steps[-1].sql


def test_a_filter_keeps_all_columns(pipeline: Pipeline, flights: Flow) -> None:
    flights.filter("dep_delay > 0 OR dep_delay IS NULL")
    assert sql(pipeline) == 'SELECT * FROM "flights" AS "flights" WHERE dep_delay > 0 OR dep_delay IS NULL'


def test_a_select_always_keeps_the_key(pipeline: Pipeline, flights: Flow) -> None:
    flights.select("dep_delay + 1 AS later, _partition")
    assert sql(pipeline) == 'SELECT "tailnum", dep_delay + 1 AS later, _partition FROM "flights" AS "flights"'


def test_an_aggregate_is_by_the_key(pipeline: Pipeline, flights: Flow) -> None:
    flights.aggregate("count(*) AS flights")
    assert sql(pipeline) == 'SELECT "tailnum", count(*) AS flights FROM "flights" AS "flights" GROUP BY ALL'
    flights.aggregate("count(*) AS flights", by="month", name="monthly")
    assert sql(pipeline) == 'SELECT "tailnum", month, count(*) AS flights FROM "flights" AS "flights" GROUP BY ALL'


@pytest.mark.parametrize(
    ("how", "key", "word"),
    [
        ("inner", '"flights"."tailnum"', "JOIN"),
        ("left", '"flights"."tailnum"', "LEFT JOIN"),
        ("full", 'coalesce("flights"."tailnum", "planes"."tail")', "FULL JOIN"),
    ],
)
def test_a_join_is_by_the_keys_of_both_sides(
    pipeline: Pipeline, flights: Flow, planes: Flow, how: str, key: str, word: str
) -> None:
    joined = flights.join(planes, "planes.seats", how=how)
    assert sql(pipeline) == (
        f'SELECT {key} AS "tailnum", planes.seats FROM "flights" AS "flights" {word} "planes" AS "planes" '
        'ON "flights"."tailnum" = "planes"."tail"'
    )
    assert (joined.key, joined.alias) == ("tailnum", "flights")


def test_a_further_condition_of_a_join_cannot_undo_the_first(pipeline: Pipeline, flights: Flow, planes: Flow) -> None:
    flights.join(planes, "planes.seats", on="planes.year < 2000 OR true")
    assert sql(pipeline).endswith('ON "flights"."tailnum" = "planes"."tail" AND (planes.year < 2000 OR true)')


def test_names_with_quotes_stay_names(pipeline: Pipeline) -> None:
    pipeline.stream("odd", key='k"; DROP', partitions=1).select("1 AS one")
    assert sql(pipeline).startswith('SELECT "k""; DROP", 1 AS one')


def test_steps_are_named_from_what_they_follow_or_by_the_user(pipeline: Pipeline, flights: Flow, planes: Flow) -> None:
    late = flights.filter("dep_delay > 0", name="late")
    late.select("dep_delay").join(planes, "planes.seats")
    assert [step.name for step in pipeline.steps] == ["late", "late.select", "late.select.join"]
    assert pipeline.steps[-1].inputs == ("late.select", "planes")
    assert '"late.select" AS "late"' in sql(pipeline)


def test_only_joins_and_aggregates_need_their_keys_together(pipeline: Pipeline, flights: Flow, planes: Flow) -> None:
    flights.filter("true").select("dep_delay").join(planes, "planes.seats").aggregate("count(*) AS n")
    assert [(step.op, step.keyed) for step in pipeline.steps] == [
        ("filter", False),
        ("select", False),
        ("join", True),
        ("aggregate", True),
    ]


def test_what_the_user_wrote_is_kept_beside_the_sql(pipeline: Pipeline, flights: Flow, planes: Flow) -> None:
    flights.join(planes, "planes.seats", on="planes.year < 2000")
    assert pipeline.steps[0].expressions == ("planes.seats", "planes.year < 2000")


def test_a_write_holds_its_expectations_as_canonical_text(pipeline: Pipeline, flights: Flow) -> None:
    flights.write("all_flights", lineage=True, expect=({"type": "t", "kwargs": {"b": 1, "a": None}},))
    assert pipeline.writes == (
        Write("all_flights", "flights", "tailnum", True, ('{"kwargs":{"a":null,"b":1},"type":"t"}',)),
    )


@pytest.mark.parametrize("value", [math.nan, object()])
def test_an_expectation_that_is_no_json_is_refused(flights: Flow, value: object) -> None:
    with pytest.raises(Refused, match="no plain data"):
        flights.write("all_flights", expect=({"type": "t", "kwargs": {"value": value}},))


def test_a_stream_and_a_table_differ_in_one_word(pipeline: Pipeline, flights: Flow, planes: Flow) -> None:
    assert [(stream.name, stream.table) for stream in pipeline.streams] == [("flights", False), ("planes", True)]


REFUSED: dict[str, tuple[str, Callable[[Pipeline, Flow, Flow], object]]] = {
    "two steps of one name": ("two streams or steps", lambda p, f, q: (f.filter("a"), f.filter("b"))),
    "a step named as a stream": ("two streams or steps", lambda p, f, q: f.filter("a", name="planes")),
    "names that SQL takes for one": ("two streams or steps", lambda p, f, q: f.filter("a", name="Planes")),
    "a stream declared twice": ("two streams or steps", lambda p, f, q: p.stream("flights", key="k", partitions=1)),
    "a table written twice": ("written twice", lambda p, f, q: (f.write("t"), q.write("t"))),
    "an unknown join": ("unknown join 'cross'", lambda p, f, q: f.join(q, "1", how="cross")),
    "a join with itself": ("cannot be told apart", lambda p, f, q: f.join(f.filter("a"), "1")),
    "a join across pipelines": (
        "cannot be told apart",
        lambda p, f, q: f.join(Pipeline("other", source="s3://b/t").stream("x", key="k", partitions=1), "1"),
    ),
    "a step that is no name": ("no name for a step", lambda p, f, q: f.filter("a", name="a b")),
    "a table that is no name": ("no name for a table", lambda p, f, q: f.write("../x")),
    "a pipeline that is no name": ("no name for a pipeline", lambda p, f, q: Pipeline("a/b")),
    "a pipeline where the results lie": ("cannot be named 'tables'", lambda p, f, q: Pipeline("tables")),
    "an unknown scheme": ("unknown scheme", lambda p, f, q: Pipeline("x", scheme="best")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_graph_that_cannot_be_meant_is_refused(pipeline: Pipeline, flights: Flow, planes: Flow, case: str) -> None:
    said, make = REFUSED[case]
    with pytest.raises(Refused, match=said):
        make(pipeline, flights, planes)


def test_all_that_is_wrong_with_a_declaration_is_said_at_once(pipeline: Pipeline) -> None:
    with pytest.raises(Refused) as refusal:
        pipeline.stream(
            "x", key="", partitions=0, source="/tmp", key_format="avro", null_keys="ignore", placement="crc32"
        )
    assert [finding.what for finding in refusal.value.findings] == [
        "'' cannot be the key column",
        "0 partitions declared",
        "unknown key format 'avro'",
        "unknown null-key policy 'ignore'",
        "unknown placement 'crc32'",
        "source '/tmp' is no S3 URI",
    ]


@pytest.mark.parametrize("key", ["_offset", "_OFFSET", "_partition"])
def test_the_key_cannot_be_a_column_with_another_meaning(pipeline: Pipeline, key: str) -> None:
    with pytest.raises(Refused, match="cannot be the key column"):
        pipeline.stream("x", key=key, partitions=1)
