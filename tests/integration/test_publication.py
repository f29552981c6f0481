"""A batch is decided once, and published once, whole, and as it was checked: on a real S3 server, by delta-rs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from coset.batches import publication
from coset.batches.attempt import Attempt
from coset.batches.publication import abandon, decide, publish, transaction_version
from coset.batches.tables import logs as tables
from coset.batches.tables.delta import commit
from coset.batches.tables.log_copy import LogCopy
from coset.batches.tables.owners import Owner
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Conflict, Refused
from partitioning.model.receipt import Receipt
from partitioning.model.streams import Column
from partitioning.model.verdict import Decision, TableVersion
from partitioning.values import replace
from tests.batches import COLUMNS, NAME, PASSED, data_files, decided, erase, expected, pipeline, planned, rows, run
from tests.faults import FaultProxy
from tests.forked import at_once
from tests.logs import log_of
from tests.there import there


def log_versions(root: str, table: str = "delays") -> int:
    return log_of(store_at(root), table).version()


def documents(store: Store) -> dict[str, bytes | None]:
    nouns = ("plans", "verdicts", "commits")
    return {entry.key: store.get(entry.key) for noun in nouns for entry in store.list(f"{NAME}/{noun}/")}


def test_a_decided_batch_is_published_with_its_offsets_once(store: Store) -> None:
    ledger, plan = decided(store.root)
    assert transaction_version(store, NAME, "delays") is None
    made = publish(ledger, plan)
    assert rows(store.root) == expected(0)
    assert transaction_version(store, NAME, "delays") == 0
    verdict = there(ledger.verdict(0))
    # The plan names the offsets, the verdict the files.
    assert (made.plan, made.verdict) == (digest(plan), digest(verdict))
    assert made.tables == (TableVersion("delays", 1),)
    first = publish(ledger, plan)
    before = documents(store)
    assert publish(ledger, plan) == first
    assert documents(store) == before
    assert log_versions(store.root) == 1


def test_nothing_is_visible_before_the_publication(store: Store) -> None:
    decided(store.root)
    assert len(data_files(store)) == 2
    assert not list(store.list("tables/delays/_delta_log/"))


def test_batches_follow_each_other_and_rows_add_up(store: Store) -> None:
    ledger, first = decided(store.root)
    publish(ledger, first)
    ledger, second = decided(store.root, batch=1, before=first)
    assert publish(ledger, second).tables == (TableVersion("delays", 2),)
    assert rows(store.root) == sorted(expected(0) + expected(1))


def test_rows_carry_batch_and_task_where_asked_for(store: Store) -> None:
    ledger, plan = decided(store.root, pipeline("delays", lineage=True))
    publish(ledger, plan)
    assert {row[2:] for row in rows(store.root)} == {(0, 0), (0, 1)}


def test_a_batch_without_rows_still_counts_as_a_version_of_its_table(store: Store) -> None:
    ledger = Ledger(store, NAME)
    plan = ledger.put_plan(planned(pipeline()))
    run(ledger, plan, empty=True)
    decide(Attempt(ledger, plan, 0), PASSED)
    assert publish(ledger, plan).tables == (TableVersion("delays", 1),)
    assert transaction_version(store, NAME, "delays") == 0
    assert rows(store.root) == []


def test_a_publication_that_stopped_between_two_tables_is_finished(store: Store) -> None:
    ledger, plan = decided(store.root, pipeline("delays", "copies"))
    verdict = there(ledger.verdict(0))
    commit(store, plan, plan.writes()[0], verdict.rows_of("delays"), Owner.of(store, NAME))
    made = publish(ledger, plan)
    assert [each.table for each in made.tables] == ["delays", "copies"]
    assert rows(store.root) == rows(store.root, "copies") == expected(0)
    assert log_versions(store.root) == 1


def publisher(root: str, number: int) -> Callable[[], str]:
    """What a process does that has loaded the plan; it answers with what the publication says."""
    ledger = Ledger(store_at(root), NAME)
    plan = there(ledger.plan(0))
    return lambda: str(publish(ledger, plan))


@pytest.mark.long
def test_sixteen_processes_publishing_one_batch_make_one_version_of_it(store: Store) -> None:
    ledger, plan = decided(store.root)
    answers = at_once(16, partial(publisher, store.root))
    assert len(set(answers)) == 1
    assert log_versions(store.root) == 1
    assert rows(store.root) == expected(0)
    assert publish(ledger, plan).tables == (TableVersion("delays", 1),)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_publisher_that_slept_through_two_batches_is_refused_by_the_log(
    elsewhere: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, first = decided(store.root)
    real, push = DeltaTable.create_write_transaction, LogCopy.push
    refusals: list[str] = []

    def others() -> None:
        publish(ledger, first)
        publish(*decided(store.root, batch=1, before=first))

    def sleepy(table: DeltaTable, *args: Any, **kwargs: Any) -> None:
        """The sleeper has loaded and checked the table; before it commits, others publish batches 0 and 1."""
        monkeypatch.setattr(DeltaTable, "create_write_transaction", real)
        if elsewhere:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(others).result()
        else:
            others()
        real(table, *args, **kwargs)

    def refusing(copy: LogCopy, after: int) -> None:
        try:
            push(copy, after)
        except CommitFailedError as refusal:
            refusals.append(str(refusal))
            raise

    monkeypatch.setattr(DeltaTable, "create_write_transaction", sleepy)
    monkeypatch.setattr(LogCopy, "push", refusing)
    assert publish(ledger, first).tables == (TableVersion("delays", 1),)
    assert refusals == [f"somebody else has committed _delta_log/{1:020}.json"]
    assert rows(store.root) == sorted(expected(0) + expected(1))
    assert log_versions(store.root) == 2


def test_a_file_that_changed_after_the_verdict_is_refused_and_nothing_published(store: Store) -> None:
    ledger, plan = decided(store.root)
    removed, cut = data_files(store)
    erase(store.root, removed)
    whole = there(store.get(cut))
    store.put(cut, whole[:100])
    with pytest.raises(Refused) as refusal:
        publish(ledger, plan)
    assert [place.what for finding in refusal.value.findings for place in finding.places] == [
        "the file is missing",
        f"the file has 100 bytes, not {len(whole)} bytes",
    ]
    assert refusal.value.findings[0].where == f"{store.root}/{removed}, and 1 more place"
    assert transaction_version(store, NAME, "delays") is None
    store.put(cut, whole[:-1] + b"?")
    with pytest.raises(Refused, match=r"the file has the content sha256:.*, not sha256:"):
        publish(ledger, plan)
    assert ledger.commit(0) is None


def test_a_lost_commit_object_is_made_again_with_the_same_bytes(store: Store) -> None:
    ledger, first = decided(store.root)
    publish(ledger, first)
    before = documents(store)
    ledger, second = decided(store.root, batch=1, before=first)
    publish(ledger, second)
    key = ledger.key("commits", 0)
    erase(store.root, key)
    publish(ledger, first)
    assert store.get(key) == before[key]
    assert rows(store.root) == sorted(expected(0) + expected(1))
    assert log_versions(store.root) == 2


def test_a_table_that_was_compacted_vacuumed_and_checkpointed_keeps_its_batches(store: Store) -> None:
    ledger, first = decided(store.root)
    made = publish(ledger, first)
    table = log_of(store, "delays")
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    assert not [key for key in data_files(store) if "plan-0" in key]
    erase(store.root, ledger.key("commits", 0))
    assert publish(ledger, first) == made
    publish(*decided(store.root, batch=1, before=first))
    assert rows(store.root) == sorted(expected(0) + expected(1))


def test_a_log_is_read_from_its_newest_checkpoint_on(
    store: Store, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CHECKPOINT_EVERY", 5)
    ledger, plan = decided(store.root)
    publish(ledger, plan)
    requests = [_requests(proxy, store)]
    for batch in range(1, 13):
        ledger, plan = decided(store.root, batch=batch, before=plan)
        publish(ledger, plan)
        requests.append(_requests(proxy, store))
    assert requests[8:13] == requests[3:8]
    assert len(rows(store.root)) == 13 * len(expected(0))


def _requests(proxy: FaultProxy, store: Store) -> int:
    """How many requests it takes to read the table's log."""
    return proxy.count(".*", "_delta_log/", lambda: log_of(store, "delays"))


def test_a_table_that_is_ahead_of_a_lost_control_folder_is_refused(store: Store) -> None:
    publish(*decided(store.root))
    erase(store.root, *documents(store))
    ledger = Ledger(store, NAME)
    again = ledger.put_plan(planned(pipeline("delays", "copies")))
    run(ledger, again, attempt=1)
    decide(Attempt(ledger, again, 1), PASSED)
    with pytest.raises(Refused, match="batch 0 in it is of another plan"):
        publish(ledger, again)
    assert rows(store.root) == expected(0)
    assert ledger.commit(0) is None


def test_a_table_that_lost_a_published_batch_is_refused(store: Store) -> None:
    ledger, first = decided(store.root)
    publish(ledger, first)
    erase(store.root, *(entry.key for entry in store.list("tables/delays/_delta_log/")))
    ledger, second = decided(store.root, batch=1, before=first)
    with pytest.raises(Refused, match="the table holds no batch, but batch 0 was published to it"):
        publish(ledger, second)


def test_a_table_that_was_put_back_is_refused(store: Store) -> None:
    ledger, first = decided(store.root)
    publish(ledger, first)
    before = {entry.key for entry in store.list("tables/delays/_delta_log/")}
    ledger, second = decided(store.root, batch=1, before=first)
    publish(ledger, second)
    erase(store.root, *(entry.key for entry in store.list("tables/delays/_delta_log/") if entry.key not in before))
    ledger, third = decided(store.root, batch=2, before=second)
    with pytest.raises(Refused, match="the table holds batch 0 as its newest, but batch 1 was published to it"):
        publish(ledger, third)


def test_a_table_with_other_columns_is_refused_with_both_types(store: Store) -> None:
    publish(*decided(store.root))
    plan = planned(pipeline(), columns=(Column("tailnum", "VARCHAR"), Column("delay", "DOUBLE")), batch=1)
    with pytest.raises(Refused, match="column 'delay' is BIGINT in the table, DOUBLE in the plan"):
        commit(store, plan, plan.writes()[0], [], Owner.of(store, NAME))


def test_a_commit_object_of_another_plan_is_a_conflict(store: Store) -> None:
    ledger, plan = decided(store.root)
    publish(ledger, plan)
    with pytest.raises(Conflict, match="batch 0 has a commit of the plan"):
        publish(ledger, planned(pipeline("delays", "copies")))


def test_plans_verdicts_and_commits_are_never_overwritten(store: Store) -> None:
    ledger, plan = decided(store.root)
    publish(ledger, plan)
    before = documents(store)
    other = planned(pipeline("delays", "copies"))
    assert ledger.put_plan(other) == plan
    decide(Attempt(ledger, plan, 0), replace(PASSED, keys=1))
    with pytest.raises(Refused):
        abandon(ledger, "too late")
    publish(ledger, plan)
    assert documents(store) == before


# ---- the decision


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
