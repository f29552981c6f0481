"""The decision on a batch: what it needs, that the first one stays, and that it is the plan's."""

from __future__ import annotations

import pytest

from coset.batches import publication
from coset.batches.attempt import Attempt
from coset.batches.publication import abandon, decide, publish, transaction_version
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Conflict, Refused
from partitioning.model.receipt import Receipt
from partitioning.model.streams import Column
from partitioning.model.verdict import Decision, TableVersion
from partitioning.values import replace
from tests.batches import COLUMNS, NAME, PASSED, data_files, decided, expected, pipeline, planned, rows, run
from tests.there import there


def test_a_decision_needs_every_receipt_and_file_of_the_attempt(store: Store) -> None:
    ledger = Ledger(store, NAME)
    plan = ledger.put_plan(planned(pipeline()))
    with pytest.raises(Refused) as refusal:
        decide(Attempt(ledger, plan, 0), PASSED)
    assert [place.what for finding in refusal.value.findings for place in finding.places] == [
        "group 0 has no receipt",
        "group 1 has no receipt",
    ]
    run(ledger, plan)
    store.put(data_files(store)[0], b"short")
    with pytest.raises(Refused, match="the file has 5 bytes"):
        decide(Attempt(ledger, plan, 0), PASSED)
    assert ledger.verdict(0) is None


def replaced(receipt: Receipt | None, **changes: object) -> Receipt:
    """The receipt as attempt 1, with its first artefact changed."""
    assert receipt is not None
    (task,) = receipt.tasks
    return replace(receipt, attempt=1, tasks=(replace(task, artefacts=(replace(task.artefacts[0], **changes),)),))


@pytest.mark.parametrize("tail", [16, 1 << 16], ids=["a longer footer", "a footer in the file's end"])
def test_a_file_whose_content_is_not_what_its_table_and_receipt_say_is_refused(
    tail: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication, "TAIL", tail)
    ledger = Ledger(store, NAME)
    plan = ledger.put_plan(planned(pipeline()))
    run(ledger, plan)
    path = f"tables/delays/data/plan-0/attempt-1-{NAME}/none.parquet"
    store.put(path, b"no Parquet")
    entry = there(store.head(path))
    ledger.put_receipt(replaced(ledger.receipt(0, 0, 0), records=11), 0)
    ledger.put_receipt(replaced(ledger.receipt(0, 0, 1), path=path, size=entry.size, etag=entry.etag), 0)
    with pytest.raises(Refused) as refusal:
        decide(Attempt(ledger, plan, 1), PASSED)
    assert "the file cannot be read as Parquet" in str(refusal.value)
    assert "the file has 10 records, its receipt says 11" in str(refusal.value)
    assert [len(finding.places) for finding in refusal.value.findings] == [2]


def test_a_file_with_other_columns_than_its_table_is_refused(store: Store) -> None:
    ledger = Ledger(store, NAME)
    plan = ledger.put_plan(planned(pipeline(), columns=(*COLUMNS, Column("seats", "INTEGER"))))
    narrow = planned(pipeline())
    run(ledger, narrow)
    for group in plan.groups:
        receipt = there(ledger.receipt(0, 0, group.group))
        ledger.put_receipt(replace(receipt, plan=digest(plan), attempt=1), 0)
    with pytest.raises(Refused, match="the file has the columns tailnum string, delay int64, its table tailnum"):
        decide(Attempt(ledger, plan, 1), PASSED)
    with pytest.raises(Refused, match=f"the receipt is of the plan {digest(narrow)}"):
        decide(Attempt(ledger, plan, 0), PASSED)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "copies"}, "the plan writes no table 'copies' there"),
        ({"path": f"{NAME}/audits/0/attempt-1/none.parquet"}, "the plan writes no table 'delays' there"),
        ({"path": f"tables/delays/data/plan-0/attempt-0-{NAME}/flights+planes-1.parquet"}, "two tasks say they wrote"),
    ],
    ids=["another table", "outside its table", "another task's"],
)
def test_a_receipt_that_names_a_file_that_is_not_its_tasks_is_refused(
    store: Store, change: dict[str, str], said: str
) -> None:
    ledger = Ledger(store, NAME)
    plan = ledger.put_plan(planned(pipeline()))
    run(ledger, plan)
    ledger.put_receipt(replaced(ledger.receipt(0, 0, 0), **change), 0)
    ledger.put_receipt(replaced(ledger.receipt(0, 0, 1)), 0)
    with pytest.raises(Refused, match=said):
        decide(Attempt(ledger, plan, 1), PASSED)
    assert ledger.verdict(0) is None


def test_the_first_verdict_to_publish_counts_whatever_attempt_comes_later(store: Store) -> None:
    ledger, plan = decided(store.root)
    run(ledger, plan, attempt=1)
    assert decide(Attempt(ledger, plan, 1), replace(PASSED, keys=1)).attempt == 0
    publish(ledger, plan)
    assert rows(store.root) == expected(0)


def test_a_batch_is_not_published_before_it_is_decided(store: Store) -> None:
    ledger = Ledger(store, NAME)
    plan = ledger.put_plan(planned(pipeline()))
    with pytest.raises(Refused, match="batch 0 is not decided"):
        publish(ledger, plan)


def test_a_verdict_on_another_plan_publishes_nothing(store: Store) -> None:
    ledger, _ = decided(store.root)
    other = planned(pipeline("delays", "copies"))
    with pytest.raises(Refused, match="the verdict is on the plan sha256:"):
        publish(ledger, other)


@pytest.mark.parametrize("damage", [b"", b"{", b"flip"])
def test_a_damaged_verdict_is_refused(store: Store, damage: bytes) -> None:
    ledger, plan = decided(store.root)
    key = ledger.key("verdicts", 0)
    whole = there(store.get(key))
    store.put(key, whole.replace(b'"records":10', b'"records":11') if damage == b"flip" else damage)
    with pytest.raises(Refused, match=r"verdicts/0\.json"):
        publish(ledger, plan)
    assert transaction_version(store, NAME, "delays") is None


def test_an_abandoned_batch_is_never_published_and_the_next_one_follows(store: Store) -> None:
    ledger = Ledger(store, NAME)
    plan = ledger.put_plan(planned(pipeline()))
    run(ledger, plan)
    assert abandon(ledger, "wrong input").decision == Decision.ABANDON
    with pytest.raises(Refused, match=r"was decided: abandon \(wrong input\)"):
        publish(ledger, plan)
    with pytest.raises(Conflict, match="already decided: abandon"):
        decide(Attempt(ledger, plan, 0), PASSED)
    after = ledger.put_plan(replace(planned(pipeline(), batch=1), parent=digest(plan)))
    run(ledger, after)
    assert decide(Attempt(ledger, after, 0), PASSED).decision == Decision.PUBLISH
    assert publish(ledger, after).tables == (TableVersion("delays", 1),)
    assert transaction_version(store, NAME, "delays") == 1


def test_only_an_open_undecided_batch_can_be_abandoned(store: Store) -> None:
    with pytest.raises(Refused, match="no batch is open"):
        abandon(Ledger(store, NAME), "nothing there")
    ledger, plan = decided(store.root)
    with pytest.raises(Refused, match="batch 0 is decided: publish"):
        abandon(ledger, "too late")
    publish(ledger, plan)
    with pytest.raises(Refused, match="no batch is open"):
        abandon(ledger, "far too late")
