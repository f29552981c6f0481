"""Changed partition counts of streams that meet, with state: what Samza does to keys, and what Coset does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import lcm
from typing import Any

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.model.plan import Plan, Stage
from partitioning.model.stage_inputs import StateInput, StreamInput
from tests.plans import arrived, plan_of, takers
from tests.samza import answers


def meeting() -> list[dict[str, Any]]:
    """The cases of stateful jobs with several streams that are read by partition."""
    return [
        case
        for case in answers("ssp_grouper_proxy")
        if case["stateful"] and not case["broadcast"] and len(case["inputs"]) > 1
    ]


def named(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts by names that streams may have here."""
    return {stream.replace("/", "."): count for stream, count in counts.items()}


def counted(counts: Mapping[str, int]) -> Pipeline:
    """All streams grouped together by key, with a total that goes on from batch to batch."""
    pipeline = Pipeline("counted", source="s3://landing/topics")
    first, *others = [pipeline.stream(name, key="tailnum", partitions=count) for name, count in counts.items()]
    sides = [(flow, f"count(*) AS n{number}") for number, flow in enumerate(others)]
    met = first.cogroup("count(*) AS n", *sides, name="met") if others else first.aggregate("count(*) AS n", name="met")
    totals = met.partial("sum(n) AS n", by="tailnum", name="summed").combine("sum(n) AS n", running=True, name="total")
    totals.to_stream().write("counted")
    return pipeline


def batches(before: Mapping[str, int], now: Mapping[str, int], scheme: str) -> list[Plan]:
    """The last batch with the counts before, if there was one, the batch in which they change, and the next."""
    plans = []
    if before:
        plans.append(plan_of(counted(before), [arrived(name, [100] * count) for name, count in before.items()]))
    for vanished in (before, {}):
        batch, published = len(plans), plans[-1] if plans else None
        arrivals = [
            # Partitions that vanish get no more records.
            arrived(name, [100 + 10 * batch] * count + [100] * (vanished.get(name, count) - count))
            for name, count in now.items()
        ]
        # Another number of streams is another input of the totals, which go on all the same.
        settings = Settings(go_on=("total",))
        plans.append(
            plan_of(counted(now), arrivals, batch=batch, published=published, scheme=scheme, settings=settings)
        )
    return plans[1:] if before else plans


def keyed(plan: Plan) -> Stage:
    (stage,) = [stage for stage in plan.stages if any(step.keyed for step in stage.steps)]
    return stage


def met(plan: Plan, h: int, before: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Of each place where the keyed stage finds a record of this hash, or its state, the tasks that take it."""
    stage = keyed(plan)
    for read in stage.inputs:
        if not isinstance(read, StreamInput):
            yield tuple(takers(stage.tasks, read.name, h % read.placement.partitions, h))
            continue
        moved = [exchange.only for exchange in plan.exchanges if exchange.source == read.name]
        count = len(plan.stream(read.name).partitions)
        for partition in {h % count, h % before.get(read.name, count)}:
            if partition < count and not any(only is None or partition in only for only in moved):
                yield tuple(takers(stage.tasks, read.name, partition, h))


@pytest.mark.parametrize("scheme", ["cogroup", "elastic(2)", "tasks(3)"])
def test_every_key_meets_its_state_and_its_other_streams_after_every_change_of_counts(scheme: str) -> None:
    """The history of each case, those that Samza refuses included."""
    for case in meeting():
        before, now = named(case["previousInputs"]), named(case["inputs"])
        changed, following = batches(before, now, scheme)
        if before:
            assert any(isinstance(read, StateInput) for read in keyed(changed).inputs)
        for plan, held in ((changed, before), (following, {})):
            for h in range(lcm(keyed(plan).cosets, *now.values(), *before.values())):
                found = set(met(plan, h, held))
                assert len(found) == 1, (case["id"], h, found)
                assert len(found.pop()) == 1, (case["id"], h)


def test_samza_splits_keys_in_most_cases_where_its_expansion_has_an_answer() -> None:
    answered = [case for case in meeting() if "everyKeyCoLocated" in case]
    for case in answered:
        owner = {part: task for task, parts in case["result"].items() for part in parts}
        split = [
            h
            for h in range(lcm(*case["inputs"].values()))
            if len({owner[f"{stream}/{h % count}"] for stream, count in case["inputs"].items()}) > 1
        ]
        assert (split == []) is case["everyKeyCoLocated"], case["id"]
    splitting = sum(not case["everyKeyCoLocated"] for case in answered)
    refused = sum("error" in case["result"] for case in meeting())
    print(f"Samza splits keys in {splitting} of {len(answered)} cases and fails in {refused} more; Coset in none")
    assert splitting > len(answered) // 2
    assert refused


def test_equal_counts_after_a_growth_are_not_enough_for_samza() -> None:
    """Streams of 2 and 4 partitions become 4 and 4, and partition 2 of each sits in another task."""
    (case,) = [case for case in meeting() if case["id"] == 38]
    assert (case["previousInputs"], case["inputs"]) == (
        {"hdfs/views": 2, "kafka/clicks": 4},
        {"hdfs/views": 4, "kafka/clicks": 4},
    )
    found = {part: task for task, parts in case["result"].items() for part in parts}
    assert found["hdfs/views/2"] != found["kafka/clicks/2"]
    _, following = batches(named(case["previousInputs"]), named(case["inputs"]), "cogroup")
    assert [dict(task.reads) for task in keyed(following).tasks] == [
        {"hdfs.views": (p,), "kafka.clicks": (p,), "total.state": (p % 2,)} for p in range(4)
    ]
