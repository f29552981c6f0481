"""What the docs plan over several batches also runs, and is held against DuckDB. Each test names the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from coset import Changes, PartitioningContext, Pipeline, Settings, Share
from partitioning.authoring.settings import DEFAULTS, PartitionerRef
from partitioning.documents.store import Store
from partitioning.values import replace
from tests.member_streams import COUNTED, counted, direct, numbers_of_tasks, ran, records, written


def test_elasticity_any_number_of_tasks_follows_any_other(store: Store) -> None:
    # A first scale-up, back, up to one that does not divide, and a plain restart under it: what Samza's tasks lost.
    schemes = ["elastic(1)", "elastic(2)", "elastic(1)", "elastic(2)", "elastic(3)", "elastic(3)", "tasks(1)"]
    tasks = [
        numbers_of_tasks(ran(store, counted, Settings.parse(scheme=scheme), n)) for n, scheme in enumerate(schemes)
    ]
    assert tasks == [[4], [8], [4], [8], [12], [12], [1]]
    assert written(store) == direct(COUNTED, len(schemes))


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
    assert written(store) == sorted(
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
        assert written(store, name) == direct(sql, 2)


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
    assert written(store) == direct(f"SELECT member, count(*) FROM ({both}) WHERE v % 30 = 0 GROUP BY member", 2)


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
    assert written(store) == direct(COUNTED, len(arguments))
