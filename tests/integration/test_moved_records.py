"""Right batches of pipelines whose records move or stay: nothing is flagged, and DuckDB gives the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from coset import Pipeline
from coset.batches import steps
from coset.batches.planning import preview
from coset.batches.publication import abandon
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.runners.runner import Runner
from coset.batches.runners.spark import Spark
from coset.testing import Trial
from partitioning.authoring.flow import Flow
from partitioning.authoring.settings import DEFAULTS, PartitionerRef, Settings
from partitioning.documents.store import Store
from partitioning.hashes import hash_of
from partitioning.model.placement import JAVA
from partitioning.model.plan import Plan, TaskGroup, TaskRef
from partitioning.model.schemes import MAX, Scheme, tasks
from partitioning.model.streams import NullKeys
from partitioning.model.verdict import Judged
from partitioning.planning.check import check_plan
from partitioning.values import replace
from tests import asked_of_duckdb
from tests.asked_of_duckdb import in_order, published
from tests.batches import erase
from tests.examples import few, in_turn
from tests.judged import results
from tests.landed import land_file, land_table
from tests.moved import Build, direct, planned_over
from tests.real_batches import Change, as_planned, stored
from tests.running import next_batch, run_and_publish, task_receipts
from tests.there import there

PIPELINES: dict[str, tuple[Build, str]] = {
    "counted by another key": (
        lambda views: views.rekey("page").aggregate("count(*) AS n, sum(v)::BIGINT AS v"),
        "SELECT page, count(*), sum(v) FROM views GROUP BY page",
    ),
    "counted by a key that is made": (
        lambda views: views.rekey("tens", sql="(v // 10)::BIGINT", key_format="long").aggregate("count(*) AS n"),
        "SELECT v // 10, count(*) FROM views GROUP BY 1",
    ),
    "a merge of placed and of re-keyed records": (
        lambda views, clicks: (
            views.rekey("page", name="by_page")
            .merge(clicks.select("v", name="of_clicks").rekey("page", sql="k", name="clicks_by_k"))
            .aggregate("count(*) AS n, sum(v)::BIGINT AS v")
        ),
        """
        SELECT page, count(*), sum(v)
        FROM (SELECT page, v FROM views UNION ALL SELECT k AS page, v FROM clicks) GROUP BY page
        """,
    ),
    "KAFKA-7294: only the re-keyed side moves": (
        lambda views, sales: (
            views.select("v", name="a")
            .merge(sales.rekey("k", name="b").select("v", name="of_b"), name="both")
            .aggregate("count(*) AS n, sum(v)::BIGINT AS v")
        ),
        """
        SELECT k, count(*), sum(v) FROM (SELECT k, v FROM views UNION ALL SELECT k, v FROM sales) GROUP BY k
        """,
    ),
    "a null that moved is of the type of what it is merged with": (
        lambda views, sales: (
            views.select("v > 3 AS big", name="a")
            .merge(sales.select("k, NULL AS big").rekey("k", name="b").select("big", name="of_b"), name="both")
            .aggregate("any_value(typeof(big)) AS kind, count(*) AS n")
        ),
        """
        SELECT k, 'BOOLEAN', count(*) FROM (SELECT k FROM views UNION ALL SELECT k FROM sales) GROUP BY k
        """,
    ),
    "joined after both have moved": (
        lambda views, clicks: (
            views.rekey("page", name="vp")
            .aggregate("count(*) AS views", name="vn")
            .join(clicks.rekey("page", name="cp").aggregate("sum(v)::BIGINT AS clicks", name="cn"), "views, clicks")
        ),
        """
        SELECT page, views, clicks
        FROM (SELECT page, count(*) AS views FROM views GROUP BY page)
        JOIN (SELECT page, sum(v) AS clicks FROM clicks GROUP BY page) USING (page)
        """,
    ),
    "moved twice": (
        lambda views: (
            views.rekey("page", name="by_page")
            .aggregate("count(*) AS n", name="pages")
            .rekey("n", key_format="long", name="by_count")
            .aggregate("count(*) AS pages")
        ),
        "SELECT n, count(*) FROM (SELECT page, count(*) AS n FROM views GROUP BY page) GROUP BY n",
    ),
    "summed over all records": (
        lambda views: views.partial("count(*) AS n, sum(v)::BIGINT AS v").combine(
            "sum(n)::BIGINT AS n, sum(v)::BIGINT AS v"
        ),
        "SELECT count(*), sum(v) FROM views",
    ),
    "summed by key in parts": (
        lambda views: views.partial("count(*) AS n", by="page").combine("sum(n)::BIGINT AS n"),
        "SELECT page, count(*) FROM views GROUP BY page",
    ),
    "put into other partitions": (lambda views: views.repartition(3).select("v"), "SELECT k, v FROM views"),
    "put into other partitions by Java's hash": (
        lambda views: views.repartition(5, hash="java").aggregate("count(*) AS n"),
        "SELECT k, count(*) FROM views GROUP BY k",
    ),
    "a result that a later wave reads where it lies": (
        lambda views: (
            lambda sums: sums.join(
                sums.rekey("page", sql="first", name="by_page")
                .aggregate("sum(n)::BIGINT AS n", name="per_page")
                .rekey("k", sql="page", name="back"),
                "sums.n, back.n AS pages",
            )
        )(views.aggregate("count(*) AS n, min(k) AS first", name="sums")),
        """
        WITH sums AS (SELECT k, count(*) AS n, min(k) AS first FROM views GROUP BY k),
        pages AS (SELECT first AS k, sum(n) AS n FROM sums GROUP BY first)
        SELECT k, sums.n, pages.n FROM sums JOIN pages USING (k)
        """,
    ),
}


@pytest.mark.parametrize(("name", "scheme"), in_turn(PIPELINES, ["tasks(3)", "cogroup", "elastic(2)"]))
def test_the_table_is_as_duckdb_says(name: str, scheme: str, store: Store) -> None:
    build, sql = PIPELINES[name]
    pipeline = planned_over(store, build)
    run_and_publish(next_batch(pipeline, store.root, Settings.parse(scheme=scheme, groups=2)))
    assert published(store) == direct(sql)


@pytest.mark.parametrize("runner", few([lambda: Local(2), lambda: Spark("local[2]")]), ids=["two processes", "spark"])
def test_whoever_runs_it(runner: Callable[[], Runner], store: Store, tmp_path: Path) -> None:
    build, sql = PIPELINES["joined after both have moved"]
    ref = next_batch(planned_over(store, build), store.root, Settings.parse(scheme="elastic(2)", groups=2))
    run_and_publish(ref, tmp_path, runner())
    assert published(store) == direct(sql)


def test_of_kafka_7294_only_the_rekeyed_records_move_and_the_report_says_so(store: Store, tmp_path: Path) -> None:
    build, _ = PIPELINES["KAFKA-7294: only the re-keyed side moves"]
    ref = next_batch(planned_over(store, build), store.root)
    run_and_publish(ref, tmp_path)
    report = steps.report(ref, tmp_path)
    moved = next(line for line in report.splitlines() if line.startswith("| of_b.exchange"))
    name, step, stage, records, size, spared = (cell.strip() for cell in moved.strip("|").split("|"))
    assert (name, step, stage, records, spared) == ("of_b.exchange", "of_b", "sales", "40", "300")
    assert size.endswith("kB")
    page = (tmp_path / "moved" / "batch-0-attempt-0.html").read_text()
    assert "What moved" in page
    assert "<td>of_b.exchange</td>" in page


TIME, HOUR = "seen", timedelta(hours=1)
SUM = "sum(n)::BIGINT AS n, sum(spent)::DECIMAL(18,2) AS spent"
COUNTS = {"orders": 4, "customers": 2, "views": 6}


class Flows:
    """The streams of a pipeline, each declared when it is asked for."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def __getitem__(self, name: str) -> Flow:
        if not self._pipeline.has(name):
            self._pipeline.stream(name, key="customer", partitions=COUNTS[name], time=TIME, late=2 * HOUR)
        return self._pipeline.flow(name)


def merged_with_its_windows(flows: Flows) -> None:
    """A flow that moves in two ways: to its windows, and beside them."""
    by_page = flows["views"].rekey("page", name="by_page").select("seen, id, 1::BIGINT AS n", name="each")
    hours = by_page.windows("max(seen) AS seen, max(id) AS id, count(*) AS n", time=TIME, every=HOUR, name="hours")
    both = hours.select("seen, id, n", name="hourly").merge(by_page, name="both")
    both.partial("sum(n)::BIGINT AS n", by="page", name="parts").combine("sum(n)::BIGINT AS n", running=True).write(
        "merged", mode="upsert"
    )


def top_three(flows: Flows) -> None:
    best = "list_slice(list_reverse_sort(flatten(list(top))), 1, 3) AS top"
    flows["orders"].select("[{'amount': amount, 'id': id}] AS top").combine(best, running=True).write(
        "top", mode="upsert"
    )


def customers_by_city(flows: Flows) -> None:
    latest = flows["customers"].latest("seen", name="newest").filter("NOT gone", name="there")
    latest.rekey("city", name="by_city").aggregate("count(*) AS n, max(seen) AS seen").write("cities", mode="upsert")


def spent_with_the_city_of_now(flows: Flows) -> None:
    each = flows["orders"].select("1::BIGINT AS n, amount::DECIMAL(18,2) AS spent", name="each")
    total = each.combine(SUM, running=True, name="total").filter("spent > 20", name="large")
    newest = flows["customers"].latest("seen", name="newest")
    total.join(newest, "large.n, round(large.spent / large.n, 2) AS mean, newest.city", how="left").write(
        "spent", mode="upsert"
    )


def valid_at_the_time(flows: Flows) -> None:
    times, columns = ("orders.seen", "customers.seen"), "orders.id, orders.amount, customers.city"
    flows["orders"].join_as_of(flows["customers"], columns, times=times, keep=9 * HOUR).write("as_of")


def once(flows: Flows) -> None:
    flows["views"].distinct("page", time=TIME, within=HOUR, name="once").write("once")


def expiring(flows: Flows) -> None:
    each = flows["views"].select("seen, 1::BIGINT AS n", name="each")
    lives = each.combine("sum(n)::BIGINT AS n, max(seen) AS seen", running=True, time=TIME, keep=HOUR, name="lives")
    lives.expired(name="over").write("over")


def sessions(flows: Flows) -> None:
    gap = timedelta(minutes=20)
    made = flows["views"].windows("count(*) AS n, max(id) AS last", time=TIME, every=12 * HOUR, gap=gap, name="visits")
    made.write("visits")


def united(flows: Flows) -> None:
    orders = flows["orders"].select("seen, amount::DECIMAL(18,2) AS spent, 1::BIGINT AS n", name="of_orders")
    views = flows["views"].select("seen, 0::DECIMAL(18,2) AS spent, 1::BIGINT AS n", name="of_views")
    both = orders.merge(views, name="all").aggregate("sum(n)::BIGINT AS n, sum(spent)::DECIMAL(18,2) AS spent")
    both.combine(SUM, running=True, name="sums").write("united", mode="upsert")


def histogram_of_totals(flows: Flows) -> None:
    total = flows["views"].select("1::BIGINT AS n", name="each").combine("sum(n)::BIGINT AS n", running=True)
    total.rekey("n", key_format="long", name="by_total").aggregate("count(*) AS customers").write(
        "histogram", mode="upsert"
    )


NATURAL: dict[str, Callable[[Flows], None]] = {
    made.__name__: made
    for made in (
        merged_with_its_windows,
        top_three,
        customers_by_city,
        spent_with_the_city_of_now,
        valid_at_the_time,
        once,
        expiring,
        sessions,
        united,
        histogram_of_totals,
    )
}


@pytest.mark.parametrize(("name", "scheme"), in_turn(NATURAL, ["elastic(2)", "tasks(3)", "cogroup"]))
def test_the_tables_of_a_natural_pipeline_are_their_queries(name: str, scheme: str) -> None:
    pipeline = Pipeline("natural", source="s3://nowhere/topics")
    NATURAL[name](Flows(pipeline))
    chance, ids = random.Random(name), iter(range(10_000))
    with Trial.made(pipeline) as trial:
        for number, by in enumerate((scheme, "tasks(2)", scheme, "elastic(1)")):
            begin = datetime.fromisoformat("2026-11-01") + timedelta(hours=number)

            def record(begin: datetime = begin) -> dict[str, object]:
                return {
                    "customer": f"c{chance.randrange(9)}",
                    "seen": begin + timedelta(minutes=chance.randrange(75)),
                    "id": next(ids),
                    "page": f"p{chance.randrange(5)}",
                    "amount": chance.randrange(2, 4000) / 100,
                    "city": f"city {chance.randrange(4)}",
                    "gone": chance.random() < 0.2,
                }

            read = {each.name for each in pipeline.streams}
            trial.land({each: [record() for _ in range(chance.randrange(3, 25))] for each in COUNTS if each in read})
            trial.run(Settings.parse(scheme=by, groups=1 + number % 2))
        trial.close()
        assert trial.verify() == {}


EVEN = "partitioning.planning.partitioners.partitioners:Even"
JOINED = """
    SELECT k, n, v, c FROM (SELECT k, count(*) AS n, sum(v) AS v FROM views GROUP BY k)
    JOIN clicks USING (k)
"""


def views(first: int, count: int, without_key: int = 0) -> pa.Table:
    """Views of some ads, so many of them of nobody knows which."""
    keys = [None if n < without_key else f"ad-{n % 61}" for n in range(count)]
    return pa.table({"k": pa.array(keys, pa.string()), "v": pa.array(range(first, first + count), pa.int64())})


def clicks(first: int, count: int) -> pa.Table:
    """Clicks on some ads."""
    numbers = pa.array(range(first, first + count), pa.int64())
    return pa.table({"k": [f"ad-{n % 83}" for n in range(count)], "c": numbers})


def activity(store: Store, views_in: int, clicks_in: int, null_keys: NullKeys = NullKeys.REFUSE) -> Pipeline:
    """Counted views that meet clicks."""
    made = Pipeline("activity", source=f"{store.root}/topics")
    seen = made.stream("views", key="k", partitions=views_in, null_keys=null_keys)
    clicked = made.stream("clicks", key="k", partitions=clicks_in, null_keys=null_keys)
    seen.aggregate("count(*) AS n, sum(v)::BIGINT AS v").join(clicked, "n, v, c", name="joined").write("activity")
    return made


def publish(
    store: Store,
    made: Pipeline,
    docs: Path,
    settings: Settings = DEFAULTS,
    change: Change = as_planned,
    **arrived: pa.Table,
) -> BatchRef:
    """Land these records by the partition counts that the pipeline declares, and publish a batch of them."""
    counts = {stream.name: stream.partitions for stream in made.streams}
    for name, table in arrived.items():
        land_table(table, name, f"{store.root}/topics", key="k", partitions=counts[name])
    ref = stored(store, made, change, settings)
    run_and_publish(ref, docs)
    assert all(result["success"] for result in results(ref))
    assert not any(seen.offenders for task in task_receipts(ref) for seen in task.partitions)
    return ref


def direct_rows(sql: str, *batches: dict[str, pa.Table]) -> list[tuple[object, ...]]:
    """The rows that DuckDB gives of each batch's records, all together."""
    return in_order([row for batch in batches for row in asked_of_duckdb.direct(sql, **batch)])


@pytest.mark.parametrize(
    ("before", "now", "scheme", "lie_by"),
    [(4, 8, None, 4), (4, 8, "tasks(2)", 4), (4, 6, "tasks(2)", 2), (8, 4, None, 4), (6, 9, "tasks(3)", 3)],
    ids=["4 to 8", "4 to 8 in two tasks", "4 to 6 in two tasks", "8 to 4", "6 to 9 in three tasks"],
)
def test_a_topic_whose_partition_count_changes_between_two_batches(
    store: Store, tmp_path: Path, before: int, now: int, scheme: str | None, lie_by: int
) -> None:
    settings = Settings.parse(scheme=scheme)
    batches = [{"views": views(n * 1000, 400), "clicks": clicks(n * 1000, 300)} for n in range(3)]
    publish(store, activity(store, before, 12), tmp_path, settings, **batches[0])
    # Partitions that there are no more, and that a batch has read to their ends, are moved away.
    gone = [f"topics/views/partition={number}/" for number in range(now, before)]
    erase(store.root, *(entry.key for prefix in gone for entry in store.list(prefix)))
    # Half of the views of the second batch were there before the count changed.
    half = 200 if now > before else 0
    land_table(batches[1]["views"].slice(0, half), "views", f"{store.root}/topics", key="k", partitions=before)
    rest = batches[1] | {"views": batches[1]["views"].slice(half)}
    second = publish(store, activity(store, now, 12), tmp_path, settings, **rest)
    third = publish(store, activity(store, now, 12), tmp_path, settings, **batches[2])
    for ref, count in ((second, lie_by), (third, now)):
        _, plan = ref.load()
        (stage,) = plan.stages
        assert {read.name: read.placement.partitions for read in stage.streams} == {"views": count, "clicks": 12}
    assert published(store, "activity") == direct_rows(JOINED, *batches)


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "now", "scheme"), [(6, 9, "cogroup"), (6, 9, "tasks(9)"), (4, 8, "tasks(8)"), (4, 8, "max")]
)
def test_a_topic_whose_partition_count_changes_where_no_keys_have_to_meet(
    store: Store, tmp_path: Path, before: int, now: int, scheme: str
) -> None:
    def evenly(partitions: int) -> Pipeline:
        made = Pipeline("activity", source=f"{store.root}/topics")
        made.stream("views", key="k", partitions=partitions).filter("v % 2 = 0", name="even").write("even")
        return made

    first, between, second = ({"views": views(n * 1000, 400)} for n in range(3))
    publish(store, evenly(before), tmp_path, Settings.parse(scheme=scheme), **first)
    # Whole partitions are read, though their keys may lie in two of them.
    land_table(between["views"], "views", f"{store.root}/topics", key="k", partitions=before)
    publish(store, evenly(now), tmp_path, Settings.parse(scheme=scheme), **second)
    expected = direct_rows("SELECT k, v FROM views WHERE v % 2 = 0", first, between, second)
    assert published(store, "even") == expected


def by_two_hashes(store: Store, clicked: pa.Table) -> tuple[Flow, Flow, Pipeline]:
    """Views placed by murmur2 and clicks, landed here, by Java's hash: a key may be in another task in each."""
    made = Pipeline("activity", source=f"{store.root}/topics")
    seen = made.stream("views", key="k", partitions=8)
    clicks_by_java = made.stream("clicks", key="k", partitions=8, hash=JAVA).select("c AS v", name="clicked")
    homes = [hash_of(JAVA, "here")(key, "string") % 8 for key in clicked["k"].to_pylist()]
    for partition in range(8):
        mine = clicked.filter(pa.array([home == partition for home in homes]))
        land_file(mine, "clicks", f"{store.root}/topics", partition, 0)
    return seen, clicks_by_java, made


UNION = "SELECT k, v FROM views UNION ALL SELECT k, c FROM clicks"


def test_streams_that_are_placed_by_different_hashes_and_merged_in_the_tasks_of_one_scheme(
    store: Store, tmp_path: Path
) -> None:
    batch = {"views": views(0, 200), "clicks": clicks(0, 200)}
    seen, clicked, made = by_two_hashes(store, batch["clicks"])
    seen.merge(clicked, name="both").write("both")
    publish(store, made, tmp_path, Settings.parse(scheme="cogroup"), views=batch["views"])
    assert published(store, "both") == direct_rows(UNION, batch)


def test_a_stream_of_which_equal_keys_meet_beside_one_of_which_they_do_not(store: Store, tmp_path: Path) -> None:
    batch = {"views": views(0, 200), "clicks": clicks(0, 200)}
    seen, clicked, made = by_two_hashes(store, batch["clicks"])
    seen.merge(clicked, name="both").write("both")
    seen.aggregate("count(*) AS n", name="counted").write("counts")
    ref = publish(store, made, tmp_path, views=batch["views"])
    (meet,) = (each for each in results(ref) if each["expectation"] == "expect_keys_to_meet_in_one_task")
    assert meet["table"] == "Keys of stage views+clicks in views"
    assert meet["result"]["element_count"] == 61
    assert published(store, "both") == direct_rows(UNION, batch)
    assert published(store, "counts") == direct_rows("SELECT k, count(*) FROM views GROUP BY k", batch)


@pytest.mark.long
def test_cosets_that_are_dealt_to_few_tasks_and_then_to_more(store: Store, tmp_path: Path) -> None:
    batches = [{"views": views(n * 1000, 400), "clicks": clicks(n * 1000, 300)} for n in range(2)]
    made = activity(store, 8, 12)
    for tasks_there, batch in zip((3, 5), batches, strict=True):
        dealt = Settings(scheme=tasks(24), partitioners={"joined": PartitionerRef(EVEN, {"tasks": tasks_there})})
        ref = publish(store, made, tmp_path, dealt, **batch)
        _, plan = ref.load()
        assert (len(plan.stages[0].tasks), plan.stages[0].cosets) == (tasks_there, 24)
        assert {len(task.owns) for task in plan.stages[0].tasks} == ({8} if tasks_there == 3 else {4, 5})
    assert published(store, "activity") == direct_rows(JOINED, *batches)


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(5)", "tasks(24)"])
def test_a_stream_that_two_stages_read_each_in_its_way(store: Store, tmp_path: Path, scheme: str) -> None:
    evenly = Pipeline("activity", source=f"{store.root}/topics")
    evenly.stream("views", key="k", partitions=8).filter("v % 2 = 0", name="even").write("even")

    def both(plan: Plan) -> Plan:
        """What the planner does across exchanges only: a stage of one scheme beside another."""
        other = there(preview(evenly, store).plan)
        stages = (*plan.stages, *other.stages)
        refs = [tuple(TaskRef(stage.name, task.task) for task in stage.tasks) for stage in stages]
        groups = tuple(TaskGroup(number, tasks, 0, 0) for number, tasks in enumerate(refs))
        return check_plan(replace(plan, stages=stages, groups=groups))

    batch = {"views": views(0, 400), "clicks": clicks(0, 300)}
    ref = publish(store, activity(store, 8, 12), tmp_path, Settings.parse(scheme=scheme), both, **batch)
    ledger, plan = ref.load()
    assert [[read.name for read in stage.streams] for stage in plan.stages] == [["views", "clicks"], ["views"]]
    assert [stage.scheme for stage in plan.stages] == [Scheme.parse(scheme), MAX]
    assert published(store, "activity") == direct_rows(JOINED, batch)
    assert published(store, "even") == direct_rows("SELECT k, v FROM views WHERE v % 2 = 0", batch)
    verdict = there(ledger.verdict(0))
    assert isinstance(verdict.why, Judged)
    # A record that two stages read is one record of the batch.
    assert (verdict.why.records, verdict.why.partitions) == (700, 20)


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(5)", "tasks(1)"])
def test_records_without_a_key_in_a_task_of_their_own(store: Store, tmp_path: Path, scheme: str) -> None:
    made = Pipeline("activity", source=f"{store.root}/topics")
    seen = made.stream("views", key="k", partitions=8, null_keys=NullKeys.OWN_TASK)
    seen.aggregate("count(*) AS n, sum(v)::BIGINT AS v", name="counted").write("activity")
    batches = [{"views": views(n * 1000, 400, without_key=30)} for n in range(2)]
    for batch in batches:
        ref = publish(store, made, tmp_path, Settings.parse(scheme=scheme), **batch)
        _, plan = ref.load()
        *_, own = plan.stages[0].tasks
        assert own.null_keys
        (receipt,) = (each for each in task_receipts(ref) if each.task.task == own.task)
        assert sum(each.taken for each in receipt.partitions) == sum(each.nulls for each in receipt.partitions) == 30
    expected = direct_rows("SELECT k, count(*), sum(v) FROM views GROUP BY k", *batches)
    assert published(store, "activity") == expected


@pytest.mark.long
def test_a_table_that_is_left_out_for_a_batch_and_then_written_again(store: Store, tmp_path: Path) -> None:
    def writing(*tables: str) -> Pipeline:
        made = Pipeline("activity", source=f"{store.root}/topics")
        seen = made.stream("views", key="k", partitions=4)
        for table in tables:
            seen.aggregate("count(*) AS n", name=f"counted_for_{table}").write(table)
        return made

    batches = [{"views": views(n * 1000, 100 + n)} for n in range(4)]
    for tables, batch in zip((("a", "b"), ("a",), ("a", "b"), ("a", "b")), batches, strict=True):
        # It lacks what came of the records meanwhile, and is taken so.
        publish(store, writing(*tables), tmp_path, Settings(go_on=("b",) if "b" in tables else ()), **batch)
    count = "SELECT k, count(*) FROM views GROUP BY k"
    assert published(store, "a") == direct_rows(count, *batches)
    assert published(store, "b") == direct_rows(count, batches[0], *batches[2:])


def test_a_batch_after_one_that_was_given_up(store: Store, tmp_path: Path) -> None:
    batches = [{"views": views(n * 1000, 200), "clicks": clicks(n * 1000, 100)} for n in range(3)]
    made = activity(store, 8, 12)
    publish(store, made, tmp_path, **batches[0])
    for name, table in batches[1].items():
        land_table(table, name, f"{store.root}/topics", key="k", partitions={"views": 8, "clicks": 12}[name])
    ledger, given_up = stored(store, made).load()
    abandon(ledger, "to take more at once")
    ref = publish(store, made, tmp_path, **batches[2])
    _, plan = ref.load()
    assert (plan.batch, plan.ranges()[0].start) == (2, given_up.ranges()[0].start)
    both = {name: pa.concat_tables([batches[1][name], batches[2][name]]) for name in ("views", "clicks")}
    assert published(store, "activity") == direct_rows(JOINED, batches[0], both)
