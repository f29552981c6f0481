"""Tables kept from batch to batch, so that only what is new of them is read; and records that delete."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from coset.batches import steps
from coset.batches.ref import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.kinds import Kind
from tests.landed import land_table
from tests.logs import log_of
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged

PARTITIONS = 4
TAILS = [f"N{number}" for number in range(20)]
SCHEMES = ["cogroup", "elastic(2)", "tasks(3)", "tasks(1)", "tasks(24)"]

# A plane's seats; none if the record deletes it.
Planes = Mapping[str, int | None]


def seats(source: str, *, kept: bool = True, deletes: str = "seats IS NULL") -> Pipeline:
    """Flights with the seats that their planes have at that time, and all planes that there are."""
    pipeline = Pipeline("seats", source=source)
    flights = pipeline.stream("flights", key="tail", partitions=PARTITIONS)
    planes = pipeline.table("planes", key="tail", partitions=PARTITIONS, deletes=deletes, kept=kept)
    flights.join(planes, "flights.number, planes.seats", how="left", name="flown").write("flown")
    planes.select("seats", name="there").write("now", mode="replace")
    if kept:
        planes.write("held", mode="upsert")
    return pipeline


class Fleet:
    """Batches of flights and planes, and what one process makes of all of them up to now."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.planes: dict[str, int] = {}
        self.flown: list[tuple[str, int, int | None]] = []
        self._source = f"{store.root}/topics"

    def land(self, flights: Sequence[str], planes: Planes) -> None:
        for tail, number in planes.items():
            self.planes.pop(tail, None)
            if number is not None:
                self.planes[tail] = number
        self.flown += [(tail, len(self.flown) + place, self.planes.get(tail)) for place, tail in enumerate(flights)]
        new = self.flown[len(self.flown) - len(flights) :]
        columns = {"tail": list(flights), "number": [number for _, number, _ in new]}
        land_table(pa.table(columns), "flights", self._source, key="tail", partitions=PARTITIONS)
        if planes:
            columns = {"tail": list(planes), "seats": pa.array(planes.values(), pa.int64())}
            land_table(pa.table(columns), "planes", self._source, key="tail", partitions=PARTITIONS)

    def plan(
        self,
        scheme: str = "cogroup",
        *,
        kept: bool = True,
        deletes: str = "seats IS NULL",
        lost: Sequence[str] = (),
        go_on: Sequence[str] = (),
    ) -> BatchRef:
        pipeline = seats(self._source, kept=kept, deletes=deletes)
        settings = Settings.parse(scheme=scheme, accept_loss=lost, go_on=go_on)
        ref, said = steps.plan(pipeline, self.store.root, settings)
        assert ref is not None, said
        return ref

    def batch(self, scheme: str = "cogroup", **asked: Any) -> BatchRef:
        """The next batch, planned as `plan` is asked to."""
        ref = self.plan(scheme, **asked)
        run_and_publish_unjudged(ref)
        return ref

    def batch_without_planes(self) -> None:
        pipeline = Pipeline("seats", source=self._source)
        flights = pipeline.stream("flights", key="tail", partitions=PARTITIONS)
        flights.select("number", name="numbers").write("numbers")
        run_and_publish_unjudged(next_batch(pipeline, self.store.root, Settings(begin_anew=("numbers",))))

    def expire(self) -> None:
        """Remove every file of the table but the newest of each partition."""
        store = store_at(self._source)
        keys = sorted(entry.key for entry in store.list("planes/"))
        for key, after in pairwise(keys):
            if key.partition("+")[0] == after.partition("+")[0]:
                store.delete(key)

    def check(self, *, kept: bool = True) -> None:
        """Compare what readers of the tables see."""
        assert self.rows("flown", "tail", "number", "seats") == sorted(self.flown, key=repr)
        for table in ("now", "held") if kept else ("now",):
            assert self.rows(table, "tail", "seats") == sorted(self.planes.items(), key=repr), table

    def rows(self, table: str, *columns: str) -> list[tuple[object, ...]]:
        log = log_of(self.store, table)
        rows = log.to_pyarrow_table(columns=list(columns)).to_pylist()
        return sorted((tuple(row.values()) for row in rows), key=repr)


def read_of_planes(ref: BatchRef) -> int:
    """How many records of the table a batch reads."""
    (planes,) = (stream for stream in ref.load()[1].streams if stream.name == "planes")
    return sum(partition.end - partition.start for partition in planes.partitions)


@pytest.mark.parametrize("seed", range(2))
def test_what_is_new_is_read_and_all_planes_are_there(seed: int, store: Store) -> None:
    chosen, fleet = random.Random(seed), Fleet(store)
    for number in range(6):
        planes = {
            tail: chosen.choice([None, chosen.randrange(100), chosen.randrange(100)])
            for tail in chosen.sample(TAILS, chosen.choice([0, 1, 5, 12] if number else [15]))
        }
        fleet.land(chosen.choices(TAILS, k=10), planes)
        ref = fleet.batch(chosen.choice(SCHEMES))
        assert read_of_planes(ref) == len(planes)
        fleet.check()
        if chosen.random() < 0.5:
            fleet.expire()


def test_the_proof_accepts_what_is_kept_and_says_how_much_was_read(store: Store) -> None:
    fleet = Fleet(store)
    for planes in ({"N1": 10, "N2": 20}, {"N2": None, "N3": 30}):
        fleet.land(["N1", "N2", "N3"], planes)
        run_and_publish(fleet.plan())
    fleet.check()


def test_a_table_that_is_read_whole_deletes_too(store: Store) -> None:
    fleet = Fleet(store)
    for planes in ({"N1": 10, "N2": 20}, {"N2": None, "N3": 30}, {}):
        fleet.land(["N1", "N2", "N3"], planes)
        ref = fleet.batch(kept=False)
        fleet.check(kept=False)
    assert read_of_planes(ref) == 4


@pytest.mark.long
def test_a_table_may_be_kept_from_some_batch_on_and_again_later(store: Store) -> None:
    fleet, read = Fleet(store), []
    for number, kept in enumerate([False, True, True, False, True, True]):
        fleet.land(["N1", "N2", "N3"], {f"N{number}": number, "N3": None if number % 2 else number})
        read.append(read_of_planes(fleet.batch(kept=kept)))
        fleet.check(kept=kept)
    # One that was not kept before is read whole.
    assert read == [2, 4, 2, 7, 9, 2]


def test_what_deletes_does_not_change_in_between(store: Store) -> None:
    fleet = Fleet(store)
    fleet.land(["N1"], {"N1": 10, "N2": 20})
    fleet.batch()
    fleet.land(["N1"], {"N3": 30})
    finding = finding_of(fleet.plan, deletes="seats < 15")
    assert finding.what == "its columns changed from seats IS NULL to seats < 15"
    assert finding.then == "change it back, or leave kept= out for one batch: it begins anew then"
    fleet.batch(kept=False, deletes="seats < 15", go_on=["flown"])
    fleet.land(["N1"], {"N4": 40})
    fleet.batch(deletes="seats < 15")
    del fleet.planes["N1"]
    assert fleet.rows("held", "tail", "seats") == sorted(fleet.planes.items())


def test_records_that_expired_before_they_were_read_are_lost(store: Store) -> None:
    fleet = Fleet(store)
    fleet.land(["N1"], {tail: 1 for tail in TAILS})
    fleet.batch()
    for number in range(2):
        fleet.land(["N1"], {tail: number for tail in TAILS})
    fleet.expire()
    with pytest.raises(Refused, match=r"is lost"):
        fleet.plan()


@pytest.mark.long
def test_a_kept_table_that_is_not_kept_and_kept_again_has_all_its_records(store: Store) -> None:
    fleet = Fleet(store)
    fleet.land(TAILS[:4], {"N1": 1, "N2": 2})
    fleet.batch()
    fleet.land(TAILS[:4], {"N3": 3})
    assert read_of_planes(fleet.batch(kept=False)) == 3
    fleet.land(TAILS[:4], {"N4": 4, "N1": 5})
    assert read_of_planes(fleet.batch()) == 5
    fleet.land(TAILS[:4], {"N5": 5})
    assert read_of_planes(fleet.batch()) == 1
    assert fleet.rows("flown", "tail", "number", "seats") == sorted(fleet.flown, key=repr)


@pytest.mark.parametrize("left_out", [False, True])
def test_a_table_that_is_read_whole_and_whose_oldest_files_expired_is_refused_until_that_is_accepted(
    left_out: bool, store: Store
) -> None:
    fleet = Fleet(store)
    fleet.land(TAILS, {tail: 1 for tail in TAILS})
    # One that was kept, and left out since, is read whole when it comes back.
    fleet.batch(kept=left_out)
    if left_out:
        fleet.land(["N1"], {})
        fleet.batch_without_planes()
    fleet.land(TAILS, {tail: 2 for tail in TAILS[:4]})
    fleet.expire()
    finding = finding_of(fleet.plan, kept=left_out)
    assert finding.kind is Kind.STREAM_LOST
    lost = re.findall(r"--accept-loss '(\S+)'", finding.then)
    assert len(lost) == len(finding.places)
    assert finding.what.endswith("the latest of their keys would be missing")
    fleet.batch(kept=left_out, lost=lost, go_on=["flown"])
    # It is said once.
    fleet.land(TAILS[:4], {})
    fleet.batch(kept=left_out)
    new = {placement_hash(tail) % PARTITIONS for tail in TAILS[:4]}
    old = {tail: 1 for tail in TAILS if placement_hash(tail) % PARTITIONS not in new}
    assert fleet.rows("now", "tail", "seats") == sorted((old | dict.fromkeys(TAILS[:4], 2)).items())
