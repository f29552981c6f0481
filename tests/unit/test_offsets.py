"""Stream partitions and offset ranges print, parse and refuse."""

from __future__ import annotations

import pytest

from partitioning.errors import Refused
from partitioning.model.offsets import OffsetRange, StreamPartition, check_name

FLIGHTS_3 = StreamPartition("flights", 3)


def test_a_range_prints_as_the_design_writes_it_and_parses_back() -> None:
    text = "flights-3@[100,250)"
    assert OffsetRange.parse(text) == OffsetRange(FLIGHTS_3, 100, 250)
    assert str(OffsetRange.parse(text)) == text
    assert len(OffsetRange.parse(text)) == 150


def test_an_empty_range_is_a_range() -> None:
    assert len(OffsetRange(FLIGHTS_3, 7, 7)) == 0


def test_a_stream_name_may_end_like_a_partition() -> None:
    assert StreamPartition.parse("flights-3-4") == StreamPartition("flights-3", 4)


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


def test_partitions_are_numbered_from_zero() -> None:
    with pytest.raises(Refused, match="is negative"):
        StreamPartition("flights", -1)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "naïve", "a\n", "x" * 250, 'a"b'])
def test_a_name_that_kafka_would_not_take_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="is no name for a table"):
        check_name(name, "table")


def test_ranges_sort_by_stream_then_partition_number_then_offset() -> None:
    texts = ["a-2@[0,1)", "a-10@[0,1)", "a-10@[1,2)", "b-0@[0,1)"]
    assert [str(each) for each in sorted(OffsetRange.parse(text) for text in reversed(texts))] == texts
