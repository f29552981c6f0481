"""A key with 40 % of the records, shared by several tasks, through the runners that use Spark, and from a broker."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from coset.batches.ref import BatchRef
from coset.batches.runners.connect import Connect
from coset.batches.runners.runner import Runner
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_server import SparkServer
from coset.batches.runners.spark_submit import SparkSubmit
from demo.kafka_server import KafkaServer
from demo.s3_server import S3Server
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.model.plan import Plan
from partitioning.model.reasons import HotRanges, OwnTasks
from partitioning.model.schemes import HotKeys
from tests.hot import HOT, Met, Skewed, counted, skewed, table_of
from tests.kafka import COLUMNS, new_topic, produce
from tests.running import next_batch, run_and_publish

pytestmark = pytest.mark.long
# A runner, and how many task groups it is given.
Way = tuple[Runner, int]


@pytest.fixture(params=["connect", "spark", "spark-submit"])
def way(request: pytest.FixtureRequest, s3: S3Server) -> Way:
    match request.param:
        case "connect":
            server: SparkServer = request.getfixturevalue("spark_server")
            return Connect(server.address, token=server.token), 2
        case "spark":
            return Spark("local[2]"), 2
        case _:
            # It starts an application for each.
            return SparkSubmit("local[2]"), 1


def shared(plan: Plan) -> int:
    """How many tasks share the hot key of a join."""
    (why,) = [stage.why for stage in plan.stages if isinstance(stage.why, OwnTasks)]
    return {own.key: own.tasks for own in why.keys}[HOT]


def split(plan: Plan) -> bool:
    """Whether partitions are split for their hot keys."""
    return any(isinstance(stage.why, HotRanges) for stage in plan.stages)


def planned(pipeline: Pipeline, store: Store, groups: int = 2) -> tuple[BatchRef, Plan]:
    ref = next_batch(pipeline, store.root, Settings(hot_keys=HotKeys.SPLIT, groups=groups))
    return ref, ref.load()[1]


def test_a_join_that_splits_its_hot_key(way: Way, store: Store, tmp_path: Path) -> None:
    runner, groups = way
    met = Met(store, "left", HotKeys.SPLIT)
    met.land(1)
    met.run(None)
    met.land(2)
    ref, plan = planned(met.pipeline, store, groups)
    run_and_publish(ref, tmp_path, runner)
    assert shared(plan) > 1
    assert met.rows() == met.direct()


def test_a_count_that_splits_its_hot_key(way: Way, store: Store, tmp_path: Path) -> None:
    runner, groups = way
    skew = Skewed(store, counted)
    skew.land(skewed(4_000, 1))
    skew.run()
    skew.land(skewed(4_000, 2))
    ref, plan = planned(skew.pipeline, store, groups)
    run_and_publish(ref, tmp_path, runner)
    assert split(plan)
    assert skew.rows() == skew.direct("SELECT k, count(*), sum(v)::BIGINT FROM views WHERE v % 10 < 9 GROUP BY k")


@pytest.mark.parametrize("joined", [False, True])
def test_hot_keys_of_topics_are_split(joined: bool, kafka: KafkaServer, store: Store) -> None:
    visits, names = new_topic(kafka, 4), new_topic(kafka, 2)
    pipeline = Pipeline("topics", source=kafka.source)
    views = pipeline.stream(visits, key="tail", partitions=4, format="json", columns=COLUMNS)
    if joined:
        others = pipeline.stream(names, key="tail", partitions=2, format="json", columns=COLUMNS)
        views.join(others, f"{visits}.n AS n, {names}.n AS other", how="left", name="met").write("topics")
        direct = "SELECT tail, n, CASE WHEN named THEN -1 END FROM views"
    else:
        parts = views.partial("count(*) AS n, sum(n)::BIGINT AS other", by="tail", name="parts")
        parts.combine("sum(n)::BIGINT AS n, sum(other)::BIGINT AS other", name="totals").write("topics")
        direct = "SELECT tail, count(*), sum(n)::BIGINT FROM views GROUP BY tail"
    expected: list[tuple[object, ...]] = []
    for seed in (1, 2):
        tails = skewed(4_000, seed, others=500)["k"].to_pylist()
        named = {*tails[:100], HOT}
        produce(kafka, visits, [(tail, {"n": n}) for n, tail in enumerate(tails)])
        produce(kafka, names, [(tail, {"n": -1}) for tail in sorted(named)])
        ref, plan = planned(pipeline, store)
        run_and_publish(ref)
        with duckdb.connect() as connection:
            landed = {"tail": tails, "n": range(len(tails)), "named": [tail in named for tail in tails]}
            connection.register("views", pa.table(landed))
            expected += connection.execute(direct).fetchall()
    assert shared(plan) > 1 if joined else split(plan)
    found = table_of(store, "topics").select(["tail", "n", "other"]).to_pydict().values()
    assert sorted(zip(*found, strict=True), key=str) == sorted(expected, key=str)
