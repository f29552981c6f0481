"""What Spark sends a task of ours: its own order, and a function that is nothing but a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec
import pytest
from pyspark import SparkContext, cloudpickle

from coset.batches.runners.spark import application
from coset.batches.runners.spark_settings import configuration, environment
from partitioning.documents.document import decode
from partitioning.model.order import Order
from partitioning.model.task_engine import MEMORY
from spark_jobs.group import answer, orders_of, pieces, work_of
from tests.plans import plan_of, tails, tails_found, wide

PLAN = plan_of(tails(), tails_found(), groups=1)
TASKS = len(PLAN.groups[0].tasks)
ORDERS = pieces(work_of(orders_of(PLAN, PLAN.groups[0], 0, "s3://lake/coset", {})), TASKS)
# What Java adds to the bytes of an order.
FRAME = 500


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkContext]:
    """Spark with two threads in this process, as the runner starts it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        log = tmp_path_factory.mktemp("sent") / "spark.log"
        with application("local[2]", configuration("local[2]"), log) as context:
            yield context


def test_each_task_has_an_order_of_its_own_if_there_are_workers_for_all(spark: SparkContext) -> None:
    assert len(ORDERS) == len(set(ORDERS)) == 4
    dealt = spark.parallelize(ORDERS, len(ORDERS)).glom().collect()
    assert dealt == [[order] for order in ORDERS]
    assert [[order.task.task for order in orders_in(piece)] for (piece,) in dealt] == [[0], [1], [2], [3]]


def test_orders_that_read_something_in_common_are_sent_together() -> None:
    plan = plan_of(tails(), tails_found(), scheme="elastic(2)", groups=1)
    shared = work_of(orders_of(plan, plan.groups[0], 0, "s3://lake/coset", {}))

    def sent(workers: int) -> list[list[int]]:
        return [[order.task.task for order in orders_in(piece)] for piece in pieces(shared, workers)]

    assert sent(4) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    # They stay together if small work is put together.
    assert sent(2) == [[0, 4, 1, 5], [2, 6, 3, 7]]
    # Nobody is left idle for it.
    assert sent(6) == [[0], [1], [2, 6], [3, 7], [4], [5]]


def orders_in(piece: bytes) -> list[Order]:
    return [decode(Order, bytes(order), "an order") for order in msgspec.json.decode(piece, type=list[msgspec.Raw])]


def test_what_is_serialised_for_a_task_holds_its_order_and_no_others(spark: SparkContext) -> None:
    for order, sent in zip(ORDERS, serialised(spark, ORDERS, range(len(ORDERS))), strict=True):
        assert [other for other in ORDERS if other in sent] == [order]
        assert len(sent) < len(order) + FRAME


def test_what_is_serialised_for_a_task_does_not_grow_with_the_number_of_tasks(spark: SparkContext) -> None:
    sizes = {}
    for tasks in (10, 10_000):
        plan = wide(tasks)
        (group,) = plan.groups
        assert len(group.tasks) == tasks
        some = sorted({0, 1, tasks // 2, tasks - 1})
        sizes[tasks] = [
            len(sent)
            for sent in serialised(
                spark, pieces(work_of(orders_of(plan, group, 0, "s3://lake/coset", {})), tasks), some
            )
        ]
        print(f"a task of {tasks:,} is sent {min(sizes[tasks]):,} to {max(sizes[tasks]):,} bytes")
    assert max(sizes[10_000]) < max(sizes[10]) + 100
    assert max(sizes[10_000]) < 5_000


def serialised(spark: SparkContext, documents: Sequence[bytes], numbers: Iterable[int]) -> list[bytes]:
    """What Spark sends the tasks of these numbers, beside the function that all of them run."""
    jvm = spark._jvm
    assert jvm is not None
    serialiser = jvm.org.apache.spark.serializer.JavaSerializer(spark._jsc.sc().getConf()).newInstance()
    partitions = spark.parallelize(documents, len(documents))._jrdd.rdd().partitions()
    buffers = [serialiser.serialize(partitions[number], jvm.scala.reflect.ClassTag.AnyRef()) for number in numbers]
    return [bytes(buffer.array())[: buffer.limit()] for buffer in buffers]


def test_the_function_that_a_task_runs_is_sent_by_its_name() -> None:
    closure = cloudpickle.dumps(partial(answer, memory=MEMORY))
    print(f"a closure of {len(closure)} bytes beside orders of {max(map(len, ORDERS)):,} bytes")
    assert len(closure) < 1000
    assert b"spark_jobs.group" in closure
    assert PLAN.pipeline.encode() not in closure
