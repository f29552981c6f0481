"""Schemes and assignments, on the worked examples of SAMZA-71."""

from __future__ import annotations

import pytest

from partitioning.cosets.assignment import Reading, assign, assign_owned, assign_whole
from partitioning.errors import Refused
from partitioning.model.schemes import COGROUP, MAX, Scheme
from partitioning.model.takes import Residues, Task
from tests.coset_rule import tasks_of


def mapping(streams: list[tuple[str, int]], scheme: Scheme) -> dict[str, list[int]]:
    """`IS1:0` and the like to the tasks that read it, as SAMZA-71 lists them."""
    found: dict[str, list[int]] = {f"{name}:{number}": [] for name, count in streams for number in range(count)}
    for task in assign(streams, scheme).tasks:
        for name, numbers in task.reads.items():
            for number in numbers:
                found[f"{name}:{number}"].append(task.task)
    return found


def test_max_of_4_and_8_is_12_tasks_in_declared_order() -> None:
    assert mapping([("IS2", 8), ("IS1", 4)], MAX) == {
        "IS2:0": [0], "IS2:1": [1], "IS2:2": [2], "IS2:3": [3],
        "IS2:4": [4], "IS2:5": [5], "IS2:6": [6], "IS2:7": [7],
        "IS1:0": [8], "IS1:1": [9], "IS1:2": [10], "IS1:3": [11],
    }  # fmt: skip


def test_max_follows_the_declared_order_not_the_names() -> None:
    assert mapping([("IS1", 4), ("IS2", 8)], MAX)["IS2:0"] == [4]


def test_each_task_of_max_reads_one_partition_and_nothing_else() -> None:
    assert assign([("IS2", 8), ("IS1", 4)], MAX).tasks[9] == Task(9, {"IS1": (1,)}, keyless={"IS1": (1,)})


def test_cogroup_of_8_and_12_is_4_tasks_by_partition_mod_4() -> None:
    assert mapping([("IS1", 8), ("IS2", 12)], COGROUP) == {
        "IS1:0": [0], "IS1:1": [1], "IS1:2": [2], "IS1:3": [3],
        "IS1:4": [0], "IS1:5": [1], "IS1:6": [2], "IS1:7": [3],
        "IS2:0": [0], "IS2:1": [1], "IS2:2": [2], "IS2:3": [3],
        "IS2:4": [0], "IS2:5": [1], "IS2:6": [2], "IS2:7": [3],
        "IS2:8": [0], "IS2:9": [1], "IS2:10": [2], "IS2:11": [3],
    }  # fmt: skip


def test_cogroup_of_4_and_8_is_4_tasks() -> None:
    assert len(assign([("IS1", 4), ("IS2", 8)], COGROUP).tasks) == 4


def test_cogroup_of_4_and_6_is_2_tasks() -> None:
    assert [task.reads for task in assign([("IS1", 4), ("IS2", 6)], COGROUP).tasks] == [
        {"IS1": (0, 2), "IS2": (0, 2, 4)},
        {"IS1": (1, 3), "IS2": (1, 3, 5)},
    ]


@pytest.mark.parametrize(("member", "in_is1", "in_is2", "task"), [(1213, 5, 1, 1), (1211, 3, 11, 3)])
def test_the_member_ids_that_samza_71_walks_through(member: int, in_is1: int, in_is2: int, task: int) -> None:
    assert (member % 8, member % 12) == (in_is1, in_is2)
    found = mapping([("IS1", 8), ("IS2", 12)], COGROUP)
    assert found[f"IS1:{in_is1}"] == found[f"IS2:{in_is2}"] == [task]


def test_cogroup_needs_no_filter() -> None:
    assert all(task.filters == {} for task in assign([("IS1", 8), ("IS2", 12)], COGROUP).tasks)


def test_elastic_allows_more_tasks_than_partitions_and_filters_where_it_must() -> None:
    tasks = assign([("IS1", 4), ("IS2", 8)], Scheme.parse("elastic(2)")).tasks
    assert len(tasks) == 8
    keyless = {"IS2": (6,)}
    assert tasks[6] == Task(6, {"IS1": (2,), "IS2": (6,)}, {"IS1": Residues(8, (6,))}, owns=(6,), keyless=keyless)
    assert tasks[2].keyless == {"IS1": (2,), "IS2": (2,)}


def test_tasks_may_be_fewer_than_the_gcd() -> None:
    tasks = assign([("IS1", 8), ("IS2", 12)], Scheme.parse("tasks(2)")).tasks
    assert [task.reads["IS1"] for task in tasks] == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert all(task.filters == {} for task in tasks)


def test_as_many_tasks_as_the_least_common_multiple_read_one_partition_of_each_stream() -> None:
    tasks = assign([("IS1", 8), ("IS2", 12)], Scheme.parse("tasks(24)")).tasks
    assert all(len(numbers) == 1 for task in tasks for numbers in task.reads.values())
    assert tasks[17].filters == {"IS1": Residues(24, (17,)), "IS2": Residues(24, (17,))}


def test_a_partition_is_read_by_the_tasks_that_can_hold_its_keys() -> None:
    assert tasks_of(1, 4, 6) == (1, 3, 5)
    assert tasks_of(5, 8, 4) == (1,)


@pytest.mark.parametrize("text", ["max", "cogroup", "elastic(3)", "tasks(7)"])
def test_a_scheme_prints_and_parses_back(text: str) -> None:
    assert str(Scheme.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("round-robin", "unknown scheme 'round-robin'"),
        ("", "unknown scheme"),
        ("tasks(0)", "asks for 0 tasks"),
        ("tasks(-4)", "asks for -4 tasks"),
        ("elastic(0)", "asks for 0 tasks"),
        ("tasks(two)", "unknown scheme"),
        ("tasks(" + "9" * 5000 + ")", "unknown scheme"),
        ("tasks", "wrong form"),
        ("cogroup(4)", "wrong form"),
    ],
)
def test_an_unknown_scheme_or_tasks_below_one_are_refused_and_the_schemes_named(text: str, said: str) -> None:
    with pytest.raises(Refused, match="cogroup") as refusal:
        Scheme.parse(text)
    assert said in str(refusal.value)


def test_all_that_is_wrong_with_the_streams_is_said_at_once() -> None:
    with pytest.raises(Refused) as refusal:
        assign([("views", 0), ("views", 4), ("cl/cks", -1)], COGROUP)
    assert [finding.what for finding in refusal.value.findings] == [
        "stream 'views' is named twice",
        "stream 'views' has 0 partitions",
        "'cl/cks' is no name for a stream",
        "stream 'cl/cks' has -1 partitions",
    ]


def test_a_number_of_tasks_that_cannot_be_meant_is_refused_with_the_most_there_may_be() -> None:
    with pytest.raises(Refused) as refusal:
        assign([("views", 10**9)], COGROUP)
    (finding,) = refusal.value.findings
    assert finding.what == "1,000,000,000 tasks would read 1,000,000,000 stream partitions, more than 10,000,000"
    assert finding.then == "use at most 10,000,000 tasks"


def test_no_streams_are_refused() -> None:
    with pytest.raises(Refused, match="no streams"):
        assign([], COGROUP)


@pytest.mark.parametrize(
    ("streams", "scheme"),
    [([("a", 999_999)], "tasks(99998)"), ([("a", 99_999)], "tasks(100000)"), ([("a", 10**9)], "max")],
)
def test_a_mapping_too_large_to_be_meant_is_refused_before_it_is_made(
    streams: list[tuple[str, int]], scheme: str
) -> None:
    with pytest.raises(Refused, match="stream partitions, more than 10,000,000"):
        assign(streams, Scheme.parse(scheme))


def test_a_task_of_several_residues_reads_what_can_hold_them_and_filters_only_what_holds_others_too() -> None:
    tasks = assign_owned([Reading("IS1", 4), Reading("IS2", 8)], 8, [(0, 4), (1, 2, 3), (5, 6, 7)])
    whole = {"IS1": (0,), "IS2": (0, 4)}
    first = {"IS1": (1, 2, 3), "IS2": (1, 2, 3)}
    second = {"IS1": (1, 2, 3), "IS2": (5, 6, 7)}
    assert tasks == (
        Task(0, whole, owns=(0, 4), keyless=whole),
        Task(1, first, {"IS1": Residues(8, (1, 2, 3))}, owns=(1, 2, 3), keyless=first),
        Task(2, second, {"IS1": Residues(8, (5, 6, 7))}, owns=(5, 6, 7), keyless={"IS2": (5, 6, 7)}),
    )


def test_of_partitions_of_which_only_some_are_there_tasks_read_only_those() -> None:
    tasks = assign_owned([Reading("IS1", 6, only=(4, 5))], 6, [(task,) for task in range(6)])
    assert [task.reads for task in tasks] == [{}, {}, {}, {}, {"IS1": (4,)}, {"IS1": (5,)}]
    assert [task.reads for task in assign_whole([Reading("IS1", 6, only=(4, 5))], 2)] == [{"IS1": (4,)}, {"IS1": (5,)}]


def test_what_lies_anywhere_is_read_whole_and_once() -> None:
    tasks = assign_owned([Reading("IS1", 5, keyed=False)], 2, [(0,), (1,)])
    even, odd = {"IS1": (0, 2, 4)}, {"IS1": (1, 3)}
    assert tasks == (Task(0, even, owns=(0,), keyless=even), Task(1, odd, owns=(1,), keyless=odd))
