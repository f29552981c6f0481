"""What passes through exchanges, and what that adds to the work of the stage that reads them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from partitioning.model.placement import MURMUR2, OPAQUE, KeyFormat, Placement
from partitioning.model.plan import Exchange, Plan
from partitioning.model.planned_streams import PlannedStream
from partitioning.model.reasons import AskedFor
from partitioning.model.stage_inputs import ExchangeInput, ResultInput, StateInput
from partitioning.sizing.footprint import footprint
from partitioning.sizing.proposal import Targets, propose
from partitioning.sizing.traffic import Traffic, traffic
from partitioning.sizing.workload import Workload
from partitioning.values import replace
from tests.plans import plan_of, tails, tails_found

PLACED = Placement("tailnum", KeyFormat.STRING, MURMUR2, 4)


def moved(source: str, *, only: tuple[int, ...] | None = None, moves: int | None = None) -> Exchange:
    why = AskedFor(None)
    return Exchange(f"{source}.exchange", source, "flights+planes", PLACED, ("joined",), why, only, moves=moves)


def fed(*exchanges: Exchange, kind: type[ExchangeInput | ResultInput] = ExchangeInput) -> Plan:
    """A plan whose stage reads planes, and flights from these exchanges."""
    plan = plan_of(tails(), tails_found())
    (stage,) = plan.stages
    read = tuple(kind(each.name, each.source, each.placement) for each in exchanges)
    names = {each.name for each in exchanges}
    tasks = tuple(
        replace(task, reads={"planes": task.reads["planes"], **dict.fromkeys(names, (task.task,))}, filters={})
        for task in stage.tasks
    )
    planes = tuple(each for each in stage.inputs if each.name == "planes")
    return replace(plan, exchanges=exchanges, stages=(replace(stage, inputs=planes + read, tasks=tasks),))


def test_of_a_stream_all_that_is_read_moves() -> None:
    plan = fed(moved("flights"), moved("planes", only=(0, 3)))
    assert traffic(plan, plan.exchanges[0]) == Traffic(12 * 250, 12 * 2500)
    assert traffic(plan, plan.exchanges[1]) == Traffic(2 * 100, 2 * 1000)


def test_records_of_a_step_have_the_mean_size_of_those_it_comes_from() -> None:
    plan = fed(moved("flights.filter", moves=70))
    assert traffic(plan, plan.exchanges[0]) == Traffic(70, 700)
    plan = replace(plan, streams=tuple(_heavier(each) for each in plan.streams))
    assert traffic(plan, moved("joined", moves=38)) == Traffic(38, (30 * 10 + 8 * 20))


def _heavier(stream: PlannedStream) -> PlannedStream:
    if stream.name == "flights":
        return stream
    return replace(stream, partitions=tuple(replace(part, bytes=part.bytes * 2) for part in stream.partitions))


def test_what_no_batch_has_counted_is_not_known() -> None:
    plan = fed(moved("flights.filter"))
    assert traffic(plan, plan.exchanges[0]) == Traffic(None, None)
    figures = footprint(plan, plan.stages[0])
    assert (figures.exchanges, figures.moved) == (1, Traffic(None, None))


def test_an_exchange_has_as_many_partitions_as_tasks_need() -> None:
    plan = fed(moved("flights"))
    workload = Workload.of(plan, plan.stages[0])
    # 8 kB of planes in 8 partitions, and 30 kB moved.
    assert [workload.load(tasks).mean for tasks in (1, 4, 8)] == [38_000, 9500, 4750]
    assert workload.load(16).heaviest == Fraction(30_000, 16) + 1000 * (Fraction(1, 2) + Fraction(43, 200))
    figures = footprint(plan, plan.stages[0])
    assert (figures.mean, figures.heaviest, figures.reads) == (Fraction(9500), 9500, 8)
    assert propose(plan, (), Targets(bytes=4750)).stages[0].tasks == 8


@pytest.mark.parametrize("kind", [ExchangeInput, ResultInput])
def test_what_has_no_size_yet_leaves_the_number_of_tasks_as_it_is(kind: type[ExchangeInput | ResultInput]) -> None:
    plan = fed(moved("flights.filter"), kind=kind)
    (stage,) = propose(plan, (), Targets(bytes=1)).stages
    assert (stage.scheme, stage.tasks) == (None, 4)
    assert stage.why == "stays at 4: the size of flights.filter.exchange is known only once it is written"


def test_a_partitioner_and_a_step_that_needs_all_records_choose_for_themselves() -> None:
    plan = plan_of(tails(), tails_found())
    (stage,) = plan.stages
    dealt = replace(plan, stages=(replace(stage, partitioner="shop.parts:ByBytes"),))
    (found,) = propose(dealt, (), Targets(bytes=1)).stages
    assert (found.scheme, found.why) == (None, "stays at 4: its partitioner shop.parts:ByBytes chooses")
    steps = tuple(replace(step, key="") for step in stage.steps)
    (found,) = propose(replace(plan, stages=(replace(stage, steps=steps),)), (), Targets(bytes=1)).stages
    assert found.why == "stays at 4: joined must have all records together"


def test_state_of_an_unknown_size_does_not_hinder() -> None:
    plan = fed(moved("flights"))
    state = StateInput("joined.state", "joined", PLACED, 0)
    (stage,) = plan.stages
    kept = replace(plan, stages=(replace(stage, inputs=(*stage.inputs, state)),))
    assert propose(kept, (), Targets(bytes=4750)).stages[0].tasks == 8
    assert footprint(kept, kept.stages[0]).mean == 9500


def test_rows_that_a_later_stage_reads_where_they_lie_need_their_keys_together() -> None:
    plan = plan_of(tails(), tails_found())
    (stage,) = plan.stages
    free = replace(stage, steps=tuple(replace(step, keyed=False) for step in stage.steps))
    assert Workload.of(replace(plan, stages=(free,)), free).whole is not None
    later = replace(stage, name="later", wave=1, inputs=(ResultInput("joined.result", "joined", PLACED),))
    assert Workload.of(replace(plan, stages=(free, later)), free).whole is None


def test_only_partitions_that_are_read_where_they_lie_count() -> None:
    plan = plan_of(tails(), tails_found())
    (stage,) = plan.stages
    flights, planes = stage.inputs
    changed = replace(flights, only=(9, 10, 11), placement=replace(flights.placement, partitions=6, hash=OPAQUE))
    workload = Workload.of(plan, replace(stage, inputs=(changed, planes)))
    assert workload.sizes[6] == (0, 0, 0, 2500, 2500, 2500)
    assert [workload.allows(tasks) for tasks in (3, 4, 6, 12)] == [True, False, True, False]
