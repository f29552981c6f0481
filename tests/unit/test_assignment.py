"""Schemes as they are said, and assignments that are refused or have parts of partitions only."""

from __future__ import annotations

import pytest

from partitioning.cosets.assignment import Reading, assign, assign_owned, assign_whole
from partitioning.errors import Refused
from partitioning.model.schemes import COGROUP, Scheme
from partitioning.model.takes import Residues, Task


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
