"""Streams that Samza's producer or a user's own function placed: planned and inspected by that hash."""

from __future__ import annotations

import pyarrow as pa
import pytest

from coset.sources.reader import Batch
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.document import digest
from partitioning.hashes import hash_of, placement_hash
from partitioning.model.order import OrderedStream, order_of
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import PartitionReceipt
from spark_jobs.engine.intake import Proved, of_rows
from tests.plans import arrived, plan_of

KEYS = [f"user-{number}" for number in range(200)]


def length_and_end(key: str) -> int:
    """A placement function of a user's own."""
    return len(key) * 1000 + ord(key[-1])


OWN = "tests.unit.test_samza_placement:length_and_end"


def plan_by(hash: str) -> Plan:
    pipeline = Pipeline("counted", source="s3://landing/topics")
    views = pipeline.stream("views", key="tailnum", partitions=4, hash=hash)
    views.aggregate("count(*) AS views").write("counted")
    return plan_of(pipeline, [arrived("views", [100] * 4)], scheme="elastic(2)")


def inspected(plan: Plan, task: int, keys: list[str]) -> tuple[list[str], PartitionReceipt]:
    """What a task takes of these records of the partition that it reads, and its receipt."""
    order = order_of(plan, digest(plan), TaskRef("views", task), 0, "s3://test/store", {})
    (ordered,) = order.inputs
    assert isinstance(ordered, OrderedStream)
    (planned,) = ordered.partitions
    (file,) = planned.files
    inspection = Proved(order, ordered, planned)
    records = pa.record_batch({"tailnum": keys, "_offset": range(len(keys))})
    taken = of_rows(records, inspection.rows(Batch(planned.partition, file.start, file.end, file.path, records)))
    return taken["tailnum"].to_pylist(), inspection.receipt()


@pytest.mark.parametrize("hash", ["murmur2", "java", OWN])
def test_a_task_takes_the_keys_of_its_own_residue_by_the_hash_that_is_declared(hash: str) -> None:
    h, plan = hash_of(hash, "here"), plan_by(hash)
    found = []
    for task in range(8):
        there = [key for key in KEYS if h(key, "string") % 4 == task % 4][:100]
        taken, receipt = inspected(plan, task, there)
        assert taken == [key for key in there if h(key, "string") % 8 == task]
        assert (receipt.foreign, receipt.stray, receipt.disorder) == (0, 0, 0)
        found += taken
    assert len(found) == len(set(found)) > 100


@pytest.mark.parametrize("hash", ["java", OWN])
def test_a_producer_that_placed_by_another_hash_is_caught(hash: str) -> None:
    there = [key for key in KEYS if placement_hash(key) % 4 == 0]
    foreign = sum(hash_of(hash, "here")(key, "string") % 4 != 0 for key in there)
    _, receipt = inspected(plan_by(hash), 0, there)
    assert receipt.foreign == foreign > 0
