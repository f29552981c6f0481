"""The model of the real code: whatever the order, a crash or a lost answer, each record is published once."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.model.cases import CASES
from tests.model.explore import Violation, by_chance, every_order
from tests.model.schedules import as_test, moves_in, played, shrunk, text_of
from tests.model.seams import seams
from tests.model.world import Move


@pytest.fixture(autouse=True, scope="module")
def still() -> Iterator[None]:
    with seams():
        yield


def all_orders(name: str, crashes: int, faults: int) -> None:
    try:
        explored = every_order(*CASES[name].world(crashes, faults))
    except Violation as found:
        pytest.fail(as_test(name, shrunk(name, found)))
    print(f"{name}, {crashes} crashes, {faults} faults: {explored}")
    assert explored.ends


@pytest.mark.parametrize("name", ["two run", "one gives up", "one swaps, one takes back"])
def test_every_order_of_two_keeps_what_was_promised(name: str) -> None:
    all_orders(name, 1, 0)


@pytest.mark.parametrize("name", ["one gives up", "one swaps, one cleans"])
def test_every_order_of_two_with_a_crash_and_a_lost_answer_does(name: str) -> None:
    all_orders(name, 1, 1)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if len(case.at_once) == 2])
def test_every_order_of_any_two_does(name: str) -> None:
    all_orders(name, 1, 1)


def chosen(name: str, schedules: int, seed: int) -> list[str]:
    """Schedules of a case by chance."""
    world, judge = CASES[name].world(2, 2, reads=True)
    random, found = Random(seed), list[str]()
    try:
        for _ in range(schedules):
            found.append(text_of(by_chance(world, judge, random)))
    except Violation as violation:
        pytest.fail(as_test(name, shrunk(name, violation)))
    return found


def test_schedules_of_many_by_chance_keep_it_too_and_are_the_same_each_time() -> None:
    assert chosen("all at once", 30, 1) == chosen("all at once", 30, 1) != chosen("all at once", 30, 2)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(2))
def test_more_of_them_keep_it(name: str, seed: int) -> None:
    assert len(chosen(name, 10_000, seed)) == 10_000


# ---- found by the model


def test_a_batch_that_meets_a_swap_on_its_way_is_not_refused() -> None:
    # It was told that the table has lost files, which the swap had just exchanged.
    assert played("one swaps", "b*38 a*22 b*3 a*2") is None


def test_who_swaps_what_another_has_just_swapped_is_not_refused() -> None:
    assert played("two swap", "a*40 b*13 a*1 b*16") is None


# ---- the model itself


def test_a_schedule_is_read_as_it_is_written() -> None:
    said = "a*18 b*1 a!crash b!late b*3 lands-0 b!lost"
    assert text_of(moves_in(said)) == said
    assert next(moves_in("b!late")) == Move(1, "late")
