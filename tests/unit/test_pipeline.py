"""The pipeline API: the graph it makes, the SQL it compiles, and what it refuses, all of it at once."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from partitioning.authoring import words
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.words import How
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.graph import Op, StateSpec, Step, Write
from partitioning.model.streams import Column
from tests.refused import finding_of


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


def test_steps_of_one_flow_are_compiled_with_the_key(pipeline: Pipeline, flights: Flow) -> None:
    flights.filter("dep_delay > 0 OR dep_delay IS NULL")
    assert sql(pipeline) == 'SELECT * FROM "flights" AS "flights" WHERE dep_delay > 0 OR dep_delay IS NULL'
    flights.select("dep_delay + 1 AS later, _partition")
    assert sql(pipeline) == 'SELECT "tailnum", dep_delay + 1 AS later, _partition FROM "flights" AS "flights"'
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
    pipeline: Pipeline, flights: Flow, planes: Flow, how: How, key: str, word: str
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


def test_a_write_and_its_stream_hold_what_was_declared(pipeline: Pipeline, flights: Flow) -> None:
    flights.write("all_flights", lineage=True, expect=({"type": "t", "kwargs": {"b": 1, "a": None}},))
    assert pipeline.writes == (
        Write("all_flights", "flights", "tailnum", True, ('{"kwargs":{"a":null,"b":1},"type":"t"}',)),
    )
    flights.repartition(6, hash="shop.codecs:country")
    flights.repartition(name="again")
    assert [(step.partitions, step.hash) for step in pipeline.steps] == [(6, "shop.codecs:country"), (None, "murmur2")]


@pytest.mark.parametrize("value", [math.nan, object()])
def test_an_expectation_that_is_no_json_is_refused(flights: Flow, value: object) -> None:
    with pytest.raises(Refused, match="no plain data"):
        flights.write("all_flights", expect=({"type": "t", "kwargs": {"value": value}},))


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
def test_a_join_of_several_is_one_step(pipeline: Pipeline, flights: Flow, planes: Flow, how: How, last: str) -> None:
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


def test_all_that_becomes_of_what_a_step_kept_is_said_in_one_call(pipeline: Pipeline, flights: Flow) -> None:
    flights.latest("hops", name="newest")
    pipeline.changed("newest", was="last")
    with pytest.raises(Refused, match=r"says twice(?s:.*)in one call: was=, begins=, migrate="):
        pipeline.changed("newest", begins={"hops": 0})


def test_a_pipeline_holds_settings_of_its_own_by_stage_or_step() -> None:
    made = Pipeline("p", scheme="cogroup", schemes={"joined": "elastic(2)"}, partitioners={"a+b": "shop.parts:halves"})
    assert (str(made.scheme), str(made.schemes["joined"])) == ("cogroup", "elastic(2)")
    assert made.partitioners == {"a+b": "shop.parts:halves"}


# ---- what is refused


def test_all_that_is_wrong_with_a_step_is_said_at_once(pipeline: Pipeline, flights: Flow, planes: Flow) -> None:
    refused: list[Callable[[], object]] = [
        lambda: flights.repartition(0, hash="crc64"),
        lambda: flights.process(lambda table: table, {}, key="", key_format="avro"),
        lambda: flights.join([flights.filter("a"), flights.partial("1", by="b")], "1", how="cross"),  # type: ignore[arg-type]
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


def _write(table: str, *flows: Flow) -> None:
    for flow in flows:
        flow.write(table)


REFUSED: dict[str, tuple[str, Callable[[Pipeline, Flow, Flow], object]]] = {
    "two steps of one name": ("two streams or steps", lambda p, f, q: (f.filter("a"), f.filter("b"))),
    "a step named as a stream": ("two streams or steps", lambda p, f, q: f.filter("a", name="planes")),
    "names that SQL takes for one": ("two streams or steps", lambda p, f, q: f.filter("a", name="Planes")),
    "a stream declared twice": ("two streams or steps", lambda p, f, q: p.stream("flights", key="k", partitions=1)),
    "a table written twice": ("written twice", lambda p, f, q: _write("t", f, q)),
    "an unknown join": ("unknown join 'cross'", lambda p, f, q: f.join(q, "1", how="cross")),  # type: ignore[arg-type]
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
    "DataFrames across pipelines": (
        "of different pipelines",
        lambda p, f, q: f.spark(
            "shop.frames:f", {"tailnum": "X"}, Pipeline("other", source="s3://b/t").stream("x", key="k", partitions=1)
        ),
    ),
    "DataFrames of a flow without a key": (
        "flights.partial.combine has no key",
        lambda p, f, q: f.spark("shop.frames:f", {"tailnum": "X"}, f.partial("1 AS n").combine("1 AS n")),
    ),
    "DataFrames without the key": (
        "the key column 'tailnum' is not declared",
        lambda p, f, q: f.spark("shop.frames:f", {"n": "BIGINT"}),
    ),
    "a lambda on DataFrames": ("cannot be imported by name", lambda p, f, q: f.spark(lambda frame: frame, {})),
    "a lambda": ("cannot be imported by name", lambda p, f, q: f.process(lambda table: table, {"tailnum": "X"})),
    "a method": ("cannot be imported by name", lambda p, f, q: f.process(Pipeline.stream, {"tailnum": "X"})),
    "a partitioner that is no path": ("'best' cannot be", lambda p, f, q: Pipeline("x", partitioners={"a": "best"})),
    "an unknown scheme of a step": ("unknown scheme 'best'", lambda p, f, q: Pipeline("x", schemes={"a": "best"})),
    "a step that is no name": ("no name for a step", lambda p, f, q: f.filter("a", name="a b")),
    "a table that is no name": ("no name for a table", lambda p, f, q: f.write("../x")),
    "a pipeline that is no name": ("no name for a pipeline", lambda p, f, q: Pipeline("a/b")),
    "a pipeline where the results lie": ("cannot be named 'tables'", lambda p, f, q: Pipeline("tables")),
    "a pipeline where a backfill lies": ("'x.backfill-3'", lambda p, f, q: Pipeline("x.backfill-3")),
    "an unknown mode": ("unknown mode 'merge'", lambda p, f, q: f.write("x", mode="merge")),  # type: ignore[arg-type]
    "an upsert without a key": (
        "has no key",
        lambda p, f, q: f.partial("1 AS n").combine("n").write("x", mode="upsert"),
    ),
    "deletes that delete nothing": ("deletes nothing", lambda p, f, q: f.write("x", deletes="true")),
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
        lambda flow, planes: flow.spark("shop.scores:score", {"tail": "VARCHAR"}),
        lambda flow, planes: planes.spark("shop.scores:score", {"tail": "VARCHAR"}, flow),
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


def test_a_stream_that_is_declared_as_a_table_too_has_to_be_landed_twice(pipeline: Pipeline, flights: Flow) -> None:
    finding = finding_of(pipeline.table, "flights", key="tailnum", partitions=1)
    assert "land it a second time under another name" in finding.then
    again = pipeline.table("flights_whole", key="tailnum", partitions=1)
    flights.join(again, "1 AS one").write("met")


def test_all_that_is_wrong_with_a_declaration_is_said_at_once(pipeline: Pipeline) -> None:
    words: Any = {"key_format": "xml", "null_keys": "ignore"}
    with pytest.raises(Refused) as refusal:
        pipeline.stream("x", key="", partitions=0, source="tmp", hash="crc64", **words)
    assert [finding.what for finding in refusal.value.findings] == [
        "'' cannot be the key column",
        "0 partitions declared",
        "unknown key format 'xml'",
        "unknown null-key policy 'ignore'",
        "unknown hash 'crc64'",
        "source 'tmp' is neither an S3 URI nor the whole path of a folder",
    ]


@pytest.mark.parametrize("key", ["_offset", "_OFFSET", "_partition"])
def test_the_key_cannot_be_a_column_with_another_meaning(pipeline: Pipeline, key: str) -> None:
    with pytest.raises(Refused, match="cannot be the key column"):
        pipeline.stream("x", key=key, partitions=1)


DECLARED: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown format": ({"format": "xml"}, "unknown format 'xml'", "use one of parquet, avro, json, bytes"),
    "JSON without columns": (
        {"format": "json"},
        "JSON does not say of which types its columns are",
        "declare columns={name: type}",
    ),
    "columns of Parquet": (
        {"columns": {"n": "BIGINT"}},
        "columns are declared, and parquet says them itself",
        "leave columns= out",
    ),
}


@pytest.mark.parametrize("case", DECLARED)
def test_a_format_and_its_columns_have_to_fit(pipeline: Pipeline, case: str) -> None:
    words, what, then = DECLARED[case]
    with pytest.raises(Refused) as refusal:
        pipeline.stream("x", key="k", partitions=1, **words)
    assert [(finding.what, finding.then) for finding in refusal.value.findings] == [(what, then)]


def test_records_without_a_key_cannot_be_kept(pipeline: Pipeline) -> None:
    with pytest.raises(Refused, match="records without a key cannot be kept by key"):
        pipeline.table("x", key="k", partitions=1, null_keys="own task", kept=True)
    kept = pipeline.table("x", key="k", partitions=1, null_keys="drop", kept=True)
    assert (kept.step, kept.alias) == ("x.kept", "x")


# One that each annotation allows, and others that it does not. None and a whole number are wrong unless it says so.
RIGHT = {"str": "a", "int": 1, "bool": True, "timedelta": timedelta(1), "Self": ..., "Flow": ..., "Mapping": {}}
METHODS = [
    (made, name)
    for made in (Pipeline, Flow)
    for name, method in inspect.getmembers(made, inspect.isfunction)
    if not name.startswith("_") or (made is Pipeline and name == "__init__")
]


def taken(made: type, name: str) -> dict[str, inspect.Parameter]:
    """The arguments of a method."""
    return dict([*inspect.signature(getattr(made, name)).parameters.items()][1:])


def right(parameter: inspect.Parameter, flow: Flow) -> object:
    """A value that an argument may have."""
    said = str(parameter.annotation)
    if said.startswith("tuple"):
        return (flow, "a") if "Self" in said else ("a", "a")
    first = next(word for word in re.findall(r"\w+", said) if word in RIGHT or word in ("Callable", "Iterable"))
    return {**RIGHT, "Self": flow, "Flow": flow, "Callable": len, "Iterable": []}[first]


def called(made: type, name: str, flow: Flow, /, *given: object, without: str = "", **named: Any) -> Refused:
    """The refusal of a call whose other arguments are right."""
    needed = {
        each.name: right(each, flow)
        for each in taken(made, name).values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }
    others = {each: value for each, value in needed.items() if each != without} | named
    method = made if name == "__init__" else getattr(flow if made is Flow else flow.pipeline, name)
    with pytest.raises(Refused) as refusal:
        method(*given, **others)
    return refusal.value


def is_told(refused: Refused, name: str, *words: str) -> None:
    """Each finding says what is wrong in which line, and what to write."""
    for finding in refused.findings:
        assert finding.kind is Kind.DECLARATION
        assert re.match(rf"{re.escape(__file__)}:\d+ `", finding.where), finding.where
        assert (name if name != "__init__" else "Pipeline") in finding.where
        assert finding.then
    assert [finding for finding in refused.findings if all(word in finding.what for word in words)], str(refused)


@pytest.mark.parametrize(("made", "name"), METHODS)
def test_no_method_takes_what_it_does_not_take(made: type, name: str, flights: Flow) -> None:
    other = Pipeline("other", source="s3://b/t").stream("x", key="k", partitions=1)
    is_told(called(made, name, flights, nonsense=1), name, "it takes no nonsense=")
    for each in taken(made, name).values():
        said = str(each.annotation)
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        if each.default is each.empty:
            is_told(called(made, name, flights, without=each.name), name, f"{each.name}= is missing")
        wrong: list[Any] = [object()]
        wrong += [] if "None" in said else [None]
        wrong += [] if "int" in said else [7]
        wrong += [] if "Sequence" in said or "Iterable" in said else [["a"]]
        wrong += [] if "str" in said or hasattr(words, said) else ["a"]
        wrong += [other] if "Self" in said or "Flow" in said else [flights]
        for value in wrong:
            is_told(called(made, name, flights, **{each.name: value}), name, each.name)


def test_arguments_by_place_are_looked_at_too(pipeline: Pipeline, flights: Flow, planes: Flow) -> None:
    other = Pipeline("other", source="s3://b/t").stream("x", key="k", partitions=1)
    is_told(called(Flow, "filter", flights, "a", "b", without="condition"), "filter", "1 arguments too many")
    is_told(called(Flow, "filter", flights, "a"), "filter", "condition is given twice")
    is_told(called(Flow, "merge", flights, "a"), "merge", "argument 1 is 'a'")
    is_told(called(Flow, "merge", flights, other), "merge", "of different pipelines")
    is_told(called(Flow, "cogroup", flights, "n", (other, "n"), without="columns"), "cogroup", "of different pipelines")
    is_told(called(Flow, "cogroup", flights, "n", other, without="columns"), "cogroup", "argument 2 is the flow x")
    times = called(Flow, "join_within", flights, other=planes, times=("a",))
    is_told(times, "join_within", "times is ('a',)")
    assert times.findings[0].then == "give (a text, a text)"
    expected = called(Flow, "write", flights, expect={"type": "a"})
    is_told(expected, "write", "expect is {'type': 'a'}")
    (partitions,) = called(Pipeline, "stream", flights, partition=1).findings
    assert partitions.then == "write partitions="


def test_who_writes_distinct_as_sql_has_it_is_told_what_it_is_here(flights: Flow) -> None:
    with pytest.raises(Refused) as refusal:
        flights.distinct("origin, seats")  # type: ignore[call-arg]
    (finding,) = refusal.value.findings
    assert finding.what == "distinct of flights: time= and within= are missing"
    assert '`flights.distinct("origin, seats")' in finding.where
    assert "SELECT DISTINCT of columns a and b is aggregate('a, b') here" in finding.then
    assert finding.then.endswith("one row of each key over all batches is latest('a'), the one with the greatest a")
    # Both are what it says.
    assert flights.aggregate("origin, seats").step == "flights.aggregate"
    assert flights.latest("origin").step == "flights.latest"


def test_who_gives_latest_the_key_is_told_that_it_takes_the_order(flights: Flow) -> None:
    finding = finding_of(flights.latest, "tailnum", time="dep_time")
    assert finding.then == (
        "give as the first argument what says which record is later, as latest('dep_time'), and leave time= out; "
        "where keys are to expire, add keep="
    )
    with pytest.raises(Refused) as missing:
        flights.latest()  # type: ignore[call-arg]
    assert "which says which record of a key is later" in missing.value.findings[0].then
