"""What tasks hand to each other is proved: a part that is lost, doubled, misplaced or changed on its way is caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from coset.batches.ref import BatchRef
from coset.sources import parts_reader
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.receipts import receipts
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Refused
from partitioning.model.artefact import Artefact, Role
from partitioning.model.leaving import Leaving, LeftPart, LeftPartition
from partitioning.model.receipt import Receipt
from partitioning.values import replace
from spark_jobs.engine import destinations, writers
from tests.judged import COVERED, HASH, IN_PLACE, MEET, Refusal, caught_by, refusal
from tests.landed import land_table
from tests.misread import read_otherwise
from tests.running import next_batch, run_and_publish, run_groups, task_receipts
from tests.there import there

Parts = tuple[LeftPart, ...]


def planned(store: Store) -> BatchRef:
    """Flights of which four tasks each leave some for three others."""
    source = f"{store.root}/topics"
    columns = {
        "tailnum": [f"N{number % 40}" for number in range(400)],
        "origin": [f"A{number % 29}" for number in range(400)],
    }
    land_table(pa.table(columns), "flights", source, key="tailnum", partitions=4)
    pipeline = Pipeline("delays", source=source)
    by_origin = pipeline.stream("flights", key="tailnum", partitions=4).rekey("origin", name="by_origin")
    by_origin.aggregate("count(*) AS flights", name="counted").write("delays")
    return next_batch(pipeline, store.root, Settings.parse(scheme=["by_origin.exchange=tasks(3)"], groups=2))


def run_spoiled(ref: BatchRef, patch: pytest.MonkeyPatch, spoil: Callable[[Parts], Parts]) -> None:
    """Run the batch; whoever reads of partition 1 what tasks left reads other parts of it than the order says."""

    def spoiled(left: LeftPartition) -> LeftPartition:
        return replace(left, parts=spoil(left.parts)) if left.partition == 1 else left

    read_otherwise(patch, lambda read: replace(read, partitions=tuple(map(spoiled, read.partitions))))
    run_groups(ref)


def exchanged(ref: BatchRef) -> list[Artefact]:
    return [artefact for task in task_receipts(ref) for artefact in task.left(Role.EXCHANGE)]


def test_nothing_is_wrong_with_the_batch_itself(store: Store) -> None:
    ref = planned(store)
    run_and_publish(ref)
    assert [len(artefact.parts) for artefact in exchanged(ref)] == [3, 3, 3, 3]
    assert sum(artefact.records for artefact in exchanged(ref)) == 400


@caught_by(COVERED)
def test_a_part_that_is_not_read_is_missed(store: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    ref = planned(store)
    run_spoiled(ref, monkeypatch, lambda parts: (*parts[:1], *parts[2:]))
    return refusal(ref)


@caught_by(COVERED)
def test_a_part_that_is_read_twice_is_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    ref = planned(store)
    run_spoiled(ref, monkeypatch, lambda parts: (*parts, parts[0]))
    return refusal(ref)


@caught_by(COVERED)
def test_a_part_that_is_read_in_place_of_another_is_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    def others(parts: Parts) -> Parts:
        instead = replace(parts[1], first=parts[0].first, task=parts[0].task)
        return (instead, *parts[1:])

    ref = planned(store)
    run_spoiled(ref, monkeypatch, others)
    return refusal(ref)


def test_records_that_are_left_in_a_wrong_partition_are_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    right = destinations.destinations

    def wrong(leaving: Leaving, task: int, rows: pa.RecordBatch) -> np.ndarray:
        partitions = right(leaving, task, rows)
        partitions[:2] = (partitions[:2] + 1) % leaving.placement.partitions
        return partitions

    monkeypatch.setattr(writers, "destinations", wrong)
    ref = planned(store)
    run_groups(ref)
    said = refusal(ref)
    # Equal keys do not meet any more.
    assert {IN_PLACE, MEET, HASH} == set(said.failed)
    (finding,) = (what for what in said.findings if IN_PLACE in what or "belongs in partition" in what)
    assert "by_origin.exchange-" in finding
    assert "where the task that wrote it did not put it" in finding


def rewritten(data: bytes) -> bytes:
    return data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]


@pytest.mark.parametrize("change", [rewritten, None], ids=["changed", "gone"])
def test_a_file_that_changed_or_went_before_it_was_read_is_refused(
    change: Callable[[bytes], bytes] | None, store: Store, tmp_path: Path
) -> None:
    ref = planned(store)
    _, plan = ref.load()
    for number in plan.waves[0]:
        run_one(ref, number)
    path = written(ref, plan.waves[0])[0].path
    data = there(store.get(path))
    if change is None:
        store.delete(path)
    else:
        store.put(path, change(data))
    with pytest.raises(Refused, match="the file is gone or was changed since a task left it") as refused:
        run_groups(ref)
    assert {finding.where for finding in refused.value.findings} == {f"{store.root}/{path}"}
    assert "coset replan delays" in refused.value.findings[0].then


def run_one(ref: BatchRef, number: int) -> None:
    from coset.batches.runners.local import Local

    with Local(processes=1) as runner:
        runner.group(ref, number)


def written(ref: BatchRef, groups: Sequence[int]) -> list[Artefact]:
    ledger, plan = ref.load()
    found = [ledger.receipt(plan.batch, 0, number) for number in groups]
    return [file for one in found if one for task in one.tasks for file in task.left(Role.EXCHANGE)]


def test_a_later_wave_waits_for_the_earlier(store: Store) -> None:
    ref = planned(store)
    _, plan = ref.load()
    with pytest.raises(Refused, match="task group 0 of batch 0 has no receipt") as refused:
        run_one(ref, plan.waves[1][0])
    assert [len(finding.places) for finding in refused.value.findings] == [len(plan.waves[0])]
    assert "coset run delays" in refused.value.findings[0].then


def lost(artefact: Artefact) -> Artefact:
    return replace(artefact, parts=artefact.parts[1:])


def out_of_order(artefact: Artefact) -> Artefact:
    return replace(artefact, parts=artefact.parts[::-1])


def elsewhere(artefact: Artefact) -> Artefact:
    return replace(artefact, parts=(*artefact.parts[:-1], replace(artefact.parts[-1], partition=9)))


def another(artefact: Artefact) -> Artefact:
    return replace(artefact, name="other.exchange")


FORGED: dict[Callable[[Artefact], Artefact], str] = {
    lost: "does not agree with itself",
    out_of_order: "does not agree with itself",
    elsewhere: "does not agree with itself",
    another: "left other.exchange, which is not planned for it",
}


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_an_index_that_does_not_fit_is_refused(forge: Callable[[Artefact], Artefact], store: Store) -> None:
    ref = planned(store)
    run_groups(ref)
    ledger, plan = ref.load()
    receipt = there(ledger.receipt(plan.batch, 0, 0))
    key = ledger.key("receipts", plan.batch, "attempt-0", "group-0")
    store.delete(key)
    ledger.put_receipt(forged(receipt, forge), plan.batch)
    with pytest.raises(CosetError, match=FORGED[forge]):
        receipts(ledger, plan, 0)


def forged(receipt: Receipt, forge: Callable[[Artefact], Artefact]) -> Receipt:
    first, *others = receipt.tasks
    files = tuple(forge(file) if file.role is Role.EXCHANGE else file for file in first.artefacts)
    return replace(receipt, tasks=(replace(first, artefacts=files), *others))


def test_chunks_are_put_together_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_reader, "_CHUNK", 100)
    run_and_publish(planned(store))
