"""What is counted, sampled and named of the records that pass, held against plain Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.hashes import placement_hash
from partitioning.model.receipt import MODULUS, Offender, Violation, offset_digest
from partitioning.model.takes import Task
from spark_jobs.engine.proof import OFFENDERS_KEPT
from tests.inspected import batch_of, keys_of, proved

WHOLE = Task(0, {"views": (0,)}, owns=(0,), keyless={"views": (0,)})


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20, unique=True))
def test_digests_are_those_of_the_core(offsets: list[int]) -> None:
    seen = proved(WHOLE, partitions=1, cosets=1, end=2**62 + 1)
    seen.records(batch_of(["a"] * len(offsets), offsets, end=2**62 + 1))
    assert int(seen.receipt().digest, 16) == sum(offset_digest(offset) for offset in offsets) % MODULUS


def test_a_sampled_key_keeps_its_first_offset() -> None:
    one, other = keys_of(0, 4, 2)
    seen = proved()
    seen.records(batch_of([other, one, one]))
    seen.records(batch_of([one, other], [3, 4]))
    assert sorted(zip(*seen.keys().to_pydict().values(), strict=True)) == sorted([(one, 1), (other, 0)])
    assert seen.receipt().keys == 2


def test_only_keys_of_the_sample_are_kept() -> None:
    keys = keys_of(0, 4, 50)
    seen = proved(sample=5)
    seen.records(batch_of(keys))
    expected = {key for key in keys if placement_hash(key) // 4 % 5 == 0}
    assert 0 < len(expected) < 50
    assert set(seen.keys()["key"].to_pylist()) == expected


def test_the_first_offenders_are_named_and_all_are_counted() -> None:
    foreign = [key for key in map(str, range(1000)) if placement_hash(key) % 4 != 0][:50]
    seen = proved()
    seen.records(batch_of(foreign[:15]))
    seen.records(batch_of(foreign[15:], list(range(15, 50))))
    receipt = seen.receipt()
    named = [offender for offender in receipt.offenders if offender.violation is Violation.FOREIGN]
    assert receipt.foreign == 50
    assert named == [Offender(Violation.FOREIGN, 0, number, foreign[number]) for number in range(OFFENDERS_KEPT)]


def test_a_record_of_another_task_is_stray_where_the_task_says_that_it_owns_all_it_takes() -> None:
    foreign = [key for key in map(str, range(100)) if placement_hash(key) % 4 == 1][:3]
    seen = proved()
    seen.records(batch_of(foreign))
    receipt = seen.receipt()
    assert (receipt.taken, receipt.foreign, receipt.stray) == (3, 3, 3)
    assert [each.violation for each in receipt.offenders] == [Violation.FOREIGN] * 3 + [Violation.STRAY] * 3


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
    seen = proved(end=10)
    assert len(seen.records(batch_of(keys_of(0, 4, 4), offsets))) == rows
    receipt = seen.receipt()
    assert (receipt.read, receipt.disorder) == (read, disorder)
    assert len(receipt.offenders) == disorder
