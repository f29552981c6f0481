"""A batch that does not go on from the last published one is refused, whatever its own plan says of where that ended.

What is made wrong is the stored plan or a table's log; the batch itself runs as it is planned.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coset.batches import steps
from coset.batches.ref import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.plan import Plan
from partitioning.model.read_ends import StreamProgress
from partitioning.values import replace
from tests.batches import erase
from tests.begun import Begun
from tests.changing import World
from tests.judged import CONTINUES, HOLD, REMEMBERED, Refusal, caught_by, refusal, results, saying
from tests.real_batches import TAILS, delays, land_flights, land_planes, ran, stored, with_start
from tests.running import run_and_publish, run_and_publish_unjudged, run_groups
from tests.there import there

LOG = "tables/delays/_delta_log"
Begins = Callable[[Plan, str, int, int], Plan]


@pytest.fixture
def published(begun: Begun) -> Store:
    return begun.by(first_batch)


def first_batch(store: Store) -> None:
    """Three flights of each plane, of which a first batch took and published four of each partition."""
    land_flights(store, [*TAILS, *TAILS, *TAILS])
    land_planes(store)
    run_and_publish(stored(store, delays(store), settings=Settings(limit=4)))


def lying(plan: Plan, stream: str, number: int, offset: int) -> Plan:
    """The plan that says itself that the last batch ended there."""
    later = with_start(plan, stream, number, offset)
    flights, planes = later.streams
    partitions = tuple(replace(each, committed=each.start, beginning=each.start) for each in flights.partitions)
    return replace(
        later, streams=(replace(flights, partitions=partitions), planes), starts={f"{stream}-{number}": offset}
    )


@caught_by(CONTINUES)
@pytest.mark.parametrize(
    ("change", "offset", "said"),
    [
        (with_start, 6, "2 records left out"),
        (with_start, 1, "3 records before it would count twice"),
        pytest.param(lying, 6, "2 records left out", marks=pytest.mark.long),
    ],
)
def test_a_plan_that_begins_elsewhere_than_the_last_batch_ended_is_refused(
    published: Store, change: Begins, offset: int, said: str
) -> Refusal:
    return saying(
        refusal(ran(published, delays(published), lambda plan: change(plan, "flights", 3, offset))),
        f"- flights-3: the last published batch ended at 4: {said}",
    )


def _beginning(plan: Plan, stream: str, number: int, offset: int) -> Plan:
    """The plan of a first batch that says that a partition begins there."""
    streams = tuple(
        replace(
            each,
            partitions=tuple(
                replace(one, beginning=offset, committed=offset, start=offset) if one.partition == number else one
                for one in each.partitions
            ),
        )
        if each.name == stream
        else each
        for each in plan.streams
    )
    return replace(plan, streams=streams)


@caught_by(CONTINUES)
@pytest.mark.parametrize("change", [with_start, _beginning])
@pytest.mark.parametrize(
    ("stream", "number", "offset", "said"),
    [
        ("planes", 1, 2, "planes-1: the table begins at offset 0, but is read from 2 on"),
        ("flights", 3, 1, "flights-3: it begins at 0: 1 record left out"),
    ],
)
def test_a_table_or_a_first_batch_that_begins_later_than_it_has_to_is_refused(
    store: Store, change: Begins, stream: str, number: int, offset: int, said: str
) -> Refusal:
    land_flights(store, [*TAILS, *TAILS])
    land_planes(store)
    made = delays(store, planes_are_a_table=stream == "planes")
    return saying(refusal(ran(store, made, lambda plan: change(plan, stream, number, offset))), f"- {said}")


def test_a_first_batch_that_begins_where_the_settings_say_passes_and_what_it_skips_is_counted(store: Store) -> None:
    land_flights(store, [*TAILS, *TAILS])
    land_planes(store)
    ref = stored(store, delays(store), settings=Settings(starts={"flights-3": 3, "planes-1": 2}))
    run_and_publish(ref)
    (found,) = (result for result in results(ref) if result["expectation"] == CONTINUES)
    assert found["success"]
    assert found["result"]["observed_value"] == (
        "12 stream partitions, 12 of them for the first time; 5 records skipped in 2 of these, as [starts] asks"
    )


# ---- what is not read is remembered


@pytest.fixture
def left_out(store: Store, tmp_path: Path) -> World:
    """Views and clicks, of which a first batch has read all; the next one is to read views only."""
    world = World(store, tmp_path)
    for name in world.read:
        world.send(name, 40)
    world.batch()
    world.read = ["views"]
    world.send("views", 5)
    return world


@pytest.mark.long
@caught_by(REMEMBERED)
def test_a_plan_that_forgets_what_it_does_not_read_is_refused(left_out: World) -> Refusal:
    end = left_out.topics["clicks"].ends[2]
    return saying(
        refusal(ran(left_out.store, left_out.pipeline(), lambda plan: replace(plan, remembered=()))),
        f"- clicks-2: the plan remembers that it was never read, by the ledger it was read up to {end} by batch 0",
    )


@pytest.mark.long
@caught_by(REMEMBERED)
def test_a_plan_that_remembers_another_end_is_refused(left_out: World) -> Refusal:
    def lying(plan: Plan) -> Plan:
        return with_end(plan, "clicks", 2, 1)

    return refusal(ran(left_out.store, left_out.pipeline(), lying))


WRONG: dict[str, Callable[[StreamProgress], StreamProgress]] = {
    "clicks-2: the plan does not remember files": lambda read: with_ends(read, 2, files=()),
    "clicks-1: the plan does not remember beginning": lambda read: with_ends(read, 1, beginning=1),
    "clicks-0: the plan does not remember epoch": lambda read: with_ends(read, 0, epoch=7),
    "clicks: the plan does not remember topic": lambda read: replace(read, topic="another"),
    "clicks: the plan does not remember columns": lambda read: replace(read, columns=read.columns[1:]),
    "clicks: the plan does not remember required": lambda read: replace(read, required=("nothing",)),
    "clicks: the plan does not remember declared": lambda read: replace(
        read, declared=replace(read.declared, partitions=8)
    ),
}


def with_ends(read: StreamProgress, partition: int, **changes: object) -> StreamProgress:
    ends = (replace(end, **changes) if end.partition == partition else end for end in read.ends)
    return replace(read, ends=tuple(ends))


@pytest.mark.long
@pytest.mark.parametrize("told", WRONG)
@caught_by(REMEMBERED)
def test_a_plan_that_remembers_of_what_it_was_read_otherwise_is_refused(told: str, left_out: World) -> Refusal:
    def lying(plan: Plan) -> Plan:
        assert isinstance(plan.remembered, tuple)
        return replace(plan, remembered=tuple(map(WRONG[told], plan.remembered)))

    return saying(refusal(ran(left_out.store, left_out.pipeline(), lying)), f"- {told} as the ledger has it")


@caught_by(CONTINUES)
@pytest.mark.parametrize("start", [2, 4])
def test_a_first_batch_that_begins_elsewhere_than_it_was_asked_to_is_refused(start: int, store: Store) -> Refusal:
    land_flights(store, [*TAILS, *TAILS])
    land_planes(store)

    def asked(plan: Plan) -> Plan:
        return replace(with_start(plan, "flights", 3, start), starts={"flights-3": 3})

    said = refusal(ran(store, delays(store), asked))
    told = "1 record left out" if start > 3 else "1 record before it would count twice"
    assert f"- flights-3: it begins at 3: {told}" in said.findings[0]
    return said


@caught_by(CONTINUES)
def test_a_plan_that_begins_anew_with_a_stream_that_comes_back_is_refused(left_out: World) -> Refusal:
    end = left_out.topics["clicks"].ends[2]
    left_out.batch()
    left_out.read = ["views", "clicks"]
    left_out.send("clicks", 40)
    first = there(Ledger(left_out.store, "changing").plan(0))
    read = first.stream("clicks").partitions[2]

    def anew(plan: Plan) -> Plan:
        one = plan.stream("clicks").partitions[2]
        again = replace(one, start=0, files=(*read.files, *one.files), bytes=read.bytes + one.bytes)
        partitions = tuple(again if each.partition == 2 else each for each in plan.stream("clicks").partitions)
        clicks = replace(plan.stream("clicks"), partitions=partitions)
        return replace(plan, streams=tuple(clicks if each.name == "clicks" else each for each in plan.streams))

    said = refusal(ran(left_out.store, left_out.pipeline(), anew))
    told = f"- clicks-2: the last published batch ended at {end}: {end} records before it would count twice"
    assert told in said.findings[0]
    return said


def test_what_a_published_plan_remembers_is_held_against_the_plan_that_it_names(left_out: World) -> None:
    # As nobody can publish it whose proof looks at it.
    run_and_publish_unjudged(stored(left_out.store, left_out.pipeline(), lambda plan: with_end(plan, "clicks", 2, 1)))
    left_out.read = ["views", "clicks"]
    left_out.send("clicks", 40)
    ref = there(left_out.plan())
    run_groups(ref)
    steps.audit(ref)
    with pytest.raises(Refused, match="later plans say that batch 0 read it up to 1, but its own plan") as refused:
        steps.check(ref, left_out.docs)
    assert "clicks-2" in refused.value.findings[0].where


def with_end(plan: Plan, stream: str, partition: int, end: int) -> Plan:
    """The plan, remembering another end of a partition."""
    assert isinstance(plan.remembered, tuple)
    reads = tuple(
        replace(read, ends=tuple(replace(one, end=end) if one.partition == partition else one for one in read.ends))
        if read.name == stream
        else read
        for read in plan.remembered
    )
    return replace(plan, remembered=reads)


# ---- tables hold what the ledger says


def next_batch(store: Store) -> BatchRef:
    """The second batch, after its task groups have run and before anybody looks at the table again."""
    ref = stored(store, delays(store))
    run_groups(ref)
    return ref


@caught_by(HOLD)
def test_a_table_that_was_rolled_back_is_refused(published: Store) -> Refusal:
    ref = next_batch(published)
    erase(published.root, f"{LOG}/00000000000000000001.json")
    return saying(refusal(ref), "- delays: its log says no batch, the ledger batch 0")


@pytest.mark.long
@caught_by(HOLD)
def test_a_table_that_was_rolled_back_while_no_batch_wrote_to_it_is_refused(store: Store) -> Refusal:
    def writing(*tables: str) -> Pipeline:
        made = Pipeline("delays", source=f"{store.root}/topics")
        flights = made.stream("flights", key="tailnum", partitions=8)
        for table in tables:
            flights.filter("delay >= 0", name=f"for_{table}").write(table)
        return made

    for tables in (("all", "delays"), ("all",)):
        land_flights(store, TAILS)
        run_and_publish(stored(store, writing(*tables)))
    erase(store.root, f"{LOG}/00000000000000000001.json")
    land_flights(store, TAILS)
    # Its rows are missing, and somebody lets the plan go on.
    ref = ran(store, writing("all", "delays"), settings=Settings(begin_anew=("delays",)))
    return saying(refusal(ref), "- delays: its log says no batch, the ledger batch 0")


@caught_by(HOLD)
def test_a_table_that_holds_the_batch_of_another_plan_is_refused(published: Store) -> Refusal:
    ref = next_batch(published)
    ledger, _ = ref.load()
    first = there(ledger.plan(0))
    other = digest(replace(first, key_sample=7))
    key = f"{LOG}/00000000000000000001.json"
    log = (published.get(key) or b"").decode()
    assert digest(first) in log
    published.put(key, log.replace(digest(first), other).encode())
    return saying(
        refusal(ref), f"- delays: batch 0 in its log is of the plan {other}, in the ledger of {digest(first)}"
    )


@pytest.mark.long
def test_a_table_that_holds_a_batch_which_the_ledger_does_not_know_is_refused(published: Store) -> None:
    ref = next_batch(published)
    erase(published.root, "delays/verdicts/0.json", "delays/commits/0.json")
    said = refusal(ref)
    # By the ledger nothing was published, so that this batch should have begun where the streams do.
    assert said.failed == (CONTINUES, HOLD)
    assert "it begins at 0: 4 records left out" in said.findings[0]
    assert "- delays: its log says batch 0, the ledger no batch" in said.findings[1]
