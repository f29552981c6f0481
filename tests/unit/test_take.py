"""What a task takes of a batch of records, held against the rule that says whose they are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coset.sources.reader import Batch
from partitioning.cosets.assignment import assign
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.model.receipt import MODULUS, offset_digest
from partitioning.model.schemes import tasks as so_many
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Disposition, Residues, Task
from spark_jobs.engine.intake import Proved, of_rows
from spark_jobs.engine.take import DROPPED, LEFT, OUTSIDE, REFUSED, TAKEN, Take
from tests.coset_rule import WITHOUT_KEY, disposition, tasks_of
from tests.inspected import batch_of, keys_of, proved, views
from tests.orders import order, planned

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


def test_a_batch_that_is_all_taken_is_not_copied() -> None:
    batch = batch_of(keys_of(0, 4, 5))
    assert of_rows(batch.records, proved().rows(batch)) is batch.records


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


def test_what_lies_outside_the_planned_range_or_the_files_own_is_nobodys() -> None:
    keys = keys_of(0, 4, 6)
    made = order(views(), Task(0, {"views": (0,)}), {0: planned(0, 2, 5)}, cosets=1)
    (ordered,) = made.inputs
    take = Take(made, ordered, ordered.partitions[0])
    outside_plan = [OUTSIDE, OUTSIDE, TAKEN, TAKEN, TAKEN, OUTSIDE]
    assert take.look(batch_of(keys)).dispositions.tolist() == outside_plan
    assert take.look(batch_of(keys, end=4)).dispositions.tolist() == [*outside_plan[:4], OUTSIDE, OUTSIDE]


def test_a_record_without_an_offset_is_refused_with_its_file() -> None:
    records = pa.record_batch({"k": ["a", "b"], "_offset": pa.array([0, None], pa.int64())})
    with pytest.raises(Refused, match="1 records have no offset") as refused:
        proved().rows(Batch(0, 0, 2, "s3://landing/a file", records))
    assert refused.value.findings[0].where == "s3://landing/a file"
