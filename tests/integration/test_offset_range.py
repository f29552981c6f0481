"""One offset range from the landed file to the commit, and its receipts against the reference's and the proof."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from coset import Pipeline, Settings
from coset.batches import steps
from coset.batches.auditing.audit import audit
from coset.batches.auditing.audit_tables import load
from coset.batches.continuity import continuity
from coset.batches.interpreter import run_batch
from coset.batches.planning import take_up
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.tables.delta import held
from coset.cli.output import step
from coset.sources.landed import discover
from expectations.checkpoint import Judgement, judge
from expectations.questions import Evidence
from partitioning.authoring.words import NullKey
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.model.order import order_of
from partitioning.model.plan import Plan
from partitioning.model.receipt import MODULUS, offset_digest
from tests import reference
from tests.landed import land_file
from tests.reference import Log
from tests.running import next_batch, run_groups

SETTINGS = Settings.parse(scheme="tasks(4)", groups=2)


@pytest.fixture
def pipeline(store: Store) -> Pipeline:
    """Flights in 2 partitions for 4 tasks, so that two tasks share each partition."""
    made = Pipeline("delays", source=f"{store.root}/topics")
    made.stream("flights", key="tailnum", partitions=2).aggregate("count(*) AS flights").write("delays")
    return made


def land(store: Store, partition: int, first: int, count: int) -> str:
    """Land records with the offsets from `first` on, all of keys that belong into the partition."""
    keys = [key for number in range(500) if placement_hash(key := f"N{number}") % 2 == partition]
    table = pa.table({"tailnum": [keys[number % len(keys)] for number in range(count)]})
    return land_file(table, "flights", f"{store.root}/topics", partition, first)


def planned(pipeline: Pipeline, store: Store) -> BatchRef:
    return next_batch(pipeline, store.root, SETTINGS)


def test_a_range_goes_from_its_file_to_the_commit(pipeline: Pipeline, store: Store, tmp_path: Path) -> None:
    for number in (0, 1):
        land(store, number, 0, 100)
    with Local(processes=1) as local:
        first = planned(pipeline, store)
        run_batch(first, local, tmp_path, step)
        path = land(store, 1, 100, 20)

        # 1, 2, 3: discovered, planned, stored.
        (flights,) = discover(pipeline.streams)
        file = flights.partitions[1].files[-1]
        assert (file.path, file.start, file.end) == (path, 100, 120)
        ref = planned(pipeline, store)
        ledger, plan = ref.load()
        partition = plan.stream("flights").partitions[1]
        assert (partition.beginning, partition.committed, partition.start, partition.end) == (0, 100, 100, 120)
        assert partition.files == (file,)

        # 4: in the order of each task that reads the partition.
        (stage,) = plan.stages
        readers = [task for group in plan.groups for task in group.tasks if 1 in plan.task(task).reads["flights"]]
        assert len(readers) == 2
        for reader in readers:
            (ordered,) = order_of(plan, digest(plan), reader, 0, store.root, {}).inputs
            assert ordered.partitions == (partition,)

        # 5, 6, 7, 8: read, taken, counted, in the receipts.
        local.group(ref, 0)
        local.group(ref, 1)
        receipts = [receipt for group in (0, 1) if (receipt := ledger.receipt(plan.batch, 0, group)) is not None]
        seen = [
            part for receipt in receipts for task in receipt.tasks for part in task.partitions if part.partition == 1
        ]
        assert [(part.start, part.end, part.read, part.disorder) for part in seen] == [(100, 120, 20, 0)] * 2
        assert sum(part.taken for part in seen) == 20
        assert all(part.taken for part in seen)

        # 9, 10: audited, and held against what was published before.
        steps.audit(ref)
        row = load(ledger, plan, 0).coverage.query("partition == 1").iloc[0]
        assert (row["stage"], row["input"], row["planned"], row["taken"]) == (stage.name, "flights", 20, 20)
        expected = f"{sum(offset_digest(offset) for offset in range(100, 120)) % MODULUS:016x}"
        assert (row["digest_planned"], row["digest_found"]) == (expected, expected)
        ends = continuity(ledger, plan).ends
        assert ends[["partition", "start", "published"]].to_numpy().tolist() == [[0, 100, 100], [1, 100, 100]]

        # 11, 12: judged and decided; 13: committed with the rows; 14: where the next plan starts.
        steps.check(ref, tmp_path)
        verdict = ledger.verdict(plan.batch)
        assert verdict is not None
        assert verdict.plan == digest(plan)
        steps.publish(ref)
        there = held(store, pipeline.name, "delays")
        assert there is not None
        assert (there.batch, there.plan) == (plan.batch, digest(plan))
    published = ledger.standing().published
    assert published is not None
    assert published.stream("flights").partitions[1].end == 120
    land(store, 1, 120, 5)
    assert str(planned(pipeline, store).load()[1].stream("flights").range(1)) == "flights-1@[120,125)"


TAILS = [f"N{number}" for number in range(50)]


def landed(store: Store, null_keys: NullKey) -> tuple[Pipeline, dict[tuple[str, int], list[str | None]]]:
    """A pipeline in the store whose streams hold the records of the answer."""
    source = f"{store.root}/topics"
    made = Pipeline("delays", source=source)
    flights = made.stream("flights", key="tailnum", partitions=4, null_keys=null_keys)
    planes = made.table("planes", key="tailnum", partitions=6)
    flights.join(planes, "planes.seats", name="joined").write("delays")
    records = dict(reference.log(made, {"flights": [None, *TAILS, *TAILS[:20], None], "planes": TAILS}))
    return made, {where: list(keys) for where, keys in records.items()}


def ran(store: Store, made: Pipeline, records: Log, scheme: str) -> tuple[Ledger, Plan]:
    """A batch over these records after the kernel has run all its tasks."""
    for (stream, partition), keys in records.items():
        table = pa.table({"tailnum": pa.array(keys, pa.string()), "seats": pa.array([1] * len(keys), pa.int64())})
        land_file(table, stream, f"{store.root}/topics", partition, 0)
    plan = take_up(made, store, Settings.parse(scheme=scheme)).plan
    assert plan is not None
    run_groups(BatchRef.of(store, plan))
    return Ledger(store, plan.pipeline), plan


def judged(ledger: Ledger, plan: Plan) -> Judgement:
    tables, before = audit(ledger, plan, 0), continuity(ledger, plan)
    return judge(plan, Evidence(**vars(tables), **vars(before)), {}, attempt=0)


@pytest.mark.parametrize("scheme", ["cogroup", "elastic(3)", "tasks(5)"])
@pytest.mark.parametrize("null_keys", ["drop", "own task", "refuse"])
def test_the_kernel_says_of_every_record_what_the_reference_says(store: Store, scheme: str, null_keys: NullKey) -> None:
    made, records = landed(store, null_keys)
    ledger, plan = ran(store, made, records, scheme)
    expected = reference.store(plan, reference.run(plan, records))
    for group in plan.groups:
        ours, theirs = (each.receipt(0, 0, group.group) for each in (ledger, expected))
        assert ours is not None
        assert theirs is not None
        for mine, yours in zip(ours.tasks, theirs.tasks, strict=True):
            assert {(p.input, p.partition): p for p in mine.partitions} == {
                (p.input, p.partition): p for p in yours.partitions
            }
    assert audit(ledger, plan, 0).coverage.equals(audit(expected, plan, 0).coverage)
    judgement = judged(ledger, plan)
    assert judgement.success == (null_keys != "refuse"), judgement.findings


def test_a_foreign_record_in_a_landed_file_is_found(store: Store) -> None:
    made, records = landed(store, "drop")
    records["flights", 2].append(next(key for key in TAILS if placement_hash(key) % 4 == 1))
    ledger, plan = ran(store, made, records, "cogroup")
    judgement = judged(ledger, plan)
    failed = [finding.what.split(",")[0] for finding in judgement.findings]
    assert failed == ["Placement", "Keys of stage flights+planes", "Keys of flights in stage flights+planes"]
    assert (
        f"flights-2 at offset {len(records['flights', 2]) - 1}, belongs in partition 1 of 4"
        in judgement.findings[0].what
    )
