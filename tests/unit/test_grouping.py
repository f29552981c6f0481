"""Grouping: numbers and waves, what a grouper is given, and how its answer is checked."""

from __future__ import annotations

import pytest

from partitioning.documents.document import decode, encode
from partitioning.errors import Refused
from partitioning.explain.reason_texts import move_reason
from partitioning.model.locality import Locality
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
from partitioning.planning.groups.grouping import SizedTask, grouped
from partitioning.values import replace

TASKS = [SizedTask(TaskRef("views", number), 10 * number, number, {}) for number in range(6)]
REFS = [each.task for each in TASKS]
STICKY, ROBIN = "balanced-sticky", "round-robin"


def plan(*groups: TaskGroup) -> Plan:
    """A plan of which only the task groups matter."""
    return Plan("sums", 3, None, "0", (), (), (), groups, key_sample=1)


def test_a_group_says_what_it_reads_and_holds_its_tasks_in_order() -> None:
    made = grouped(TASKS, ROBIN, 2)
    assert made.groups == (TaskGroup(0, (*REFS[::2],), 60, 6), TaskGroup(1, (*REFS[1::2],), 90, 9))
    assert made.moves == ()


def test_there_are_never_more_groups_than_tasks() -> None:
    assert [group.tasks for group in grouped(TASKS[:2], STICKY, 9).groups] == [(REFS[0],), (REFS[1],)]
    assert grouped([], STICKY, 9).groups == ()


@pytest.mark.parametrize("groups", [0, -3])
def test_less_than_one_group_is_refused(groups: int) -> None:
    with pytest.raises(Refused, match="task groups asked for"):
        grouped(TASKS, STICKY, groups)


def test_a_later_wave_is_numbered_on() -> None:
    made = grouped(TASKS, STICKY, 2, wave=1, first=5)
    assert [(group.group, group.wave) for group in made.groups] == [(5, 1), (6, 1)]


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


def test_a_task_whose_stage_changed_wave_says_so() -> None:
    before = plan(TaskGroup(0, (*REFS,), 0, 0, wave=1))
    (group,) = grouped(TASKS, STICKY, 1, previous=before).groups
    assert group.tasks == (*REFS,)
    assert grouped(TASKS, STICKY, 1, previous=before).moves == tuple(TaskMove(task, 0, 0, OtherWave()) for task in REFS)


def test_every_task_that_moves_has_a_reason_whatever_the_grouper() -> None:
    before = plan(TaskGroup(0, (*REFS[:4],), 0, 0), TaskGroup(1, (REFS[4],), 0, 0), TaskGroup(2, (REFS[5],), 0, 0))
    made = grouped(TASKS, ROBIN, 2, previous=before)
    assert made.moves == (
        TaskMove(REFS[1], 0, 1, PutBy("round-robin")),
        TaskMove(REFS[3], 0, 1, PutBy("round-robin")),
        TaskMove(REFS[4], 1, 0, PutBy("round-robin")),
        TaskMove(REFS[5], 2, 1, GroupLeft(2, LocationUnknown())),
    )


def test_new_tasks_and_tasks_that_are_gone_did_not_move() -> None:
    before = plan(TaskGroup(0, (TaskRef("clicks", 0), REFS[0]), 0, 0))
    assert grouped(TASKS, STICKY, 1, previous=before).moves == ()


def test_a_users_grouper_is_named_by_its_import_path_and_gives_its_own_reasons() -> None:
    before = plan(TaskGroup(0, (*REFS[:5],), 0, 0), TaskGroup(1, (REFS[5],), 0, 0))
    made = grouped(TASKS, "tests.groupers:all_in_the_last", 2, previous=before)
    assert [len(group.tasks) for group in made.groups] == [1, 5]
    assert made.moves[0] == TaskMove(REFS[1], 0, 1, Said("the last group has room"))


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
