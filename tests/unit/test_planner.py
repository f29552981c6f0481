"""The planner: what a batch reads, after which batch, and when there is none."""

from __future__ import annotations

import re

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import NullKey
from partitioning.documents.document import digest, encode
from partitioning.errors import Refused
from partitioning.model.graph import StateSpec
from partitioning.model.placement import MURMUR2, OPAQUE
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import StateRun
from partitioning.model.statistics import Statistics
from partitioning.model.streams import Discovered
from partitioning.model.watermarks import TimePassed
from partitioning.planning.planner import KEYS_COMPARED, OPAQUE_KEYS_COMPARED, plan_batch
from partitioning.planning.stages.draft import StateSnapshot
from partitioning.planning.stages.step_states import unexpired
from partitioning.values import replace
from tests.plans import COLUMNS, arrived, plan_of, tails, tails_found
from tests.there import there

HASHES = (("a", "murmur2"), ("b", "java"))
RESULTS = {"tail_activity": COLUMNS, "t": COLUMNS}


def plain(partitions: int = 2, null_keys: NullKey = "refuse", hash: str = MURMUR2) -> Pipeline:
    pipeline = Pipeline("p", source="s3://landing/topics")
    pipeline.stream("a", key="tailnum", partitions=partitions, null_keys=null_keys, hash=hash).filter("true").write("t")
    return pipeline


def ranges(plan: Plan) -> list[str]:
    return [str(each) for each in plan.ranges()]


def test_the_first_batch_reads_all_there_is_from_where_the_landed_files_start() -> None:
    plan = plan_of(plain(), [arrived("a", [250, 0])])
    assert ranges(plan) == ["a-0@[0,250)", "a-1@[0,0)"]
    assert (plan.batch, plan.parent, plan.records) == (0, None, 250)
    plan = plan_of(plain(1), [arrived("a", [250], beginning=70)])
    assert ranges(plan) == ["a-0@[70,250)"]
    assert plan.streams[0].partitions[0].committed == 70


def test_the_next_batch_starts_where_the_published_one_ended() -> None:
    first = plan_of(plain(), [arrived("a", [250, 10])])
    second = plan_of(plain(), [arrived("a", [250, 130])], batch=1, parent=digest(first), published=first)
    assert ranges(second) == ["a-0@[250,250)", "a-1@[10,130)"]
    assert [each.committed for each in second.streams[0].partitions] == [250, 10]
    assert second.parent == digest(first)


def test_the_files_that_hold_the_range_are_pinned_and_their_share_of_bytes_counted() -> None:
    first = plan_of(plain(1), [arrived("a", [250])], limit=130)
    second = plan_of(plain(1), [arrived("a", [450])], batch=1, published=first, limit=100)
    (partition,) = second.streams[0].partitions
    assert (partition.start, partition.end, partition.bytes) == (130, 230, 1000)
    assert [(file.start, file.end) for file in partition.files] == [(100, 200), (200, 300)]


def test_a_limit_bounds_each_stream_partition_and_never_a_table() -> None:
    plan = plan_of(plain(), [arrived("a", [250, 30])], limit=100)
    assert ranges(plan) == ["a-0@[0,100)", "a-1@[0,30)"]
    plan = plan_of(tails(), tails_found(), limit=10)
    assert plan.stream("flights").range(0).end == 10
    assert plan.stream("planes").range(0).end == 100


def test_a_table_is_read_whole_in_every_batch_and_alone_makes_one() -> None:
    first = plan_of(tails(), tails_found())
    second = plan_of(tails(), tails_found(flights=300, planes=110), batch=1, published=first)
    assert str(second.stream("planes").range(3)) == "planes-3@[0,110)"
    assert second.stream("planes").partitions[3].committed == 100
    assert str(second.stream("flights").range(3)) == "flights-3@[250,300)"
    assert plan_of(tails(), tails_found(planes=101), batch=1, published=first).stream("flights").range(0).end == 250


def test_a_table_loses_its_oldest_records_only_if_that_is_accepted() -> None:
    first = plan_of(tails(), tails_found())
    trimmed = [arrived("flights", [300] * 12), arrived("planes", [500] * 8, beginning=200)]
    with pytest.raises(Refused, match="from offset 0 on, and its records before 200 are gone") as refusal:
        plan_of(tails(), trimmed, batch=1, published=first)
    (finding,) = refusal.value.findings
    assert len(finding.places) == 8
    # Its next step names them all.
    accepting = Settings.parse(accept_loss=re.findall(r"--accept-loss '(\S+)'", finding.then))
    second = plan_of(tails(), trimmed, batch=1, published=first, settings=accepting)
    assert str(second.stream("planes").range(0)) == "planes-0@[200,500)"
    # It is said once.
    more = [arrived("flights", [400] * 12), arrived("planes", [500] * 8, beginning=200)]
    plan_of(tails(), more, batch=2, published=second)


def test_a_stream_may_not_lose_what_was_not_read() -> None:
    first = plan_of(tails(), tails_found())
    lost = [arrived("flights", [400] * 12, beginning=300), arrived("planes", [100] * 8)]
    with pytest.raises(Refused, match=r"\[250,300\) is lost") as refusal:
        plan_of(tails(), lost, batch=1, published=first)
    (finding,) = refusal.value.findings
    assert finding.where == "flights-0 in s3://landing/topics, and 11 more partitions"
    assert finding.places[3].where == "flights-3 in s3://landing/topics"
    assert re.findall(r"--accept-loss '(\S+)'", finding.then) == [f"flights-{n}@[250,300)" for n in range(12)]


def test_nothing_new_and_nothing_at_all_are_no_plan() -> None:
    first = plan_of(tails(), tails_found())
    assert plan_batch(tails(), tails_found(), RESULTS, batch=1, published=first) is None
    assert plan_batch(tails(), tails_found(0, 0), RESULTS) is None


def test_a_topic_that_was_reset_is_refused() -> None:
    first = plan_of(plain(1), [arrived("a", [250])])
    with pytest.raises(Refused, match="end at 249, but 250 is committed: the topic was reset"):
        plan_of(plain(1), [arrived("a", [249])], batch=1, published=first)


def test_a_topic_that_lost_all_its_files_is_refused() -> None:
    first = plan_of(plain(1), [arrived("a", [250])])
    with pytest.raises(Refused, match="end at 0, but 250 is committed"):
        plan_of(plain(1), [arrived("a", [0])], batch=1, published=first)


@pytest.mark.parametrize("ends", [[5], [5, 5, 5]])
def test_more_or_fewer_partitions_found_than_declared_are_refused(ends: list[int]) -> None:
    with pytest.raises(Refused, match="2 are declared"):
        plan_of(plain(2), [arrived("a", ends)])


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_takes_nothing_is_refused(limit: int) -> None:
    with pytest.raises(Refused, match="takes nothing"):
        plan_of(plain(), [arrived("a", [1, 1])], settings=Settings(limit=limit))


def test_records_without_a_key_have_their_own_task_in_a_group_if_declared_so() -> None:
    plan = plan_of(plain(null_keys="own task"), [arrived("a", [10, 10])], groups=1)
    assert [(task.task, task.null_keys) for task in plan.stages[0].tasks] == [(0, False), (1, False), (2, True)]
    assert [str(task) for task in plan.groups[0].tasks] == ["a/0", "a/1", "a/2"]


def test_the_same_inputs_give_the_same_bytes_in_whatever_order_they_were_discovered() -> None:
    found = tails_found()
    assert encode(plan_of(tails(), found)) == encode(plan_of(tails(), found[::-1]))


def test_every_input_of_a_plan_is_in_its_identity() -> None:
    found: list[Discovered] = tails_found()
    plans = [
        plan_of(tails(), found), plan_of(tails(), found, batch=1), plan_of(tails(), found, parent="sha256:0"),
        plan_of(tails(), found, scheme="tasks(2)"), plan_of(tails(), found, groups=3),
        plan_of(tails(), found, limit=7), plan_of(tails(), tails_found(flights=251)),
    ]  # fmt: skip
    assert len({digest(plan) for plan in plans}) == len(plans)


@pytest.mark.parametrize(("hash", "most"), [(MURMUR2, KEYS_COMPARED), (OPAQUE, OPAQUE_KEYS_COMPARED)])
@pytest.mark.parametrize(("over", "sample"), [(1 - KEYS_COMPARED, 1), (0, 1), (1, 2)])
def test_all_keys_are_compared_until_there_are_too_many(hash: str, most: int, over: int, sample: int) -> None:
    found = arrived("a", [1])
    (partition,) = found.partitions
    file = replace(partition.files[0], end=most + over)
    one = replace(found, partitions=(replace(partition, files=(file,)),))
    assert plan_of(plain(1, hash=hash), [one]).key_sample == sample


# Waves


def by_delay(partitions: int = 4) -> Pipeline:
    """Records counted by their delay, going on from batch to batch; the delay is not the key."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    partial = pipeline.stream("a", key="tailnum", partitions=partitions).partial("count(*) AS n", by="dep_delay")
    partial.combine("sum(n) AS n", running=True, name="counted").to_stream().write("t")
    return pipeline


def test_groups_add_up_what_their_tasks_read_in_each_wave() -> None:
    plan = plan_of(by_delay(), [arrived("a", [100] * 4)], groups=3)
    assert [(group.group, group.wave) for group in plan.groups] == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)]
    assert {task.stage for group in plan.groups[3:] for task in group.tasks} == {"a.partial.exchange"}
    plan = plan_of(tails(), tails_found())
    assert [(group.bytes, group.records) for group in plan.groups] == [(19000, 1900), (19000, 1900)]


def test_what_is_moved_and_what_is_state_is_sized_by_the_last_batch() -> None:
    first = plan_of(by_delay(), [arrived("a", [100] * 4)])
    assert [group.records for group in first.groups] == [200, 200, 0, 0]
    figures = Statistics(0, {"a": 400, "a.partial": 80, "counted": 40})
    found = [arrived("a", [300] * 4)]
    kept = StateSnapshot("sha256:0", {"counted.state": 40}, {})
    plan = plan_of(by_delay(), found, batch=1, published=first, statistics=figures, kept=kept)
    # Twice the records of the last batch, so 160 partial ones, and 40 of state; 10 bytes each.
    assert [(group.bytes, group.records) for group in plan.groups[2:]] == [(1000, 100), (1000, 100)]
    assert plan.exchanges[0].moves == 80


def test_the_records_that_move_of_a_stream_are_counted_and_not_estimated() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    a, b = (pipeline.stream(name, key="tailnum", partitions=2, hash=hash) for name, hash in HASHES)
    a.join(b, "1 AS one").write("t")
    plan = plan_of(pipeline, [arrived("a", [90, 10]), arrived("b", [5, 5])])
    assert [(exchange.source, exchange.moves) for exchange in plan.exchanges] == [("b", 10)]


def test_the_grouper_that_was_asked_for_and_the_reasons_of_moves_are_in_the_plan() -> None:
    plan = plan_of(by_delay(), [arrived("a", [10, 20, 30, 40])], settings=Settings(grouper="round-robin"))
    assert plan.grouper == "round-robin"
    assert [task.task for task in plan.groups[0].tasks] == [0, 2]
    first = plan_of(by_delay(), [arrived("a", [10] * 4)], groups=4)
    plan = plan_of(by_delay(), [arrived("a", [20] * 4)], batch=1, published=first, groups=2)
    assert plan.moves
    assert all(move.why for move in plan.moves)


def test_the_first_batch_begins_where_the_settings_say_and_the_next_where_it_ended() -> None:
    settings = Settings.read("[starts]\na-0 = 120", "settings.toml")
    found = [arrived("a", [250, 30])]
    first = there(plan_batch(plain(), found, {"t": COLUMNS}, settings=settings))
    assert [str(each) for each in first.ranges()] == ["a-0@[120,250)", "a-1@[0,30)"]
    second = there(
        plan_batch(plain(), [arrived("a", [260, 30])], {"t": COLUMNS}, batch=1, published=first, settings=settings)
    )
    assert [str(each) for each in second.ranges()] == ["a-0@[250,260)", "a-1@[30,30)"]


@pytest.mark.parametrize("name", ["b-0", "a-2", "a", "a--1"])
def test_a_start_of_a_partition_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="is no partition of a stream") as refusal:
        plan_batch(plain(), [arrived("a", [250, 30])], {"t": COLUMNS}, settings=Settings(starts={name: 1}))
    assert refusal.value.findings[0].then.endswith("the streams are a")


def test_without_an_earlier_batch_exchanges_are_counted_by_what_arrived() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    clean, dirty = (pipeline.stream(name, key="tailnum", partitions=2) for name in ("clean", "dirty"))
    again = dirty.rekey("tailnum", sql="dep_delay::VARCHAR", name="again")
    clean.merge(again, name="both").aggregate("1 AS n").write("t")
    plan = plan_of(pipeline, [arrived("clean", [450, 450]), arrived("dirty", [50, 50])])
    assert [(each.source, each.moves, each.spares) for each in plan.exchanges] == [("again", 100, 900)]


def test_a_run_is_read_as_long_as_any_row_of_it_counts() -> None:
    runs = [StateRun(batch, "sha256:0", 1, latest) for batch, latest in ((2, 100), (1, 40), (0, 39))]
    kept = StateSpec(microseconds=50, watermark=TimePassed(90, 200))
    # This batch gives what is over since the one before.
    assert unexpired(runs, kept, None) == runs[:2]
    # Whatever its time, the newest version of a key is valid until another follows.
    assert unexpired(runs, replace(kept, newest=True), None) == runs
