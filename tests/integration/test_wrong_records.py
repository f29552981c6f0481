"""Batches whose records are not all taken once, where their keys belong, or set aside: each is refused.

What is made wrong is the stored plan, a landed file, the kernel or a receipt; never an audit table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import coset
from coset import Pipeline, Refused
from coset.batches.ref import BatchRef
from coset.sources.reader import Batch
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.model.placement import OPAQUE
from partitioning.model.receipt import Artefact, PartitionReceipt
from partitioning.model.schemes import Scheme
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Task
from partitioning.values import replace
from spark_jobs.engine import take
from spark_jobs.engine.hashing import placement_hashes
from spark_jobs.engine.take import LEFT, REFUSED, SET_ASIDE, TAKEN, Take, Taken
from spark_jobs.engine.writers import Writers
from tests.begun import Begun
from tests.changed_receipts import change_receipt
from tests.judged import (
    ASIDE_FEW,
    ASIDE_KEPT,
    COVERED,
    HASH,
    HAVE_KEYS,
    IN_PLACE,
    MEET,
    Refusal,
    caught_by,
    refusal,
    saying,
)
from tests.landed import land_file
from tests.real_batches import STAGE, TAILS, delays, land_delays, ran, spoil_kernel, with_tasks
from tests.running import next_batch, run_groups
from tests.there import there
from tests.unusable import home, land, line, totals


@pytest.fixture
def landed(store: Store) -> Store:
    return land_delays(store)


# ---- every planned offset is taken or dropped, once


@caught_by(COVERED)
def test_a_file_whose_offsets_do_not_follow_each_other_is_refused(landed: Store) -> Refusal:
    end = len([tail for tail in (*TAILS, *TAILS) if placement_hash(tail) % 8 == 2])
    tail = next(tail for tail in TAILS if placement_hash(tail) % 8 == 2)
    flights = pa.table({"tailnum": [tail] * 4, "delay": pa.array(range(4), pa.int64())})
    # Its name and its footer say what they should.
    offsets = [end, end + 2, end + 1, end + 3]
    land_file(flights, "flights", f"{landed.root}/topics", 2, end, offsets=offsets)
    return saying(
        refusal(ran(landed, delays(landed))),
        f"flights-2@[0,{end + 4}): 3 offsets missing, repeated or out of order",
        f"flights-2 at offset {end + 2} does not follow the offset before it",
    )


@caught_by(COVERED)
def test_a_kernel_that_loses_a_record_is_refused(landed: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    def lose(batch: Batch, seen: Taken) -> None:
        if "/planes/" in batch.where:
            seen.dispositions[np.array([key == "N7" for key in seen.keys.to_pylist()])] = LEFT

    spoil_kernel(monkeypatch, lose)
    said = refusal(ran(landed, delays(landed)))
    count = sum(placement_hash(tail) % 4 == (home := placement_hash("N7") % 4) for tail in TAILS)
    assert f"planes-{home}@[0,{count}): 1 record of {count} not taken by any task" in said.findings[0]
    return said


@caught_by(COVERED)
def test_a_plan_in_which_records_without_a_key_are_no_tasks_is_refused(landed: Store) -> Refusal:
    nobodys = ran(landed, delays(landed), lambda plan: with_tasks(plan, lambda task: replace(task, keyless={})))
    return saying(refusal(nobodys), "flights-0@[0,", "1 record of", "not taken by any task")


def test_a_plan_in_which_two_tasks_take_the_same_keys_is_refused(landed: Store) -> None:
    def greedy(task: Task) -> Task:
        return replace(task, filters={}) if task.task == 0 else task

    eight = Settings.parse(scheme="tasks(8)")
    said = refusal(ran(landed, delays(landed), lambda plan: with_tasks(plan, greedy), eight))
    # The keys that are taken twice are in two tasks.
    assert said.failed == (COVERED, MEET)
    assert "more taken than the" in said.findings[0]
    assert "is in task 0 (input planes" in said.findings[1]
    assert "and in task 4 (input flights" in said.findings[1]


def as_planned(store: Store) -> None:
    ran(land_delays(store), delays(store))


@caught_by(COVERED)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda seen: replace(seen, read=seen.read - 1), "a task read"),
        (lambda seen: replace(seen, taken=seen.taken - 1), "1 record of"),
        (lambda seen: replace(seen, taken=seen.taken + 1), "1 record more taken"),
        (lambda seen: replace(seen, digest="0" * 16), "the offsets taken are not those planned"),
        (lambda seen: replace(seen, disorder=1), "1 offset missing, repeated or out of order"),
    ],
    ids=["read", "taken", "taken too often", "digest", "disorder"],
)
def test_a_receipt_whose_figures_are_others_is_refused(
    begun: Begun, change: Callable[[PartitionReceipt], PartitionReceipt], says: str
) -> Refusal:
    store = begun.by(as_planned)
    ref = BatchRef.of(store, there(Ledger(store, "delays").plan(0)))
    change_receipt(ref, change)
    return saying(refusal(ref), says)


# ---- records have keys


def test_a_record_without_a_key_is_refused_where_its_stream_says_so(landed: Store) -> None:
    said = refusal(ran(landed, delays(landed, null_keys=NullKeys.REFUSE)))
    # What is refused is taken by nobody, which is no second fault.
    assert said.failed == (HAVE_KEYS,)
    assert "flights-0 at offset" in said.findings[0]
    assert "has no key, and flights refuses records without one" in said.findings[0]


@caught_by(HAVE_KEYS)
def test_a_kernel_that_takes_records_without_a_key_where_they_are_refused_is_refused(
    landed: Store, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    def take_all(_: Batch, seen: Taken) -> None:
        seen.dispositions[seen.dispositions == REFUSED] = TAKEN

    spoil_kernel(monkeypatch, take_all)
    return saying(
        refusal(ran(landed, delays(landed, null_keys=NullKeys.REFUSE))), "flights-0@[0,", "1 record without a key"
    )


def foreign_flight(store: Store, tail: str, partition: int) -> int:
    """Land a flight of a plane in a partition, as a producer with another partitioner does; its offset."""
    flights = [flight for flight in (*TAILS, *TAILS) if placement_hash(flight) % 8 == partition]
    end = len(flights) + (partition == 0)
    table = pa.table({"tailnum": [tail], "delay": pa.array([0], pa.int64())})
    land_file(table, "flights", f"{store.root}/topics", partition, end)
    return end


def stranger(partition: int) -> str:
    """A plane that is none of ours, whose flights belong in a partition."""
    return next(tail for tail in (f"X{number}" for number in range(999)) if placement_hash(tail) % 8 == partition)


@caught_by(IN_PLACE)
def test_a_foreign_producers_record_is_refused_though_its_key_is_not_in_the_sample(landed: Store) -> Refusal:
    tail = stranger(6)
    offset = foreign_flight(landed, tail, 2)
    # Of four tasks, both partitions are one's: the record is in a wrong place and in the right task.
    sample = next(many for many in range(2, 99) if placement_hash(tail) // 4 % many)
    return saying(
        refusal(ran(landed, delays(landed), lambda plan: replace(plan, key_sample=sample))),
        f"key {tail!r}, flights-2 at offset {offset}, belongs in partition 6 of 8",
    )


def test_a_foreign_producers_record_is_seen_by_its_key_as_well(landed: Store) -> None:
    tail = stranger(6)
    offset = foreign_flight(landed, tail, 2)
    said = refusal(ran(landed, delays(landed)))
    # All keys are sampled, and the scalar hash says of this one what the compiled one says.
    assert said.failed == (IN_PLACE, HASH)
    assert f"Keys of flights in stage {STAGE}" in said.findings[1]
    assert f"{tail!r} is in partition 2, offset {offset}, but belongs in 6" in said.findings[1]


def test_a_foreign_producers_record_in_another_tasks_partition_is_seen_wherever_its_key_is(landed: Store) -> None:
    home = placement_hash("N7") % 8
    foreign_flight(landed, "N7", (home + 1) % 8)
    said = refusal(ran(landed, delays(landed)))
    # Its plane and its other flights are in the task that owns the key.
    assert said.failed == (IN_PLACE, MEET, HASH)
    assert f"'N7', flights-{(home + 1) % 8} at offset" in said.findings[0]
    assert f"belongs to task {home % 4} of 4, but task {(home + 1) % 4} took it" in said.findings[0]
    assert "'N7' is in task" in said.findings[1]


@caught_by(IN_PLACE)
def test_a_kernel_that_takes_the_keys_of_another_task_is_refused(
    landed: Store, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    make = Take.__init__

    def neighbours(self: Take, *given: object) -> None:
        make(self, *given)  # type: ignore[arg-type]
        # Task t takes what task t + 8 should, which reads the same partitions: each record is taken once, each key met.
        self._residues = (self._residues + 8) % 16

    monkeypatch.setattr(Take, "__init__", neighbours)
    said = refusal(ran(landed, delays(landed), settings=Settings.parse(scheme="tasks(16)")))
    assert "taken by a task that does not own the key" in said.findings[0]
    assert "belongs to task 8 of 16, but task 0 took it" in said.findings[0]
    # The records lie where their producer has to put them.
    assert "opaque" not in said.next[0]
    return said


@caught_by(MEET)
def test_two_producers_that_disagree_where_a_key_belongs_are_refused_though_their_hash_is_not_known(
    store: Store,
) -> Refusal:
    flights = pa.table({"tailnum": ["N1", "N7"], "delay": pa.array([1, 2], pa.int64())})
    planes = pa.table({"tailnum": ["N1", "N7"], "seats": pa.array([100, 200], pa.int64())})
    source = f"{store.root}/topics"
    land_file(flights, "flights", source, 2, 0)
    land_file(planes.slice(0, 1), "planes", source, 2, 0)
    land_file(planes.slice(1), "planes", source, 3, 0)
    said = refusal(ran(store, delays(store, placed_by=OPAQUE)))
    assert (
        "'N7' is in task 2 (input flights, partition 2, offset 1) and in task 3 (input planes, partition 3, offset 0)"
        in said.findings[0]
    )
    assert "'N1'" not in said.findings[0]
    return said


@caught_by(HASH)
def test_a_hash_that_is_wrong_in_the_same_way_everywhere_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    def wrong_hashes(keys: pa.Array, key_format: str, placement: str) -> np.ndarray:
        return placement_hashes(keys, key_format, placement) + np.uint32(1)

    def land_wrongly(stream: str, column: str, partitions: int) -> None:
        for partition in range(partitions):
            tails = [tail for tail in TAILS if (placement_hash(tail) + 1) % partitions == partition]
            table = pa.table({"tailnum": tails, column: pa.array(range(len(tails)), pa.int64())})
            land_file(table, stream, f"{store.root}/topics", partition, 0)

    # Producers and kernel agree, so that every record is where the kernel says it belongs.
    land_wrongly("flights", "delay", 8)
    land_wrongly("planes", "seats", 4)
    monkeypatch.setattr(take, "placement_hashes", wrong_hashes)
    said = refusal(ran(store, delays(store)))
    # Each stream's keys are asked for by themselves.
    for finding, stream in zip(said.findings, ("flights", "planes"), strict=True):
        assert f"Keys of {stream} in stage {STAGE}" in finding
        assert "and more: 40 in all" in finding
    return said


def test_a_key_that_comes_elsewhere_than_what_was_kept_of_it_is_refused(store: Store) -> None:
    pipeline = Pipeline("kept", source=f"{store.root}/topics")
    clicks = pipeline.stream("clicks", key="k", partitions=2, hash="opaque")
    clicks.latest("seen", name="newest").write("newest", mode="upsert")
    land_file(pa.table({"k": ["a", "b"], "seen": [1, 1]}), "clicks", f"{store.root}/topics", 0, 0)
    coset.run(pipeline, store.root)
    land_file(pa.table({"k": ["a"], "seen": [2]}), "clicks", f"{store.root}/topics", 1, 0)
    with pytest.raises(Refused) as refused:
        coset.run(pipeline, store.root)
    (finding,) = refused.value.findings
    assert "'a' is in task 0 (input newest.state, partition 0, offset 0) and in task 1 (input clicks" in finding.what


@pytest.fixture
def landed_with_bad(store: Store) -> Store:
    land(store, home("ann"), 0, [line("ann", 1, 0), b"x", line("ann", 2, 2), b"y"])
    return store


def run_with_bad(store: Store, bad_records: str = "set aside") -> BatchRef:
    """A batch of eight tasks, of which two read each partition."""
    settings = Settings(scheme=Scheme.parse("tasks(8)"))
    ref = next_batch(totals(store, bad_records=bad_records, null_keys="drop"), store.root, settings)
    run_groups(ref)
    return ref


def takes_what_another_sets_aside(seen: Taken) -> None:
    if (seen.dispositions == LEFT).any() and not (seen.dispositions == SET_ASIDE).any():
        seen.dispositions[seen.offsets == 1] = TAKEN


def sets_aside_another(seen: Taken) -> None:
    mine = bool((seen.dispositions == SET_ASIDE).any())
    seen.dispositions[seen.offsets == (1 if mine else 3)] = LEFT if mine else SET_ASIDE


def always(disposition: int) -> Callable[[Taken], None]:
    def given(seen: Taken) -> None:
        seen.dispositions[seen.offsets == 1] = disposition

    return given


@caught_by(COVERED)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (takes_what_another_sets_aside, "1 record more taken than the 4 planned"),
        (always(SET_ASIDE), "1 record more taken than the 4 planned"),
        (always(LEFT), "1 record of 4 not taken by any task"),
        (sets_aside_another, "the offsets taken are not those planned"),
    ],
    ids=["taken and set aside", "set aside twice", "lost", "another set aside"],
)
def test_a_record_that_is_not_set_aside_by_one_task_alone_is_refused(
    landed_with_bad: Store, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Taken], None], said: str
) -> Refusal:
    spoil_kernel(monkeypatch, lambda _, seen: wrong(seen))
    return saying(refusal(run_with_bad(landed_with_bad)), said)


@caught_by(ASIDE_KEPT)
def test_a_writer_that_keeps_another_record_than_was_set_aside_is_refused(
    landed_with_bad: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    write = Writers.set_aside

    def other(self: Writers, rows: pa.Table) -> Artefact | None:
        place = rows.schema.get_field_index("offset")
        return write(self, rows.set_column(place, "offset", pa.array(np.zeros(len(rows), np.int64))))

    monkeypatch.setattr(Writers, "set_aside", other)
    return saying(refusal(run_with_bad(landed_with_bad), tmp_path), "the records kept are not those set aside")


@caught_by(ASIDE_KEPT)
def test_a_writer_that_keeps_nothing_of_what_is_set_aside_is_refused(
    landed_with_bad: Store, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    monkeypatch.setattr(Writers, "set_aside", lambda *_: None)
    return saying(refusal(run_with_bad(landed_with_bad)), "2 records set aside, 0 kept")


@caught_by(ASIDE_FEW)
def test_a_batch_that_sets_more_aside_than_it_may_is_refused(landed_with_bad: Store) -> Refusal:
    return saying(
        refusal(run_with_bad(landed_with_bad, "set aside up to 1 or 10 %")),
        "orders: 2 records of 4 set aside, beyond: set aside up to 1 or 10 %",
    )
