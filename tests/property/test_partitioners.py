"""Shares under any sequence of loads: every key in exactly one, whatever was split and merged before."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning.authoring.settings import PartitionerRef
from partitioning.errors import Refused
from partitioning.model.plan import Stage
from partitioning.model.statistics import TaskFigures
from partitioning.model.takes import Residues, Task
from partitioning.planning.partitioners.by_load import ByThroughput, repartitioned
from partitioning.planning.partitioners.key_shares import Share, complete, reduced, residues_at, widest
from partitioning.planning.partitioners.partitioners import (
    ApexKeys,
    Even,
    PartitioningContext,
    Shares,
    assign_shares,
    current_shares,
)
from tests.examples import examples
from tests.plans import dealt_stage, takers

VECTORS = Path(__file__).parents[1] / "vectors" / "apex"
LOADS = st.lists(st.sampled_from([-1, 0, 1]), min_size=64, max_size=64)


def each_is_taken_once(shares: Sequence[Share], most: int) -> bool:
    """The brute-force oracle: whether each hash below `most` is one task's, if each share is that of a task."""
    filters = [{"flights": Residues(share.modulus, share.residues)} for share in shares]
    tasks = [Task(number, {"flights": (0,)}, kept) for number, kept in enumerate(filters)]
    return all(len(takers(tasks, "flights", 0, h)) == 1 for h in range(most))


def judged(shares: Sequence[Share], loads: Sequence[int]) -> list[Share]:
    return [Share(each.modulus, each.residues, load=loads[number % 64]) for number, each in enumerate(shares)]


def stage(shares: Shares) -> Stage:
    return dealt_stage("flights", shares.cosets, shares.owners, shares.cooling)


@settings(deadline=None, max_examples=examples(150))
@given(st.integers(1, 24), st.lists(LOADS, min_size=1, max_size=6))
def test_every_hash_has_one_share_after_any_splits_and_merges(cosets: int, steps: list[list[int]]) -> None:
    shares: tuple[Share, ...] = tuple(Share(cosets, (coset,)) for coset in range(cosets))
    for loads in steps:
        shares = repartitioned(judged(shares, loads))
        assert all(reduced(share).residues == share.residues for share in shares)
        assert each_is_taken_once(shares, min(2 * widest(shares), 4096))


def apex(shares: Sequence[Share]) -> list[Share]:
    """What the real system makes of shares whose moduli are powers of two: its rule, with its faults."""
    made: list[list[Share]] = []
    waiting: dict[int, list[Share]] = {}
    for share in shares:
        if share.load > 0 and len(share.residues) == 1:
            (key,) = share.residues
            made += [[Share(2 * share.modulus, (key,))], [Share(2 * share.modulus, (key + share.modulus,))]]
        elif share.load > 0:
            made += [[Share(share.modulus, (key,))] for key in share.residues]
        elif share.load == 0:
            made.append([share])
        else:
            # One object waits in several slots, so what becomes of it under one shows under the others.
            cell, mask = [share], (share.modulus - 1) >> 1
            for key in share.residues:
                if key & mask in waiting:
                    made.append(waiting.pop(key & mask))
                    made[-1][0] = Share(mask + 1, (key & mask,))
                else:
                    waiting[key & mask] = cell
    return [share for (share,) in (*made, *waiting.values())]


def owned(shares: Sequence[Share]) -> list[tuple[int, tuple[int, ...]]]:
    return sorted((share.modulus, share.residues) for share in shares)


def test_the_rule_above_is_that_of_the_real_system() -> None:
    for case in json.loads((VECTORS / "repartition_sequences.json").read_text()):
        for step in case["steps"]:
            pairs = zip(step["before"], step["loads"], strict=True)
            before = [Share(mask + 1, tuple(keys), load=load) for (mask, keys), load in pairs]
            assert owned(apex(before)) == sorted((mask + 1, tuple(keys)) for _, mask, keys in step["after"])


def test_coverage_never_breaks_where_that_of_apex_does_and_all_else_is_the_same() -> None:
    """10,000 sequences, a fifth in `make test`: 1 to 12 Apex partitions, up to 4 steps, loads 60% low, 13% high."""
    source = random.Random(146)
    sequences, broken = {True: 0, False: 0}, {True: 0, False: 0}
    for _ in range(examples(10_000)):
        tasks = source.randint(1, 12)
        power_of_two = tasks & (tasks - 1) == 0
        sequences[power_of_two] += 1
        shares = tuple(ApexKeys(tasks).define((), PartitioningContext("flights", 0, 1, ())))
        right = True
        for _ in range(4):
            loads = source.choices([-1, 0, 1], [60, 27, 13], k=len(shares))
            before = [Share(each.modulus, each.residues, load=load) for each, load in zip(shares, loads, strict=True)]
            shares = complete(repartitioned(before), "here")
            if right:
                theirs = apex(before)
                right = each_is_taken_once(theirs, widest(theirs))
                assert not right or owned(theirs) == owned(shares)
        broken[power_of_two] += not right
    assert broken[False] / sequences[False] > 0.9
    assert 0.2 < broken[True] / sequences[True] < 0.4


@settings(deadline=None, max_examples=examples(60))
@given(
    st.integers(1, 12),
    st.lists(st.lists(st.integers(0, 60_000), min_size=64, max_size=64), min_size=1, max_size=5),
    st.integers(1, 3),
)
def test_batch_after_batch_each_deal_is_complete_and_nothing_changes_while_it_cools(
    cosets: int, batches: list[list[int]], cool_down: int
) -> None:
    arguments = {"minimum": 10_000, "maximum": 30_000, "cool_down": cool_down, "per": "batch"}
    partitioner = PartitionerRef("partitioning.planning.partitioners.by_load:ByThroughput", arguments)
    previous: Stage | None = None
    made: dict[tuple[int, tuple[int, ...]], int] = {}
    for batch, records in enumerate(batches):
        figures = {task: TaskFigures(taken, 0) for task, taken in enumerate(records)}
        shares = assign_shares(
            partitioner, "flights", cosets=cosets, inputs=(), previous=previous, figures=figures, batch=batch
        )
        assert sorted(residue for owned in shares.owners for residue in owned) == list(range(shares.cosets))
        now = {(share.modulus, share.residues) for share in current_shares(stage(shares), {})}
        assert all(keys in now for keys, since in made.items() if batch < since + cool_down)
        made = {keys: made.get(keys, batch if previous else -cool_down) for keys in now}
        previous = stage(shares)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.tuples(st.sampled_from(["ApexKeys", "Even"]), st.integers(1, 12)), min_size=1, max_size=5))
def test_a_deal_that_is_reached_in_steps_is_that_of_a_fresh_plan(steps: list[tuple[str, int]]) -> None:
    def deal(name: str, tasks: int, previous: Stage | None) -> Shares:
        ref = PartitionerRef(f"partitioning.planning.partitioners.partitioners:{name}", {"tasks": tasks})
        return assign_shares(ref, "flights", cosets=24, inputs=(), previous=previous, figures={}, batch=3)

    reached = None
    for name, tasks in steps:
        reached = deal(name, tasks, stage(reached) if reached else None)
    assert reached == deal(*steps[-1], None)


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.sets(st.integers(0, 7), min_size=1)).filter(
            lambda each: max(each[1]) < each[0]
        ),
        min_size=1,
        max_size=5,
    )
)
def test_an_answer_is_taken_if_and_only_if_every_hash_has_one_share(parts: list[tuple[int, set[int]]]) -> None:
    shares = [Share(modulus, tuple(sorted(residues))) for modulus, residues in parts]
    modulus = widest(shares)
    right = each_is_taken_once(shares, modulus)
    try:
        taken = complete(shares, "here")
    except Refused:
        assert not right
    else:
        assert right
        assert [residues_at(share, modulus) for share in taken] == [residues_at(share, modulus) for share in shares]


@given(st.integers(1, 40), st.integers(1, 200))
def test_even_shares_are_even_and_hold_all(tasks: int, cosets: int) -> None:
    if tasks > cosets:
        return
    shares = Even(tasks).define((), PartitioningContext("flights", 0, cosets, ()))
    assert len(complete(shares, "here")) == tasks
    sizes = [len(share.residues) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(0, 50_000), st.floats(0.1, 10))
def test_a_load_is_where_the_throughput_lies(records: int, seconds: float) -> None:
    share = Share(1, (0,), 0, TaskFigures(records, 0, seconds))
    assert ByThroughput(1_000, 3_000).load(share) == (records / seconds > 3_000) - (records / seconds < 1_000)
