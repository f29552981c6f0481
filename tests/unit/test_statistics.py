"""Statistics from receipts, and which batch's receipts they are."""

from __future__ import annotations

import pytest

from coset.batches.attempt import Attempt
from coset.batches.history import history, statistics
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.model.artefact import Artefact, Role
from partitioning.model.journal import Effort, Occasion
from partitioning.model.plan import TaskRef
from partitioning.model.receipt import Receipt, TaskReceipt
from partitioning.model.statistics import KeyFigures, TaskFigures, statistics_of
from partitioning.model.verdict import Decision, Verdict
from partitioning.values import replace
from tests.batches import PASSED
from tests.reference import log, pipeline, planned, run, store
from tests.there import there

TAILS: dict[str, list[str | None]] = {
    "flights": ["N7"] * 200 + [f"N{n}" for n in range(90)] + [None],
    "planes": [f"N{n}" for n in range(90)],
}


def _receipts(ledger: Ledger) -> list[Receipt]:
    plan = there(ledger.plan(0))
    found = [ledger.receipt(0, 0, group.group) for group in plan.groups]
    return [receipt for receipt in found if receipt is not None]


def _ran(scheme: str | None = None) -> Ledger:
    made = pipeline(null_keys="drop")
    records = log(made, TAILS)
    plan = planned(made, records, scheme)
    return store(plan, run(plan, records))


def _published(ledger: Ledger, batch: int = 0, attempt: int = 0, decision: Decision = Decision.PUBLISH) -> None:
    plan = there(ledger.plan(batch))
    ledger.put_verdict(Verdict(digest(plan), batch, decision, attempt, PASSED, ()))


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(8)"])
def test_a_stream_is_counted_once_however_many_tasks_read_it(scheme: str) -> None:
    ledger = _ran(scheme)
    plan = there(ledger.plan(0))
    found = statistics_of(plan, _receipts(ledger))
    assert dict(found.records) == {"flights": 291, "planes": 90, "joined": 0}
    assert dict(found.cosets) == {"flights+planes": plan.stages[0].cosets}
    assert found.groups == 2


def test_the_rows_of_a_step_are_those_of_its_files_of_rows() -> None:
    ledger = _ran()
    plan = there(ledger.plan(0))
    rows = Artefact(Role.TABLE, "delays", "tables/delays/data/a.parquet", 10, "e", "sha256:0", 7)
    keys = replace(rows, role=Role.KEYS, records=1000)
    receipts = [
        replace(each, tasks=tuple(replace(task, artefacts=(rows, keys)) for task in each.tasks))
        for each in _receipts(ledger)
    ]
    assert statistics_of(plan, receipts).records["joined"] == 14


def test_a_task_has_what_it_read_what_it_took_and_its_seconds() -> None:
    ledger = _ran("tasks(8)")
    plan = there(ledger.plan(0))
    found = statistics_of(plan, _receipts(ledger))
    assert set(found.tasks) == {TaskRef("flights+planes", number) for number in range(8)}
    assert sum(each.taken or 0 for each in found.tasks.values()) == 290 + 90
    # Four tasks read each partition of planes, two each of flights.
    assert sum(each.records for each in found.tasks.values()) == 2 * 291 + 4 * 90
    assert sum(each.bytes for each in found.tasks.values()) == 2 * 400 + 4 * 200
    assert {each.seconds for each in found.tasks.values()} == {each.records / 1000 for each in found.tasks.values()}


def test_heavy_keys_are_added_up_by_task() -> None:
    ledger = _ran()
    plan = there(ledger.plan(0))
    (key,) = statistics_of(plan, _receipts(ledger)).keys
    assert key == KeyFigures(TaskRef("flights+planes", 0), "N7", {"flights": 201})


def test_figures_do_not_depend_on_the_order_of_receipts() -> None:
    ledger = _ran("tasks(8)")
    plan, receipts = ledger.plan(0), _receipts(ledger)
    assert plan is not None
    assert repr(statistics_of(plan, receipts)) == repr(statistics_of(plan, receipts[::-1]))


def test_the_figures_are_of_the_attempt_that_was_published() -> None:
    ledger = _ran()
    plan = there(ledger.plan(0))
    assert statistics(Attempt.published(ledger, plan)) is None
    for group in plan.groups:
        tasks = tuple(TaskReceipt(task, (), (), 9000) for task in group.tasks)
        ledger.put_receipt(Receipt(digest(plan), group.group, 1, tasks), 0)
    _published(ledger, attempt=1)
    found = there(statistics(Attempt.published(ledger, plan)))
    assert {each.seconds for each in found.tasks.values()} == {9.0}
    assert set(found.tasks.values()) == {TaskFigures(0, 300, 9.0, 0)}


def test_a_batch_took_from_its_first_group_to_its_last_and_the_cpu_of_all_tasks() -> None:
    ledger = _ran()
    plan = there(ledger.plan(0))
    # Those of the attempt 0 are as earlier versions wrote them.
    assert Attempt(ledger, plan, 0).missing == []
    assert Attempt(ledger, plan, 0).effort is None
    for number, group in enumerate(plan.groups):
        assert Attempt(ledger, plan, 1).effort is None
        tasks = tuple(TaskReceipt(task, (), (), 9000, cpu_milliseconds=700) for task in group.tasks)
        ran = Occasion(5_000 - number, 6_000 + number, "here")
        ledger.put_receipt(Receipt(digest(plan), group.group, 1, tasks, ran), 0)
    count, groups = sum(len(group.tasks) for group in plan.groups), len(plan.groups)
    assert Attempt(ledger, plan, 1).effort == Effort(5_001 - groups, 5_999 + groups, 700 * count)


def test_a_batch_whose_receipts_are_gone_has_no_figures() -> None:
    ledger = _ran()
    plan = there(ledger.plan(0))
    _published(ledger, attempt=1)
    assert statistics(Attempt.published(ledger, plan)) is None
    assert history(ledger, plan, 3) == ()


def test_history_has_the_published_batches_oldest_first() -> None:
    ledger = _ran()
    first = there(ledger.plan(0))
    _published(ledger)
    parent, plans = first, [first]
    for batch, decision in enumerate((Decision.PUBLISH, Decision.ABANDON, Decision.PUBLISH), start=1):
        plan = ledger.put_plan(replace(first, batch=batch, parent=digest(parent)))
        for group in plan.groups:
            tasks = tuple(TaskReceipt(task, (), (), 1000) for task in group.tasks)
            ledger.put_receipt(Receipt(digest(plan), group.group, 0, tasks), batch)
        _published(ledger, batch, decision=decision)
        parent = plan
        plans.append(plan)
    assert [each.batch for each in history(ledger, plans[-1], 9)] == [0, 1, 3]
    assert [each.batch for each in history(ledger, plans[-1], 2)] == [1, 3]
    assert history(ledger, None, 2) == ()
