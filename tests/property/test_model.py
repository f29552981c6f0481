"""The model of the real code: whatever the order, a crash or a lost answer, each record is published once."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from tests.examples import examples, share
from tests.model.__main__ import FAULTS
from tests.model.cases import CASES
from tests.model.explore import Violation, by_chance, every_order
from tests.model.lasting import beside, ills
from tests.model.schedules import as_test, moves_in, played, shrunk, text_of
from tests.model.seams import seams
from tests.model.world import AGAIN, BUSY, CONTENDED, CRASH, LATE, LOST, Move
from tests.seeded.__main__ import ROOT, Fault, faults

_TWO = [name for name, case in CASES.items() if len(case.at_once) == 2]
# Those that begin a table, or write two, ask so much that a lost answer too would take an hour.
_LARGE = {"two run the first batch", "two begin a store", "two run, two tables", "one swaps"}
_SMALL = [name for name in _TWO if name not in _LARGE]


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


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", share(_TWO))
def test_every_order_of_two_keeps_what_was_promised(name: str) -> None:
    all_orders(name, 1, 0)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", share(sorted(_SMALL, key="one gives up".__ne__)))
def test_every_order_of_two_with_a_crash_and_a_lost_answer_does(name: str) -> None:
    all_orders(name, 1, 1)


def chosen(name: str, schedules: int, seed: int) -> list[str]:
    """Schedules of a case by chance."""
    world, judge = CASES[name].world(2, 2, reads=True)
    random, found, began = Random(seed), list[str](), time.process_time()
    try:
        for _ in range(schedules):
            found.append(text_of(by_chance(world, judge, random)))
    except Violation as violation:
        pytest.fail(as_test(name, shrunk(name, violation)))
    print(f"{name}, by chance: {60 * schedules / (time.process_time() - began):,.0f} schedules a minute")
    return found


def test_schedules_of_many_by_chance_keep_it_too_and_are_the_same_each_time() -> None:
    name = "one cleans, one gives up"
    assert chosen(name, 60, 1) == chosen(name, 60, 1) != chosen(name, 60, 2)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CASES)
def test_more_of_them_keep_it(name: str) -> None:
    met = Counter(re.findall(r"!(\S+)", " ".join(chosen(name, examples(2_000), 1))))
    print(f"{name}: {', '.join(f'{fault} {times}' for fault, times in sorted(met.items()))}")
    assert met.keys() == {CRASH, LOST, BUSY, LATE, AGAIN, CONTENDED}


# ---- lasting faults


def one_gets_on(name: str) -> None:
    _, judge = CASES[name].world()
    try:
        asked = [beside(judge, ill) for ill in ills(CASES[name])]
    except Violation as found:
        pytest.fail(f"{name}: {found}")
    print(f"{name}: {len(asked)} lasting faults, all is published within {max(asked)} requests")


def test_all_is_published_beside_an_actor_that_never_gets_well() -> None:
    one_gets_on("two run")


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_all_is_published_beside_any_such_actor(name: str) -> None:
    one_gets_on(name)


# ---- found by the model


def test_what_meets_a_swap_or_an_end_on_its_way_is_not_refused_but_told() -> None:
    # It was told that the table has lost files, which the swap had just exchanged.
    assert played("one swaps", "b*38 a*22 b*3 a*2") is None
    assert played("two swap", "a*40 b*13 a*1 b*16") is None
    # It was told to restore its files.
    assert played("one cleans, one gives up", "a*28 c*9 b*34 a*4") is None
    # It had asked for the id of the store before that had one, and then met the table that has it.
    assert played("two begin a store", "a*31 b*50 a*30 b*3") is None


# ---- guards that are taken out


@pytest.mark.parametrize("fault", faults(FAULTS), ids=lambda fault: fault.name)
def test_a_guard_stands_in_its_file_once(fault: Fault) -> None:
    text = (ROOT / fault.file).read_text()
    assert text.count(fault.before) == 1
    assert ast.dump(ast.parse(text.replace(fault.before, fault.after))) != ast.dump(ast.parse(text))


def found(*names: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tests.model", *names]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)


def test_a_guard_that_is_taken_out_is_found_by_its_invariant() -> None:
    assert found("end-forgotten").returncode == 0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_guard_that_is_taken_out_is_found_in_the_same_way_each_time() -> None:
    first = found(seed="1")
    assert first.returncode == 0, first.stdout
    # One of each kind of case: by chance, by hand, beside an actor that never gets well.
    second = found("lost-race-is-won", "backfill-swept", "given-up-and-swept", "busy-for-ever", seed="2")
    lines = [re.sub(r"[0-9.]+ \|$", "|", told.stdout, flags=re.M).splitlines() for told in (first, second)]
    assert len(lines[1]) == 7
    assert set(lines[1][:-1]) < set(lines[0])


# ---- the model itself


def test_a_schedule_is_read_as_it_is_written() -> None:
    said = "a*18 b*1 a!crash b!before:lost+1s b*3 lands-0 b!after:lost"
    assert text_of(moves_in(said)) == said
    assert next(moves_in("b!before:503")) == Move(1, BUSY)
