"""What may surprise: joins that depend on when batches run, state that only grows, streams with one key."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import Any

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.explain.surprises import (
    JoinsATable,
    JoinsInABatch,
    NeverLate,
    OneKey,
    OnlyGrows,
    OrderedByItsKey,
    OrderMatters,
    Surprise,
    surprises,
    surprises_section,
)
from partitioning.model.graph import Op
from partitioning.model.plan import TaskRef
from partitioning.model.statistics import KeyFigures, Statistics
from tests.plans import arrived, plan_of


def streams() -> tuple[Pipeline, Flow, Flow, Flow]:
    """Views and clicks, and the table of users, each of which is written."""
    pipeline = Pipeline("shown", source="s3://landing/topics")
    views, clicks = (pipeline.stream(name, key="tailnum", partitions=4) for name in ("views", "clicks"))
    users = pipeline.table("users", key="tailnum", partitions=2)
    for flow in (views, clicks, users):
        flow.write(flow.step, mode="upsert" if flow is users else "append")
    return pipeline, views, clicks, users


def told(pipeline: Pipeline, last: Statistics | None = None) -> tuple[Surprise, ...]:
    found = [arrived(stream.name, [500] * stream.partitions) for stream in pipeline.streams]
    plan = plan_of(pipeline, found)
    shown = [row[0] for section in surprises_section(plan, last) for row in section.rows]
    assert len(shown) == len(surprises(plan, last))
    return surprises(plan, last)


def test_joins_that_depend_on_when_batches_run_are_told_and_no_others() -> None:
    pipeline, views, clicks, users = streams()
    hour = timedelta(hours=1)
    views.filter("true", name="late").join(users, "1 AS one", name="with_user").write("a")
    views.join(clicks, "1 AS one", name="both").write("b")
    views.join_within(clicks, "1 AS one", times=("dep_delay", "dep_delay"), within=hour, name="near").write("c")
    views.aggregate("count(*) AS n", name="counted").join(views, "1 AS one", name="itself").write("d")
    assert told(pipeline) == (JoinsATable("with_user", ("users",)), JoinsInABatch("both", ("views", "clicks")))


def test_what_depends_on_the_order_of_moved_records_is_told_unless_the_order_is_said() -> None:
    pipeline, views, clicks, _ = streams()
    views.aggregate("any_value(dep_delay) AS d", name="lies_as_it_came").write("a")
    by_page = clicks.select("dep_delay, tailnum AS page").rekey("page", name="by_page")
    by_page.aggregate("list(dep_delay ORDER BY abs(dep_delay)) AS d, max(dep_delay) AS m", name="said").write("b")
    by_page.aggregate("list(dep_delay) AS d, First(abs(dep_delay)) AS f, list(1) AS l", name="unsaid").write("c")
    ties = "arg_max(page, dep_delay, 2) AS a, max_by(page, (dep_delay, page)) AS b, mode(dep_delay) AS m"
    by_page.aggregate(f"{ties}, approx_quantile(dep_delay, 0.5) AS q", name="between_equals").write("e")
    equals = OrderMatters("between_equals", ("arg_max", "mode", "approx_quantile"))
    assert told(pipeline) == (OrderMatters("unsaid", ("list", "first")), equals)


def test_a_state_that_nothing_is_removed_from_is_told() -> None:
    pipeline, views, _, _ = streams()
    views.latest("dep_delay", name="newest").write("a", mode="upsert", deletes="dep_delay = 0")
    parts = views.partial("count(*) AS n", by="tailnum", name="parts")
    parts.combine("sum(n) AS n", name="of_batch").write("b")
    parts.combine("sum(n) AS n", running=True, name="totals").write("c", mode="upsert")
    views.distinct("tailnum", time="dep_delay", within=timedelta(days=1), name="once").write("d")
    assert told(pipeline) == (OnlyGrows("newest", Op.LATEST, None), OnlyGrows("totals", Op.COMBINE, None))


def test_the_latest_record_of_a_key_by_that_key_is_told() -> None:
    pipeline, views, _, _ = streams()
    views.latest(' "TailNum" ', name="by_key").write("a", mode="upsert")
    by_two = views.select("dep_delay, 1 AS one").rekey(("one", "dep_delay"), name="by_two")
    by_two.latest("dep_delay", name="by_part").write("b", mode="upsert")
    by_two.latest("dep_delay + 1", name="by_other").write("c", mode="upsert")
    ordered = [each for each in told(pipeline) if isinstance(each, OrderedByItsKey)]
    assert ordered == [OrderedByItsKey("by_key", "tailnum"), OrderedByItsKey("by_part", "dep_delay")]


def test_a_join_as_of_a_time_does_not_depend_on_batches_and_keeps_a_version_of_each_key_for_ever() -> None:
    pipeline, hour = Pipeline("p", source="s3://landing/topics"), timedelta(hours=1)
    views, prices = (
        pipeline.stream(name, key="k", partitions=2, time="dep_delay", late=hour) for name in ("views", "prices")
    )
    views.join_as_of(prices, "1 AS one", times=("dep_delay", "dep_delay"), keep=hour, name="priced").write("priced")
    assert told(pipeline) == (OnlyGrows("priced", Op.RECENT, None),)


def test_a_stream_with_one_key_is_told_by_the_last_receipts_or_by_where_its_records_lie() -> None:
    pipeline, *_ = streams()
    keys = [KeyFigures(TaskRef("views", task), "none", {"views": 475}) for task in range(2)]
    last = Statistics(0, {"views": 1_000, "clicks": 1_000, "users": 9}, keys=tuple(keys))
    assert told(pipeline, last) == (OneKey("views", "tailnum", Fraction(95, 100), "none"),)
    assert told(pipeline, Statistics(0, {"views": 2_000}, keys=tuple(keys))) == ()
    found = [arrived("views", [0, 0, 1_000, 0]), arrived("clicks", [0, 0, 999, 0]), arrived("users", [5_000, 1])]
    plan = plan_of(pipeline, found)
    assert surprises(plan) == (OneKey("views", "tailnum", Fraction(1), partition=2),)


def test_what_is_over_of_a_stream_for_which_no_record_is_late_is_told() -> None:
    pipeline, hour = Pipeline("shown", source="s3://landing/topics"), timedelta(hours=1)
    said: dict[str, Any] = {"key": "tailnum", "partitions": 4, "time": "make_timestamp(dep_delay)"}
    views, clicks = pipeline.stream("views", **said), pipeline.stream("clicks", late=hour, **said)
    counted: dict[str, Any] = {"time": "make_timestamp(dep_delay)", "every": hour}
    views.windows("count(*) AS n", name="strict", **counted).write("a")
    clicks.windows("count(*) AS n", name="patient", **counted).write("b")
    views.select("dep_delay", name="v").merge(clicks.select("dep_delay", name="c"), name="both").windows(
        "count(*) AS n", name="merged", **counted
    ).write("c")
    assert told(pipeline) == (NeverLate("strict", ("views",)), NeverLate("merged", ("views",)))
