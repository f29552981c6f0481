"""Batches in which a record that is set aside is taken as well, lost, or set aside twice: each is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from coset.batches.ref import BatchRef
from coset.sources.reader import Batch
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.model.artefact import Artefact
from partitioning.model.schemes import Scheme
from spark_jobs.engine.take import LEFT, SET_ASIDE, TAKEN, Taken
from spark_jobs.engine.writers import Writers
from tests.judged import ASIDE_FEW, ASIDE_KEPT, COVERED, Refusal, caught_by, refusal, saying
from tests.real_batches import spoil_kernel
from tests.running import next_batch, run_groups
from tests.unusable import home, land, line, totals


@pytest.fixture
def landed(store: Store) -> Store:
    land(store, home("ann"), 0, [line("ann", 1, 0), b"x", line("ann", 2, 2), b"y"])
    return store


def ran(store: Store, bad_records: str = "set aside") -> BatchRef:
    """A batch of eight tasks, of which two read each partition."""
    settings = Settings(scheme=Scheme.parse("tasks(8)"))
    ref = next_batch(totals(store, bad_records=bad_records, null_keys="drop"), store.root, settings)
    run_groups(ref)
    return ref


@caught_by(COVERED)
def test_a_task_that_takes_what_another_sets_aside_is_refused(
    landed: Store, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    def take(_: Batch, seen: Taken) -> None:
        if (seen.dispositions == LEFT).any() and not (seen.dispositions == SET_ASIDE).any():
            seen.dispositions[seen.offsets == 1] = TAKEN

    spoil_kernel(monkeypatch, take)
    return saying(refusal(ran(landed)), "1 record more taken than the 4 planned")


@caught_by(COVERED)
def test_a_record_that_is_set_aside_by_two_tasks_is_refused(landed: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    def twice(_: Batch, seen: Taken) -> None:
        seen.dispositions[seen.offsets == 1] = SET_ASIDE

    spoil_kernel(monkeypatch, twice)
    return saying(refusal(ran(landed)), "1 record more taken than the 4 planned")


@caught_by(COVERED)
def test_a_record_that_is_lost_in_place_of_being_set_aside_is_refused(
    landed: Store, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    def lose(_: Batch, seen: Taken) -> None:
        seen.dispositions[seen.offsets == 1] = LEFT

    spoil_kernel(monkeypatch, lose)
    return saying(refusal(ran(landed)), "1 record of 4 not taken by any task")


@caught_by(COVERED)
def test_another_record_that_is_set_aside_in_place_of_one_is_refused(
    landed: Store, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    def other(_: Batch, seen: Taken) -> None:
        mine = bool((seen.dispositions == SET_ASIDE).any())
        seen.dispositions[seen.offsets == (1 if mine else 3)] = LEFT if mine else SET_ASIDE

    spoil_kernel(monkeypatch, other)
    return saying(refusal(ran(landed)), "the offsets taken are not those planned")


@caught_by(ASIDE_KEPT)
def test_a_writer_that_keeps_another_record_than_was_set_aside_is_refused(
    landed: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    write = Writers.set_aside

    def other(self: Writers, rows: pa.Table) -> Artefact | None:
        place = rows.schema.get_field_index("offset")
        return write(self, rows.set_column(place, "offset", pa.array(np.zeros(len(rows), np.int64))))

    monkeypatch.setattr(Writers, "set_aside", other)
    return saying(refusal(ran(landed), tmp_path), "the records kept are not those set aside")


@caught_by(ASIDE_KEPT)
def test_a_writer_that_keeps_nothing_of_what_is_set_aside_is_refused(
    landed: Store, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    monkeypatch.setattr(Writers, "set_aside", lambda *_: None)
    return saying(refusal(ran(landed)), "2 records set aside, 0 kept")


@caught_by(ASIDE_FEW)
def test_a_batch_that_sets_more_aside_than_it_may_is_refused(landed: Store) -> Refusal:
    return saying(
        refusal(ran(landed, "set aside up to 1 or 10 %")),
        "orders: 2 records of 4 set aside, beyond: set aside up to 1 or 10 %",
    )
