"""Which tasks of a group can read together."""

from __future__ import annotations

from partitioning.model.shared_reads import read_together
from tests.plans import plan_of, tails, tails_found


def companies(scheme: str, groups: int = 1) -> list[list[list[int]]]:
    plan = plan_of(tails(), tails_found(), scheme=scheme, groups=groups)
    return [[[ref.task for ref in tasks] for tasks in read_together(plan, group)] for group in plan.groups]


def test_by_the_greatest_common_divisor_nobody_reads_what_another_does() -> None:
    assert companies("cogroup") == [[[0], [1], [2], [3]]]


def test_tasks_that_share_a_partition_of_any_input_read_together() -> None:
    assert companies("elastic(2)") == [[[0, 4], [1, 5], [2, 6], [3, 7]]]
    # Tasks 0 and 4 share flights, tasks 0 and 8 planes as well.
    assert companies("tasks(16)") == [[[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]]


def test_a_task_that_shares_with_two_that_share_nothing_brings_them_together() -> None:
    assert companies("tasks(3)") == [[[0, 1, 2]]]


def test_only_tasks_of_one_group_do() -> None:
    by_group = companies("elastic(2)", groups=8)
    assert sorted(by_group) == [[[number]] for number in range(8)]
