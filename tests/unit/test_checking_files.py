"""The check of a whole plan: files that do not hold what is planned to be read from them."""

from __future__ import annotations

from msgspec import UNSET

from partitioning.model.plan import Plan
from partitioning.model.sources import KafkaSource
from partitioning.model.streams import InputFile, Layout
from partitioning.planning.check import check_plan
from partitioning.values import replace
from tests.checked import said
from tests.plans import plan_of, tails, tails_found

LANDED = "s3://landing/topics/flights"


def with_files(*files: InputFile, **changes: object) -> Plan:
    """The plan in which flights-3, offsets [0,250), is read from these files; `changes` are the declaration's."""
    plan = plan_of(tails(), tails_found())
    flights, planes = plan.streams
    partitions = [replace(each, files=files) if each.partition == 3 else each for each in flights.partitions]
    declared = replace(flights.declared, **changes)
    return replace(plan, streams=(replace(flights, declared=declared, partitions=tuple(partitions)), planes))


def named(name: str, start: int, end: int, etag: str = "e") -> InputFile:
    return InputFile(f"{LANDED}/{name}", 10, etag, start, end)


def test_a_partition_without_files_is_found() -> None:
    assert said(with_files()) == "flights-3: flights-3@[0,250) is in no file, and nothing says why"


def test_too_few_files_are_found() -> None:
    first, last = named("partition=3/a.parquet", 0, 100), named("partition=3/b.parquet", 200, 250)
    assert said(with_files(first, last)) == "flights-3: flights-3@[100,200) is in no file, and nothing says why"
    assert said(with_files(first)) == "flights-3: flights-3@[100,250) is in no file, and nothing says why"


def test_files_of_nothing_that_is_planned_are_found() -> None:
    all_there, behind = named("partition=3/a.parquet", 0, 250), named("partition=3/b.parquet", 250, 300)
    assert said(with_files(all_there, behind)) == (
        f"flights-3: {behind.path} holds [250,300), nothing of what is planned, [0,250)"
    )


def test_a_file_that_is_there_twice_is_found() -> None:
    one = named("partition=3/a.parquet", 0, 250)
    assert f"flights-3: {one.path} is planned twice" in said(with_files(one, one))


def test_files_that_overlap_or_are_out_of_order_are_found() -> None:
    first, second = named("partition=3/a.parquet", 0, 150), named("partition=3/b.parquet", 100, 250)
    assert f"flights-3: {second.path} begins at 100, before the end of {first.path}, 150" in said(
        with_files(first, second)
    )
    assert f"flights-3: {first.path} begins at 0, before the end of {second.path}, 250" in said(
        with_files(second, first)
    )


def test_files_of_another_partition_stream_or_offset_are_found_by_their_names() -> None:
    in_folder = named("partition=4/flights+3+0000000000.parquet", 0, 250)
    assert said(with_files(in_folder)) == f"flights-3: {in_folder.path} lies in the folder of partition 4"
    for name in ("flights+4+0000000000", "planes+3+0000000000", "flights+3+0000000001"):
        other = named(f"partition=3/{name}.parquet", 0, 250)
        assert (
            said(with_files(other)) == f"flights-3: {other.path} is, by its name, not the file of flights-3 from 0 on"
        )
    right = with_files(named("partition=3/flights+3+0000000000.parquet", 0, 250))
    assert check_plan(right) is right


def test_a_folder_of_a_time_may_have_any_name() -> None:
    of_a_time = with_files(named("partition=4/flights+3+0000000000.parquet", 0, 250), layout=Layout.TIME)
    assert check_plan(of_a_time) is of_a_time


def test_the_log_of_another_partition_or_topic_is_found() -> None:
    source = KafkaSource(("broker:9092",))

    def from_broker(path: str, etag: str) -> Plan:
        made = with_files(InputFile(path, 10, etag, 0, 250), source="kafka://broker:9092", sparse=UNSET)
        flights, planes = made.streams
        others = tuple(
            replace(each, files=(InputFile(source.uri("flights", each.partition), 10, "topic", 0, 250),))
            if each.partition != 3
            else each
            for each in flights.partitions
        )
        return replace(made, streams=(replace(flights, partitions=others, topic="topic"), planes))

    mine, theirs = source.uri("flights", 3), source.uri("flights", 4)
    right = from_broker(mine, "topic")
    assert check_plan(right) is right
    assert said(from_broker(theirs, "topic")) == f"flights-3: {theirs} is not its log, {mine}"
    assert said(from_broker(mine, "before")) == f"flights-3: {mine} is of the topic before, planned is topic"


def test_a_gap_that_nobody_explains_is_found_though_the_plan_counts_it() -> None:
    first, last = named("partition=3/a.parquet", 0, 100), named("partition=3/b.parquet", 200, 250)
    plan = with_files(first, last)
    flights, planes = plan.streams
    partitions = [replace(each, missing=100) if each.partition == 3 else each for each in flights.partitions]
    counted = replace(plan, streams=(replace(flights, partitions=tuple(partitions)), planes))
    assert said(counted) == "flights-3: flights-3@[100,200) is in no file, and nothing says why"
