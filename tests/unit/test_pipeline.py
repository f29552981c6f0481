"""The pipeline API: the graph it makes and the SQL it compiles."""

from __future__ import annotations

import math

import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.model.graph import Op, StateSpec, Step, Write
from partitioning.model.streams import Column


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


def test_a_rekey_names_a_column_or_makes_one(pipeline: Pipeline, flights: Flow) -> None:
    by_origin = flights.rekey("origin")
    assert sql(pipeline) == 'SELECT * FROM "flights" AS "flights"'
    assert pipeline.steps[-1].expressions == ('"origin"',)
    by_year = flights.rekey("year", sql="year(day)", key_format="long", name="yearly")
    assert sql(pipeline) == 'SELECT year(day) AS "year", * FROM "flights" AS "flights"'
    assert [(flow.key, flow.key_format, flow.alias) for flow in (by_origin, by_year)] == [
        ("origin", "string", "flights"),
        ("year", "long", "yearly"),
    ]
    assert all(step.rekeys and not step.keyed for step in pipeline.steps)


def test_a_merge_is_by_column_names_and_of_any_number_of_flows(pipeline: Pipeline, flights: Flow) -> None:
    late, early = flights.filter("dep_delay > 0", name="late"), flights.filter("dep_delay < 0", name="early")
    again = flights.filter("dep_delay = 0")
    late.merge(early, again, name="all")
    assert pipeline.steps[-1].inputs == ("late", "early", "flights.filter")
    assert sql(pipeline) == (
        'SELECT * FROM "late" UNION ALL BY NAME SELECT * FROM "early" UNION ALL BY NAME SELECT * FROM "flights.filter"'
    )


def test_a_cogroup_aggregates_each_flow_by_its_own_key(pipeline: Pipeline, flights: Flow, planes: Flow) -> None:
    flights.cogroup("count(*) AS n", (planes, "max(seats) AS seats"))
    assert sql(pipeline) == (
        'SELECT coalesce("flights"."tailnum", "planes"."tail") AS "tailnum", '
        '"flights".* EXCLUDE ("tailnum"), "planes".* EXCLUDE ("tail") '
        'FROM (SELECT "tailnum", count(*) AS n FROM "flights" AS "flights" GROUP BY ALL) AS "flights" '
        'FULL JOIN (SELECT "tail", max(seats) AS seats FROM "planes" AS "planes" GROUP BY ALL) AS "planes" '
        'ON "flights"."tailnum" IS NOT DISTINCT FROM "planes"."tail"'
    )
    assert pipeline.steps[-1].expressions == ("count(*) AS n", "max(seats) AS seats")


@pytest.mark.parametrize(
    ("how", "last"),
    [
        ("inner", '"flights"."tailnum" = "owners"."k"'),
        ("left", '"flights"."tailnum" = "owners"."k"'),
        ("full", 'coalesce("flights"."tailnum", "planes"."tail") = "owners"."k"'),
    ],
)
def test_a_join_of_several_is_one_step(pipeline: Pipeline, flights: Flow, planes: Flow, how: str, last: str) -> None:
    owners = pipeline.table("owners", key="k", partitions=3)
    flights.join([planes, owners], "seats, name", how=how, on="name <> ''")
    assert pipeline.steps[-1].inputs == ("flights", "planes", "owners")
    assert sql(pipeline).endswith(f" ON {last} AND (name <> '')")


def test_a_partial_is_by_any_column_or_none_and_moves_only_by_another_key(pipeline: Pipeline, flights: Flow) -> None:
    counted = flights.partial("count(*) AS n", by="origin", key_format="string").combine("sum(n)::BIGINT AS n")
    total = flights.partial("count(*) AS n", name="all").combine("sum(n)::BIGINT AS n", fan_in=8, running=True)
    own = flights.partial("count(*) AS n", by="tailnum", name="own").combine("sum(n)::BIGINT AS n")
    assert [(flow.key, flow.key_format) for flow in (counted, total, own)] == [
        ("origin", "string"),
        ("", "string"),
        ("tailnum", "string"),
    ]
    assert [(step.name, step.rekeys, step.keyed, bool(step.state), step.fan_in) for step in pipeline.steps] == [
        ("flights.partial", True, False, False, None),
        ("flights.partial.combine", False, True, False, None),
        ("all", True, False, False, None),
        ("all.combine", False, True, True, 8),
        ("own", False, False, False, None),
        ("own.combine", False, True, False, None),
    ]
    assert [step.sql for step in pipeline.steps[:3]] == [
        'SELECT "origin", count(*) AS n FROM "flights" AS "flights" GROUP BY ALL',
        'SELECT "origin", sum(n)::BIGINT AS n FROM "flights.partial" AS "flights" GROUP BY ALL',
        'SELECT count(*) AS n FROM "flights" AS "flights" GROUP BY ALL',
    ]


def test_a_partial_by_the_flows_own_key_keeps_its_format(pipeline: Pipeline) -> None:
    orders = pipeline.stream("orders", key="id", key_format="long", partitions=4)
    assert orders.partial("count(*) AS n", by="id").key_format == "long"


def test_what_has_no_key_goes_on_without_one(pipeline: Pipeline, flights: Flow) -> None:
    total = flights.partial("count(*) AS n").combine("sum(n)::BIGINT AS n", name="total")
    total.select("n + 1 AS n").aggregate("max(n) AS n").write("t")
    assert [step.sql for step in pipeline.steps[-2:]] == [
        'SELECT n + 1 AS n FROM "total" AS "total"',
        'SELECT max(n) AS n FROM "total.select" AS "total" GROUP BY ALL',
    ]
    assert total.rekey("n", key_format="long").key == "n"


def test_a_step_on_dataframes_is_given_flows_by_their_places(pipeline: Pipeline, flights: Flow) -> None:
    again = flights.filter("n > 1", name="again")
    scored = flights.spark("shop.frames:score", {"tailnum": "VARCHAR"}, again, name="scored")
    split = scored.spark("shop.frames:split", {"part": "BIGINT"}, key="part", key_format="long", name="parts")
    assert [(flow.key, flow.key_format) for flow in (scored, split)] == [("tailnum", "string"), ("part", "long")]
    _, first, second = pipeline.steps
    assert first == Step(
        "scored",
        Op.SPARK,
        ("flights", "again"),
        "",
        (),
        "tailnum",
        keyed=True,
        function="shop.frames:score",
        columns=(Column("tailnum", "VARCHAR"),),
    )
    assert (second.inputs, second.keyed, second.rekeys) == (("scored",), True, True)


def test_a_process_declares_what_its_function_gives(pipeline: Pipeline, flights: Flow) -> None:
    kept = flights.process(
        math.fsum, {"tailnum": "VARCHAR", "score": "DOUBLE"}, state={"tailnum": "VARCHAR", "n": "BIGINT"}
    )
    other = flights.process("shop.scores:split", {"part": "BIGINT"}, key="part", key_format="long", name="parts")
    alone = flights.process("shop.scores:all", {"tailnum": "VARCHAR"}, partitionable=False, name="alone")
    assert [(flow.key, flow.key_format) for flow in (kept, other, alone)] == [
        ("tailnum", "string"),
        ("part", "long"),
        ("tailnum", "string"),
    ]
    first, second, third = pipeline.steps
    assert first == Step(
        "flights.process",
        Op.PROCESS,
        ("flights",),
        'SELECT * FROM "flights" AS "flights"',
        (),
        "tailnum",
        keyed=True,
        state=StateSpec(columns=(Column("tailnum", "VARCHAR"), Column("n", "BIGINT"))),
        function="math:fsum",
        columns=(Column("tailnum", "VARCHAR"), Column("score", "DOUBLE")),
    )
    assert (second.rekeys, second.keyed, second.partitions) == (True, False, None)
    assert third.partitions == 1


def test_a_repartition_keeps_what_was_asked_for(pipeline: Pipeline, flights: Flow) -> None:
    flights.repartition(6, hash="shop.codecs:country")
    flights.repartition(name="again")
    assert [(step.partitions, step.hash) for step in pipeline.steps] == [(6, "shop.codecs:country"), (None, "murmur2")]


def test_a_step_more_changes_no_other_name(pipeline: Pipeline, flights: Flow) -> None:
    def build(made: Pipeline, more: bool) -> list[str]:
        first = made.stream("flights", key="tailnum", partitions=12)
        if more:
            first.filter("dep_delay > 60", name="late").write("late")
        first.filter("dep_delay > 0").aggregate("count(*) AS n").rekey("n", key_format="long").write("t")
        return [step.name for step in made.steps]

    short, long = (build(Pipeline("p", source="s3://b/t"), more) for more in (False, True))
    assert long == ["late", *short]
    assert short == ["flights.filter", "flights.filter.aggregate", "flights.filter.aggregate.rekey"]


def test_a_flow_is_found_again_by_its_name(pipeline: Pipeline, flights: Flow) -> None:
    late = flights.filter("dep_delay > 0", name="late")
    assert (pipeline.flow("late"), pipeline.flow("flights")) == (late, flights)
    with pytest.raises(Refused, match="there is no stream or step 'lat'") as refusal:
        pipeline.flow("lat")
    assert refusal.value.findings[0].then == "there are: flights, late"


def test_a_pipeline_holds_settings_of_its_own_by_stage_or_step() -> None:
    made = Pipeline("p", scheme="cogroup", schemes={"joined": "elastic(2)"}, partitioners={"a+b": "shop.parts:halves"})
    assert (str(made.scheme), str(made.schemes["joined"])) == ("cogroup", "elastic(2)")
    assert made.partitioners == {"a+b": "shop.parts:halves"}
