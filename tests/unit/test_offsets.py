"""Stream partitions, offset ranges and their digests; and gaps: what explains them, what a reader notes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.errors import Refused
from partitioning.model.gaps import Explained, gaps
from partitioning.model.offsets import OffsetRange, Span, StreamPartition, check_name
from partitioning.model.receipt import BASE, MODULUS, offset_digest, range_digest
from partitioning.model.streams import InputFile, Stream, sparseness
from spark_jobs.engine.offset_digests import NAMED, Gaps, digest_of

# ---- ranges


FLIGHTS_3 = StreamPartition("flights", 3)


def test_ranges_print_parse_and_sort_by_stream_then_partition_number_then_offset() -> None:
    text = "flights-3@[100,250)"
    assert OffsetRange.parse(text) == OffsetRange(FLIGHTS_3, 100, 250)
    assert str(OffsetRange.parse(text)) == text
    assert len(OffsetRange.parse(text)) == 150
    assert len(OffsetRange(FLIGHTS_3, 7, 7)) == 0
    assert StreamPartition.parse("flights-3-4") == StreamPartition("flights-3", 4)
    with pytest.raises(Refused, match="is negative"):
        StreamPartition("flights", -1)
    texts = ["a-2@[0,1)", "a-10@[0,1)", "a-10@[1,2)", "b-0@[0,1)"]
    assert [str(each) for each in sorted(OffsetRange.parse(text) for text in reversed(texts))] == texts


@pytest.mark.parametrize(
    "text",
    [
        "flights-3",
        "flights@[0,1)",
        "flights-3@[250,100)",
        "flights-3@[-1,5)",
        "flights-3@[01,5)",
        "flights-3@[0,5]",
        "flights-3@[0, 5)",
        "flights-3@[0,5)\n",
        "flights-3@[0,9223372036854775808)",
        "flights-3@[0," + "9" * 5000 + ")",
        "fl/ghts-3@[0,5)",
        "",
    ],
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        OffsetRange.parse(text)


@pytest.mark.parametrize("text", ["flights", "flights-", "-3", "flights-03", "flights-٣", "flights--", "a b-3"])
def test_what_is_no_stream_partition_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        StreamPartition.parse(text)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "naïve", "a\n", "x" * 250, 'a"b'])
def test_a_name_that_kafka_would_not_take_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="is no name for a table"):
        check_name(name, "table")


# ---- digests


# Of 2^61 - 2.
PRIME_FACTORS = (2, 3, 5, 7, 11, 13, 31, 41, 61, 151, 331, 1321)

near = st.integers(0, 200)
anywhere = st.integers(0, 2**62)
picked = st.lists(st.tuples(near | anywhere, st.booleans()), max_size=40)
# Offsets as they come: runs, with what is left to other tasks between them.
runs = st.tuples(anywhere, st.lists(st.booleans(), max_size=300)).map(
    lambda run: [(run[0] + place, chosen) for place, chosen in enumerate(run[1])]
)


def summed(offsets: Sequence[int]) -> int:
    return sum(map(offset_digest, offsets)) % MODULUS


def test_the_base_is_a_primitive_root_so_that_no_two_offsets_have_the_same_part() -> None:
    rest = MODULUS - 1
    for prime in PRIME_FACTORS:
        while rest % prime == 0:
            rest //= prime
        assert pow(BASE, (MODULUS - 1) // prime, MODULUS) != 1
    assert rest == 1


@given(anywhere, st.integers(0, 300))
def test_the_digest_of_a_range_is_the_sum_of_its_offsets_digests(start: int, length: int) -> None:
    assert range_digest(start, start + length) == summed(range(start, start + length))


@given(st.lists(anywhere, min_size=3, max_size=3).map(sorted))
def test_the_digests_of_two_parts_of_a_range_add_up(ends: list[int]) -> None:
    start, middle, end = ends
    assert range_digest(start, end) == (range_digest(start, middle) + range_digest(middle, end)) % MODULUS


@given(picked | runs)
def test_what_is_compiled_gives_what_is_defined(records: list[tuple[int, bool]]) -> None:
    offsets, chosen = [offset for offset, _ in records], [flag for _, flag in records]
    found = digest_of(np.array(offsets, np.int64)[np.array(chosen, np.bool_)])
    assert int(found) == summed([offset for offset, flag in records if flag])


@pytest.mark.parametrize("step", [1, 2, 8, 63, 1000, 1023, 1024, 1025, 2**20 - 1, 2**20, 2**20 + 1])
def test_so_it_does_of_each_so_manieth_record(step: int) -> None:
    offsets = 70_001 + step * np.arange(5_000)
    assert int(digest_of(offsets)) == summed(offsets.tolist())


def test_the_largest_offsets_do_not_overflow() -> None:
    offsets = [2**63 - 2, 0, 2**63 - 3]
    assert int(digest_of(np.array(offsets))) == summed(offsets)


@given(st.integers(0, 2**40), st.integers(2, 2**40), st.data())
def test_a_lost_offset_whose_place_another_took_is_always_seen(start: int, length: int, data: st.DataObject) -> None:
    inside = st.integers(start, start + length - 1)
    lost = data.draw(inside)
    twice = data.draw(inside.filter(lambda offset: offset != lost))
    found = range_digest(start, start + length) - offset_digest(lost) + offset_digest(twice)
    assert found % MODULUS != range_digest(start, start + length)


@given(st.integers(0, 2**40), st.lists(st.integers(0, 3), min_size=2, max_size=200))
def test_offsets_lost_and_doubled_in_any_pattern_are_seen(start: int, times: list[int]) -> None:
    found = sum(many * offset_digest(start + place) for place, many in enumerate(times)) % MODULUS
    assert (found == range_digest(start, start + len(times))) == (set(times) == {1})


# ---- gaps between files


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


def test_a_lost_file_or_more_than_the_declared_number_is_nobodys() -> None:
    # Ten records and a marker each; five transactions in a file, one of which is gone.
    kept = [offset for offset in range(330) if offset % 11 < 10]
    there = files(kept, 50)
    del there[2]
    assert between(views("sparse"), there).count(Explained.NOBODY) == 1
    assert between(views("sparse(60)"), there).count(Explained.DECLARED) == 1
    kept = [offset for offset in range(0, 4000, 40)]
    assert set(between(views("sparse(38)"), files(kept, 10))) == {Explained.NOBODY}
    assert set(between(views("sparse(39)"), files(kept, 10))) == {Explained.COMPACTED}


def test_what_is_missing_at_an_end_is_judged_by_the_file_that_is_next_to_it() -> None:
    whole, thin = InputFile("a", 9, "", 40, 60), InputFile("b", 9, "", 40, 60, missing=15)
    assert [gap.explained for gap in gaps(views("sparse"), 0, 0, [whole], ())] == [Explained.NOBODY]
    holes = [gap.explained for gap in gaps(views("sparse"), 0, 0, [thin], ()) if gap.file is None]
    assert holes == [Explained.COMPACTED]
    whole, thin = InputFile("a", 9, "", 0, 20), InputFile("a", 9, "", 0, 20, missing=15)
    assert [(gap.offsets.start, gap.explained) for gap in gaps(views("sparse"), 0, 0, [whole], (), 25)] == [
        (20, Explained.NOBODY)
    ]
    holes = [gap.explained for gap in gaps(views("sparse"), 0, 0, [thin], (), 25) if gap.file is None]
    assert holes == [Explained.COMPACTED]
    assert not list(gaps(views("sparse"), 0, 0, [whole], (), 20))


# ---- gaps that a reader notes


offsets = st.lists(st.integers(3, 40), unique=True).map(sorted)


@given(offsets, st.integers(1, 7))
def test_gaps_are_those_between_the_offsets_however_these_come(read: list[int], at_once: int) -> None:
    gaps = Gaps(3)
    for first in range(0, len(read), at_once):
        gaps.note(np.array(read[first : first + at_once], np.int64))
    absent = [offset for offset in range(3, 45) if offset not in read]
    starts = [offset for offset in absent if offset - 1 not in absent]
    ends = [offset + 1 for offset in absent if offset + 1 not in absent]
    seen = gaps.seen(45)
    assert list(seen.some) == [Span(start, end) for start, end in zip(starts, ends, strict=True)]
    assert seen.count == len(starts)


def test_of_many_gaps_some_from_all_over_are_named() -> None:
    gaps = Gaps(0)
    for first in range(1, 10_000, 1000):
        gaps.note(np.arange(first, first + 1000, 2))
    seen = gaps.seen(10_000)
    assert seen.count == 5000
    assert NAMED / 2 <= len(seen.some) <= NAMED + 1
    starts = [gap.start for gap in seen.some]
    assert starts[0] == 0
    assert max(np.diff(starts)) <= 2 * 10_000 / (NAMED / 2)
