"""Pipelines as data engineers write them: after batches under other schemes each table is its query."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from coset import Pipeline
from coset.testing import Trial
from partitioning.authoring.flow import Flow
from partitioning.authoring.settings import Settings
from tests.examples import in_turn

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


PIPELINES: dict[str, Callable[[Flows], None]] = {
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


@pytest.mark.parametrize(("name", "scheme"), in_turn(PIPELINES, ["elastic(2)", "tasks(3)", "cogroup"]))
def test_the_tables_of_a_natural_pipeline_are_their_queries(name: str, scheme: str) -> None:
    pipeline = Pipeline("natural", source="s3://nowhere/topics")
    PIPELINES[name](Flows(pipeline))
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
