"""What a task takes of a batch of records, and what is counted, sampled and named of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from coset.sources.reader import WHY, Batch
from partitioning.cosets import assign
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.model.receipt import MODULUS, Offender, Violation, offset_digest
from partitioning.model.schemes import tasks as so_many
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Disposition, Residues, Task
from spark_jobs.engine.intake import Proved, of_rows
from spark_jobs.engine.partition_claims import Claims
from spark_jobs.engine.proof import OFFENDERS_KEPT, Proof
from spark_jobs.engine.take import DROPPED, LEFT, OUTSIDE, REFUSED, TAKEN, Take, Unusable
from tests.coset_rule import WITHOUT_KEY, disposition, tasks_of
from tests.inspected import FIRST, batch_of, keys_of, ordered, proved, views
from tests.orders import order, planned
from tests.there import there

FATES = {Disposition.LEFT: LEFT, Disposition.TAKEN: TAKEN, Disposition.DROPPED: DROPPED, Disposition.REFUSED: REFUSED}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    keys=st.lists(st.none() | st.sampled_from([f"key-{n}" for n in range(40)]), max_size=60),
    partitions=st.integers(1, 6),
    tasks=st.integers(1, 6),
    policy=st.sampled_from(NullKeys),
    cut=st.integers(0, 60),
)
def test_the_tasks_together_account_for_each_record_once(
    keys: list[str | None], partitions: int, tasks: int, policy: NullKeys, cut: int
) -> None:
    mine = [key for key in keys if key is None or placement_hash(key) % partitions == 0]
    ruled = assign([("views", partitions)], so_many(tasks)).tasks
    digests, taken = 0, 0
    for number in tasks_of(0, partitions, tasks):
        task = ruled[number]
        hashes = [None if key is None else placement_hash(key) for key in mine]
        # The first task owns keys of the first partition, and there is no task for records without a key.
        expected = [disposition(number, tasks, h, policy, keyless=0) for h in hashes]
        seen = proved(task, partitions=partitions, cosets=tasks, nulls=policy, end=len(mine))
        whole = batch_of(mine)
        got = [
            offset
            for part in (whole.records[:cut], whole.records[cut:])
            for offset in offsets_taken(seen, Batch(0, whole.first, whole.end, whole.where, part))
        ]
        receipt = seen.receipt()
        assert got == [offset for offset, each in enumerate(expected) if each is Disposition.TAKEN]
        assert (receipt.read, receipt.taken) == (len(mine), len(got))
        assert receipt.dropped == expected.count(Disposition.DROPPED)
        assert receipt.nulls == sum(
            key is None and each in {Disposition.TAKEN, Disposition.REFUSED}
            for key, each in zip(mine, expected, strict=True)
        )
        assert (receipt.disorder, receipt.foreign, receipt.stray) == (0, 0, 0)
        assert set(seen.keys()["key"].to_pylist()) == {mine[offset] for offset in got} - {None}
        digests += int(receipt.digest, 16)
        taken += len(got)
    counted = [offset for offset, key in enumerate(mine) if key is not None or policy is not NullKeys.REFUSE]
    assert digests % MODULUS == sum(offset_digest(offset) for offset in counted) % MODULUS
    assert taken == len(mine) - (0 if policy is NullKeys.OWN_TASK else mine.count(None))


def offsets_taken(seen: Proved, batch: Batch) -> list[int]:
    found: list[int] = of_rows(batch.records, seen.rows(batch))["_offset"].to_pylist()
    return found


def test_what_a_task_takes_whole_is_not_copied_and_only_what_is_planned_is_anybodys() -> None:
    batch = batch_of(keys_of(0, 4, 5))
    assert of_rows(batch.records, proved().rows(batch)) is batch.records
    keys = keys_of(0, 4, 6)
    made = order(views(), Task(0, {"views": (0,)}), {0: planned(0, 2, 5)}, cosets=1)
    (ordered,) = made.inputs
    take = Take(made, ordered, ordered.partitions[0])
    outside_plan = [OUTSIDE, OUTSIDE, TAKEN, TAKEN, TAKEN, OUTSIDE]
    assert take.look(batch_of(keys)).dispositions.tolist() == outside_plan
    assert take.look(batch_of(keys, end=4)).dispositions.tolist() == [*outside_plan[:4], OUTSIDE, OUTSIDE]


def test_a_task_of_null_keys_takes_nothing_else() -> None:
    all_of_it = {"views": (0, 1, 2, 3)}
    own = Task(4, all_of_it, null_keys=True, keyless=all_of_it)
    seen = proved(own, nulls=NullKeys.OWN_TASK)
    assert offsets_taken(seen, batch_of([None, *keys_of(0, 4, 2), None])) == [0, 3]
    receipt = seen.receipt()
    assert (receipt.read, receipt.taken, receipt.nulls, receipt.keys) == (4, 2, 2, 0)


@pytest.mark.parametrize("policy", NullKeys)
@pytest.mark.parametrize("keyless", [(), (0,)], ids=["another's", "its own"])
def test_records_without_a_key_are_left_unless_they_are_the_tasks_to_account_for(
    policy: NullKeys, keyless: tuple[int, ...]
) -> None:
    task = Task(0, {"views": (0,)}, {"views": Residues(8, (0, 4))}, owns=(0, 4), keyless={"views": keyless})
    keys = [None, *keys_of(0, 4, 6), None]
    made = order(views(null_keys=policy), task, {0: planned(0, 0, len(keys))}, cosets=8)
    (ordered,) = made.inputs
    found = Take(made, ordered, ordered.partitions[0]).look(batch_of(keys))
    without_key = FATES[WITHOUT_KEY[policy]] if keyless else LEFT
    expected = [without_key if key is None else TAKEN if placement_hash(key) % 8 in {0, 4} else LEFT for key in keys]
    assert found.dispositions.tolist() == expected
    assert found.has_key.tolist() == [key is not None for key in keys]


def test_a_record_without_an_offset_is_refused_with_its_file() -> None:
    records = pa.record_batch({"k": ["a", "b"], "_offset": pa.array([0, None], pa.int64())})
    with pytest.raises(Refused, match="1 records have no offset") as refused:
        proved().rows(Batch(0, 0, 2, "s3://landing/a file", records))
    assert refused.value.findings[0].where == "s3://landing/a file"


# ---- what is counted


WHOLE = Task(0, {"views": (0,)}, owns=(0,), keyless={"views": (0,)})


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20, unique=True))
def test_digests_are_those_of_the_core(offsets: list[int]) -> None:
    seen = proved(WHOLE, partitions=1, cosets=1, end=2**62 + 1)
    seen.rows(batch_of(["a"] * len(offsets), offsets, end=2**62 + 1))
    assert int(seen.receipt().digest, 16) == sum(offset_digest(offset) for offset in offsets) % MODULUS


def test_keys_of_the_sample_are_kept_with_their_first_offset() -> None:
    one, other = keys_of(0, 4, 2)
    seen = proved()
    seen.rows(batch_of([other, one, one]))
    seen.rows(batch_of([one, other], [3, 4]))
    assert sorted(zip(*seen.keys().to_pydict().values(), strict=True)) == sorted([(one, 1), (other, 0)])
    assert seen.receipt().keys == 2
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
