"""Batches of a small pipeline over landed files in a real store, planned as they are or as somebody changed them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.sources.reader import Batch
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.placement import MURMUR2
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Task
from partitioning.values import replace
from spark_jobs.engine.take import LEFT, TAKEN, Take, Taken, Unbroken
from tests.landed import land_table
from tests.running import run_groups

TAILS = [f"N{number}" for number in range(40)]
STAGE = "flights+planes"

Change = Callable[[Plan], Plan]


def delays(
    store: Store,
    *,
    null_keys: NullKeys = NullKeys.DROP,
    placed_by: str = MURMUR2,
    planes_are_a_table: bool = False,
    expect: Sequence[dict[str, Any]] = (),
) -> Pipeline:
    """Flights in eight partitions that meet planes in four, by default in four tasks."""
    made = Pipeline("delays", source=f"{store.root}/topics")
    flights = made.stream("flights", key="tailnum", partitions=8, null_keys=null_keys, hash=placed_by)
    declare = made.table if planes_are_a_table else made.stream
    planes = declare("planes", key="tailnum", partitions=4, null_keys=null_keys, hash=placed_by)
    counted = flights.aggregate("count(*) AS flights, max(delay) AS delay")
    counted.join(planes, "flights, delay, seats", name="joined").write("delays", expect=expect)
    return made


def land_flights(store: Store, tails: Sequence[str | None]) -> None:
    """Flights of these planes, each in its partition, the first with the least delay."""
    columns = {"tailnum": pa.array(tails, pa.string()), "delay": pa.array(range(len(tails)), pa.int64())}
    land_table(pa.table(columns), "flights", f"{store.root}/topics", key="tailnum", partitions=8)


def land_planes(store: Store, tails: Sequence[str] = TAILS) -> None:
    """These planes, each in its partition."""
    columns = {"tailnum": tails, "seats": pa.array(range(len(tails)), pa.int64())}
    land_table(pa.table(columns), "planes", f"{store.root}/topics", key="tailnum", partitions=4)


def land_delays(store: Store) -> Store:
    """Two flights of each plane, one whose plane is not known, and the planes."""
    land_flights(store, [*TAILS, *TAILS, None])
    land_planes(store)
    return store


def as_planned(plan: Plan) -> Plan:
    return plan


def stored(store: Store, made: Pipeline, change: Change = as_planned, settings: Settings = DEFAULTS) -> BatchRef:
    """The next batch; what `change` makes of its plan is stored in place of it."""
    plan = preview(made, store, settings).plan
    assert plan is not None
    return BatchRef.of(store, Ledger(store, plan.pipeline).put_plan(change(plan)))


def ran(store: Store, made: Pipeline, change: Change = as_planned, settings: Settings = DEFAULTS) -> BatchRef:
    """The next batch, after its task groups have run."""
    ref = stored(store, made, change, settings)
    run_groups(ref)
    return ref


def spoil_kernel(patch: pytest.MonkeyPatch, spoil: Callable[[Batch, Taken], object]) -> None:
    """Let `spoil` change what the kernel says becomes of the records of each batch."""
    spoil_takes(patch, lambda _, batch, seen: spoil(batch, seen))


def spoil_takes(patch: pytest.MonkeyPatch, spoil: Callable[[Take, Batch, Taken], object]) -> None:
    """The same, `spoil` being told whose take it is. Of an unbroken batch it changes the rows that are taken."""
    look, unbroken = Take.look, Take.unbroken
    spoiled: dict[tuple[int, int], tuple[Take, Batch, Taken]] = {}

    def looked(self: Take, batch: Batch) -> Taken:
        if (id(self), id(batch)) not in spoiled:
            seen = look(self, batch)
            spoil(self, batch, seen)
            spoiled[id(self), id(batch)] = self, batch, seen
        *_, seen = spoiled[id(self), id(batch)]
        return seen

    def as_a_whole(self: Take, batch: Batch) -> Unbroken | None:
        whole = unbroken(self, batch)
        if whole is None:
            return None
        dispositions = looked(self, batch).dispositions
        if not np.isin(dispositions, (TAKEN, LEFT)).all():
            return None
        return dataclasses.replace(whole, rows=np.flatnonzero(dispositions == TAKEN))

    patch.setattr(Take, "look", looked)
    patch.setattr(Take, "unbroken", as_a_whole)


def with_start(plan: Plan, stream: str, partition: int, start: int) -> Plan:
    """The plan, a stream partition being read from another offset on."""

    def changed(planned: PlannedPartition) -> PlannedPartition:
        return replace(planned, start=start) if planned.partition == partition else planned

    streams = tuple(
        replace(each, partitions=tuple(map(changed, each.partitions))) if each.name == stream else each
        for each in plan.streams
    )
    return replace(plan, streams=streams)


def with_tasks(plan: Plan, change: Callable[[Task], Task]) -> Plan:
    """The plan of one stage, its tasks being others."""
    (stage,) = plan.stages
    return replace(plan, stages=(replace(stage, tasks=tuple(map(change, stage.tasks))),))
