"""The four faults of Samza's elasticity, each with the answer of the real system beside that of real plans here.

In Samza each task keeps a checkpoint of its own, and a task under a new factor looks for those of others by their
names. Here a published batch is the only thing that moves offsets: it ends at one offset in each stream partition,
which holds for all tasks, and any number of tasks goes on from there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.document import digest
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan
from tests.plans import arrived, plan_of, takers
from tests.samza import answers

PARTITIONS = 4
KEYS = [f"N{number}" for number in range(60)]


def views() -> Pipeline:
    """Views counted by key: a keyed stage over one stream."""
    pipeline = Pipeline("views_counted", source="s3://landing/topics")
    pipeline.stream("views", key="tailnum", partitions=PARTITIONS).aggregate("count(*) AS views").write("views_counted")
    return pipeline


def log(rounds: int) -> list[list[str]]:
    """The keys of each partition's records by offset, as producers put them there: every key so many times."""
    return [[key for key in KEYS if placement_hash(key) % PARTITIONS == p] * rounds for p in range(PARTITIONS)]


def planned(schemes: Sequence[str], *, unpublished: Sequence[int] = ()) -> list[Plan]:
    """One batch under each scheme, five records of each partition in each but the last, which takes the rest."""
    plans: list[Plan] = []
    published: Plan | None = None
    for batch, scheme in enumerate(schemes):
        last = batch == len(schemes) - 1
        plan = plan_of(
            views(),
            [arrived("views", [len(keys) for keys in log(2)])],
            batch=batch,
            parent=digest(plans[-1]) if plans else None,
            published=published,
            scheme=scheme,
            limit=None if last else 5,
        )
        plans.append(plan)
        published = published if batch in unpublished else plan
    return plans


def taken(plan: Plan) -> dict[tuple[int, int], list[int]]:
    """The tasks that take each record of the batch, by partition and offset: all tasks, one by one."""
    (stage,) = plan.stages
    hashes = [[placement_hash(key) for key in keys] for keys in log(2)]
    return {
        (number, offset): takers(stage.tasks, "views", number, hashes[number][offset])
        for number in range(PARTITIONS)
        for span in [plan.stream("views").range(number)]
        for offset in range(span.start, span.end)
    }


def expect_every_record_once(published: Sequence[Plan]) -> None:
    """Over the published batches no record is left out or read twice, and in each a key's records meet in one task."""
    times: Counter[tuple[int, int]] = Counter()
    for plan in published:
        met: defaultdict[str, set[int]] = defaultdict(set)
        for (partition, offset), tasks in taken(plan).items():
            times[partition, offset] += len(tasks)
            met[log(2)[partition][offset]].update(tasks)
        assert {len(tasks) for tasks in met.values()} == {1}
    assert times == {(p, offset): 1 for p, keys in enumerate(log(2)) for offset in range(len(keys))}


def samza_starts(case: int) -> Mapping[str, str]:
    """First offsets that each task of Samza reads, of a partition that holds 0 to 99."""
    (found,) = [each for each in answers("elastic_offset_manager") if each["id"] == case]
    starts: Mapping[str, str] = found["startingOffsets"]
    return starts


def test_the_first_scale_up_goes_on_where_the_batch_before_ended() -> None:
    assert samza_starts(0) == {"Partition 0_0_2": "100", "Partition 0_1_2": "100"}, "0 to 41 are done, 42 to 99 skipped"
    plans = planned(["elastic(1)", "elastic(2)"])
    assert [plan.stages[0].cosets for plan in plans] == [4, 8]
    assert [each.start for each in plans[1].ranges()] == [5] * PARTITIONS
    expect_every_record_once(plans)


def test_a_scale_down_after_a_task_that_never_finished_reads_the_whole_batch_again() -> None:
    assert samza_starts(4) == {"Partition 0": "42"}, "bucket 1 was never read, and its records before 42 never will be"
    plans = planned(["elastic(1)", "elastic(2)", "elastic(1)"], unpublished=[1])
    assert [each.start for each in plans[1].ranges()] == [5] * PARTITIONS
    assert [each.start for each in plans[2].ranges()] == [5] * PARTITIONS, "the batch that failed counts for nothing"
    expect_every_record_once([plans[0], plans[2]])


def test_factors_that_do_not_divide_each_other_lose_nothing() -> None:
    assert samza_starts(6) == {"Partition 0_0_3": "51", "Partition 0_1_3": "21", "Partition 0_2_3": "51"}, (
        "bucket 1 of 2 is done to 20 only, and half of bucket 2 of 3 was in it"
    )
    plans = planned(["elastic(2)", "elastic(3)"])
    assert [plan.stages[0].cosets for plan in plans] == [8, 12]
    expect_every_record_once(plans)


def test_a_plain_restart_goes_on_where_it_stopped() -> None:
    """Samza 1.8.0 writes an empty checkpoint under any factor above 1 and begins at the end: 100 instead of 41."""
    plans = planned(["elastic(2)", "elastic(2)"])
    assert [each.start for each in plans[1].ranges()] == [each.end for each in plans[0].ranges()]
    expect_every_record_once(plans)


@pytest.mark.parametrize("factors", [(1, 2, 4, 8), (2, 8, 4), (4, 8, 1), (3, 2), (3, 4, 2), (4, 4), (5, 1, 7, 2)])
def test_any_history_of_factors_reads_every_record_once(factors: tuple[int, ...]) -> None:
    """The histories that Samza was taken through, which lost and replayed records there, and one more."""
    expect_every_record_once(planned([f"elastic({factor})" for factor in factors]))


def test_a_scheme_below_the_partition_count_is_as_good_as_any() -> None:
    plans = planned(["elastic(2)", "tasks(3)", "tasks(1)"])
    assert [plan.stages[0].cosets for plan in plans] == [8, 3, 1]
    expect_every_record_once(plans)
