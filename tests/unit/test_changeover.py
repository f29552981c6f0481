"""Changed partition counts: what is read where it lies, what moves once, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.errors import Refused
from partitioning.explain.reason_texts import exchange_reason, stage_reason
from partitioning.model.placement import MURMUR2, HashName, KeyFormat, Placement
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import StateInput, StreamInput
from partitioning.model.streams import Discovered, DiscoveredPartition, InputFile
from partitioning.model.takes import Task
from partitioning.planning.stages.draft import StateSnapshot
from tests.plans import COLUMNS, arrived, plan_of
from tests.refused import finding_of


def counting(partitions: int, **more: Any) -> Pipeline:
    """Views, counted by their key over all batches."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    views = pipeline.stream("views", key="tailnum", partitions=partitions, **more)
    views.partial("count(*) AS n", by="tailnum", name="part").combine(
        "sum(n) AS n", running=True, name="counted"
    ).to_stream().write("t")
    return pipeline


def grown(*counts: int, scheme: str | None = None, limit: int | None = None, **more: str) -> Plan:
    """The plan after the last of these partition counts; each batch is published and brings 10 records a partition."""
    published = None
    for batch, count in enumerate(counts):
        found = [arrived("views", [10 * (batch + 1)] * count)]
        published = plan_of(
            counting(count, **more), found, batch=batch, published=published, scheme=scheme, limit=limit
        )
    assert published is not None
    return published


def reads(plan: Plan) -> list[dict[str, tuple[int, ...]]]:
    return [dict(task.reads) for task in plan.stages[-1].tasks]


def test_growth_by_a_multiple_moves_nothing_and_grows_the_tasks_a_batch_later() -> None:
    plan = grown(2, 4)
    (stage,) = plan.stages
    assert (plan.exchanges, stage.cosets, stage.inputs[0].placement.partitions) == ((), 2, 2)
    assert reads(plan) == [{"views": (0, 2), "counted.state": (0,)}, {"views": (1, 3), "counted.state": (1,)}]
    assert stage_reason(stage).endswith("; views changed from 2 to 4 partitions, which is read as 2, so nothing moves")
    later = grown(2, 4, 4)
    assert later.stages[0].cosets == 4
    assert reads(later)[3] == {"views": (3,), "counted.state": (1,)}


def test_samzas_chain_of_2_4_8_24_partitions_never_moves_a_record_and_ends_with_24_tasks() -> None:
    plans = [grown(*counts) for counts in ((2, 4), (2, 4, 8), (2, 4, 8, 24), (2, 4, 8, 24, 24))]
    assert [plan.exchanges for plan in plans] == [()] * 4
    assert [plan.stages[0].cosets for plan in plans] == [2, 4, 8, 24]
    assert [each.placement.partitions for each in plans[-1].stages[0].inputs] == [24, 8]


def test_of_a_count_that_is_no_multiple_only_the_partitions_of_both_counts_move() -> None:
    plan = grown(4, 6)
    moving, stage = plan.stages
    (exchange,) = plan.exchanges
    assert (moving.name, moving.wave, [dict(task.reads) for task in moving.tasks]) == (
        "views.changed",
        0,
        [{"views": (number,)} for number in range(4)],
    )
    assert (stage.name, stage.wave, stage.cosets) == ("views", 1, 6)
    assert (exchange.name, exchange.stage, exchange.only) == ("views.changed.exchange", "views.changed", (0, 1, 2, 3))
    assert exchange.placement == Placement("tailnum", KeyFormat.STRING, MURMUR2, 6)
    assert (exchange.moves, exchange.spares) == (40, 40)
    assert exchange.wanted_by == ("counted",)
    assert exchange_reason(exchange) == (
        "views changed from 4 to 6 partitions: records of partitions 0 to 3 lie there by either count"
        "; 40 of 80 records move"
    )
    assert stage_reason(stage).endswith(
        "views changed from 4 to 6 partitions, so partitions 0 to 3 move once, by views.changed.exchange"
    )
    assert reads(plan)[4] == {"views": (4,), "views.changed.exchange": (4,), "counted.state": (0, 2)}
    assert reads(plan)[3] == {"views.changed.exchange": (3,), "counted.state": (1, 3)}
    later = grown(4, 6, 6)
    assert (later.exchanges, [stage.name for stage in later.stages]) == ((), ["views"])


def test_records_without_a_key_have_their_own_task_where_they_move_from_and_where_they_move_to() -> None:
    moving, stage = grown(4, 6, null_keys="own task").stages
    own: dict[str, tuple[int, ...]] = {"views": (0, 1, 2, 3)}
    assert moving.tasks[4] == Task(4, own, null_keys=True, keyless=own)
    own = {"views": (4, 5), "views.changed.exchange": (0,), "counted.state": (0,)}
    assert stage.tasks[6] == Task(6, own, null_keys=True, keyless=own)


def test_nothing_moves_where_tasks_divide_both_counts_or_a_stream_shrinks_by_a_divisor() -> None:
    plan = grown(4, 6, scheme="tasks(2)")
    assert (plan.exchanges, reads(plan)[1]) == ((), {"views": (1, 3, 5), "counted.state": (1,)})
    assert [task["views"] for task in reads(grown(8, 4))] == [(0,), (1,), (2,), (3,)]
    plan = grown(6, 4)
    assert plan.exchanges[0].only is None
    assert "views" not in reads(plan)[0]


def test_what_keeps_no_keys_together_reads_whole_partitions_whatever_their_count_was() -> None:
    def copying(count: int) -> Pipeline:
        pipeline = Pipeline("p", source="s3://landing/topics")
        pipeline.stream("views", key="tailnum", partitions=count).filter("true").write("t")
        return pipeline

    first = plan_of(copying(4), [arrived("views", [10] * 4)])
    plan = plan_of(copying(6), [arrived("views", [20] * 6)], batch=1, published=first)
    assert (plan.exchanges, len(plan.stages[0].tasks)) == ((), 6)


def test_state_goes_on_whatever_the_tasks_and_an_abandoned_batch_leaves_none() -> None:
    first = plan_of(counting(4), [arrived("views", [10] * 4)], scheme="tasks(4)")
    plan = plan_of(counting(4), [arrived("views", [20] * 4)], batch=1, published=first, scheme="tasks(6)")
    placed = Placement("tailnum", KeyFormat.STRING, MURMUR2, 4)
    assert plan.stages[0].inputs[1] == StateInput("counted.state", "counted", placed, 0)
    assert reads(plan)[5]["counted.state"] == (1, 3)
    assert set(plan.stages[0].tasks[5].filters) == {"views", "counted.state"}
    plan = plan_of(counting(4), [arrived("views", [10] * 4)], batch=1)
    assert [type(read) for read in plan.stages[0].inputs] == [StreamInput]


def test_a_limit_does_not_hold_for_what_lies_by_two_counts() -> None:
    plan = grown(4, 6, limit=3)
    assert [each.end - each.start for each in plan.streams[0].partitions] == [17, 17, 17, 17, 3, 3]


def test_streams_of_unknown_hash_are_read_as_what_both_counts_have_in_common() -> None:
    plan = grown(4, 6, hash="opaque")
    assert (plan.exchanges, plan.stages[0].cosets) == ((), 2)
    with pytest.raises(Refused, match="6 tasks do not divide 2, the gcd of both counts"):
        after(4, 6, hash="opaque", scheme="tasks(6)")


def after(before: int, now: int, scheme: str, **more: str) -> Plan:
    first = plan_of(counting(before, **more), [arrived("views", [10] * before)])
    return plan_of(counting(now, **more), [arrived("views", [20] * now)], batch=1, published=first, scheme=scheme)


def test_a_state_that_another_key_or_other_columns_would_go_on_from_is_refused() -> None:
    def totals(by: str, columns: str) -> Pipeline:
        pipeline = Pipeline("p", source="s3://landing/topics")
        partial = pipeline.stream("views", key="tailnum", partitions=4).partial("count(*) AS n", by=by)
        partial.combine(columns, running=True, name="totals").to_stream().write("t")
        return pipeline

    first = plan_of(totals("tailnum", "sum(n) AS n"), [arrived("views", [10] * 4)])
    with pytest.raises(Refused) as refusal:
        plan_of(totals("dep_delay", "max(n) AS n"), [arrived("views", [20] * 4)], batch=1, published=first)
    assert [(finding.what, finding.where) for finding in refusal.value.findings] == [
        (what, "state of totals, left by batch 0")
        for what in (
            "its key changed from tailnum (string) to dep_delay (string)",
            "its columns changed from sum(n) AS n to max(n) AS n",
            'step views.partial changed from partial "tailnum": count(*) AS n to partial "dep_delay": count(*) AS n',
        )
    ]


def test_state_by_another_hash_is_read_by_all_tasks_for_their_keys_and_written_anew() -> None:
    first = plan_of(counting(4), [arrived("views", [10] * 4)])
    kept_before = StateSnapshot("", {"counted.state": 40}, {})
    new = [arrived("views", [20] * 4)]
    plan = plan_of(counting(4, hash="java"), new, batch=1, published=first, kept=kept_before)
    (stage,) = plan.stages
    (kept,) = (read for read in stage.inputs if isinstance(read, StateInput))
    assert str(kept.placement) == "murmur2 or java(tailnum) mod 4"
    assert [(run.records, run.merged) for run in kept.runs] == [(40, True)]
    assert [dict(task.reads) for task in stage.tasks] == [
        {"views": (number,), "counted.state": (0, 1, 2, 3)} for number in range(4)
    ]
    assert [task.filters["counted.state"].residues for task in stage.tasks] == [(0,), (1,), (2,), (3,)]
    (counted,) = (step for step in stage.steps if step.state)
    assert counted.state
    assert counted.state.placement == Placement("tailnum", KeyFormat.STRING, HashName("java"), 4)


@pytest.mark.parametrize("more", [{"hash": "opaque"}, {"hash": "mine.producers:place"}])
def test_state_by_a_hash_that_nobody_knows_is_refused(more: dict[str, str]) -> None:
    first = plan_of(counting(4), [arrived("views", [10] * 4)])
    with pytest.raises(Refused, match="placed by murmur2 of string keys, but its records are by"):
        plan_of(counting(4, **more), [arrived("views", [20] * 4)], batch=1, published=first)
    anew = plan_of(
        counting(4, **more),
        [arrived("views", [20] * 4)],
        batch=1,
        published=first,
        settings=Settings(begin_anew=("counted",)),
    )
    assert not [read for read in anew.stages[0].inputs if isinstance(read, StateInput)]


# Refusals


def table_by(hash: str, *, kept: bool, partitions: int) -> Pipeline:
    pipeline = Pipeline("p", source="s3://landing/topics")
    pipeline.table("planes", key="tailnum", partitions=partitions, kept=kept, hash=hash).write("t", mode="upsert")
    return pipeline


@pytest.mark.parametrize(("partitions", "kept", "refused"), [(2, True, True), (1, True, False), (2, False, False)])
def test_what_is_kept_of_a_table_does_not_go_on_by_another_hash(partitions: int, kept: bool, refused: bool) -> None:
    first, new = ([arrived("planes", [count] * partitions)] for count in (10, 20))
    published = plan_of(table_by("murmur2", kept=kept, partitions=partitions), first)
    now = table_by("crc32", kept=kept, partitions=partitions)
    said = "keys lay by murmur2 and lie by crc32: its latest record of a key may lie in either of two partitions"
    # One that is read whole has each record held against the hash.
    with pytest.raises(Refused, match=said) if refused else nullcontext():
        plan_of(now, new, batch=1, published=published)


def ends(*offsets: int) -> list[Discovered]:
    return [arrived("views", offsets)]


def test_a_vanished_partition_is_refused_if_records_were_not_read() -> None:
    first = plan_of(counting(3), ends(10, 10, 10), limit=5)
    finding = finding_of(plan_of, counting(2), ends(10, 10, 10), batch=1, published=first)
    assert finding.what == "the partition is gone, as 2 of 3 are declared, but 5 is committed and its offsets end at 10"
    assert finding.where == "views-2 in s3://landing/topics"
    first = plan_of(counting(3), ends(10, 10, 10))
    plan = plan_of(counting(2), ends(20, 20, 10), batch=1, published=first)
    assert len(plan.streams[0].partitions) == 2


@pytest.mark.parametrize(("declared", "found"), [(4, (20,) * 6), (6, (20,) * 4), (3, (20,) * 5)])
def test_a_declared_count_that_is_not_what_was_found_is_refused(declared: int, found: Sequence[int]) -> None:
    first = plan_of(counting(4), ends(10, 10, 10, 10))
    with pytest.raises(Refused, match=f"were found, but {declared} are declared"):
        plan_of(counting(declared), ends(*found), batch=1, published=first)


def test_a_topic_that_was_re_created_with_more_partitions_is_refused_with_both_offsets() -> None:
    first = plan_of(counting(2), ends(250, 250))
    with pytest.raises(Refused, match="offsets end at 3, but 250 is committed: the topic was reset or re-created"):
        plan_of(counting(4), ends(3, 300, 3, 3), batch=1, published=first)


def test_a_table_whose_count_changed_is_refused_as_its_latest_records_could_not_be_told() -> None:
    def seats(count: int) -> Pipeline:
        pipeline = Pipeline("p", source="s3://landing/topics")
        pipeline.table("planes", key="tailnum", partitions=count).filter("true").to_stream().write("t")
        return pipeline

    first = plan_of(seats(2), [arrived("planes", [10, 10])])
    with pytest.raises(Refused, match="the table's partition count changed from 2 to 4"):
        plan_of(seats(4), [arrived("planes", [20] * 4)], batch=1, published=first)


def test_new_partitions_start_at_their_beginning() -> None:
    first = plan_of(counting(1), ends(10))
    late = DiscoveredPartition(1, (InputFile("1.parquet", 50, "e", 70, 75),))
    found = Discovered("views", COLUMNS, (*ends(20)[0].partitions, late))
    plan = plan_of(counting(2), [found], batch=1, published=first)
    assert [str(each) for each in plan.ranges()] == ["views-0@[10,20)", "views-1@[70,75)"]
