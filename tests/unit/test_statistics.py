"""Statistics from receipts, what is proposed of a batch's size by them, and what its figures are held against."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from coset import expect
from coset.batches.attempt import Attempt
from coset.batches.history import history, statistics
from coset.batches.measuring import figures
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.errors import Refused
from partitioning.model.backfill import Swap, SwapKind
from partitioning.model.journal import Effort, Occasion
from partitioning.model.measures import Measured, as_text
from partitioning.model.placement import MURMUR2, OPAQUE
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import Artefact, Receipt, Role, TaskReceipt
from partitioning.model.statistics import KeyFigures, Statistics, TaskFigures, statistics_of
from partitioning.model.verdict import Decision, GivenUp, Verdict
from partitioning.planning.planner import plan_batch
from partitioning.sizing.proposal import Sized, Targets, propose
from partitioning.values import replace
from tests.batches import PASSED
from tests.memory_store import MemoryStore
from tests.plans import COLUMNS, arrived, plan_of, tails, tails_found
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


def test_heavy_keys_are_added_up_by_task() -> None:
    ledger = _ran()
    plan = there(ledger.plan(0))
    (key,) = statistics_of(plan, _receipts(ledger)).keys
    assert key == KeyFigures(TaskRef("flights+planes", 0), "N7", {"flights": 201})


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


STAGE = "flights+planes"


def joined(flights: int, planes: int, hash: str = MURMUR2) -> Pipeline:
    pipeline = Pipeline("tails", source="s3://landing/topics")
    left = pipeline.stream("flights", key="tailnum", partitions=flights, hash=hash)
    right = pipeline.stream("planes", key="tailnum", partitions=planes, hash=hash)
    left.join(right, "flights.dep_delay", name="joined").write("tails")
    return pipeline


def plan(flights: int = 12, planes: int = 12, records: int = 1000, hash: str = MURMUR2) -> Plan:
    """As many records in each stream partition; a record has 10 bytes."""
    found = [arrived("flights", [records] * flights), arrived("planes", [records] * planes)]
    return plan_of(joined(flights, planes, hash), found)


def sized(made: Plan, targets: Targets, *history: Statistics) -> Sized:
    (stage,) = propose(made, history, targets).stages
    return stage


def ran(tasks: int, batch: int = 0, groups: int | None = None) -> Statistics:
    return Statistics(batch, cosets={STAGE: tasks}, groups=groups)


def timed(tasks: int, size: int, seconds: float, taken: int = 100) -> Statistics:
    figures = {TaskRef(STAGE, task): TaskFigures(100, size, seconds, taken) for task in range(tasks)}
    return Statistics(0, tasks=figures, cosets={STAGE: tasks})


def test_heavier_tasks_are_allowed_by_a_quarter_or_by_the_skew() -> None:
    assert sized(plan(), Targets(bytes=16_000)).tasks == 12
    assert sized(plan(), Targets(bytes=15_999, gain=1)).tasks > 12
    made = plan_of(joined(4, 4), [arrived("flights", [1000, 1000, 1000, 3000]), arrived("planes", [0] * 4)])
    assert sized(made, Targets(bytes=30_000, skew=1.0)).tasks == 4
    assert sized(made, Targets(bytes=30_000, skew=2.0)).tasks == 2


def test_tasks_that_cut_partitions_count_what_they_leave_to_others() -> None:
    # 24 tasks read 20 kB each and keep half of it: 10 kB, and 43 of 100 of the other 10 kB.
    found = sized(plan(), Targets(bytes=14_300, gain=1))
    assert (found.tasks, "14.3 kB of work a task" in found.why) == (24, True)
    assert "records are filtered" in found.why


def test_bounds_hold_and_the_nearest_is_proposed() -> None:
    assert sized(plan(), Targets(bytes=10**9, min_tasks=5)).tasks == 6
    assert sized(plan(), Targets(bytes=1000, max_tasks=7)).tasks <= 7
    assert "; no fewer than 6 are allowed" in sized(plan(), Targets(bytes=10**9, min_tasks=6)).why
    found = sized(plan(), Targets(bytes=1000, max_tasks=96))
    assert "1 to 96 tasks do not reach 1.0 kB a task" in found.why
    assert found.tasks < 96


def test_an_opaque_placement_gets_divisors_of_the_partition_counts_only() -> None:
    made = plan(8, 12, hash=OPAQUE)
    assert [sized(made, Targets(bytes=target)).tasks for target in (200_000, 100_000, 50_000, 1000)] == [1, 2, 4, 4]
    beyond = sized(made, Targets(bytes=1000, min_tasks=6))
    assert beyond.tasks == 4
    assert beyond.why.endswith("; no more than 4 tasks are possible, as the placement is opaque")


def test_seconds_are_turned_into_bytes_at_the_pace_of_what_tasks_took() -> None:
    # 10 kB took 2 s: so half a second is 2.5 kB.
    found = sized(plan(records=100), Targets(bytes=10**9, seconds=0.5, gain=1), timed(2, 10_000, 2.0))
    assert "0.5 s a task, which is 2.5 kB" in found.why
    assert found.tasks == 12
    found = sized(plan(), Targets(bytes=10**9, seconds=0.5), timed(2, 10_000, 2.0, taken=0))
    assert "which is 1.1 kB" in found.why


def test_bytes_decide_without_measured_seconds_or_where_these_allow_more() -> None:
    found = sized(plan(), Targets(bytes=60_000, seconds=0.001))
    assert found.tasks == 4
    assert "no batch has yet shown how many seconds" in found.why
    found = sized(plan(), Targets(bytes=60_000, seconds=60), timed(12, 20_000, 0.001))
    assert found.tasks == 4
    assert "which takes less than 60 s" in found.why


def test_a_change_waits_for_the_cool_down_if_one_is_known_and_bounds_hold() -> None:
    past = [ran(4), ran(2), ran(2)]
    waiting = sized(plan(), Targets(bytes=20_000), *past)
    assert waiting.tasks == 2
    assert waiting.why == "stays at 2: changed 2 batches ago, the next change comes after 3"
    assert sized(plan(), Targets(bytes=20_000), *past, ran(2)).tasks == 12
    assert sized(plan(), Targets(bytes=20_000, cooldown=2), *past).tasks == 12
    assert sized(plan(), Targets(bytes=20_000), ran(2)).tasks == 12
    assert sized(plan(), Targets(bytes=20_000, max_tasks=24), ran(2), ran(40)).tasks == 12


def test_a_change_that_gains_little_is_not_proposed() -> None:
    # 4 tasks have 60 kB each, 6 have 40 kB.
    assert sized(plan(), Targets(bytes=40_000, gain=1.5), ran(4)).tasks == 6
    little = sized(plan(), Targets(bytes=40_000, gain=1.6), ran(4))
    assert (little.tasks, little.why) == (4, "stays at 4: 6 would gain a factor of 1.50 only")
    fewer = sized(plan(), Targets(bytes=60_000, gain=1.6), ran(6))
    assert (fewer.tasks, fewer.why) == (6, "stays at 6: 4 would gain a factor of 1.50 only")


def test_a_stage_that_keeps_no_keys_together_may_get_a_task_for_each_partition() -> None:
    pipeline = Pipeline("large", source="s3://landing/topics")
    left = pipeline.stream("flights", key="tailnum", partitions=8)
    right = pipeline.stream("planes", key="tailnum", partitions=12)
    left.merge(right).write("large")
    made = plan_of(pipeline, [arrived("flights", [1000] * 8), arrived("planes", [1000] * 12)])
    (found,) = propose(made, (), Targets(bytes=8_000, skew=1)).stages
    assert (str(found.scheme), found.tasks) == ("max", 20)
    (fewer,) = propose(made, (), Targets(bytes=13_000)).stages
    assert (str(fewer.scheme), "whole partitions, no filter" in fewer.why) == ("tasks(13)", True)
    planned = plan_of(pipeline, [arrived("flights", [1000] * 8), arrived("planes", [1000] * 12)], scheme="tasks(13)")
    assert Counter(sum(map(len, task.reads.values())) for task in planned.stages[0].tasks) == {1: 6, 2: 7}
    assert [str(stage.scheme) for stage in propose(made, (), Targets(bytes=50_000)).stages] == ["tasks(4)"]


def test_task_groups_are_as_many_as_the_tasks_fill_once_they_have_cooled_down() -> None:
    found = propose(plan(), (), Targets(bytes=20_000, group_tasks=5))
    assert (found.groups, found.why) == (3, "12 tasks, up to 5 a group")
    assert propose(plan(), (), Targets(bytes=20_000, group_tasks=5, max_groups=2)).groups == 2
    assert propose(plan(), (), Targets(bytes=20_000, group_tasks=50, min_groups=2)).groups == 2
    few = Targets(bytes=20_000, group_tasks=4, gain=1.4)
    assert propose(plan(), (ran(12, groups=2), ran(12, groups=5)), few).groups == 5
    kept = propose(plan(), (ran(12, groups=4),), few)
    assert (kept.groups, kept.why) == (4, "stays at 4: 3 would do, which is not less by a factor of 1.4")
    assert propose(plan(), (ran(12, groups=5),), few).groups == 3


def test_a_proposal_plans_as_it_says_and_targets_that_nothing_reaches_are_refused() -> None:
    proposal = propose(plan_of(tails(), tails_found()), (), Targets(bytes=5000))
    settings = proposal.settings(Settings(limit=50))
    made = plan_batch(tails(), tails_found(), {"tail_activity": COLUMNS}, settings=settings)
    assert made is not None
    assert [(stage.name, stage.cosets) for stage in made.stages] == [(one.stage, one.tasks) for one in proposal.stages]
    assert max(len(made.stream("flights").range(number)) for number in range(12)) == 50
    with pytest.raises(Refused) as refused:
        Targets(bytes=0, seconds=0, min_tasks=9, max_tasks=3)
    assert [finding.what for finding in refused.value.findings] == [
        "bytes is 0",
        "seconds is 0",
        "min_tasks is 9, max_tasks is 3",
    ]


ROWS = as_text(expect.rows_as_usual())
TABLE = "tail_activity"
BACKFILL = "tail_activity.backfill-0"


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(MemoryStore(), TABLE)


@pytest.fixture(scope="module")
def measured_plan() -> Plan:
    return plan_of(tails().expecting({TABLE: [ROWS]}), tails_found())


def decided(ledger: Ledger, measured_plan: Plan, batch: int, rows: int, decision: Decision = Decision.PUBLISH) -> None:
    measured = (Measured(TABLE, "rows", rows), Measured(TABLE, "sum(gone)", 1))
    verdict = Verdict(digest(measured_plan), batch, decision, 0, GivenUp("because"), (), None, measured)
    ledger.put_verdict(verdict)


def before(ledger: Ledger, measured_plan: Plan, batch: int, attempt: int = 0) -> Any:
    (row,) = figures(ledger, replace(measured_plan, batch=batch), attempt, (Measured(TABLE, "rows", 7),), {})
    assert (row["figure"], row["value"], row["appended"]) == ("rows", "7", True)
    return json.loads(str(row["before"]))


def test_thirty_published_batches_count_and_none_that_was_given_up(ledger: Ledger, measured_plan: Plan) -> None:
    for batch in range(50):
        given_up = batch % 5 == 3
        decided(ledger, measured_plan, batch, batch, Decision.ABANDON if given_up else Decision.PUBLISH)
    assert before(ledger, measured_plan, 0) == []
    assert before(ledger, measured_plan, 5) == [[0, 0], [1, 1], [2, 2], [4, 4]]
    published = [[batch, batch] for batch in range(50) if batch % 5 != 3]
    assert before(ledger, measured_plan, 50) == published[-30:]


def test_after_a_swap_the_rows_that_readers_see_count_but_not_for_an_attempt_that_was_judged(
    ledger: Ledger, measured_plan: Plan
) -> None:
    for batch in range(3):
        decided(ledger, measured_plan, batch, 10)
    assert before(ledger, measured_plan, 3) == [[0, 10], [1, 10], [2, 10]]
    decided(Ledger(ledger.store, BACKFILL), measured_plan, 1, 20)
    swap = Swap(TABLE, 0, 0, SwapKind.SWAP, (1,), False, "", "ana", "", "2026-11-24T10:00:00+00:00")
    ledger.store.put(f"{TABLE}/swaps/0.json", encode(swap))
    assert before(ledger, measured_plan, 3) == [[0, 10], [1, 10], [2, 10]]
    assert before(ledger, measured_plan, 3, attempt=1) == [[0, 10], [1, 20], [2, 10]]
    assert before(Ledger(ledger.store, BACKFILL), measured_plan, 2) == []


def test_who_expects_nothing_ready_made_reads_nothing(ledger: Ledger, measured_plan: Plan) -> None:
    plain = plan_of(tails().expecting({TABLE: ['{"kwargs":{},"type":"expect_the_best"}']}), tails_found())
    assert figures(ledger, plain, 0, (), {}) == []
    assert list(ledger.store.list("")) == []
