"""The ends of random batches of streams that come and go and have other partition counts, against a record of each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.document import decode, digest, encode
from partitioning.model.offsets import Span
from partitioning.model.plan import Plan
from partitioning.model.read_ends import NOTHING
from partitioning.model.streams import Discovered, DiscoveredPartition, InputFile
from partitioning.planning.planner import plan_batch
from partitioning.values import replace
from tests.plans import COLUMNS

NAMES = ("a", "b", "c")
# For each stream how many partitions it has, if it is read, and how many records each of them gets.
BATCH = st.dictionaries(
    st.sampled_from(NAMES),
    st.tuples(st.sampled_from((1, 2, 4, 8)), st.lists(st.integers(0, 3), min_size=8, max_size=8)),
    min_size=1,
)


@given(st.lists(BATCH, min_size=1, max_size=8))
def test_each_plan_goes_on_where_partitions_were_read_whichever_batch_did(
    batches: list[dict[str, tuple[int, list[int]]]],
) -> None:
    plans, ends = list[Plan](), dict[tuple[str, int], int]()
    for batch in batches:
        found, starts = list[Discovered](), dict[tuple[str, int], int]()
        for name, (count, records) in batch.items():
            partitions = list[DiscoveredPartition]()
            for number in range(count):
                start = starts[name, number] = ends.get((name, number), 0)
                end = start + records[number]
                file = InputFile(f"s3://t/{name}/{number}/{start}.parquet", 100, "e", start, end)
                read = Span(0, start) if start else None
                partitions.append(DiscoveredPartition(number, (file,) if end > start else (), read))
            found.append(Discovered(name, COLUMNS, tuple(partitions)))
        plan = planned(batch, found, plans)
        if plan is None:
            assert not any(records[number] for count, records in batch.values() for number in range(count))
            continue
        assert {(read.partition.stream, read.partition.partition): read.start for read in plan.ranges()} == starts
        ends |= {(read.partition.stream, read.partition.partition): read.end for read in plan.ranges()}
        plans.append(plan)
        check(plans, ends)


def planned(batch: dict[str, tuple[int, list[int]]], found: list[Discovered], plans: list[Plan]) -> Plan | None:
    pipeline = Pipeline("p", source="s3://t")
    for name, (count, _) in batch.items():
        pipeline.stream(name, key="tailnum", partitions=count).filter("true", name=f"of_{name}").write(name)
    before = plans[-1] if plans else None
    tables = {write.table: COLUMNS for write in pipeline.writes}
    return plan_batch(
        pipeline,
        found,
        tables,
        batch=len(plans),
        published=before,
        parent=digest(before) if before else None,
        rows={write.declared.table: 1 for plan in plans for write in plan.writes()},
        earlier=lambda number: next((plan for plan in reversed(plans) if plan.batch < number), None),
    )


def check(plans: list[Plan], ends: dict[tuple[str, int], int]) -> None:
    plan = plans[-1]
    known = {(read.name, end.partition): end for read in plan.ends.streams for end in read.ends}
    assert {place: end.end for place, end in known.items()} == ends
    # The batch that is said to have read it has, and what was read last is known.
    for (name, number), end in known.items():
        read = plans[end.batch].stream(name).partitions[number]
        assert (read.end, read.files[-1:]) == (end.end, end.files[-1:])
    again = decode(Plan, encode(plan), "here")
    assert (again, digest(again)) == (plan, digest(plan))
    # The same is worked out of plans that remember nothing.
    walked = NOTHING
    for earlier in plans:
        walked = walked.then(replace(earlier, remembered=None).ends)
    assert walked.remembered() == plan.remembered
