"""The coset rule and what a task takes by it, against brute force: hashes dealt out one by one."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, lcm

from hypothesis import assume, given
from hypothesis import strategies as st

from partitioning.authoring.pipeline import Pipeline
from partitioning.cosets import Reading, assign, assign_owned
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan
from partitioning.model.reasons import AllTogether
from partitioning.model.schemes import MAX, Scheme
from partitioning.model.schemes import tasks as tasks_scheme
from partitioning.model.takes import Residues, Task, taken, takes
from tests.coset_rule import partitions_of, tasks_of
from tests.pipeline_examples import Declared, Move, moves, pipeline_of, streams_of
from tests.pipeline_examples import counts as word_counts
from tests.plans import arrived, plan_of, takers

counts = st.integers(1, 24)
tasks = st.integers(1, 24)
streams = st.lists(counts, min_size=1, max_size=4).map(lambda some: [(f"s{n}", count) for n, count in enumerate(some)])
schemes = st.one_of(
    st.just("cogroup"),
    st.integers(1, 5).map(lambda factor: f"elastic({factor})"),
    tasks.map(lambda number: f"tasks({number})"),
).map(Scheme.parse)
keys = st.lists(st.text(max_size=8), min_size=1, max_size=30)


@given(counts, tasks)
def test_partition_and_task_share_keys_exactly_where_some_hash_says_so(n: int, total: int) -> None:
    met = {(h % n, h % total) for h in range(lcm(n, total))}
    assert {(p, t) for t in range(total) for p in partitions_of(t, total, n)} == met
    assert {(p, t) for p in range(n) for t in tasks_of(p, n, total)} == met


@given(counts, tasks)
def test_a_filter_is_needed_only_where_some_partition_holds_keys_of_two_tasks(n: int, total: int) -> None:
    held: dict[int, set[int]] = {}
    for h in range(lcm(n, total)):
        held.setdefault(h % n, set()).add(h % total)
    filtered = any(task.filters for task in assign([("s", n)], Scheme.parse(f"tasks({total})")).tasks)
    assert filtered == any(len(owners) > 1 for owners in held.values())
    assert filtered == (gcd(n, total) != total)


@given(streams, schemes)
def test_each_hash_has_exactly_one_task_and_the_same_one_in_every_stream(
    named: list[tuple[str, int]], scheme: Scheme
) -> None:
    dealt = assign(named, scheme).tasks
    total = len(dealt)
    for h in range(min(lcm(total, *(count for _, count in named)), 2000)):
        assert [takers(dealt, name, h % count, h) for name, count in named] == [[h % total]] * len(named)


@given(streams, schemes, keys)
def test_equal_keys_meet_wherever_their_producers_put_them(
    named: list[tuple[str, int]], scheme: Scheme, texts: list[str]
) -> None:
    dealt = assign(named, scheme).tasks
    for h in map(placement_hash, texts):
        met = {tuple(takers(dealt, name, h % count, h)) for name, count in named}
        assert len(met) == 1
        assert len(met.pop()) == 1


@given(streams, schemes)
def test_filters_exist_only_where_the_tasks_do_not_divide_the_partitions(
    named: list[tuple[str, int]], scheme: Scheme
) -> None:
    assignment = assign(named, scheme)
    for task in assignment.tasks:
        assert set(task.filters) == {name for name, count in named if count % len(assignment.tasks)}


@given(counts, tasks)
def test_keyless_records_are_those_of_the_first_task_that_reads_their_partition(n: int, total: int) -> None:
    dealt = assign([("s", n)], tasks_scheme(total)).tasks
    for partition in range(n):
        assert takers(dealt, "s", partition, None) == [min(tasks_of(partition, n, total))]


@given(streams)
def test_max_gives_each_partition_its_own_task_in_order(named: list[tuple[str, int]]) -> None:
    read = [(name, number) for task in assign(named, MAX).tasks for name, some in task.reads.items() for number in some]
    assert read == [(name, number) for name, count in named for number in range(count)]


@given(streams, st.lists(st.integers(0, 4), min_size=1, max_size=24))
def test_however_residues_are_dealt_each_hash_has_one_task_and_filters_only_keep_out_what_is_others(
    named: list[tuple[str, int]], dealt: list[int]
) -> None:
    cosets = len(dealt)
    owners = [tuple(r for r in range(cosets) if dealt[r] == task) for task in sorted(set(dealt))]
    owning = assign_owned([Reading(name, count) for name, count in named], cosets, owners)
    for h in range(min(lcm(cosets, *(count for _, count in named)), 500)):
        owner = next(task for task, owned in enumerate(owners) if h % cosets in owned)
        assert [takers(owning, name, h % count, h) for name, count in named] == [[owner]] * len(named)
    for task in owning:
        for name, count in named:
            held = {h % cosets for h in range(lcm(count, cosets)) if h % count in task.reads[name]}
            assert (name in task.filters) == (not held <= set(task.owns))


few = st.integers(1, 6)


def divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


@st.composite
def counts_of_tasks(draw: st.DrawFn, modulus: int) -> Task:
    """A task that reads some of 12 partitions, and perhaps keeps several residues of a divisor of the modulus."""
    reads = {"views": tuple(sorted(draw(st.sets(st.integers(0, 11)))))}
    finer = draw(st.sampled_from(divisors(modulus)))
    kept = draw(st.none() | st.sets(st.integers(0, finer - 1), min_size=1))
    filters = {} if kept is None else {"views": Residues(finer, tuple(sorted(kept)))}
    return Task(0, reads, filters, null_keys=draw(st.booleans()), keyless=reads)


@given(few, few, st.data())
def test_taken_says_of_all_keys_what_takes_says_of_each(step: int, factor: int, data: st.DataObject) -> None:
    modulus = step * factor
    task = data.draw(counts_of_tasks(modulus))
    found = taken(task, "views", modulus, step)
    assert all(len(set(residues)) == len(residues) for residues in found.values())
    assert set(found) <= {partition % step for partition in task.reads["views"]}
    for partition in range(12):
        for h in range(partition % step, 2 * modulus, step):
            at_once = partition in task.reads["views"] and h % modulus in found.get(partition % step, ())
            assert takes(task, "views", partition, h) == at_once


@given(few, st.data())
def test_of_an_input_that_it_does_not_read_a_task_takes_nothing(modulus: int, data: st.DataObject) -> None:
    task = data.draw(counts_of_tasks(modulus))
    assert taken(task, "clicks", modulus, 1) == {}
    assert not any(takes(task, "clicks", partition, h) for partition in range(12) for h in (None, *range(modulus)))


@given(few, st.data())
def test_a_task_for_records_without_a_key_takes_no_others(modulus: int, data: st.DataObject) -> None:
    task = data.draw(counts_of_tasks(modulus))
    alone = [p for p in range(12) if takes(task, "views", p, None)]
    assert alone == list(task.reads["views"])
    if task.null_keys:
        assert taken(task, "views", modulus, 1) == {}


def planned(pipeline: Pipeline, scheme: str) -> Plan | None:
    found = [arrived(stream.name, [10] * stream.partitions) for stream in pipeline.streams]
    try:
        return plan_of(pipeline, found, scheme=scheme)
    except Refused:
        return None


@given(streams_of, st.lists(word_counts, min_size=3, max_size=3), st.lists(moves, max_size=8), st.integers(2, 4))
def test_a_factor_multiplies_the_tasks_of_each_stage_once(
    streams: Sequence[Declared], word_counts: Sequence[int], steps: Sequence[Move], factor: int
) -> None:
    pipeline = pipeline_of(streams, word_counts, steps)
    plain, elastic = planned(pipeline, "cogroup"), planned(pipeline, f"elastic({factor})")
    assume(plain is not None and elastic is not None)
    assert plain is not None
    assert elastic is not None
    # How many unifiers there are between stages follows from how many tasks write.
    assert {stage.name: stage.cosets for stage in elastic.stages if not stage.unifies} == {
        stage.name: stage.cosets * (1 if isinstance(stage.why, AllTogether) else factor)
        for stage in plain.stages
        if not stage.unifies
    }
