"""Batches whose records are not where their keys belong, or whose equal keys do not meet: each is refused.

What is made wrong is the stored plan, a landed file or the kernel; never an audit table.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import coset
from coset import Pipeline, Refused
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.model.placement import OPAQUE
from partitioning.values import replace
from spark_jobs.engine import take
from spark_jobs.engine.hashing import placement_hashes
from spark_jobs.engine.take import Take
from tests.judged import HASH, IN_PLACE, MEET, Refusal, caught_by, refusal, saying
from tests.landed import land_file
from tests.real_batches import STAGE, TAILS, delays, land_delays, ran


@pytest.fixture
def landed(store: Store) -> Store:
    return land_delays(store)


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
