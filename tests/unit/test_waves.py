"""Waves: in how many a pipeline can run at most, on examples that do run in so many."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.planning.stages.bounds import most_waves
from tests.plans import arrived, plan_of

COUNT = "count(*) AS n"


def filtered(planes: Flow) -> Flow:
    return planes.filter("true")


def counted(planes: Flow) -> Flow:
    return planes.aggregate(COUNT)


def rekeyed(planes: Flow) -> Flow:
    return counted(planes.rekey("maker"))


def rekeyed_twice(planes: Flow) -> Flow:
    return rekeyed(planes).rekey("n", key_format="long").aggregate("count(*) AS makers")


def there_and_back(planes: Flow) -> Flow:
    return planes.join(rekeyed(planes).rekey("tailnum", name="back"), "1 AS one")


def repartitioned(planes: Flow) -> Flow:
    return planes.repartition(5)


def gathered(planes: Flow) -> Flow:
    return planes.partial(COUNT).combine("sum(n) AS n")


def ranked_twice(planes: Flow) -> Flow:
    ranked = planes.process("shop.steps:rank", {"tailnum": "VARCHAR"}, partitionable=False)
    return ranked.process("shop.steps:rank", {"tailnum": "VARCHAR"}, partitionable=False)


def on_dataframes(planes: Flow) -> Flow:
    return planes.spark("shop.frames:scored", {"tailnum": "VARCHAR"}, name="scored")


def on_dataframes_twice(planes: Flow) -> Flow:
    scored = on_dataframes(planes)
    return scored.spark("shop.frames:joined", {"tailnum": "VARCHAR"}, scored.filter("n"), planes).filter("n")


def on_dataframes_then_counted(planes: Flow) -> Flow:
    return planes.spark("shop.frames:spread", {"n": "BIGINT"}, key="n", key_format="long").aggregate(COUNT)


@pytest.mark.parametrize(
    ("follow", "waves"),
    [
        (on_dataframes, 1),
        (on_dataframes_twice, 3),
        (on_dataframes_then_counted, 2),
        (filtered, 1),
        (counted, 1),
        (rekeyed, 2),
        (rekeyed_twice, 3),
        (there_and_back, 3),
        (repartitioned, 2),
        (gathered, 2),
        (ranked_twice, 2),
    ],
)
def test_a_table_whose_count_never_changes_runs_in_as_many_waves_as_there_are_exchanges_behind_each_other(
    follow: Callable[[Flow], Flow], waves: int
) -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    follow(pipeline.table("planes", key="tailnum", partitions=4)).to_stream().write("t")
    plan = plan_of(pipeline, [arrived("planes", [10] * 4)])
    assert (most_waves(pipeline), len(plan.waves)) == (waves, waves)


def test_tables_that_lie_by_different_hashes_meet_in_a_second_wave() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    planes, makers = (pipeline.table(name, key="k", partitions=4, hash=name) for name in ("murmur2", "java"))
    planes.join(makers, "1 AS one").to_stream().write("t")
    plan = plan_of(pipeline, [arrived("murmur2", [10] * 4), arrived("java", [10] * 4)])
    assert (most_waves(pipeline), len(plan.waves)) == (2, 2)


@pytest.mark.parametrize(
    ("follow", "scheme", "waves"), [(filtered, "tasks(8)", 2), (counted, None, 2), (rekeyed, "flights=tasks(8)", 3)]
)
def test_a_stream_whose_count_has_changed_may_have_to_move_first(
    follow: Callable[[Flow], Flow], scheme: str | None, waves: int
) -> None:
    def pipeline(partitions: int) -> Pipeline:
        made = Pipeline("p", source="s3://landing/topics")
        follow(made.stream("flights", key="tailnum", partitions=partitions)).to_stream().write("t")
        return made

    before = plan_of(pipeline(4), [arrived("flights", [10] * 4)], scheme=scheme)
    now = plan_of(pipeline(6), [arrived("flights", [20] * 6)], batch=1, published=before, scheme=scheme)
    assert most_waves(pipeline(6)) == waves
    assert (len(before.waves), len(now.waves)) == (waves - 1, waves)


@pytest.mark.parametrize(
    ("fan_in", "scheme", "waves", "planned"),
    [(2, None, 6, 4), (4, None, 4, 3), (16, None, 3, 2), (4, "tasks(40)", 5, 4), (4, "elastic(10)", 5, 4)],
)
def test_levels_of_unifiers_are_counted_for_more_tasks_than_there_are(
    fan_in: int, scheme: str | None, waves: int, planned: int
) -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    parts = pipeline.table("planes", key="tailnum", partitions=5).partial(COUNT)
    parts.combine("sum(n) AS n", fan_in=fan_in, name="totals").to_stream().write("t")
    settings = Settings.parse(scheme=[f"planes={scheme}"] if scheme else None)
    plan = plan_of(pipeline, [arrived("planes", [10] * 5)], settings=settings)
    assert (most_waves(pipeline, settings), len(plan.waves)) == (waves, planned)


def test_a_stream_of_unknown_hash_is_never_moved() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    filtered(pipeline.stream("flights", key="tailnum", partitions=4, hash="opaque")).to_stream().write("t")
    assert most_waves(pipeline) == 1
