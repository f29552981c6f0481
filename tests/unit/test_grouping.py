"""Grouping of tasks: what a grouper is given and answers, what the built-in ones do, and what reads together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from partitioning.cosets import assign
from partitioning.documents.document import decode, encode
from partitioning.errors import Refused
from partitioning.explain.reason_texts import move_reason
from partitioning.model.order import read_together
from partitioning.model.plan import Plan, TaskGroup, TaskMove, TaskRef
from partitioning.model.reasons import (
    AtLocation,
    Bounds,
    GroupCount,
    GroupElsewhere,
    GroupJoined,
    GroupLeft,
    HeldTooLittle,
    HeldTooMuch,
    LocationFull,
    LocationGone,
    LocationUnknown,
    MakesRoom,
    MoveReason,
    OtherWave,
    PutBy,
    Said,
    Unit,
)
from partitioning.model.schemes import elastic
from partitioning.model.statistics import Locality
from partitioning.planning.groups.built_in import balanced_sticky
from partitioning.planning.groups.grouping import Grouped, SizedTask, grouped
from partitioning.values import replace
from tests.plans import plan_of, tails, tails_found

TASKS = [SizedTask(TaskRef("views", number), 10 * number, number, {}) for number in range(6)]
REFS = [each.task for each in TASKS]
STICKY, ROBIN = "balanced-sticky", "round-robin"


def plan(*groups: TaskGroup) -> Plan:
    """A plan of which only the task groups matter."""
    return Plan("sums", 3, None, "0", (), (), (), groups, 1, STICKY, (), {})


def test_groups_are_numbered_on_hold_tasks_in_order_and_are_never_more_than_these() -> None:
    made = grouped(TASKS, ROBIN, 2)
    assert made.groups == (TaskGroup(0, (*REFS[::2],), 60, 6), TaskGroup(1, (*REFS[1::2],), 90, 9))
    assert made.moves == ()
    assert [group.tasks for group in grouped(TASKS[:2], STICKY, 9).groups] == [(REFS[0],), (REFS[1],)]
    assert grouped([], STICKY, 9).groups == ()
    made = grouped(TASKS, STICKY, 2, wave=1, first=5)
    assert [(group.group, group.wave) for group in made.groups] == [(5, 1), (6, 1)]


@pytest.mark.parametrize("groups", [0, -3])
def test_less_than_one_group_is_refused(groups: int) -> None:
    with pytest.raises(Refused, match="task groups asked for"):
        grouped(TASKS, STICKY, groups)


def test_a_group_of_a_later_wave_stays_itself_when_earlier_ones_change_its_number() -> None:
    before = plan(
        TaskGroup(0, (), 0, 0), TaskGroup(1, (*REFS[:3],), 0, 0, wave=1), TaskGroup(2, (*REFS[3:],), 0, 0, wave=1)
    )
    equal = [SizedTask(task, 1, 1, {}) for task in REFS]
    where = Locality({1: "h1", 2: "h2"}, {})
    made = grouped(equal, STICKY, 2, wave=1, first=4, previous=before, locality=where)
    assert [(group.group, group.tasks, group.location) for group in made.groups] == [
        (4, (*REFS[:3],), "h1"),
        (5, (*REFS[3:],), "h2"),
    ]
    assert made.moves == ()


def test_a_task_moves_if_its_stage_changed_wave_and_not_if_it_is_new_or_gone() -> None:
    before = plan(TaskGroup(0, (*REFS,), 0, 0, wave=1))
    (group,) = grouped(TASKS, STICKY, 1, previous=before).groups
    assert group.tasks == (*REFS,)
    assert grouped(TASKS, STICKY, 1, previous=before).moves == tuple(TaskMove(task, 0, 0, OtherWave()) for task in REFS)
    before = plan(TaskGroup(0, (TaskRef("clicks", 0), REFS[0]), 0, 0))
    assert grouped(TASKS, STICKY, 1, previous=before).moves == ()


def test_every_task_that_moves_has_a_reason_whatever_the_grouper() -> None:
    before = plan(TaskGroup(0, (*REFS[:4],), 0, 0), TaskGroup(1, (REFS[4],), 0, 0), TaskGroup(2, (REFS[5],), 0, 0))
    made = grouped(TASKS, ROBIN, 2, previous=before)
    assert made.moves == (
        TaskMove(REFS[1], 0, 1, PutBy("round-robin")),
        TaskMove(REFS[3], 0, 1, PutBy("round-robin")),
        TaskMove(REFS[4], 1, 0, PutBy("round-robin")),
        TaskMove(REFS[5], 2, 1, GroupLeft(2, LocationUnknown())),
    )


def test_all_that_is_wrong_with_an_answer_is_found_at_once() -> None:
    with pytest.raises(Refused) as caught:
        grouped(TASKS, "tests.groupers:careless", 3)
    assert [finding.what for finding in caught.value.findings] == [
        "its answer has no group for views/0",
        "its answer has a group for what is no task of this wave: nothing/7",
        "its answer has tasks in groups that are not there: 99",
        "its answer has no task in group 1, 2",
    ]
    assert {finding.where for finding in caught.value.findings} == {"grouper 'tests.groupers:careless'"}


@pytest.mark.parametrize(
    ("grouper", "what"),
    [
        ("tests.groupers:talkative", "it answered str"),
        ("tests.groupers:wordy", "its answer has what is no reason for views/0"),
        ("tests.groupers:nobody", "cannot be imported"),
        ("fair", "no such grouper"),
    ],
)
def test_what_is_no_grouper_is_refused(grouper: str, what: str) -> None:
    with pytest.raises(Refused, match=what):
        grouped(TASKS, grouper, 3)


BOUNDS = Bounds(Unit.RECORDS, 900, 1000, 1100)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (OtherWave(), "its stage was in another wave"),
        (GroupLeft(2, LocationUnknown()), "group 2 left"),
        (GroupLeft(2, AtLocation("h1", 3)), "group 2 left, and group 3 is at its location h1"),
        (GroupLeft(2, LocationFull("h1")), "group 2 left, and the groups at its location h1 are full"),
        (GroupLeft(2, LocationGone("h1")), "group 2 left, and its location h1 has no group now"),
        (GroupElsewhere(2, "h0", AtLocation("h1", 3)), "group 2 is at h0 now, and group 3 is at its location h1"),
        (
            GroupElsewhere(2, "h0", LocationFull("h1")),
            "group 2 is at h0 now, and the groups at its location h1 are full",
        ),
        (HeldTooMuch(2, 1200, BOUNDS), "group 2 would hold 1,200 records, 900 to 1,100 are balanced (mean 1,000)"),
        (HeldTooLittle(3, 80, BOUNDS), "group 3 would hold 80 records, 900 to 1,100 are balanced (mean 1,000)"),
        (GroupJoined(3), "group 3 joined"),
        (MakesRoom(BOUNDS), "it makes room: 900 to 1,100 are balanced (mean 1,000)"),
        (PutBy("round-robin"), "round-robin put it there"),
        (Said("the last group has room"), "the last group has room"),
        (GroupCount(4, 3), "4 task groups → 3"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_a_reason_is_stored_as_a_code_with_figures_and_shown_in_words(reason: MoveReason, words: str) -> None:
    stored = replace(plan(), moves=(TaskMove(REFS[0], 2, 3, reason),))
    assert decode(Plan, encode(stored), "plan") == stored
    assert move_reason(reason) == words


# ---- the built-in groupers


def sized(sizes: Sequence[int]) -> list[SizedTask]:
    return [SizedTask(TaskRef("views", number), size, 1, {}) for number, size in enumerate(sizes)]


def regrouped(
    sizes: Sequence[int],
    before: Sequence[int],
    groups: Sequence[int],
    sites: Mapping[int, str] | None = None,
    places: Sequence[str | None] = (),
) -> tuple[list[int], list[str]]:
    """The groups of all tasks, and the reasons of those that moved; -1 stands for a new task."""
    tasks = sized(sizes)
    was = {each.task: group for each, group in zip(tasks, before, strict=True) if group >= 0}
    ran = {each.task: place for each, place in zip(tasks, places, strict=False) if place is not None}
    answer: Grouped = balanced_sticky(tasks, groups, was, Locality(sites or {}, ran))
    reasons = {task: move_reason(why) for task, why in answer.why.items()}
    assert {task for task, group in was.items() if answer.groups[task] != group} == set(reasons)
    return [answer.groups[each.task] for each in tasks], [reasons[task] for task in sorted(reasons)]


def test_records_count_without_bytes_and_a_users_grouper_gives_its_own_reasons() -> None:
    tasks = [SizedTask(TaskRef("views", number), 0, records, {}) for number, records in enumerate([1, 7, 4, 3])]
    assert [group.records for group in grouped(tasks, "balanced-sticky", 2).groups] == [8, 7]
    before = plan(TaskGroup(0, (*REFS[:5],), 0, 0), TaskGroup(1, (REFS[5],), 0, 0))
    made = grouped(TASKS, "tests.groupers:all_in_the_last", 2, previous=before)
    assert [len(group.tasks) for group in made.groups] == [1, 5]
    assert made.moves[0] == TaskMove(REFS[1], 0, 1, Said("the last group has room"))


def test_a_balanced_grouping_is_left_and_another_balanced_with_the_reason() -> None:
    assert regrouped([100, 110, 90, 100], [1, 0, 1, 0], [0, 1]) == ([1, 0, 1, 0], [])
    assert regrouped([40, 60, 40, 60], [0, 0, 0, 1], [0, 1]) == (
        [0, 0, 1, 1],
        ["group 0 would hold 140 bytes, 90 to 110 are balanced (mean 100)"],
    )
    groups, why = regrouped([40] * 8, [0, 0, 0, 1, 1, 1, 2, 2], [0, 1, 2])
    assert (groups, why) == ([0, 0, 0, 1, 1, 1, 2, 2], [])
    groups, why = regrouped([10] * 30, [0] * 11 + [1] * 11 + [2] * 8, [0, 1, 2])
    assert [groups.count(group) for group in (0, 1, 2)] in ([10, 11, 9], [11, 10, 9])
    assert why == ["group 2 would hold 80 bytes, 90 to 110 are balanced (mean 100)"]


def test_a_group_that_joins_gets_its_share_and_nothing_else_moves() -> None:
    groups, why = regrouped([1] * 12, [0] * 6 + [1] * 6, [0, 1, 2])
    assert [groups.count(group) for group in (0, 1, 2)] == [4, 4, 4]
    assert set(why) == {
        "group 0 would hold 6 bytes, 4 to 4 are balanced (mean 4)",
        "group 1 would hold 6 bytes, 4 to 4 are balanced (mean 4)",
    }
    groups, why = regrouped([1] * 132, [task // 11 for task in range(132)], range(13))
    assert (groups.count(12), why) == (9, ["group 12 joined"] * 9)


def test_a_group_that_is_elsewhere_now_gives_its_tasks_to_one_that_is_where_they_ran() -> None:
    groups, why = regrouped([1] * 4, [0, 0, 1, 1], [0, 1], {0: "h1", 1: "h0"}, ["h0", "h0", "h1", "h1"])
    assert groups == [1, 1, 0, 0]
    assert why[0] == "group 0 is at h1 now, and group 1 is at its location h0"


def test_a_large_task_that_fits_nowhere_has_smaller_ones_make_room() -> None:
    groups, why = regrouped([50, 50, 50, 30, 20, 60, 40], [0, 0, 0, 1, 1, 2, 2], [0, 1, 2])
    loads = [
        sum(size for size, group in zip([50, 50, 50, 30, 20, 60, 40], groups, strict=True) if group == g)
        for g in (0, 1, 2)
    ]
    assert (loads, len(why)) == ([100, 100, 100], 1)
    groups, why = regrouped([80, 80, 5, 35, 40, 80, 40, 0], [0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 2])
    assert any(reason.startswith("it makes room") for reason in why)
    _, why = regrouped([33] * 30 + [95], [task // 3 for task in range(30)] + [10], range(10))
    assert why == ["it makes room: 90 to 132 are balanced (mean 108)"] * 2 + ["group 10 left"]


def under_elastic(factor: int, before: Mapping[TaskRef, int], groups: int) -> list[list[int]]:
    """The groups of Views and Clicks under elastic(factor), as task numbers."""
    tasks = [
        SizedTask(TaskRef("views+clicks", task.task), 1, 1, task.reads)
        for task in assign([("views", 8), ("clicks", 12)], elastic(factor)).tasks
    ]
    answer = balanced_sticky(tasks, range(groups), before, Locality())
    return [[each.task.task for each in tasks if answer.groups[each.task] == group] for group in range(groups)]


def test_tasks_that_read_the_same_partition_are_in_one_group_unless_balance_asks() -> None:
    assert under_elastic(2, {}, 4) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert under_elastic(4, {}, 2) == [[0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15]]
    assert under_elastic(4, {}, 8) == [[0, 8], [1, 9], [2, 10], [3, 11], [4, 12], [5, 13], [6, 14], [7, 15]]
    groups = under_elastic(2, {}, 3)
    assert sorted(map(len, groups)) == [2, 3, 3]
    assert sum({each, each + 4} <= set(group) for group in groups for each in range(4)) == 3
    before = {TaskRef("views+clicks", task): 3 - task for task in range(4)}
    assert under_elastic(2, before, 4) == [[3, 7], [2, 6], [1, 5], [0, 4]]


# ---- which tasks of a group can read together


def companies(scheme: str, groups: int = 1) -> list[list[list[int]]]:
    plan = plan_of(tails(), tails_found(), scheme=scheme, groups=groups)
    return [[[ref.task for ref in tasks] for tasks in read_together(plan, group)] for group in plan.groups]


def test_tasks_of_a_group_that_share_a_partition_of_any_input_read_together() -> None:
    assert companies("cogroup") == [[[0], [1], [2], [3]]]
    assert companies("elastic(2)") == [[[0, 4], [1, 5], [2, 6], [3, 7]]]
    # Tasks 0 and 4 share flights, tasks 0 and 8 planes as well.
    assert companies("tasks(16)") == [[[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]]
    assert companies("tasks(3)") == [[[0, 1, 2]]]
    by_group = companies("elastic(2)", groups=8)
    assert sorted(by_group) == [[[number]] for number in range(8)]
