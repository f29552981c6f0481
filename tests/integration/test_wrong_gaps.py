"""Batches of a stream with missing offsets in which more is missing, or something else: each is refused.

What is made wrong is the stored plan, a landed file, the kernel or a receipt; never an audit table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coset.batches.ref import BatchRef
from coset.sources.reader import Batch
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.plan import Plan
from partitioning.model.receipt import PartitionReceipt
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.values import replace
from spark_jobs.engine.take import LEFT, TAKEN, Taken
from tests.begun import Begun
from tests.changed_receipts import change_receipt
from tests.judged import COVERED, EMPTY, EXPLAINED, MEET, Refusal, caught_by, refusal, results, saying
from tests.real_batches import ran, spoil_kernel
from tests.sparse import FIRST, SECOND, counted, land, published
from tests.there import there

ONE_READER = "One reader read for several tasks of stage views (2 of them)"


@pytest.fixture
def landed(store: Store) -> Store:
    land(store, FIRST)
    land(store, SECOND)
    return store


def ran_by_two(store: Store) -> None:
    land(store, FIRST)
    land(store, SECOND)
    made, settings = of_two_tasks(store)
    ran(store, made, settings=settings)


@pytest.fixture
def by_two(begun: Begun) -> BatchRef:
    """The batch after two tasks have run, which one reader read for."""
    return ref_of(begun.by(ran_by_two))


def ran_by_one(store: Store) -> None:
    land(store, FIRST)
    land(store, SECOND)
    ran(store, counted(store))


def ref_of(store: Store) -> BatchRef:
    return BatchRef.of(store, there(Ledger(store, "counted").plan(0)))


def of_two_tasks(store: Store) -> tuple[Pipeline, Settings]:
    return counted(store), Settings.parse(scheme="tasks(2)")


@caught_by(COVERED)
def test_a_lost_record_of_a_sparse_stream_is_refused(landed: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    def lose(_: Batch, seen: Taken) -> None:
        seen.dispositions[seen.offsets == 14] = LEFT

    spoil_kernel(monkeypatch, lose)
    return saying(refusal(ran(landed, counted(landed))), "views-0@[0,21): 1 record of 9 not taken by any task")


def test_a_record_of_a_sparse_stream_that_two_tasks_take_is_refused(
    landed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def double(_: Batch, seen: Taken) -> None:
        seen.dispositions[seen.offsets == 14] = TAKEN

    spoil_kernel(monkeypatch, double)
    made, settings = of_two_tasks(landed)
    said = refusal(ran(landed, made, settings=settings))
    assert said.failed[0] == COVERED
    assert MEET in said.failed
    assert "1 record more taken than the 9 planned" in said.findings[0]


@caught_by(COVERED)
def test_offsets_that_are_taken_and_are_not_those_that_were_read_are_refused(by_two: BatchRef) -> Refusal:
    change_receipt(by_two, lambda seen: replace(seen, digest=f"{int(seen.digest, 16) ^ 1:016x}"))
    return saying(refusal(by_two), "views-0@[0,21): the offsets taken are not those planned")


@caught_by(COVERED)
@pytest.mark.parametrize("held", ["", "0" * 16], ids=["none", "another"])
def test_tasks_that_did_not_read_the_same_offsets_are_refused(by_two: BatchRef, held: str) -> Refusal:
    change_receipt(by_two, lambda seen: replace(seen, held=held))
    return saying(refusal(by_two), "views-0@[0,21): the tasks that read it did not read the same offsets")


@caught_by(COVERED)
@pytest.mark.parametrize("offsets", [[21, 25, 23, 27], [21, 24, 24, 27]], ids=["out of order", "twice"])
def test_a_file_whose_offsets_do_not_rise_is_refused(landed: Store, offsets: list[int]) -> Refusal:
    # Its name, its footer and its count say what they should.
    land(landed, offsets)
    return saying(
        refusal(ran(landed, counted(landed))),
        "views-0@[0,28): 1 offset missing, repeated or out of order",
        f"views-0 at offset {offsets[2]} does not follow the offset before it",
    )


@caught_by(COVERED)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda seen: replace(seen, read=seen.read - 1), "a task read 8 of 9 records"),
        (lambda seen: replace(seen, taken=seen.taken - 1), "1 record of 9 not taken"),
        (lambda seen: replace(seen, disorder=1), "1 offset missing, repeated or out of order"),
    ],
    ids=["read", "taken", "disorder"],
)
def test_a_receipt_of_a_sparse_stream_whose_figures_are_others_is_refused(
    begun: Begun, change: Callable[[PartitionReceipt], PartitionReceipt], says: str
) -> Refusal:
    ref = ref_of(begun.by(ran_by_one))
    change_receipt(ref, change)
    return saying(refusal(ref), says)


def with_partition(plan: Plan, change: Callable[[PlannedPartition], PlannedPartition]) -> Plan:
    (stream,) = plan.streams
    return replace(plan, streams=(replace(stream, partitions=tuple(map(change, stream.partitions))),))


def test_a_plan_that_hides_a_landed_file_in_a_gap_is_refused(landed: Store) -> None:
    land(landed, list(range(21, 300)))
    land(landed, [300])

    def hiding(planned: PlannedPartition) -> PlannedPartition:
        files = tuple(file for file in planned.files if file.start != 21)
        return replace(planned, files=files, missing=planned.missing + 279)

    said = refusal(ran(landed, counted(landed), lambda plan: with_partition(plan, hiding)))
    assert said.failed == (EXPLAINED, EMPTY)
    assert "views-0: 279 offsets are missing and nothing says why, the first in views-0@[21,300)" in said.findings[0]


@caught_by(EXPLAINED)
def test_a_dense_plan_with_a_hole_that_nobody_accepted_is_refused(store: Store) -> Refusal:
    for first in (0, 10, 20):
        land(store, list(range(first, first + 10)))

    def hiding(planned: PlannedPartition) -> PlannedPartition:
        return replace(planned, files=(planned.files[0], planned.files[2]), missing=10)

    ref = ran(store, counted(store, "dense"), lambda plan: with_partition(plan, hiding))
    store.delete("topics/views/partition=0/views+0+0000000010.parquet")
    return saying(refusal(ref), "views-0: 10 offsets are missing and nothing says why, the first in views-0@[10,20)")


@caught_by(EMPTY)
@pytest.mark.parametrize("landed_late", [[10, 11], [11]], ids=["all of it", "a part"])
def test_a_file_that_lies_in_a_gap_is_refused_though_a_gap_is_allowed_there(
    landed: Store, landed_late: list[int]
) -> Refusal:
    ref = ran(landed, counted(landed))
    land(landed, landed_late)
    return saying(
        refusal(ref),
        f"views-0: 1 file or record lies where readers found nothing, the first is {landed.root}/",
        f"from offset {landed_late[0]} on",
    )


def test_gaps_with_nothing_in_them_are_looked_into(landed: Store, tmp_path: Path) -> None:
    ref = published(landed, counted(landed), tmp_path)
    (found,) = (result for result in results(ref) if result["expectation"] == EMPTY)
    assert (found["success"], found["result"]["observed_value"]) == (True, "1 gap in 1 stream partition")


def test_a_plan_that_says_less_is_missing_than_its_files_lack_is_refused(landed: Store) -> None:
    fewer = ran(landed, counted(landed), lambda plan: with_partition(plan, lambda part: replace(part, missing=11)))
    said = refusal(fewer)
    assert said.failed == (COVERED, EXPLAINED)
    assert "a task read 9 of 10 records" in said.findings[0]
    assert "views-0: the plan says that 11 offsets are missing, its files lack 12" in said.findings[1]


@pytest.mark.parametrize("groups", [1, 2])
def test_what_agrees_because_one_reader_read_it_is_said_and_not_called_proved(
    landed: Store, tmp_path: Path, groups: int
) -> None:
    published(landed, counted(landed), tmp_path, Settings.parse(scheme="tasks(2)", groups=groups))
    (page,) = tmp_path.rglob("batch-0-attempt-0.html")
    text = page.read_text()
    assert "What was not proved" in text
    assert "Which offsets of views have a record is what those say who read them" in text
    assert (f"{ONE_READER}: what these say to have read agrees by construction" in text) is (groups == 1)


def test_of_a_dense_stream_that_each_task_reads_itself_nothing_agrees_by_construction(
    store: Store, tmp_path: Path
) -> None:
    land(store, [0, 1, 2])
    published(store, counted(store, "dense"), tmp_path)
    (page,) = tmp_path.rglob("batch-0-attempt-0.html")
    assert "What was not proved" not in page.read_text()
