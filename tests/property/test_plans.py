"""Plans for random arrivals: every offset once, every task in a group, every document back as it was."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import NullKey
from partitioning.documents.document import decode, digest, encode
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.schemes import tasks as tasks_scheme
from partitioning.planning.planner import plan_batch
from tests.plans import COLUMNS, arrived

NULL_KEYS = st.sampled_from(["refuse", "drop", "own task"])
ends = st.lists(st.integers(0, 400), min_size=1, max_size=6)
names = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True).filter(lambda name: name not in {".", ".."})


def pipeline_of(views: int, clicks: int, null_keys: NullKey = "drop") -> Pipeline:
    pipeline = Pipeline("p", source="s3://landing/topics")
    left = pipeline.stream("views", key="tailnum", partitions=views, null_keys=null_keys)
    left.join(pipeline.stream("clicks", key="tailnum", partitions=clicks), "1 AS one").write("t")
    return pipeline


@given(names, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_a_range_prints_and_parses_back(name: str, partition: int, one: int, other: int) -> None:
    made = OffsetRange(StreamPartition(name, partition), min(one, other), max(one, other))
    assert OffsetRange.parse(str(made)) == made


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 150), min_size=3, max_size=3),
            st.lists(st.integers(0, 150), min_size=2, max_size=2),
            st.one_of(st.none(), st.integers(1, 200)),
        ),
        max_size=8,
    )
)
def test_whatever_arrives_under_whatever_limits_each_offset_is_read_exactly_once(
    arrivals: list[tuple[list[int], list[int], int | None]],
) -> None:
    pipeline = pipeline_of(3, 2)
    views, clicks = [0] * 3, [0] * 2
    published: Plan | None = None
    batch = 0
    read: list[tuple[str, int, int]] = []
    # Enough rounds without a new arrival at the end to take up all that limits have left behind.
    for more_views, more_clicks, limit in [*arrivals, ([0] * 3, [0] * 2, None), ([0] * 3, [0] * 2, None)]:
        views = [end + more for end, more in zip(views, more_views, strict=True)]
        clicks = [end + more for end, more in zip(clicks, more_clicks, strict=True)]
        plan = plan_batch(
            pipeline,
            [arrived("views", views), arrived("clicks", clicks)],
            {"t": COLUMNS},
            batch=batch,
            parent=digest(published) if published else None,
            published=published,
            settings=Settings(limit=limit),
        )
        if plan is not None:
            for each in plan.ranges():
                read += [(each.partition.stream, each.partition.partition, o) for o in range(each.start, each.end)]
            published, batch = plan, batch + 1
    assert plan is None
    there = [("views", p, o) for p, end in enumerate(views) for o in range(end)]
    there += [("clicks", p, o) for p, end in enumerate(clicks) for o in range(end)]
    assert sorted(read) == sorted(there)


@given(ends, ends, st.one_of(st.none(), st.integers(1, 12)), st.integers(1, 5), NULL_KEYS)
@settings(deadline=None)
def test_a_plan_comes_back_as_it_was_and_groups_each_task_once(
    views: list[int], clicks: list[int], total: int | None, groups: int, null_keys: NullKey
) -> None:
    plan = plan_batch(
        pipeline_of(len(views), len(clicks), null_keys),
        [arrived("views", views), arrived("clicks", clicks)],
        {"t": COLUMNS},
        settings=Settings(tasks_scheme(total) if total else None, groups=groups),
    )
    if plan is None:
        assert not any(views + clicks)
        return
    assert decode(Plan, encode(plan), "here") == plan
    grouped = [task.task for group in plan.groups for task in group.tasks]
    assert sorted(grouped) == [task.task for task in plan.stages[0].tasks]
    assert len(plan.groups) == min(groups, len(grouped))


@given(st.binary(max_size=200), st.integers(0, 10**6), st.integers(1, 255))
@settings(deadline=None)
def test_noise_is_never_taken_for_a_plan(noise: bytes, position: int, mask: int) -> None:
    from partitioning.errors import Refused

    plan = plan_batch(pipeline_of(1, 1), [arrived("views", [5]), arrived("clicks", [5])], {"t": COLUMNS})
    assert plan is not None
    data = bytearray(encode(plan))
    data[position % len(data)] ^= mask
    for bad in (noise, bytes(data)):
        try:
            decode(Plan, bad, "here")
        except Refused:
            continue
        raise AssertionError(bad)
