"""What was read of a stream is known for good: left out and back, counts up and down, kept and not, made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from partitioning.documents.store import S3Store
from partitioning.model.plan import Plan
from tests.changing import World


@pytest.fixture
def world(store: S3Store, tmp_path: Path) -> World:
    """Views and clicks, of which a first batch has read all."""
    made = World(store, tmp_path)
    made.send("views", 40)
    made.send("clicks", 40)
    made.batch()
    return made


def ranges(plan: Plan | None, name: str) -> list[str]:
    assert plan is not None
    return [str(offsets) for offsets in plan.ranges() if offsets.partition.stream == name]


def test_a_stream_that_is_left_out_and_comes_back_is_read_from_where_it_was(world: World) -> None:
    world.read = ["views"]
    for _ in range(2):
        world.send("views", 5)
        world.send("clicks", 10)
        world.batch()
    world.read = ["views", "clicks"]
    before = dict(world.topics["clicks"].ends)
    plan = world.batch()
    assert plan is not None
    assert sum(partition.records for partition in plan.stream("clicks").partitions) == 20
    assert [partition.end for partition in plan.stream("clicks").partitions] == [before[n] for n in range(4)]
    world.check("views", "clicks")


def test_a_stream_that_comes_back_without_new_records_gives_none(world: World) -> None:
    world.read = ["views"]
    world.send("views", 5)
    world.batch()
    world.read = ["views", "clicks"]
    assert world.batch() is None
    world.check("views", "clicks")


def test_counts_that_go_down_and_up_again_lose_and_repeat_nothing(world: World) -> None:
    for count in (8, 4, 8, 2, 8):
        world.recount("views", count)
        world.send("views", 30)
        world.batch()
        world.check()


def test_partitions_that_come_back_without_their_old_files_go_on_where_they_were(world: World) -> None:
    for count in (8, 4):
        world.recount("views", count)
        world.send("views", 40)
        world.batch()
    world.recount("views", 8, back=False)
    world.send("views", 40)
    world.batch()
    world.check()


def test_a_stream_that_comes_back_under_another_count_is_read_by_both(world: World) -> None:
    world.read = ["clicks"]
    world.send("clicks", 5)
    world.batch()
    world.send("views", 30)
    world.recount("views", 6)
    world.send("views", 30)
    world.read = ["views", "clicks"]
    plan = world.batch()
    assert plan is not None
    assert [str(change) for stage in plan.stages for change in stage.changes] == [
        "views changed from 4 to 6 partitions"
    ] * len([stage for stage in plan.stages if stage.changes])
    world.check()
