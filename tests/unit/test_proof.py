"""What is counted, sampled and named of the records that pass, held against plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coset.sources.reader import WHY
from partitioning.hashes import placement_hash
from partitioning.model.receipt import MODULUS, Offender, Violation, offset_digest
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Residues, Task
from spark_jobs.engine.intake import Proved, of_rows
from spark_jobs.engine.partition_claims import Claims
from spark_jobs.engine.proof import OFFENDERS_KEPT, Proof
from spark_jobs.engine.take import TAKEN, Take, Unusable
from tests.inspected import FIRST, batch_of, keys_of, ordered, proved
from tests.there import there

WHOLE = Task(0, {"views": (0,)}, owns=(0,), keyless={"views": (0,)})


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20, unique=True))
def test_digests_are_those_of_the_core(offsets: list[int]) -> None:
    seen = proved(WHOLE, partitions=1, cosets=1, end=2**62 + 1)
    seen.rows(batch_of(["a"] * len(offsets), offsets, end=2**62 + 1))
    assert int(seen.receipt().digest, 16) == sum(offset_digest(offset) for offset in offsets) % MODULUS


def test_a_sampled_key_keeps_its_first_offset() -> None:
    one, other = keys_of(0, 4, 2)
    seen = proved()
    seen.rows(batch_of([other, one, one]))
    seen.rows(batch_of([one, other], [3, 4]))
    assert sorted(zip(*seen.keys().to_pydict().values(), strict=True)) == sorted([(one, 1), (other, 0)])
    assert seen.receipt().keys == 2


def test_only_keys_of_the_sample_are_kept() -> None:
    keys = keys_of(0, 4, 50)
    seen = proved(sample=5)
    seen.rows(batch_of(keys))
    expected = {key for key in keys if placement_hash(key) // 4 % 5 == 0}
    assert 0 < len(expected) < 50
    assert set(seen.keys()["key"].to_pylist()) == expected


def test_tasks_that_read_together_keep_their_own_keys_of_the_sample_that_they_share() -> None:
    keys = keys_of(0, 4, 50)
    batch = batch_of(keys)
    for residue in (0, 4):
        task = Task(0, {"views": (0,)}, {"views": Residues(8, (residue,))}, owns=(residue,), keyless={"views": (0,)})
        seen = proved(task, cosets=8, sample=3)
        seen.rows(batch)
        hashes = {key: placement_hash(key) for key in keys}
        expected = {key for key, h in hashes.items() if h % 8 == residue and h // 8 % 3 == 0}
        assert 0 < len(expected) < 25
        assert seen.keys().sort_by("offset").to_pydict() == {
            "key": sorted(expected, key=keys.index),
            "offset": sorted(map(keys.index, expected)),
        }


def test_the_first_offenders_are_named_and_all_are_counted() -> None:
    foreign = [key for key in map(str, range(1000)) if placement_hash(key) % 4 != 0][:50]
    seen = proved()
    seen.rows(batch_of(foreign[:15]))
    seen.rows(batch_of(foreign[15:], list(range(15, 50))))
    receipt = seen.receipt()
    named = [offender for offender in receipt.offenders if offender.violation is Violation.FOREIGN]
    assert receipt.foreign == 50
    assert named == [Offender(Violation.FOREIGN, 0, number, foreign[number]) for number in range(OFFENDERS_KEPT)]


def test_a_record_of_another_task_is_stray_where_the_task_says_that_it_owns_all_it_takes() -> None:
    foreign = [key for key in map(str, range(100)) if placement_hash(key) % 4 == 1][:3]
    seen = proved()
    seen.rows(batch_of(foreign))
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
    batch = batch_of(keys_of(0, 4, 4), offsets)
    assert len(of_rows(batch.records, seen.rows(batch))) == rows
    receipt = seen.receipt()
    assert (receipt.read, receipt.disorder) == (read, disorder)
    assert len(receipt.offenders) == disorder


GOOD = keys_of(0, 4, 100)
FOREIGN = next(key for key in map(str, range(100)) if placement_hash(key) % 4 == 1)
# Some tasks that read partition 0 of 4, by the number of cosets of their stage.
TASKS = {
    4: FIRST,
    8: Task(0, {"views": (0,)}, {"views": Residues(8, (4,))}, owns=(4,)),
    12: Task(0, {"views": (0,)}, {"views": Residues(12, (0, 8))}, owns=(0, 8), keyless={"views": (0,)}),
    5: Task(0, {"views": (0,)}, {"views": Residues(5, ())}),
}


def with_fault(fault: str) -> tuple[list[str | None], list[int]]:
    """A hundred keys of partition 0 and their offsets, with one thing wrong at the seventieth."""
    keys, offsets = list[str | None](GOOD), list(range(100))
    match fault:
        case "foreign":
            keys[70] = FOREIGN
        case "without a key":
            keys[70] = None
        case "missing":
            keys, offsets = keys[:70] + keys[71:], offsets[:70] + offsets[71:]
        case "twice":
            keys, offsets = [*keys[:71], *keys[70:]], [*offsets[:71], *offsets[70:]]
        case "swapped":
            offsets[70], offsets[71] = offsets[71], offsets[70]
        case "beyond the file":
            offsets[70:] = range(1_000, 1_030)
        case "left out between batches":
            keys, offsets = keys[:60] + keys[61:], offsets[:60] + offsets[61:]
    return keys, offsets


@pytest.mark.parametrize("cosets", [4, 8, 12])
@pytest.mark.parametrize(
    ("fault", "violation", "at", "times"),
    [
        ("foreign", Violation.FOREIGN, 70, 1),
        ("without a key", Violation.NULL_KEY, 70, 1),
        ("missing", Violation.OFFSET, 71, 1),
        ("twice", Violation.OFFSET, 70, 1),
        ("swapped", Violation.OFFSET, 71, 3),
        ("beyond the file", Violation.OFFSET, 1_000, 30),
        ("left out between batches", Violation.OFFSET, 61, 1),
    ],
)
def test_one_wrong_record_among_good_ones_is_named(
    fault: str, violation: Violation, at: int, times: int, cosets: int
) -> None:
    keys, offsets = with_fault(fault)
    task = Task(0, {"views": (0,)}, TASKS[cosets].filters, owns=TASKS[cosets].owns, keyless={"views": (0,)})
    seen = proved(task, cosets=cosets, end=2_000)
    for start, end in ((0, 30), (30, 60), (60, len(keys))):
        seen.rows(batch_of(keys[start:end], offsets[start:end]))
    named = [offender for offender in seen.receipt().offenders if offender.violation is violation]
    assert len(named) == min(times, OFFENDERS_KEPT)
    assert named[0].offset == at
    assert len(seen.receipt().offenders) == len(named) + (fault == "foreign" and cosets == 4)


@pytest.mark.parametrize("cosets", TASKS)
def test_only_an_unbroken_batch_that_keeps_all_claims_is_proved_as_a_whole(cosets: int) -> None:
    order, read, planned = ordered(TASKS[cosets], cosets=cosets, end=2_000)
    take, proof = Take(order, read, planned), Proof(read, planned, Claims.of(order, read, planned))
    for fault in ("foreign", "without a key", "missing", "twice", "swapped", "beyond the file", "late"):
        batch = batch_of([*GOOD], range(1, 101)) if fault == "late" else batch_of(*with_fault(fault))
        unbroken = take.unbroken(batch)
        assert (unbroken is None) == (fault not in {"foreign", "late"})
        assert unbroken is None or not proof.note_unbroken(batch, unbroken)
        assert proof.receipt() == Proof(read, planned, Claims.of(order, read, planned)).receipt()
    unbroken = there(take.unbroken(batch_of(GOOD)))
    assert proof.note_unbroken(batch_of(GOOD), unbroken)
    assert proof.receipt().read == 100


def test_a_batch_of_which_the_task_takes_what_is_anothers_is_not_as_claimed() -> None:
    order, read, planned = ordered(TASKS[8], cosets=8)
    take, proof = Take(order, read, planned), Proof(read, planned, Claims.of(order, read, planned))
    unbroken = there(take.unbroken(batch_of(GOOD)))
    assert not proof.note_unbroken(batch_of(GOOD), replace(unbroken, rows=None))


def test_a_batch_that_lies_right_in_a_partition_of_anothers_keys_is_not_as_claimed() -> None:
    order, read, planned = ordered()
    batch, claims = batch_of(GOOD), Claims.of(order, read, planned)
    unbroken = there(Take(order, read, planned).unbroken(batch))
    assert claims.owned_where_placed
    assert Proof(read, planned, claims).note_unbroken(batch, unbroken)
    anothers = replace(claims, owned=(1,))
    assert not anothers.owned_where_placed
    assert not Proof(read, planned, anothers).note_unbroken(batch, unbroken)


def test_no_batch_is_unbroken_of_which_a_record_may_have_to_be_left_out() -> None:
    order, read, planned = ordered(end=90)
    good = batch_of(GOOD[:90])
    assert Take(order, read, planned).unbroken(good)
    assert not Take(order, read, planned).unbroken(batch_of(GOOD))
    assert not Take(order, read, planned).unbroken(replace(good, end=89))
    assert not Take(order, read, planned).unbroken(replace(good, first=1))
    assert not Take(order, read, planned, {5: Unusable("a step failed")}).unbroken(good)
    said = pa.array(["it is no number", *[None] * 89])
    unread = pa.RecordBatch.from_arrays([*good.records.columns, said], [*good.records.schema.names, WHY.name])
    assert not Take(order, read, planned).unbroken(replace(batch_of([]), records=unread))
    keyless = ordered(Task(4, {"views": (0,)}, null_keys=True, keyless={"views": (0,)}), end=90)
    assert not Take(*keyless).unbroken(good)


@given(
    cosets=st.sampled_from(sorted(TASKS)),
    keys=st.lists(st.sampled_from(GOOD[:20]), max_size=40),
    odd=st.dictionaries(st.integers(0, 39), st.sampled_from([None, FOREIGN]), max_size=1),
    skipped=st.lists(st.integers(0, 40), max_size=1),
    cut=st.integers(0, 40),
    sparse=st.booleans(),
    sample=st.integers(1, 3),
)
@example(cosets=12, keys=GOOD[:20] * 2, odd={}, skipped=[20], cut=20, sparse=True, sample=1)
def test_a_batch_as_a_whole_counts_as_its_records_do(
    cosets: int,
    keys: Sequence[str | None],
    odd: dict[int, str | None],
    skipped: Sequence[int],
    cut: int,
    sparse: bool,
    sample: int,
) -> None:
    keys = [odd.get(row, key) for row, key in enumerate(keys)]
    offsets = [row + sum(row >= place for place in skipped) for row in range(len(keys))]
    asked = ordered(TASKS[cosets], cosets=cosets, nulls=NullKeys.DROP, sample=sample, sparse=sparse)
    order, read, planned = asked
    whole, take, one_by_one = Proved(*asked), Take(*asked), Proof(read, planned, Claims.of(order, read, planned))
    for part in (slice(0, cut), slice(cut, None)):
        batch = replace(batch_of(keys[part], offsets[part]), reached=offsets[part][-1] + 1 if offsets[part] else cut)
        seen = take.look(batch)
        one_by_one.note(batch, seen)
        taken = [offset for offset, each in zip(offsets[part], seen.dispositions, strict=True) if each == TAKEN]
        assert of_rows(batch.records, whole.rows(batch))["_offset"].to_pylist() == taken
        assert whole.receipt() == one_by_one.receipt()
    found, expected = (keys.sort_by("key").to_pydict() for keys in (whole.keys(), one_by_one.keys()))
    assert found == expected
