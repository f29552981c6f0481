"""What the inspection of batches counts, takes and names, held against plain Python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partitioning.cosets.assignment import assign
from partitioning.cosets.rule import null_owner, tasks_of
from partitioning.hashes import placement_hash
from partitioning.model.plan import PlannedPartition, PlannedStream, Stage
from partitioning.model.receipt import MASK64, Offender, offset_digest
from partitioning.model.schemes import Scheme
from partitioning.model.streams import DROP, NULL_KEY_POLICIES, OWN_TASK, REFUSE, Column, InputFile, Stream
from spark_jobs.inspection import OFFENDERS_KEPT, Inspection, rules_of

FILE = InputFile("s3://landing/topics/views/partition=0/views+0+0000000000.parquet", 1, "etag", 0, 1000)


def _inspection(
    task: int = 0,
    *,
    partitions: int = 4,
    scheme: str = "cogroup",
    partition: int = 0,
    nulls: str = REFUSE,
    end: int = 1000,
    sample: int = 1,
) -> Inspection:
    declared = Stream("views", "s3://landing/topics", "k", partitions, null_keys=nulls)
    planned = tuple(PlannedPartition(number, 0, 0, 0, end, 1, (FILE,)) for number in range(partitions))
    stream = PlannedStream(declared, (Column("k", "VARCHAR"), Column("_offset", "BIGINT")), planned)
    tasks = assign([("views", partitions)], Scheme.parse(scheme)).tasks
    stage = Stage("views", ("views",), (), (), scheme, len(tasks), "", tasks)
    return Inspection(stream, rules_of(stage, tasks[task], stream, partition, sample))


def _batch(keys: list[str | None], offsets: list[int] | None = None) -> pa.RecordBatch:
    numbers = list(range(len(keys))) if offsets is None else offsets
    return pa.record_batch({"k": pa.array(keys, pa.string()), "_offset": pa.array(numbers, pa.int64())})


def _keys_of(partition: int, partitions: int, count: int) -> list[str]:
    keys = (f"key-{number}" for number in range(100_000))
    found = [key for _, key in zip(range(40 * count * partitions), keys, strict=False)]
    return [key for key in found if placement_hash(key) % partitions == partition][:count]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    keys=st.lists(st.none() | st.sampled_from([f"key-{n}" for n in range(40)]), max_size=60),
    partitions=st.integers(1, 6),
    tasks=st.integers(1, 6),
    policy=st.sampled_from(NULL_KEY_POLICIES),
    cut=st.integers(0, 60),
)
def test_the_tasks_together_account_for_each_record_once(
    keys: list[str | None], partitions: int, tasks: int, policy: str, cut: int
) -> None:
    mine = [key for key in keys if key is None or placement_hash(key) % partitions == 0]
    digests, taken = 0, []
    for task in tasks_of(0, partitions, tasks):
        seen = _inspection(task, partitions=partitions, scheme=f"tasks({tasks})", nulls=policy, end=len(mine))
        batch = _batch(mine)
        got = [key for part in (batch[:cut], batch[cut:]) for key in seen.take(part, FILE)["k"].to_pylist()]
        receipt = seen.receipt()
        assert got == [key for key in mine if key is not None and placement_hash(key) % tasks == task]
        assert (receipt.read, receipt.taken) == (len(mine), len(got))
        owned = mine.count(None) if null_owner(0, partitions, tasks) == task else 0
        assert receipt.dropped == (owned if policy == DROP else 0)
        assert receipt.nulls == (owned if policy == REFUSE else 0)
        assert (receipt.disorder, receipt.foreign, receipt.stray) == (0, 0, 0)
        assert set(seen.keys()["key"].to_pylist()) == set(got)
        digests += int(receipt.digest, 16)
        taken += got
    counted = [offset for offset, key in enumerate(mine) if key is not None or policy == DROP]
    assert digests & MASK64 == sum(offset_digest(offset) for offset in counted) & MASK64
    assert len(taken) == len(mine) - mine.count(None)


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20, unique=True))
def test_digests_are_those_of_the_core(offsets: list[int]) -> None:
    seen = _inspection(partitions=1, end=2**62 + 1)
    seen.take(_batch(["a"] * len(offsets), offsets), InputFile("a file", 1, "etag", 0, 2**62 + 1))
    assert int(seen.receipt().digest, 16) == sum(offset_digest(offset) for offset in offsets) & MASK64


def test_a_batch_that_is_all_taken_is_not_copied() -> None:
    batch = _batch(_keys_of(0, 4, 5))
    assert _inspection().take(batch, FILE) is batch


def test_a_sampled_key_keeps_its_first_offset() -> None:
    one, other = _keys_of(0, 4, 2)
    seen = _inspection()
    seen.take(_batch([other, one, one]), FILE)
    seen.take(_batch([one, other], [3, 4]), FILE)
    assert sorted(zip(*seen.keys().to_pydict().values(), strict=True)) == sorted([(one, 1), (other, 0)])
    assert seen.receipt().keys == 2


def test_only_keys_of_the_sample_are_kept() -> None:
    keys = _keys_of(0, 4, 50)
    seen = _inspection(sample=5)
    seen.take(_batch(keys), FILE)
    expected = {key for key in keys if placement_hash(key) // 4 % 5 == 0}
    assert 0 < len(expected) < 50
    assert set(seen.keys()["key"].to_pylist()) == expected


def test_the_first_offenders_are_named_and_all_are_counted() -> None:
    foreign = [key for key in map(str, range(1000)) if placement_hash(key) % 4 != 0][:50]
    seen = _inspection()
    seen.take(_batch(foreign[:15]), FILE)
    seen.take(_batch(foreign[15:], list(range(15, 50))), FILE)
    receipt = seen.receipt()
    named = [offender for offender in receipt.offenders if offender.rule == "foreign"]
    assert receipt.foreign == 50
    assert named == [Offender("foreign", 0, number, foreign[number]) for number in range(OFFENDERS_KEPT)]


@pytest.mark.parametrize(
    ("offsets", "read", "disorder", "rows"),
    [
        ([0, 1, 2, 3], 4, 0, 4),
        ([1, 2, 3, 4], 4, 1, 4),
        ([0, 1, 1, 2], 4, 1, 4),
        ([0, 2, 1, 3], 4, 3, 4),
        ([8, 9, 10, 11], 2, 1, 2),
        ([0, 1, 5000, 2], 3, 1, 3),
    ],
    ids=["in order", "late start", "twice", "swapped", "beyond the range", "beyond the file"],
)
def test_offsets_must_follow_each_other_from_the_planned_start(
    offsets: list[int], read: int, disorder: int, rows: int
) -> None:
    seen = _inspection(end=10)
    assert len(seen.take(_batch(_keys_of(0, 4, 4), offsets), FILE)) == rows
    receipt = seen.receipt()
    assert (receipt.read, receipt.disorder) == (read, disorder)
    assert len(receipt.offenders) == disorder


def test_a_task_of_null_keys_takes_nothing_else() -> None:
    stream = _inspection(nulls=OWN_TASK).stream
    (*tasks,) = assign([("views", 4)], Scheme.parse("cogroup")).tasks
    own = type(tasks[0])(4, {"views": (0, 1, 2, 3)}, null_keys=True)
    stage = Stage("views", ("views",), (), (), "cogroup", 4, "", (*tasks, own))
    seen = Inspection(stream, rules_of(stage, own, stream, 0, 1))
    batch = _batch([None, *_keys_of(0, 4, 2), None])
    assert seen.take(batch, FILE)["_offset"].to_pylist() == [0, 3]
    receipt = seen.receipt()
    assert (receipt.read, receipt.taken, receipt.nulls, receipt.keys) == (4, 2, 2, 0)
