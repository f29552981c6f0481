"""The pipeline API: the graph it makes, the SQL it compiles, what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.model.graph import Step, Write
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
    assert [(step.name, step.rekeys, step.keyed, step.state, step.fan_in) for step in pipeline.steps] == [
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


def test_a_process_declares_what_its_function_gives(pipeline: Pipeline, flights: Flow) -> None:
    kept = flights.process(math.fsum, {"tailnum": "VARCHAR", "score": "DOUBLE"}, stateful=True)
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
        "process",
        ("flights",),
        'SELECT * FROM "flights" AS "flights"',
        (),
        "tailnum",
        keyed=True,
        state=True,
        function="math:fsum",
        columns=(Column("tailnum", "VARCHAR"), Column("score", "DOUBLE")),
    )
    assert (second.rekeys, second.keyed, second.partitions) == (True, False, None)
    assert third.partitions == 1


def test_a_repartition_keeps_what_was_asked_for(pipeline: Pipeline, flights: Flow) -> None:
    flights.repartition(6, placement="shop.codecs:country")
    flights.repartition(name="again")
    assert [(step.partitions, step.placement) for step in pipeline.steps] == [
        (6, "shop.codecs:country"),
        (None, "murmur2"),
    ]


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


def test_all_that_is_wrong_with_a_step_is_said_at_once(pipeline: Pipeline, flights: Flow, planes: Flow) -> None:
    refused: list[Callable[[], object]] = [
        lambda: flights.repartition(0, placement="crc32"),
        lambda: flights.process(lambda table: table, {}, key="", key_format="avro"),
        lambda: flights.join([flights.filter("a"), flights.partial("1", by="b")], "1", how="cross"),
        lambda: Pipeline("a b", scheme="best", schemes={"x": "tasks(0)"}, partitioners={"y": "half"}),
    ]
    assert [len(_findings(each)) for each in refused] == [2, 3, 3, 4]


def _findings(make: Callable[[], object]) -> list[str]:
    with pytest.raises(Refused) as refusal:
        make()
    return [finding.what for finding in refusal.value.findings]


def _made() -> Callable[[object], object]:
    def inner(table: object) -> object:
        return table

    return inner


REFUSED: dict[str, tuple[str, Callable[[Pipeline, Flow, Flow], object]]] = {
    "two steps of one name": ("two streams or steps", lambda p, f, q: (f.filter("a"), f.filter("b"))),
    "a step named as a stream": ("two streams or steps", lambda p, f, q: f.filter("a", name="planes")),
    "names that SQL takes for one": ("two streams or steps", lambda p, f, q: f.filter("a", name="Planes")),
    "a stream declared twice": ("two streams or steps", lambda p, f, q: p.stream("flights", key="k", partitions=1)),
    "a table written twice": ("written twice", lambda p, f, q: (f.write("t"), q.write("t"))),
    "an unknown join": ("unknown join 'cross'", lambda p, f, q: f.join(q, "1", how="cross")),
    "a join with itself": ("two are named 'flights'", lambda p, f, q: f.join(f.filter("a"), "1")),
    "a cogroup with itself": ("two are named 'flights'", lambda p, f, q: f.cogroup("1", (f.filter("a"), "1"))),
    "a merge with itself": ("merged with itself", lambda p, f, q: f.merge(f)),
    "a merge of other keys": (r"flights: tailnum \(string\), planes: tail \(string\)", lambda p, f, q: f.merge(q)),
    "a merge of other formats": ("different keys", lambda p, f, q: f.merge(f.rekey("tailnum", key_format="long"))),
    "a merge with nothing": ("nothing to merge with", lambda p, f, q: f.merge()),
    "a join with nothing": ("nothing to join with", lambda p, f, q: f.join([], "1")),
    "a join across pipelines": (
        "of different pipelines",
        lambda p, f, q: f.join(Pipeline("other", source="s3://b/t").stream("x", key="k", partitions=1), "1"),
    ),
    "a join without a key": (
        "flights.partial.combine has no key",
        lambda p, f, q: f.partial("1 AS n").combine("1 AS n").join(q, "1"),
    ),
    "a repartition without a key": (
        "flights.partial.combine has no key",
        lambda p, f, q: f.partial("1 AS n").combine("1 AS n").repartition(3),
    ),
    "a rekey to nothing": ("'' cannot be the key column", lambda p, f, q: f.rekey("")),
    "a partial by nothing": ("'' cannot be the key column", lambda p, f, q: f.partial("1", by="")),
    "an unknown key format": ("unknown key format 'avro'", lambda p, f, q: f.rekey("origin", key_format="avro")),
    "a fan-in of one": ("a fan-in of 1 combines nothing", lambda p, f, q: f.combine("1", fan_in=1)),
    "a function in a function": ("cannot be imported by name", lambda p, f, q: f.process(_made(), {"tailnum": "X"})),
    "a lambda": ("cannot be imported by name", lambda p, f, q: f.process(lambda table: table, {"tailnum": "X"})),
    "a method": ("cannot be imported by name", lambda p, f, q: f.process(Pipeline.stream, {"tailnum": "X"})),
    "a partitioner that is no path": ("'best' cannot be", lambda p, f, q: Pipeline("x", partitioners={"a": "best"})),
    "an unknown scheme of a step": ("unknown scheme 'best'", lambda p, f, q: Pipeline("x", schemes={"a": "best"})),
    "a step that is no name": ("no name for a step", lambda p, f, q: f.filter("a", name="a b")),
    "a table that is no name": ("no name for a table", lambda p, f, q: f.write("../x")),
    "a pipeline that is no name": ("no name for a pipeline", lambda p, f, q: Pipeline("a/b")),
    "a pipeline where the results lie": ("cannot be named 'tables'", lambda p, f, q: Pipeline("tables")),
    "an unknown scheme": ("unknown scheme", lambda p, f, q: Pipeline("x", scheme="best")),
}


@pytest.mark.parametrize(
    "follow",
    [
        lambda flow, planes: flow.filter("n > 1"),
        lambda flow, planes: flow.select("n"),
        lambda flow, planes: flow.rekey("n"),
        lambda flow, planes: flow.repartition(3),
        lambda flow, planes: flow.merge(planes),
        lambda flow, planes: planes.merge(flow),
        lambda flow, planes: flow.aggregate("sum(n)"),
        lambda flow, planes: planes.cogroup("1", (flow, "1")),
        lambda flow, planes: planes.join([flow], "1"),
        lambda flow, planes: flow.partial("sum(n) AS n"),
        lambda flow, planes: flow.process("shop.scores:score", {"tail": "VARCHAR"}),
        lambda flow, planes: flow.write("t"),
    ],
)
def test_nothing_but_combine_may_follow_a_partial(
    planes: Flow, flights: Flow, follow: Callable[[Flow, Flow], object]
) -> None:
    parts = flights.partial("count(*) AS n", by="tail", name="parts")
    with pytest.raises(Refused, match="parts is partial"):
        follow(parts, planes)
    parts.combine("sum(n)::BIGINT AS n").write("t")


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
