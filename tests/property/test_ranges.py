"""Ranges of offsets dealt to tasks, against a count of who takes each record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.cosets import ranges
from partitioning.documents.document import decode, digest, encode
from partitioning.errors import Refused
from partitioning.model.offsets import Span
from partitioning.model.order import OrderedStream, order_of
from partitioning.model.placement import MURMUR2
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.schemes import records
from partitioning.model.statistics import Statistics
from partitioning.model.streams import NullKeys
from partitioning.model.takes import takes
from partitioning.planning.check import check_plan
from partitioning.planning.planner import plan_batch
from partitioning.planning.stages.bounds import most_waves
from partitioning.values import replace
from tests.examples import examples
from tests.pipeline_examples import Declared, Landing, Move, counts, keys, pipeline_of
from tests.plans import COLUMNS, arrived
from tests.runner import ByPlan, Directly

ends = st.lists(st.integers(0, 250), min_size=1, max_size=4)


@given(st.integers(0, 2**62), st.integers(0, 3000), st.integers(1, 400))
def test_each_offset_is_in_one_range_and_there_are_as_few_as_can_be(start: int, count: int, most: int) -> None:
    dealt = ranges(start, start + count, most)
    assert [offset for span in dealt for offset in range(span.start, span.end)] == [*range(start, start + count)]
    sizes = [span.end - span.start for span in dealt]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert len(dealt) == 1 or (len(dealt) - 1) * most < count


def planned(
    ends: Sequence[int], most: int | None, before: Plan | None = None, limit: int | None = None
) -> tuple[Pipeline, Plan | None]:
    pipeline = Pipeline("p", source="s3://landing/topics")
    pipeline.stream("s", key="k", partitions=len(ends), null_keys="drop").filter("true", name="kept").write("t")
    asked = Settings(schemes={"kept": records(most)} if most else {}, groups=3, limit=limit)
    batch = before.batch + 1 if before else 0
    return pipeline, plan_batch(
        pipeline, [arrived("s", ends)], {"t": COLUMNS}, batch=batch, published=before, settings=asked
    )


def taken(plan: Plan) -> Counter[tuple[int, int, bool]]:
    """How often each record is taken, with a key or without, by what tasks are sent to read and by the rule."""
    counted: Counter[tuple[int, int, bool]] = Counter()
    for task in plan.stages[0].tasks:
        order = order_of(plan, digest(plan), TaskRef("s", task.task), 0, "s3://store", {})
        (ordered,) = order.inputs
        assert isinstance(ordered, OrderedStream)
        for part in ordered.partitions:
            held = {offset for file in part.files for offset in range(file.start, file.end)}
            assert set(range(part.start, part.end)) <= held
            assert all(file.start < part.end and part.start < file.end for file in part.files)
            for offset in range(part.start, part.end):
                for keyed in (True, False):
                    counted[part.partition, offset, keyed] += takes(task, "s", part.partition, 7 if keyed else None)
        for part in plan.stream("s").partitions:
            mine = [range(own.start, own.end) for own in ordered.partitions if own.partition == part.partition]
            by_rule = {o for o in range(part.start, part.end) if takes(task, "s", part.partition, 7, o)}
            assert by_rule == {offset for offsets in mine for offset in offsets}
    return counted


def once_each(plan: Plan) -> dict[tuple[int, int, bool], int]:
    return {
        (part.partition, offset, keyed): 1
        for part in plan.stream("s").partitions
        for offset in range(part.start, part.end)
        for keyed in (True, False)
    }


@settings(deadline=None, max_examples=examples(150))
@given(ends, ends, st.integers(1, 120), st.integers(1, 120), st.none() | st.integers(1, 90))
def test_each_record_is_taken_once_whatever_a_task_may_take_of_a_partition(
    first: list[int], more: list[int], most: int, then: int, limit: int | None
) -> None:
    before: Plan | None = None
    grown = [end + (more[place] if place < len(more) else 0) for place, end in enumerate(first)]
    for ends, allowed in ((first, most), (grown, then)):
        _, plan = planned(ends, allowed, before, limit)
        if plan is None:
            continue
        assert decode(Plan, encode(plan), "here") == plan
        assert taken(plan) == once_each(plan)
        sizes = [len(range(part.start, part.end)) for t in plan.stages[0].tasks for part in plan.stream("s").read_by(t)]
        assert max(sizes) <= allowed
        assert sum(group.records for group in plan.groups) == plan.records
        _, whole = planned(ends, None, before, limit)
        assert whole is not None
        assert (whole.streams, whole.exchanges) == (plan.streams, plan.exchanges)
        before = plan


changes = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["start", "end"]), st.sampled_from([-40, -1, 1, 40])),
    min_size=1,
    max_size=3,
)


@settings(deadline=None, max_examples=examples(200))
@given(st.integers(120, 300), st.integers(40, 80), changes, st.booleans())
def test_the_check_refuses_just_the_ranges_by_which_records_are_not_taken_once(
    end: int, most: int, changed: list[tuple[int, str, int]], moved: bool
) -> None:
    """One bound is moved or, so that ranges still meet, the end of one and the beginning of the next."""
    _, plan = planned([end], most)
    assert plan is not None
    spans = [task.span for task in plan.stages[0].tasks]
    for place, edge, by in changed:
        number = place % len(spans)
        spans[number] = _shifted(spans[number], edge, by)
        if moved and edge == "end" and number + 1 < len(spans):
            spans[number + 1] = _shifted(spans[number + 1], "start", by)
    tasks = tuple(replace(t, offsets=span or UNSET) for t, span in zip(plan.stages[0].tasks, spans, strict=True))
    broken = replace(plan, stages=(replace(plan.stages[0], tasks=tasks),))
    counted = Counter(offset for span in spans if span for offset in range(span.start, span.end))
    nothing = any(span and span.start >= span.end for span in spans)
    right = counted == dict.fromkeys(range(end), 1) and not nothing
    event("right" if right else "wrong")
    with nullcontext() if right else pytest.raises(Refused, match="which do not make up"):
        check_plan(broken)


def _shifted(span: Span | None, edge: str, by: int) -> Span:
    assert span is not None
    return Span(span.start + by * (edge == "start"), span.end + by * (edge == "end"))


alone = st.sampled_from(["filter", "select", "rekey", "merge", "aggregate", "process", "combine", "repartition"])
moves = st.builds(Move, alone, st.integers(0, 9), st.integers(0, 9), st.sampled_from("ab"))


@settings(deadline=None, max_examples=examples(300))
@given(
    st.lists(moves, min_size=1, max_size=6),
    st.integers(1, 3),
    st.tuples(counts, counts, counts),
    st.lists(keys, min_size=1, max_size=3),
    st.integers(1, 6),
)
def test_random_pipelines_give_the_same_rows(
    steps: list[Move],
    streams: int,
    counts: tuple[int, int, int],
    arriving: list[Sequence[tuple[int, int | None]]],
    most: int,
) -> None:
    """Each stage of a random pipeline that may deal ranges does, batch after batch."""
    declared = [Declared(MURMUR2, NullKeys.DROP)] * streams
    pipeline = pipeline_of(declared, counts, steps)
    landing, by_plan, direct = Landing(declared), ByPlan(), Directly(pipeline.graph)
    landing.resize(counts)
    published: Plan | None = None
    for sent in arriving:
        landing.produce(sent)
        found = [arrived(name, [len(rows) for rows in held]) for name, held in landing.landed.items()]
        asked = Settings()
        plan = _plan(pipeline, found, published, asked)
        if plan is None:
            continue
        for stage in plan.stages:
            tried = replace(asked, schemes={**asked.schemes, stage.name: records(most)})
            try:
                plan = _plan(pipeline, found, published, tried) or plan
                asked = tried
            except Refused:
                event("a stage may not")
        assert len(plan.waves) <= most_waves(pipeline, asked)
        event(f"ranges: {any(task.span for stage in plan.stages for task in stage.tasks)}")
        assert by_plan.batch(plan, landing.landed) == direct.batch(landing.read(plan))
        published = plan


def _plan(pipeline: Pipeline, found: Sequence[object], published: Plan | None, asked: Settings) -> Plan | None:
    return plan_batch(
        pipeline,
        found,  # type: ignore[arg-type]
        {write.table: COLUMNS for write in pipeline.writes},
        batch=published.batch + 1 if published else 0,
        published=published,
        settings=asked,
        statistics=Statistics(0, {}),
    )
