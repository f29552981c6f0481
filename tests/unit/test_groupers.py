"""The built-in groupers: balance, few moves, locations, shared reading, and the reasons they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.cosets.assignment import assign
from partitioning.explain.reason_texts import move_reason
from partitioning.model.locality import Locality
from partitioning.model.plan import TaskRef
from partitioning.model.schemes import elastic
from partitioning.planning.groups.built_in import balanced_sticky
from partitioning.planning.groups.grouping import Grouped, SizedTask, grouped


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


def test_records_count_where_no_bytes_are_known() -> None:
    tasks = [SizedTask(TaskRef("views", number), 0, records, {}) for number, records in enumerate([1, 7, 4, 3])]
    assert [group.records for group in grouped(tasks, "balanced-sticky", 2).groups] == [8, 7]


def test_a_balanced_grouping_is_left_as_it_is() -> None:
    assert regrouped([100, 110, 90, 100], [1, 0, 1, 0], [0, 1]) == ([1, 0, 1, 0], [])


def test_an_unbalanced_grouping_is_balanced_although_there_are_as_many_groups() -> None:
    assert regrouped([40, 60, 40, 60], [0, 0, 0, 1], [0, 1]) == (
        [0, 0, 1, 1],
        ["group 0 would hold 140 bytes, 90 to 110 are balanced (mean 100)"],
    )


def test_a_group_that_holds_little_is_given_more() -> None:
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


def test_a_group_that_joins_is_reason_enough_where_no_other_holds_too_much() -> None:
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


def test_tasks_that_read_the_same_partition_are_in_one_group() -> None:
    assert under_elastic(2, {}, 4) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert under_elastic(4, {}, 2) == [[0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15]]


def test_a_family_too_large_for_a_group_is_cut_where_it_shares_least() -> None:
    assert under_elastic(4, {}, 8) == [[0, 8], [1, 9], [2, 10], [3, 11], [4, 12], [5, 13], [6, 14], [7, 15]]


def test_sharing_gives_way_to_balance() -> None:
    groups = under_elastic(2, {}, 3)
    assert sorted(map(len, groups)) == [2, 3, 3]
    assert sum({each, each + 4} <= set(group) for group in groups for each in range(4)) == 3


def test_a_new_task_joins_those_that_read_the_same() -> None:
    before = {TaskRef("views+clicks", task): 3 - task for task in range(4)}
    assert under_elastic(2, before, 4) == [[3, 7], [2, 6], [1, 5], [0, 4]]
