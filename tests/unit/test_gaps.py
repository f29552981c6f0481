"""Gaps between files: what markers and compaction leave is told from what a lost file leaves."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.model.gaps import Explained, gaps
from partitioning.model.streams import InputFile, Stream, sparseness


def views(offsets: str) -> Stream:
    return Stream("views", "s3://landing", "ad", 1, sparse=sparseness(offsets, "views"))


def files(kept: list[int], size: int) -> list[InputFile]:
    """These offsets in files of so many records each."""
    parts = [kept[first : first + size] for first in range(0, len(kept), size)]
    return [
        InputFile(str(part[0]), 9, "", part[0], part[-1] + 1, missing=part[-1] + 1 - part[0] - len(part))
        for part in parts
    ]


def between(stream: Stream, there: list[InputFile]) -> list[Explained]:
    """Who explains the holes between files."""
    return [gap.explained for gap in gaps(stream, 0, there[0].start, there, ()) if gap.file is None]


@pytest.mark.parametrize("records", [1, 7, 10, 100])
@pytest.mark.parametrize("markers", [1, 2])
def test_markers_of_transactions_are_explained(records: int, markers: int) -> None:
    cycle = records + markers
    kept = [offset for offset in range(20 * cycle) if offset % cycle < records]
    assert set(between(views("sparse"), files(kept, records))) == {Explained.MARKERS}


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.8])
def test_what_compaction_leaves_is_explained(share: float) -> None:
    chance = random.Random(1)
    kept = [offset for offset in range(20_000) if chance.random() < share]
    assert Explained.NOBODY not in between(views("sparse(1000)"), files(kept, 50))
    assert Explained.DECLARED not in between(views("sparse(1000)"), files(kept, 50))


@given(st.integers(3, 100), st.integers(1, 30), st.integers(2, 9))
def test_a_file_that_is_lost_among_whole_ones_is_nobodys(lost: int, before: int, behind: int) -> None:
    there = [InputFile("a", 9, "", 0, before), InputFile("b", 9, "", before + lost, before + lost + behind)]
    assert between(views("sparse"), there) == [Explained.NOBODY]
    assert between(views("sparse(100)"), there) == [Explained.DECLARED]
    assert between(views("sparse(2)"), there) == [Explained.NOBODY]
    assert between(views("dense"), there) == [Explained.NOBODY]


def test_a_file_that_is_lost_among_transactions_is_nobodys() -> None:
    # Ten records and a marker each; five transactions in a file, one of which is gone.
    kept = [offset for offset in range(330) if offset % 11 < 10]
    there = files(kept, 50)
    del there[2]
    assert between(views("sparse"), there).count(Explained.NOBODY) == 1
    assert between(views("sparse(60)"), there).count(Explained.DECLARED) == 1


def test_more_than_the_declared_number_is_nobodys_whatever_lies_around() -> None:
    kept = [offset for offset in range(0, 4000, 40)]
    assert set(between(views("sparse(38)"), files(kept, 10))) == {Explained.NOBODY}
    assert set(between(views("sparse(39)"), files(kept, 10))) == {Explained.COMPACTED}


def test_what_is_missing_right_behind_what_was_read_is_judged_by_what_follows() -> None:
    whole, thin = InputFile("a", 9, "", 40, 60), InputFile("b", 9, "", 40, 60, missing=15)
    assert [gap.explained for gap in gaps(views("sparse"), 0, 0, [whole], ())] == [Explained.NOBODY]
    holes = [gap.explained for gap in gaps(views("sparse"), 0, 0, [thin], ()) if gap.file is None]
    assert holes == [Explained.COMPACTED]


def test_what_is_missing_behind_the_last_file_is_judged_by_that_file() -> None:
    whole, thin = InputFile("a", 9, "", 0, 20), InputFile("a", 9, "", 0, 20, missing=15)
    assert [(gap.offsets.start, gap.explained) for gap in gaps(views("sparse"), 0, 0, [whole], (), 25)] == [
        (20, Explained.NOBODY)
    ]
    holes = [gap.explained for gap in gaps(views("sparse"), 0, 0, [thin], (), 25) if gap.file is None]
    assert holes == [Explained.COMPACTED]
    assert not list(gaps(views("sparse"), 0, 0, [whole], (), 20))
