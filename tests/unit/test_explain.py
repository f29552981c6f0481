"""Explain: the plan for people, compared with golden files, what changed in words, and what may surprise."""

from __future__ import annotations

import json
from datetime import timedelta
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import NullKey
from partitioning.cosets import assign
from partitioning.documents.document import decode, digest, encode
from partitioning.explain.explain import assignment_document, explain
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
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.schemes import Scheme
from partitioning.model.statistics import KeyFigures, Statistics
from partitioning.model.streams import Discovered
from partitioning.model.watermarks import LatestTimes
from partitioning.planning.stages.draft import StateSnapshot
from partitioning.sections import Section, markdown
from partitioning.values import replace
from tests.goldens import expect_golden
from tests.plans import arrived, plan_of, tails, tails_found
from tests.shown import merged, stream, unified
from tests.shown import plan as whole
from tests.shown import stage as hand_made
from tests.shown import tails as shown_tails


def many_tasks(null_keys: NullKey = "own task") -> Pipeline:
    pipeline = Pipeline("clicks", source="s3://landing/topics")
    views = pipeline.stream("views", key="tailnum", partitions=8, null_keys=null_keys)
    views.join(pipeline.stream("clicks", key="tailnum", partitions=12), "1 AS one", name="joined").write(
        "joined", lineage=True
    )
    pipeline.stream("logs", key="tailnum", partitions=2).filter("true", name="kept").write("kept_logs")
    return pipeline


def many_found(end: int = 250) -> list[Discovered]:
    return [arrived("views", [end] * 8), arrived("clicks", [123_456] * 12), arrived("logs", [0, 3])]


def section(plan: Plan, title: str, previous: Plan | None = None) -> Section:
    (found,) = [each for each in explain(plan, previous) if each.title == title]
    return found


def test_the_first_plan_reads_as_the_golden_file() -> None:
    expect_golden("explain_first.md", markdown(explain(plan_of(tails(), tails_found()))))


def test_a_plan_with_filters_null_keys_and_many_tasks_reads_as_the_golden_file() -> None:
    before = plan_of(many_tasks("drop"), many_found(100))
    plan = plan_of(
        many_tasks(),
        many_found(),
        batch=1,
        parent=digest(before),
        published=before,
        scheme="tasks(24)",
        groups=3,
        settings=Settings(go_on=("joined",)),
    )
    expect_golden("explain_many.md", markdown(explain(plan, before)))


def test_a_plan_with_keys_in_json_reads_as_the_golden_file() -> None:
    pipeline, both = Pipeline("met", source="s3://landing/topics"), ("customer", "country")
    paid = pipeline.stream("paid", key=both, key_format="json", partitions=4)
    sent = pipeline.stream("sent", key=both, key_format="json", partitions=6)
    other = pipeline.stream("other", key=("client", "land"), key_format="json", partitions=3)
    same = paid.cogroup("sum(amount) AS paid", (sent, "count(*) AS sent"), name="both")
    same.join(other, "paid, sent, other.size", name="met").write("met")
    found = [arrived("paid", [250] * 4), arrived("sent", [100] * 6), arrived("other", [10] * 3)]
    expect_golden("explain_json_keys.md", markdown(explain(plan_of(pipeline, found))))


def test_a_plan_in_which_keys_expire_reads_as_the_golden_file() -> None:
    pipeline, hour = Pipeline("spent", source="s3://landing/topics"), timedelta(hours=1)
    clicks = pipeline.stream("clicks", key="tailnum", partitions=2, time="make_timestamp(dep_delay)", late=hour / 6)
    columns = "sum(dep_delay) AS dep_delay"
    totals = clicks.combine(columns, running=True, time="make_timestamp(dep_delay)", keep=hour, name="totals")
    totals.write("totals", mode="upsert")
    totals.expired(name="ended").write("ended")
    plans = [plan_of(pipeline, [arrived("clicks", [100, 100])])]
    for batch, minutes in ((1, (100, 90)), (2, (180, 170))):
        times = LatestTimes("clicks", tuple(minute * 60_000_000 for minute in minutes))
        kept = StateSnapshot("sha256:0", {"totals.state": 40}, {}, {"totals.state": 4_000}, (times,))
        found = [arrived("clicks", [100 + 50 * batch] * 2)]
        before = plans[-1]
        plans.append(plan_of(pipeline, found, batch=batch, parent=digest(before), published=before, kept=kept))
    expect_golden("explain_expiry.md", markdown(explain(plans[-1], plans[-2])))


@pytest.mark.parametrize("scheme", ["max", "cogroup", "elastic(2)", "tasks(2)"])
def test_an_assignment_reads_as_the_golden_file(scheme: str) -> None:
    document = assignment_document(assign([("views", 8), ("clicks", 12)], Scheme.parse(scheme)))
    name = "assign_" + scheme.replace("(", "_").replace(")", "") + ".json"
    expect_golden(name, json.dumps(document, indent=1) + "\n")


@cache
def _of_many_tasks() -> Plan:
    return plan_of(many_tasks(), many_found(), scheme="tasks(24)")


def test_every_row_has_a_cell_for_each_column() -> None:
    for each in explain(_of_many_tasks(), plan_of(tails(), tails_found())):
        assert all(len(row) == len(each.columns) for row in each.rows), each.title


def test_a_plan_that_was_stored_is_explained_as_the_one_that_was_made() -> None:
    plan = _of_many_tasks()
    assert explain(decode(Plan, encode(plan), "here")) == explain(plan)


def test_more_than_twenty_tasks_are_cut_and_the_rest_counted() -> None:
    plan = plan_of(tails(), tails_found(), scheme="tasks(132)")
    rows = section(plan, "Stage flights+planes").rows
    assert len(rows) == 21
    assert rows[-1][0] == "… and 112 more"
    assert len(section(plan_of(tails(), tails_found(), scheme="tasks(20)"), "Stage flights+planes").rows) == 20


def test_tasks_that_can_have_no_record_are_counted() -> None:
    found = [arrived("flights", [1] * 12), arrived("planes", [1] * 8)]
    note = "For its 20 records it has 24 tasks: at least 4 of them have nothing to do."
    assert note in section(plan_of(tails(), found, scheme="tasks(24)"), "Stage flights+planes").notes
    enough = section(plan_of(tails(), found, scheme="tasks(20)"), "Stage flights+planes")
    assert not any("nothing to do" in note for note in enough.notes)


def test_the_first_plan_has_nothing_to_be_compared_with() -> None:
    plan = plan_of(tails(), tails_found())
    assert section(plan, "Changes").notes == ("There is no earlier plan to compare with.",)


def test_cells_cannot_break_the_markdown_table() -> None:
    text = markdown([Section("T", ("a",), (("x | y\nz",),), ())])
    assert text == "### T\n\n| a         |\n| --------- |\n| x \\| y\\nz |\n"


def test_an_exchange_is_shown_with_what_it_moves_and_why() -> None:
    expect_golden("explain_merged.md", markdown(explain(merged())[1:]))


@pytest.mark.parametrize(
    ("batch", "counted"),
    [
        (0, "Records are counted by what has arrived."),
        (1, "Records of streams are those that have arrived; those of steps are as in the last published batch."),
    ],
)
def test_what_moves_is_counted_by_what_there_is_to_count(batch: int, counted: str) -> None:
    assert section(replace(merged(), batch=batch), "Exchanges").notes == (counted,)


def test_waves_with_levels_of_unifiers_and_state_read_as_the_golden_file() -> None:
    expect_golden("explain_waves.md", markdown(explain(unified())[1:]))


def test_a_plan_of_streams_alone_has_no_sections_or_columns_for_more() -> None:
    sections = explain(shown_tails())
    assert [each.title for each in sections] == [
        "Streams",
        "What may surprise",
        "Stage flights+planes",
        "Task groups",
        "Result tables",
        "Changes",
    ]
    assert sections[2].columns == ("task", "group", "flights", "planes", "records", "filter")
    assert sections[3].columns == ("group", "tasks", "bytes", "records")


def test_dealt_cosets_are_shown_with_who_dealt_them_and_until_when_a_task_is_left() -> None:
    plan = shown_tails("tasks(8)", dealt=[(0, 1, 2, 5), (3, 4, 6, 7)], batch=4)
    cooling = replace(plan, stages=(replace(plan.stages[0], cooling=(6, 4)),))
    shown = section(cooling, "Stage flights+planes")
    assert shown.notes[0] == (
        "Scheme tasks(8), 8 cosets: 8 as asked; assigned to 2 tasks by shop.parts:ByBytes; "
        "flights filtered by h(key) mod 8."
    )
    assert [row[shown.columns.index("owns")] for row in shown.rows] == ["0-2, 5", "3-4, 6-7"]
    assert [row[shown.columns.index("left until batch")] for row in shown.rows] == ["6", ""]
    assert shown.rows[0][-2] == "flights: h(key) mod 8 in 0, 1, 2, 5"


def test_groups_show_their_grouper_and_location_if_they_are_not_as_usual() -> None:
    plan = shown_tails()
    placed = replace(
        plan, grouper="shop.racks:near", groups=(replace(plan.groups[0], location="rack-1"), plan.groups[1])
    )
    shown = section(placed, "Task groups")
    assert shown.notes == ("Tasks are grouped by shop.racks:near.",)
    assert [row[-1] for row in shown.rows] == ["rack-1", ""]


def test_more_than_twenty_stages_are_cut_and_the_rest_counted() -> None:
    pipeline = Pipeline("wide", source="s3://landing/topics")
    for number in range(23):
        pipeline.stream(f"s{number}", key="member", partitions=2).filter("true", name=f"f{number}").write(f"t{number}")
    stages = [
        hand_made(pipeline, f"s{number}", [stream(pipeline, f"s{number}")], [f"f{number}"]) for number in range(23)
    ]
    sections = explain(whole(pipeline, stages))
    assert sum(each.title.startswith("Stage ") for each in sections) == 20
    (more,) = [each for each in sections if each.title.startswith("…")]
    assert (more.title, more.notes) == ("… and 3 more stages", ("They have 6 tasks.",))
    assert sections[0].rows[-1][0] == "… and 3 more"


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


def test_joins_that_depend_on_batches_and_state_that_only_grows_are_told() -> None:
    pipeline, views, clicks, users = streams()
    hour = timedelta(hours=1)
    views.filter("true", name="late").join(users, "1 AS one", name="with_user").write("a")
    views.join(clicks, "1 AS one", name="both").write("b")
    views.join_within(clicks, "1 AS one", times=("dep_delay", "dep_delay"), within=hour, name="near").write("c")
    views.aggregate("count(*) AS n", name="counted").join(views, "1 AS one", name="itself").write("d")
    assert told(pipeline) == (JoinsATable("with_user", ("users",)), JoinsInABatch("both", ("views", "clicks")))
    pipeline, hour = Pipeline("p", source="s3://landing/topics"), timedelta(hours=1)
    views, prices = (
        pipeline.stream(name, key="k", partitions=2, time="dep_delay", late=hour) for name in ("views", "prices")
    )
    views.join_as_of(prices, "1 AS one", times=("dep_delay", "dep_delay"), keep=hour, name="priced").write("priced")
    assert told(pipeline) == (OnlyGrows("priced", Op.RECENT, None),)


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
