"""The kernel's receipts against the reference's, and both against the proof, on landed files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from coset.batches.auditing.audit import audit
from coset.batches.continuity import continuity
from coset.batches.planning import take_up
from coset.batches.ref import BatchRef
from expectations.checkpoint import Judgement, judge
from expectations.questions import Evidence
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import NullKey
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan
from tests import reference
from tests.landed import land_file
from tests.reference import Log
from tests.running import run_groups

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
