"""Samza's groupers: the same answers where they are taken over, and better ones from ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from partitioning.errors import Refused
from partitioning.model.locality import Locality
from partitioning.model.plan import TaskRef
from partitioning.planning.groups.balance import Balance
from partitioning.planning.groups.grouping import Grouped, SizedTask, grouped
from partitioning.samza.groupers import group_by_container_count, group_by_container_ids
from tests.samza_containers import Compared, cases, located, resized, tasks, totals

BY_COUNT = cases("group_by_container_count.json")
BY_IDS = [case for case in cases("group_by_container_ids.json") if case["kind"] == "ids"]
RESIZED, LOCATED = resized(), located()


def containers(answer: Grouped) -> dict[int, list[str]]:
    """The names of the tasks of each group, sorted as text, as Samza's answers are."""
    found: dict[int, list[str]] = {}
    for task, group in answer.groups.items():
        found.setdefault(group, []).append(task.stage)
    return {group: sorted(names) for group, names in found.items()}


def by_count(case: Mapping[str, Any]) -> Grouped:
    before = {TaskRef(name, 0): int(container) for name, container in case["previous"].items()}
    return group_by_container_count(tasks(case["tasks"]), range(case["containerCount"]), before, Locality())


def named(case: Mapping[str, Any]) -> str:
    return f"{case['id']}-{case['kind']}"


@pytest.mark.parametrize("case", BY_COUNT, ids=named)
def test_group_by_container_count_answers_as_samza(case: Mapping[str, Any]) -> None:
    result = case["result"]
    if result.get("error") == "NullPointerException":
        # The one deviation: as many tasks as before with other names make Samza fail; they are grouped anew.
        assert by_count(case) == by_count({**case, "previous": {}})
    elif "error" in result:
        with pytest.raises(Refused):
            by_count(case)
    else:
        assert containers(by_count(case)) == {int(number): names for number, names in result.items()}


@pytest.mark.parametrize("case", BY_IDS, ids=named)
def test_group_by_container_ids_answers_as_samza(case: Mapping[str, Any]) -> None:
    # Groups have numbers: Samza's ids are numbered in the order of their text. It makes up ids if none are given.
    ids = case["result"] if case["containerIds"] is None else case["containerIds"]
    names = sorted(set(ids))
    groups = [names.index(each) for each in ids]
    if "error" in case["result"]:
        with pytest.raises(Refused):
            group_by_container_ids(tasks(case["tasks"]), groups, {}, Locality())
    else:
        answer = group_by_container_ids(tasks(case["tasks"]), groups, {}, Locality())
        assert {names[group]: found for group, found in containers(answer).items()} == case["result"]


def test_as_many_tasks_with_other_names_are_grouped_anew_where_samza_fails() -> None:
    before = {TaskRef(f"old-{number}", 0): number % 3 for number in range(6)}
    answer = group_by_container_count(tasks([f"new-{number}" for number in range(6)]), range(2), before, Locality())
    assert containers(answer) == {0: ["new-0", "new-2", "new-4"], 1: ["new-1", "new-3", "new-5"]}


@pytest.mark.parametrize("name", ["group_by_container_count", "group_by_container_ids"])
def test_a_pipeline_names_them_by_import_path(name: str) -> None:
    some = [SizedTask(TaskRef("views", number), 0, 0, {}) for number in range(12)]
    first = grouped(some, f"partitioning.samza.groupers:{name}", 3).groups[0]
    # By text views/10 and views/11 come before views/2.
    assert [task.task for task in first.tasks] == [0, 4, 7, 11]


def is_balanced(sizes: Sequence[int]) -> bool:
    balance = Balance.of([1] * sum(sizes), len(sizes))
    return all(balance.least <= size <= balance.most for size in sizes)


@pytest.mark.parametrize("compared", RESIZED + LOCATED, ids=lambda each: f"{each.case}-{each.kind}")
def test_balanced_sticky_moves_no_more_than_samza_at_the_same_balance(compared: Compared) -> None:
    samza, ours = compared.sizes
    assert is_balanced(ours)
    if is_balanced(samza):
        assert compared.moves[1] <= compared.moves[0]
    else:
        # With as many containers as before Samza leaves any imbalance as it is.
        assert compared.kind == "prior-custom"
        assert compared.moves[0] == 0


def test_over_all_cases_it_moves_less_and_balances_no_worse() -> None:
    for compared in (RESIZED, LOCATED):
        assert sum(each.moves[1] for each in compared) < sum(each.moves[0] for each in compared)
        heaviest = [sum(max(each.sizes[side]) for each in compared) for side in (0, 1)]
        assert heaviest[1] <= heaviest[0]
    print(totals())
