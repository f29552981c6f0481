"""The same steps by SQL, by functions on Arrow tables and by functions on DataFrames: one suite, the same rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coset.batches.runners.connect import Connect
from coset.batches.runners.runner import Runner
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_server import SparkServer
from coset.batches.runners.spark_submit import SparkSubmit
from coset.sources.s3 import storage_options
from demo.s3_server import S3Server
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.model.plan import Plan
from partitioning.model.receipt import Role, TaskReceipt
from partitioning.model.stage_inputs import ResultInput
from tests import frames, functions
from tests.conftest import CHECKOUT
from tests.examples import few
from tests.landed import land_table
from tests.running import next_batch, run_and_publish, task_receipts

VIEWS = pa.table(
    {
        "k": [f"key-{n % 67}" if n % 50 else None for n in range(300)],
        "page": [f"page-{n * 11 % 23}" if n % 37 else None for n in range(300)],
        "v": pa.array(range(300), pa.uint16()),
    }
)
CLICKS = pa.table({"m": [f"key-{n % 41}" for n in range(90)], "c": range(90)})
MADE = {"k": "VARCHAR", "n": "BIGINT", "v": "BIGINT"}
JOINED = {"k": "VARCHAR", "v": "INTEGER", "c": "BIGINT", "sum": "BIGINT"}
SPREAD = {"page": "VARCHAR", "v": "BIGINT", "side": "VARCHAR"}
TRIPLED = {"k": "VARCHAR", "v": "BIGINT", "thrice": "BIGINT"}


@dataclass(frozen=True)
class Case:
    """What a step is to do, in three ways."""

    sql: Callable[[Flow, Flow], Flow]
    arrow: Callable[[Flow, Flow], Flow]
    dataframes: Callable[[Flow, Flow], Flow]


def summed(flow: Flow) -> Flow:
    """What may follow a step by another key."""
    return flow.aggregate("count(*) AS n, sum(v)::BIGINT AS v, max(side) AS side")


def thirds(flow: Flow) -> Flow:
    """What may follow a step by the same key."""
    return flow.aggregate("sum(thrice)::BIGINT AS thrice, count(*) AS n")


def both(views: Flow, clicks: Flow) -> Flow:
    """Both flows as one, since a function on Arrow tables is given one."""
    left = views.select("v::BIGINT AS v, 'views' AS side", name="a.views")
    right = clicks.select("m AS k, c AS v, 'clicks' AS side", name="a.clicks").rekey("k", name="a.k")
    return left.merge(right.select("v, side", name="a.sides"))


CASES: Mapping[str, Case] = {
    "mapped": Case(
        lambda views, _: views.select("(v::BIGINT * 2)::BIGINT AS twice", name="mapped"),
        lambda views, _: views.process(functions.doubled, {"k": "VARCHAR", "twice": "BIGINT"}, name="a.mapped"),
        lambda views, _: views.spark(frames.doubled, {"k": "VARCHAR", "twice": "BIGINT"}, name="d.mapped"),
    ),
    "counted": Case(
        lambda views, _: views.aggregate("count(*) AS n, sum(v)::BIGINT AS v", name="counted"),
        lambda views, _: views.process(functions.counted, MADE, partitionable=False, name="a.counted"),
        lambda views, _: views.spark(frames.counted, MADE, name="d.counted"),
    ),
    "rekeyed": Case(
        lambda views, _: summed(
            views.filter("page IS NOT NULL", name="paged")
            .rekey("page", name="by_page")
            .select("v, unnest(['here', 'there']) AS side", name="spread")
        ),
        lambda views, _: summed(views.process(functions.spread, SPREAD, key="page", name="a.spread")),
        lambda views, _: summed(views.spark(frames.spread, SPREAD, key="page", name="d.spread")),
    ),
    "joined": Case(
        lambda views, clicks: views.join(
            clicks, "views.v::INTEGER AS v, clicks.c, (views.v + clicks.c)::BIGINT AS sum", name="joined"
        ),
        lambda views, clicks: both(views, clicks).process(
            functions.joined, JOINED, partitionable=False, name="a.joined"
        ),
        lambda views, clicks: views.spark(frames.joined, JOINED, clicks, name="d.joined"),
    ),
    "between": Case(
        lambda views, _: thirds(views.filter("v > 20", name="some").select("v, v * 3 AS thrice", name="thrice")),
        lambda views, _: thirds(
            views.filter("v > 20", name="a.some").process(functions.tripled, TRIPLED, name="a.thrice")
        ),
        lambda views, _: thirds(views.filter("v > 20", name="d.some").spark(frames.tripled, TRIPLED, name="d.thrice")),
    ),
}
KINDS = ("sql", "arrow", "dataframes")


@dataclass(frozen=True)
class Way:
    """How cases are run, and which."""

    runner: Callable[[SparkServer], Runner]
    settings: Settings
    cases: tuple[str, ...]


WAYS: Mapping[str, Way] = {
    # There is one server for all groups, while each starts an application of its own with the others.
    "small": Way(
        lambda server: Connect(server.address, token=server.token, master="nowhere"), Settings(groups=1), ("joined",)
    ),
    "connect": Way(
        lambda server: Connect(server.address, token=server.token, master="nowhere"),
        Settings.parse(scheme="elastic(3)", groups=2),
        tuple(CASES),
    ),
    "spark": Way(lambda _: Spark("local[2]"), Settings(groups=2), ("joined", "between")),
    "spark-submit": Way(lambda _: SparkSubmit("local[2]"), Settings(groups=1), ("joined",)),
}


@dataclass(frozen=True)
class Batch:
    """A batch that has run, by what its tests ask for."""

    root: str
    plan: Plan
    receipts: list[TaskReceipt]

    def rows(self, table: str) -> list[tuple[object, ...]]:
        there = DeltaTable(f"{self.root}/tables/{table}", storage_options=storage_options()).to_pyarrow_table()
        columns = sorted(there.column_names)
        return sorted(zip(*(there[name].to_pylist() for name in columns), strict=True), key=str)


@pytest.fixture(scope="module")
def done() -> dict[str, Batch]:
    """The batches that have run, by their ways."""
    return {}


@pytest.fixture
def batch(request, done: dict[str, Batch], s3: S3Server, spark_server: SparkServer, tmp_path: Path) -> Batch:
    """A batch that was run in some way."""
    if request.param not in done:
        done[request.param] = run(WAYS[request.param], spark_server, tmp_path)
    return done[request.param]


def run(way: Way, spark_server: SparkServer, docs: Path) -> Batch:
    """Run cases, in all kinds, in one batch."""
    root = f"s3://test/{uuid.uuid4().hex}"
    source = f"{root}/topics"
    land_table(VIEWS, "views", source, key="k", partitions=4, files=2)
    land_table(CLICKS, "clicks", source, key="m", partitions=6)
    pipeline = Pipeline("kinds", source=source)
    views = pipeline.stream("views", key="k", partitions=4, null_keys="own task")
    clicks = pipeline.stream("clicks", key="m", partitions=6)
    for name in way.cases:
        for kind in KINDS:
            getattr(CASES[name], kind)(views, clicks).to_stream().write(f"{name}_{kind}")
    ref = next_batch(pipeline, root, way.settings)
    with pytest.MonkeyPatch.context() as patch:
        # The functions are installed nowhere: what is submitted finds them in the checkout.
        patch.setenv("PYTHONPATH", str(CHECKOUT))
        run_and_publish(ref, docs, way.runner(spark_server))
    return Batch(root, ref.load()[1], task_receipts(ref))


@pytest.mark.parametrize("kind", ["dataframes", "arrow"])
@pytest.mark.parametrize(
    ("batch", "name"), few([(way, name) for way in WAYS for name in WAYS[way].cases]), indirect=["batch"]
)
def test_a_step_gives_the_same_rows_however_it_is_written(name: str, kind: str, batch: Batch) -> None:
    assert batch.rows(f"{name}_{kind}") == batch.rows(f"{name}_sql")
    assert batch.rows(f"{name}_sql")


@pytest.mark.long
@pytest.mark.parametrize("batch", ["connect"], indirect=True)
def test_what_follows_a_step_on_dataframes_waits_for_it(batch: Batch) -> None:
    (stage,) = (stage for stage in batch.plan.stages if any(step.name == "d.thrice.aggregate" for step in stage.steps))
    (read,) = stage.inputs
    assert isinstance(read, ResultInput)
    assert (stage.wave, read.step) == (1, "d.thrice")


@pytest.mark.long
@pytest.mark.parametrize("batch", ["connect"], indirect=True)
def test_a_flow_is_left_for_spark_once_for_each_step_that_is_given_it(batch: Batch) -> None:
    given: dict[str, int] = {}
    for task in batch.receipts:
        for file in task.left(Role.GIVEN):
            given[file.name] = given.get(file.name, 0) + file.records
    assert given["d.joined.given-0"] == given["d.mapped.given-0"] == len(VIEWS)
    assert given["d.joined.given-1"] == len(CLICKS)
    assert given["d.thrice.given-0"] == sum(v > 20 for v in VIEWS["v"].to_pylist())
