"""Streams that Samza's producer or a user's own function placed: planned and inspected by that hash."""

from __future__ import annotations

import pyarrow as pa
import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.hashes import hash_of, placement_hash
from partitioning.model.plan import Plan
from partitioning.model.receipt import PartitionReceipt
from spark_jobs.inspection import Inspection, rules_of
from tests.plans import arrived, plan_of

KEYS = [f"user-{number}" for number in range(200)]


def length_and_end(key: str) -> int:
    """A placement function of a user's own."""
    return len(key) * 1000 + ord(key[-1])


OWN = "tests.unit.test_samza_placement:length_and_end"


def planned(placement: str) -> Plan:
    pipeline = Pipeline("counted", source="s3://landing/topics")
    views = pipeline.stream("views", key="tailnum", partitions=4, placement=placement)
    views.aggregate("count(*) AS views").write("counted")
    return plan_of(pipeline, [arrived("views", [100] * 4)], scheme="elastic(2)")


def inspected(plan: Plan, task: int, keys: list[str]) -> tuple[list[str], PartitionReceipt]:
    """What a task takes of these records of the partition that it reads, and its receipt."""
    (stage,) = plan.stages
    reader = stage.tasks[task]
    (partition,) = reader.reads["views"]
    stream = plan.stream("views")
    inspection = Inspection(stream, rules_of(stage, reader, stream, partition, 1))
    batch = pa.record_batch({"tailnum": keys, "_offset": range(len(keys))})
    taken = inspection.take(batch, stream.partitions[partition].files[0])
    return taken["tailnum"].to_pylist(), inspection.receipt()


@pytest.mark.parametrize("placement", ["murmur2", "java", OWN])
def test_a_task_takes_the_keys_of_its_own_residue_by_the_hash_that_is_declared(placement: str) -> None:
    h, plan = hash_of(placement, "here"), planned(placement)
    found = []
    for task in range(8):
        there = [key for key in KEYS if h(key, "string") % 4 == task % 4][:100]
        taken, receipt = inspected(plan, task, there)
        assert taken == [key for key in there if h(key, "string") % 8 == task]
        assert (receipt.foreign, receipt.stray, receipt.disorder) == (0, 0, 0)
        found += taken
    assert len(found) == len(set(found)) > 100


@pytest.mark.parametrize("placement", ["java", OWN])
def test_a_producer_that_placed_by_another_hash_is_caught(placement: str) -> None:
    there = [key for key in KEYS if placement_hash(key) % 4 == 0]
    foreign = sum(hash_of(placement, "here")(key, "string") % 4 != 0 for key in there)
    _, receipt = inspected(planned(placement), 0, there)
    assert receipt.foreign == foreign > 0
