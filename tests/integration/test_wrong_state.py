"""What is read of state is proved: a part that is lost, doubled, misplaced or changed is caught, whoever left it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coset.batches.ref import BatchRef
from partitioning.authoring.settings import Settings
from partitioning.documents.document import encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.artefact import Role
from partitioning.model.leaving import LeftPart, LeftPartition
from partitioning.model.order import OrderedParts
from partitioning.model.stage_inputs import StateInput
from partitioning.values import replace
from tests.histories import Click, History
from tests.judged import COVERED, IN_PLACE, Refusal, caught_by, refusal
from tests.misread import read_otherwise
from tests.running import run_groups, task_receipts
from tests.there import there
from tests.totals import totals

Parts = tuple[LeftPart, ...]


def second(store: Store, docs: Path) -> BatchRef:
    """The third of three batches that have the same keys, planned."""
    history = History(store, docs, totals)
    for batch in range(3):
        history.land([Click(f"key-{number}", number, batch) for number in range(40)], [], 4)
        ref = history.plan(Settings.parse(groups=2), 4)
        if batch < 2:
            history.publish(ref)
    return ref


def run_spoiled(ref: BatchRef, patch: pytest.MonkeyPatch, spoil: Callable[[Parts], Parts]) -> None:
    """Run the batch; whoever reads partition 1 of state reads other parts of it than the order says."""

    def spoiled(left: LeftPartition) -> LeftPartition:
        return replace(left, parts=spoil(left.parts)) if left.partition == 1 else left

    def of_state(read: OrderedParts) -> OrderedParts:
        if not isinstance(read.read, StateInput):
            return read
        return replace(read, partitions=tuple(map(spoiled, read.partitions)))

    read_otherwise(patch, of_state)
    run_groups(ref)


@caught_by(COVERED)
def test_a_run_that_is_not_read_is_missed(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    ref = second(store, tmp_path)
    run_spoiled(ref, monkeypatch, lambda parts: parts[1:])
    return refusal(ref, tmp_path)


@caught_by(COVERED)
def test_a_run_that_is_read_twice_is_seen(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    ref = second(store, tmp_path)
    run_spoiled(ref, monkeypatch, lambda parts: (*parts, parts[0]))
    return refusal(ref, tmp_path)


def test_state_of_other_keys_is_seen(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = second(store, tmp_path)
    ledger, _ = ref.load()
    verdict = there(ledger.verdict(0))
    (file,) = (file for file in verdict.artefacts if file.role is Role.STATE and file.task == 2)
    (theirs,) = file.parts

    def others(parts: Parts) -> Parts:
        stolen = {
            "task": file.task,
            "path": file.path,
            "size": file.size,
            "etag": file.etag,
            "start": theirs.start,
            "end": theirs.end,
        }
        return (replace(parts[0], **stolen), *parts[1:])

    run_spoiled(ref, monkeypatch, others)
    said = refusal(ref, tmp_path)
    assert IN_PLACE in said.failed
    assert any("where the task that wrote it did not put it" in finding for finding in said.findings)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "changed"])
def test_a_file_of_state_that_is_not_what_was_left_is_refused(gone: bool, store: Store, tmp_path: Path) -> None:
    ref = second(store, tmp_path)
    ledger, _ = ref.load()
    verdict = there(ledger.verdict(0))
    path = next(file.path for file in verdict.artefacts if file.role is Role.STATE)
    if gone:
        store.delete(path)
    else:
        store.put(path, (store.get(path) or b"")[::-1])
    with pytest.raises(Refused, match="the file is gone or was changed since a task left it"):
        run_groups(ref)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "another"])
def test_a_verdict_that_is_not_the_pinned_one_is_refused(gone: bool, store: Store, tmp_path: Path) -> None:
    ref = second(store, tmp_path)
    ledger, _ = ref.load()
    verdict, key = ledger.verdict(0), ledger.key("verdicts", 0)
    assert verdict is not None
    if gone:
        store.delete(key)
    else:
        fewer = tuple(file for file in verdict.artefacts if file.task != 2)
        store.put(key, encode(replace(verdict, artefacts=fewer)))
    with pytest.raises(Refused, match=r"the verdict sha256:.*, which names totals\.state, ") as refused:
        run_groups(ref)
    assert "restore the document from a backup" in refused.value.findings[0].then


def test_a_batch_that_failed_has_left_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = second(store, tmp_path)
    with monkeypatch.context() as patch:
        run_spoiled(ref, patch, lambda parts: parts[1:])
        refusal(ref, tmp_path)
    history = History(store, tmp_path, totals)
    written = history.publish(ref, attempt=1)
    assert written["totals"] == sorted(((f"key-{number}", 3, number) for number in range(40)), key=repr)
    assert {file.records for task in task_receipts(ref, 1) for file in task.left(Role.STATE)} != {0}
    assert Ledger(store, "kept").attempt(2) == 1
