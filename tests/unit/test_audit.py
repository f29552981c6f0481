"""The audit of a batch whose receipts lie in a ledger in memory."""

from __future__ import annotations

import io
from zipfile import ZipFile

import pyarrow.parquet as pq
import pytest

from coset.batches.auditing import produced
from coset.batches.auditing.audit import audit
from coset.batches.auditing.audit_tables import load, load_some
from partitioning.authoring.words import NullKey
from partitioning.documents.document import digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.errors import Refused
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import Receipt
from partitioning.model.takes import Disposition
from partitioning.values import replace
from tests.reference import Seen, log, pipeline, planned, run, store
from tests.refused import finding_of
from tests.there import there

# The columns of coverage that earlier versions do not have.
ADDED = ["bad_records", "set_aside", "kept_aside", "digest_aside", "digest_kept", "copies_differ"]
TAILS = [f"N{number}" for number in range(40)]
KEYS: dict[str, list[str | None]] = {"flights": [None, *TAILS, *TAILS[:25], None], "planes": [*TAILS]}


def batch(null_keys: NullKey = "drop", scheme: str | None = None) -> tuple[Plan, list[Seen]]:
    made = pipeline(null_keys=null_keys)
    records = log(made, KEYS)
    plan = planned(made, records, scheme)
    return plan, run(plan, records)


def put_again(ledger: Ledger, plan: Plan, receipt: Receipt) -> None:
    """Replace a receipt, as no part of Coset would."""
    key = ledger.key("receipts", plan.batch, f"attempt-{receipt.attempt}", f"group-{receipt.group}")
    ledger.store.put(key, encode(receipt))


@pytest.mark.parametrize("scheme", ["cogroup", "elastic(3)", "tasks(3)", "tasks(1)"])
@pytest.mark.parametrize("null_keys", ["drop", "own task"])
def test_a_correct_run_covers_every_stream_partition(scheme: str, null_keys: NullKey) -> None:
    plan, seen = batch(null_keys, scheme)
    found = audit(store(plan, seen), plan, 0)

    rows = found.coverage
    assert list(zip(rows.input, rows.partition, strict=True)) == [
        *(("flights", number) for number in range(4)),
        *(("planes", number) for number in range(2)),
    ]
    assert (rows.planned == rows.end - rows.start).all()
    assert (rows.read_min == rows.planned).all()
    assert (rows.read_max == rows.planned).all()
    assert (rows.taken + rows.dropped == rows.planned).all()
    assert (rows.digest_found == rows.digest_planned).all()
    assert rows[["disorder", "foreign", "stray", "refused_nulls"]].sum().sum() == 0
    assert (rows.dropped.sum(), rows.nulls.sum()) == ((2, 0) if null_keys == "drop" else (0, 2))
    assert found.violations.empty


def test_every_key_taken_is_there_with_its_task_and_place() -> None:
    plan, seen = batch()
    keys = audit(store(plan, seen), plan, 0).keys
    expected: dict[tuple[int, str, int, str | None], int] = {}
    for each in seen:
        if each.disposition is Disposition.TAKEN:
            expected.setdefault((each.task.task, each.stream, each.partition, each.key), each.offset)
    places = zip(keys.task, keys.input, keys.partition, keys.key, strict=True)
    assert dict(zip(places, keys.offset, strict=True)) == expected


def test_records_without_a_key_that_are_refused_are_counted_and_named() -> None:
    plan, seen = batch("refuse")
    found = audit(store(plan, seen), plan, 0)
    assert found.coverage.refused_nulls.sum() == 2
    assert found.violations[["violation", "input"]].values.tolist() == [["null key", "flights"]] * 2
    assert found.violations.sentence[0].endswith("has no key, and flights refuses records without one")


def test_what_is_audited_and_stored_is_read_back_or_to_be_made_again() -> None:
    plan, seen = batch("refuse")
    ledger = store(plan, seen)
    made = audit(ledger, plan, 0)
    read = load(ledger, plan, 0)
    assert read.coverage.equals(made.coverage)
    assert read.keys.equals(made.keys)
    assert read.violations.equals(made.violations)
    plan, seen = batch()
    ledger = store(plan, seen)
    assert audit(ledger, plan, 0).keys.equals(audit(ledger, plan, 0).keys)
    plan, seen = batch()
    ledger = store(plan, seen)
    audit(ledger, plan, 0)
    key = f"{plan.pipeline}/audits/{plan.batch}/attempt-0/tables.zip"
    ledger.store.put(key, (ledger.store.get(key) or b"")[:-30])
    with pytest.raises(Refused, match=r"the audit tables cannot be read[\s\S]*tables.zip[\s\S]*coset run delays"):
        load(ledger, plan, 0)


def test_tables_of_earlier_versions_lie_in_files_of_their_own_and_lack_columns() -> None:
    plan, seen = batch("refuse")
    ledger = store(plan, seen)
    made, key = audit(ledger, plan, 0), f"{plan.pipeline}/audits/{plan.batch}/attempt-0"
    packed = ledger.store.get(f"{key}/tables.zip") or b""
    ledger.store.delete(f"{key}/tables.zip")
    with ZipFile(io.BytesIO(packed)) as tables:
        for name in set(tables.namelist()) - {"closed.parquet"}:
            table = pq.read_table(io.BytesIO(tables.read(name)))
            older = table.drop_columns([each for each in ADDED if each in table.column_names])
            pq.write_table(older, sink := io.BytesIO())
            ledger.store.put(f"{key}/{name}", sink.getvalue())
    found = load_some(ledger, plan, 0, "coverage", "violations")
    assert list(found["coverage"].columns) == list(made.coverage.columns)
    assert found["coverage"].drop(columns=ADDED).equals(made.coverage.drop(columns=ADDED))
    assert found["violations"].equals(made.violations)
    with pytest.raises(Refused, match=r"^the audit table is missing[^\n]*\n[^\n]*attempt-0/closed.parquet"):
        load(ledger, plan, 0)


def test_what_an_audit_lacks_or_is_of_another_plan_is_refused() -> None:
    plan, seen = batch()
    with pytest.raises(Refused, match=r"audit table is missing[\s\S]*coverage[\s\S]*coset run delays"):
        load(store(plan, seen), plan, 0)
    ledger = store(plan, seen)
    other = replace(plan, key_sample=7)
    with pytest.raises(Refused, match=f"the receipt is of plan {digest(plan)}, not of {digest(other)}"):
        audit(ledger, other, 0)
    ledger = store(plan, seen)
    receipt = there(ledger.receipt(0, 0, 0))
    put_again(ledger, plan, replace(receipt, tasks=(replace(receipt.tasks[0], artefacts=()),)))
    with pytest.raises(Refused, match=r"the sampled keys of task flights[+]planes/0 are missing"):
        audit(ledger, plan, 0)


def test_keys_in_two_tasks_come_first_when_there_are_too_many_to_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produced, "KEYS_JUDGED", 5)
    plan, seen = batch()
    victim = next(each for each in seen if each.key == "N39" and each.stream == "planes")
    other = TaskRef(victim.task.stage, 1 - victim.task.task)
    wrong = replace(victim, task=other, partition=1 - victim.partition)
    keys = audit(store(plan, [*seen, wrong]), plan, 0).keys
    assert len(keys) == 5
    assert keys.key[:3].tolist() == ["N39"] * 3


def test_a_missing_receipt_is_refused_with_the_command_that_makes_it() -> None:
    plan, seen = batch()
    whole = store(plan, seen)
    ledger = Ledger(type(whole.store)(), plan.pipeline)
    receipt = there(whole.receipt(0, 0, 0))
    ledger.put_receipt(receipt, 0)
    finding = finding_of(audit, ledger, plan, 0)
    assert "task group 1 of batch 0 has no receipt" in finding.what
    assert f"--digest {digest(plan)} --group 1" in finding.then
    assert "coset run delays" in finding.then


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("another attempt", "the receipt is of group 0, attempt 3"),
        ("a task left out", "task flights[+]planes/0 has 0 receipts, planned is 1"),
        ("a task twice", "task flights[+]planes/0 has 2 receipts, planned is 1"),
        ("a task of another group", "task flights[+]planes/1 has 1 receipts, planned is 0"),
        ("a partition left out", r"task flights[+]planes/0 does not account for flights-0@\[0,"),
        ("a partition twice", "task flights[+]planes/0 accounts 2 times for flights-0"),
        ("another range", r"task flights[+]planes/0 accounts for flights-0@\[1,.*not planned for it"),
    ],
)
def test_a_receipt_that_does_not_fit_its_plan_is_refused(fault: str, says: str) -> None:
    plan, seen = batch()
    ledger = store(plan, seen)
    receipt, second = ledger.receipt(0, 0, 0), ledger.receipt(0, 0, 1)
    assert receipt is not None
    assert second is not None
    (task,) = receipt.tasks
    first, *others = task.partitions
    changed = {
        "another attempt": replace(receipt, attempt=3),
        "a task left out": replace(receipt, tasks=()),
        "a task twice": replace(receipt, tasks=(task, task)),
        "a task of another group": replace(receipt, tasks=(task, *second.tasks)),
        "a partition left out": replace(receipt, tasks=(replace(task, partitions=tuple(others)),)),
        "a partition twice": replace(receipt, tasks=(replace(task, partitions=(first, first, *others)),)),
        "another range": replace(receipt, tasks=(replace(task, partitions=(replace(first, start=1), *others)),)),
    }[fault]
    key = ledger.key("receipts", 0, "attempt-0", "group-0")
    ledger.store.put(key, encode(changed))
    with pytest.raises(Refused, match=says):
        audit(ledger, plan, 0)


def test_sampled_keys_that_are_not_those_counted_are_refused() -> None:
    plan, seen = batch()
    ledger = store(plan, seen)
    receipt, other = ledger.receipt(0, 0, 0), ledger.receipt(0, 0, 1)
    assert receipt is not None
    assert other is not None
    put_again(ledger, plan, replace(receipt, tasks=(replace(receipt.tasks[0], artefacts=other.tasks[0].artefacts),)))
    with pytest.raises(Refused, match=r"task flights[+]planes/0 sampled .* keys, its file holds .* others"):
        audit(ledger, plan, 0)
