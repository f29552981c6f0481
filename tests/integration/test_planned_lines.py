"""What the docs plan also runs: lines of their examples and tables, and several batches, held against DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature

import pyarrow as pa
import pytest

from coset import Changes, PartitioningContext, Pipeline, Settings, Share
from partitioning.authoring.flow import Flow
from partitioning.authoring.settings import DEFAULTS, PartitionerRef
from partitioning.documents.store import Store
from partitioning.model.plan import Plan
from partitioning.values import replace
from tests import asked_of_duckdb
from tests.asked_of_duckdb import Row, in_order, published
from tests.landed import land_table
from tests.real_batches import stored
from tests.running import run_and_publish_unjudged

Build = Callable[[Pipeline], object]
KEYS = {"b": "session", "d": "session"}


def records(stream: str, batch: int = 0) -> pa.Table:
    """The records of a stream in a batch: some members are in every stream, and one page has far more than others."""
    first = batch * 1000
    numbers = range(first, first + {"views": 260, "clicks": 190, "a": 180, "b": 60}.get(stream, 120))
    return pa.table(
        {
            "member": [f"member-{n * 7 % {'views': 53, 'clicks': 71}.get(stream, 41)}" for n in numbers],
            "session": [f"session-{n * 5 % 37}" for n in numbers],
            "page": [f"page-{n % 10 * (n % 3)}" for n in numbers],
            "v": pa.array(numbers, pa.int64()),
        }
    )


def ran(store: Store, build: Build, settings: Settings = DEFAULTS, batch: int = 0) -> Plan:
    """Land the records of a batch, plan and run it by these settings, and publish it."""
    pipeline = Pipeline("lines", source=f"{store.root}/topics")
    build(pipeline)
    for stream in pipeline.streams:
        key = KEYS.get(stream.name, "member")
        land_table(records(stream.name, batch), stream.name, pipeline.source, key=key, partitions=stream.partitions)
    ref = stored(store, pipeline, settings=settings)
    run_and_publish_unjudged(ref)
    return ref.load()[1]


def direct(sql: str, batches: int = 1) -> list[Row]:
    """The rows that DuckDB gives of the records of each batch, all together."""
    streams = ("views", "clicks", "logins", "a", "b", "c", "d")
    landed = ({stream: records(stream, batch) for stream in streams} for batch in range(batches))
    return in_order([row for tables in landed for row in asked_of_duckdb.direct(sql, **tables)])


def numbers_of_tasks(plan: Plan) -> list[int]:
    return [len(stage.tasks) for stage in plan.stages]


def counted(pipeline: Pipeline, partitions: int = 4) -> None:
    views = pipeline.stream("views", key="member", partitions=partitions)
    views.aggregate("count(*) AS n, sum(v)::BIGINT AS v", name="counted").write("t")


COUNTED = "SELECT member, count(*), sum(v) FROM views GROUP BY member"


def met(views_in: int, clicks_in: int) -> Build:
    def build(pipeline: Pipeline) -> None:
        views, clicks = (
            pipeline.stream(name, key="member", partitions=partitions)
            for name, partitions in (("views", views_in), ("clicks", clicks_in))
        )
        seen = views.aggregate("count(*) AS views", name="seen")
        seen.join(clicks.aggregate("count(*) AS clicks", name="done"), "views, clicks", name="clicked").write("t")

    return build


MET = """
SELECT member, views, clicks
FROM (SELECT member, count(*) AS views FROM views GROUP BY member)
JOIN (SELECT member, count(*) AS clicks FROM clicks GROUP BY member) USING (member)
"""


def merged(pipeline: Pipeline) -> None:
    views, clicks = (pipeline.stream(n, key="member", partitions=p) for n, p in (("views", 8), ("clicks", 12)))
    views.select("v", name="of_views").merge(clicks.select("v", name="of_clicks"), name="both").write("t")


def three_streams(pipeline: Pipeline) -> None:
    met(8, 12)(pipeline)
    pipeline.stream("logins", key="member", partitions=5).aggregate("count(*) AS n", name="logged").write("logins")


def two_stages(pipeline: Pipeline) -> None:
    views = pipeline.stream("views", key="member", partitions=4).aggregate("min(page) AS page", name="counted")
    views.rekey("page", name="by_page").aggregate("count(*) AS members", name="pages").write("t")


TWO_STAGES = "SELECT page, count(*) FROM (SELECT min(page) AS page FROM views GROUP BY member) GROUP BY page"


def nested_merges(pipeline: Pipeline) -> None:
    a, c = (pipeline.stream(name, key="member", partitions=4).select("v", name=f"{name}_v") for name in "ac")
    b, d = (
        pipeline.stream(name, key="session", partitions=4)
        .rekey("member", name=f"{name}_r")
        .select("v", name=f"{name}_v")
        for name in "bd"
    )
    outer = a.merge(b, name="inner").merge(c, d, name="outer")
    outer.aggregate("count(*) AS n, sum(v)::BIGINT AS v", name="counted").write("t")


def summed(partitions: int, fan_in: int, by: str | None = None) -> Build:
    def build(pipeline: Pipeline) -> None:
        views = pipeline.stream("views", key="member", partitions=partitions)
        parts = views.partial("count(*) AS n, sum(v)::BIGINT AS v", by=by, name="parts")
        parts.combine("sum(n)::BIGINT AS n, sum(v)::BIGINT AS v", fan_in=fan_in, name="totals").write("t")

    return build


def moved(pipeline: Pipeline) -> None:
    pipeline.stream("views", key="member", partitions=3).repartition(2, name="two").select("v", name="only").write("t")


def by_codec(pipeline: Pipeline) -> None:
    views = pipeline.stream("views", key="member", partitions=4).rekey("page", name="by_page")
    views.repartition(2, hash=f"{__name__}:front", name="two").aggregate("count(*) AS n", name="pages").write("t")


def front(page: object) -> int:
    """The busiest page lies by itself."""
    return 0 if page == "page-0" else 1


def together(step: Callable[..., Flow]) -> Build:
    """A step on the streams that its arguments name."""

    def build(pipeline: Pipeline) -> None:
        counts = {"views": 8, "clicks": 12, "logins": 5}
        names = signature(step).parameters
        step(*(pipeline.stream(name, key="member", partitions=counts[name]) for name in names)).to_stream().write("t")

    return build


STEPS: Mapping[str, tuple[Callable[..., Flow], int, str]] = {
    "aggregate by": (
        lambda views: views.aggregate("count(*) AS n", by="page"),
        16,
        "SELECT member, page, count(*) FROM views GROUP BY ALL",
    ),
    "cogroup": (
        lambda views, clicks, logins: views.cogroup(
            "count(*) AS views", (clicks, "count(*) AS clicks"), (logins, "max(v) AS last")
        ),
        2,
        """
        SELECT member, views, clicks, last FROM (SELECT member, count(*) AS views FROM views GROUP BY member)
        FULL JOIN (SELECT member, count(*) AS clicks FROM clicks GROUP BY member) USING (member)
        FULL JOIN (SELECT member, max(v) AS last FROM logins GROUP BY member) USING (member)
        """,
    ),
    "join of several": (
        lambda views, clicks, logins: views.join([clicks, logins], "views.v, clicks.v AS c, logins.v AS l"),
        2,
        "SELECT member, views.v, clicks.v, logins.v FROM views JOIN clicks USING (member) JOIN logins USING (member)",
    ),
    "left join": (
        lambda views, logins: views.join(logins, "views.v, logins.page", how="left"),
        2,
        "SELECT member, views.v, logins.page FROM views LEFT JOIN logins USING (member)",
    ),
    "left join on more than the key": (
        lambda views, clicks: views.join(clicks, "views.v, clicks.v AS c", how="left", on="views.page = clicks.page"),
        8,
        "SELECT member, views.v, clicks.v FROM views LEFT JOIN clicks USING (member, page)",
    ),
    "full join": (
        lambda views, clicks: views.join(clicks, "views.v, clicks.v AS c", how="full"),
        8,
        "SELECT member, views.v, clicks.v FROM views FULL JOIN clicks USING (member)",
    ),
}


@dataclass(frozen=True)
class Line:
    """A line of a page: the pipeline, its schemes, how many tasks each stage has, and the rows of its tables."""

    build: Build
    schemes: Sequence[str]
    tasks: Sequence[int]
    tables: Mapping[str, str]


JOINED, SUMS = {"t": MET}, {"t": "SELECT count(*), sum(v) FROM views"}
_ALL_FOUR = " UNION ALL ".join(f"SELECT member, v FROM {stream}" for stream in "abcd")
LINES = {
    **{
        f"elasticity: {scheme} over 4 partitions": Line(counted, (scheme,), (tasks,), {"t": COUNTED})
        for scheme, tasks in (("elastic(2)", 8), *((f"tasks({number})", number) for number in (2, 3, 4, 6, 7, 8, 16)))
    },
    "elasticity: a join of 4 and 6 under 5 tasks": Line(met(4, 6), ("tasks(5)",), (5,), JOINED),
    **{
        f"elasticity: stages under {' and '.join(schemes)}": Line(two_stages, schemes, tasks, {"t": TWO_STAGES})
        for schemes, tasks in (
            (("cogroup",), (4, 4)),
            (("elastic(3)",), (12, 12)),
            (("counted=elastic(3)",), (12, 4)),
            (("pages=elastic(3)",), (4, 12)),
        )
    },
    "cosets: max": Line(
        merged, ("max",), (20,), {"t": "SELECT member, v FROM views UNION ALL SELECT member, v FROM clicks"}
    ),
    **{
        f"cosets: {scheme}": Line(met(8, 12), (scheme,), (tasks,), JOINED)
        for scheme, tasks in (("cogroup", 4), ("elastic(2)", 8), ("tasks(2)", 2), ("tasks(24)", 24))
    },
    **{
        f"cosets: stages under {' and '.join(schemes)}": Line(
            three_streams, schemes, tasks, JOINED | {"logins": "SELECT member, count(*) FROM logins GROUP BY member"}
        )
        for schemes, tasks in ((("logged=tasks(10)",), (4, 10)), (("cogroup", "clicked=elastic(2)"), (8, 5)))
    },
    "cosets: 8 and 9 partitions": Line(met(8, 9), ("cogroup",), (1,), JOINED),
    "cosets: 8 and 9 partitions in 8 tasks": Line(met(8, 9), ("tasks(8)",), (8,), JOINED),
    **{
        f"pipelines: {name}": Line(together(step), ("elastic(2)",), (tasks,), {"t": sql})
        for name, (step, tasks, sql) in STEPS.items()
    },
    "exchanges: nested merges": Line(
        nested_merges, (), (8, 4), {"t": f"SELECT member, count(*), sum(v) FROM ({_ALL_FOUR}) GROUP BY member"}
    ),
    "unifiers: 12 parts by 4": Line(summed(12, 4), (), (12, 3, 1), SUMS),
    "unifiers: 17 parts by 4": Line(summed(17, 4), (), (17, 5, 2, 1), SUMS),
    "unifiers: 4 parts by 2, by key": Line(
        summed(4, 2, "page"), (), (4, 8, 4), {"t": "SELECT page, count(*), sum(v) FROM views GROUP BY page"}
    ),
    "unifiers: 3 tasks into 2": Line(moved, (), (3, 2), {"t": "SELECT member, v FROM views"}),
    "partitioners: half of the records have one key": Line(
        by_codec, (), (4, 2), {"t": "SELECT page, count(*) FROM views GROUP BY page"}
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_gives_the_rows_that_duckdb_gives(name: str, store: Store) -> None:
    line = LINES[name]
    plan = ran(store, line.build, Settings.parse(scheme=line.schemes, groups=2))
    assert numbers_of_tasks(plan) == list(line.tasks)
    for table, sql in line.tables.items():
        assert published(store, table) == direct(sql)


# ---- over several batches; each test names the page


def test_elasticity_any_number_of_tasks_follows_any_other(store: Store) -> None:
    # A first scale-up, back, up to one that does not divide, and a plain restart under it: what Samza's tasks lost.
    schemes = ["elastic(1)", "elastic(2)", "elastic(1)", "elastic(2)", "elastic(3)", "elastic(3)", "tasks(1)"]
    tasks = [
        numbers_of_tasks(ran(store, counted, Settings.parse(scheme=scheme), n)) for n, scheme in enumerate(schemes)
    ]
    assert tasks == [[4], [8], [4], [8], [12], [12], [1]]
    assert published(store) == direct(COUNTED, len(schemes))


@pytest.mark.parametrize(
    ("batches", "tasks"),
    [
        ([(2, ""), (4, ""), (8, ""), (24, ""), (24, "")], [[2], [2], [4], [8], [24]]),
        ([(4, ""), (6, ""), (6, "")], [[4], [4, 6], [6]]),
        ([(4, ""), (6, "tasks(2)"), (6, "")], [[4], [2], [6]]),
    ],
    ids=["2, 4, 8, 24, 24", "4 to 6", "4 to 6 in two tasks"],
)
def test_changing_counts_running_totals_stay_with_their_keys(
    batches: list[tuple[int, str]], tasks: list[list[int]], store: Store
) -> None:
    found = []
    for number, (partitions, scheme) in enumerate(batches):

        def totals(pipeline: Pipeline, partitions: int = partitions) -> None:
            views = pipeline.stream("views", key="member", partitions=partitions)
            parts = views.partial("count(*) AS n", by="member", name="parts")
            parts.combine("sum(n)::BIGINT AS n", running=True, name="counted").to_stream().write("t")

        plan = ran(store, totals, Settings.parse(scheme=scheme or None), number)
        found.append(numbers_of_tasks(plan))
    assert found == tasks
    # Each batch has all members.
    assert published(store) == sorted(
        (
            (member, sum(records("views", batch)["member"].to_pylist().count(member) for batch in range(last + 1)))
            for last in range(len(batches))
            for member in set(records("views")["member"].to_pylist())
        ),
        key=str,
    )


def late_and_early(pipeline: Pipeline) -> None:
    by_page = pipeline.stream("views", key="member", partitions=4).rekey("page", name="by_page")
    for name, condition in (("late", "v % 10 = 1"), ("early", "v % 10 = 2")):
        # What is written is counted.
        filtered = by_page.filter(condition, name=name)
        filtered.write(f"{name}_views")
        filtered.aggregate("count(*) AS n", name=f"count_{name}").write(name)


def test_exchanges_are_put_elsewhere_when_it_is_known_what_filters_leave(store: Store) -> None:
    plans = [ran(store, late_and_early, batch=number) for number in range(2)]
    assert [[exchange.name for exchange in plan.exchanges] for plan in plans] == [
        ["by_page.exchange"],
        ["late.exchange", "early.exchange"],
    ]
    for name, remainder in (("late", 1), ("early", 2)):
        sql = f"SELECT page, count(*) FROM views WHERE v % 10 = {remainder} GROUP BY page"
        assert published(store, name) == direct(sql, 2)


def few_are_paid(pipeline: Pipeline) -> None:
    a = pipeline.stream("a", key="member", partitions=4).select("v", name="of_a")
    b = pipeline.stream("b", key="session", partitions=4).rekey("member", name="by_member").select("v", name="of_b")
    paid = a.merge(b, name="both").filter("v % 30 = 0", name="paid")
    paid.write("paid")
    paid.aggregate("count(*) AS n", name="counted").write("t")


@pytest.mark.long
def test_exchanges_of_placed_records_too_where_few_are_left(store: Store) -> None:
    plans = [ran(store, few_are_paid, batch=number) for number in range(2)]
    assert [[exchange.name for exchange in plan.exchanges] for plan in plans] == [["of_b.exchange"], ["paid.exchange"]]
    both = "SELECT member, v FROM a UNION ALL SELECT member, v FROM b"
    assert published(store) == direct(f"SELECT member, count(*) FROM ({both}) WHERE v % 30 = 0 GROUP BY member", 2)


@dataclass(frozen=True)
class OneApart:
    """The residue `busy` has a task of its own, all others share one."""

    busy: int

    def define(self, current: tuple[Share, ...], context: PartitioningContext) -> Sequence[Share]:
        others = tuple(residue for residue in range(context.cosets) if residue != self.busy)
        return [Share(context.cosets, (self.busy,)), Share(context.cosets, others)]

    def accepted(self, changes: Changes) -> None:
        """Nothing depends on it."""


PARTITIONERS = "partitioning.planning.partitioners"


@pytest.mark.long
@pytest.mark.parametrize(
    ("partitioner", "arguments", "tasks"),
    [
        (f"{__name__}:OneApart", [{"busy": 2}, {"busy": 0}, {"busy": 0}], [2, 2, 2]),
        (f"{PARTITIONERS}.partitioners:Even", [{"tasks": number} for number in (3, 4, 2)], [3, 4, 2]),
        (f"{PARTITIONERS}.partitioners:ApexKeys", [{"tasks": number} for number in (3, 5, 2)], [3, 5, 2]),
        (
            f"{PARTITIONERS}.by_load:ByThroughput",
            [{"minimum": 10, "maximum": 60, "cool_down": 1, "per": "batch"}] * 3,
            [4, 7, 8],
        ),
    ],
    ids=["a class of one's own", "Even", "ApexKeys", "ByThroughput"],
)
def test_partitioners_deal_the_cosets_of_real_batches(
    partitioner: str, arguments: list[dict[str, object]], tasks: list[int], store: Store
) -> None:
    found = []
    for number, given in enumerate(arguments):
        dealt = replace(DEFAULTS, partitioners={"counted": PartitionerRef(partitioner, given)})
        found += numbers_of_tasks(ran(store, counted, dealt, number))
    assert found == tasks
    assert published(store) == direct(COUNTED, len(arguments))
