"""The bridge: what the real code does in the model's schedules, the specification allows, and what was forged it does
not."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.examples import examples
from tests.model.cases import CASES
from tests.model.explore import by_chance
from tests.model.seams import seams
from tests.model.traces import Event, Stored, Trace, Tracer, held


def traces(name: str, number: int) -> Iterator[Trace]:
    """So many traces of a case that are not tame."""
    world, judge = CASES[name].world(2, 2, reads=True)
    tracer, random = Tracer(CASES[name], world, judge), Random(1)
    while number:
        trace = tracer.of(by_chance(world, judge, random))
        if not trace.tame:
            number -= 1
            yield trace


def all_held(names: Iterable[str], of_each: int, folder: Path) -> int:
    """How many traces of these cases were held against the specification, which allows each."""
    by_tables = defaultdict[int, list[Trace]](list)
    with seams():
        for name in names:
            by_tables[CASES[name].tables] += traces(name, of_each)
    for found in by_tables.values():
        told = held(found, folder)
        assert not told.refused, next(iter(told.refused.values()))
        print(f"{len(found):,} traces, {len(set(found)):,} different: {told.events:,} events, {told.states:,} states")
    return sum(map(len, by_tables.values()))


def test_what_the_code_does_is_what_the_specification_allows(tmp_path: Path) -> None:
    assert all_held(["two run", "one cleans, one gives up"], 500, tmp_path) == 1_000


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_traces_of_all_cases_are_what_it_allows(tmp_path: Path) -> None:
    # The specification has one backfill.
    names = [name for name in CASES if "two backfills" not in name]
    asked = examples(10_000)
    assert all_held(names, -(-asked // len(names)), tmp_path) >= asked


# ---- forged


Change = Callable[[Stored], Stored]


def changed(trace: Trace, since: Callable[[Stored], bool], change: Change) -> Trace:
    """A trace in which all is otherwise since something is stored. What changes nothing then is no event."""
    first = next(at for at, event in enumerate(trace.events) if since(event.stored))
    forged = trace.events[:first]
    for event in trace.events[first:]:
        if (stored := change(event.stored)) != forged[-1].stored:
            forged = (*forged, Event(event.by, stored))
    return Trace(forged)


def of_batch_1(name: str, value: tuple[object, ...]) -> Change:
    def change(stored: Stored) -> Stored:
        of_each = getattr(stored, name)
        now: dict[str, Any] = {name: (of_each[0], value, *of_each[2:])}
        return stored._replace(**now)

    return change


def decided(stored: Stored) -> bool:
    return bool(stored.verdicts[1])


FORGED = {
    "published without a verdict": (decided, of_batch_1("verdicts", ()), "check or decide"),
    "a verdict overwritten": (
        lambda stored: 1 in stored.commits,
        of_batch_1("verdicts", ("abandon", 0)),
        "commit or publish",
    ),
    "offsets that go back": (lambda stored: bool(stored.plans[1]), of_batch_1("plans", (0, 2)), "idle or plan"),
    "a receipt of what is in no table": (
        lambda stored: len(stored.logs[0]) == 2,
        lambda stored: stored._replace(logs=(stored.logs[0][:1],)),
        "append or publish",
    ),
    "files of what is published removed": (
        decided,
        lambda stored: stored._replace(files=stored.files - {stored.verdicts[1][1]}),
        "check or decide",
    ),
}


def test_what_is_forged_is_refused_where_it_was_forged_and_what_is_tame_as_such(tmp_path: Path) -> None:
    with seams():
        real = next(trace for trace in traces("two run", 50) if trace.events[-1].by in (1, 2))
    forged = [changed(real, since, change) for since, change, _ in FORGED.values()]
    told = held([real, *forged, real._replace(tame=True)], tmp_path).refused
    assert list(told) == [6, 1, 2, 3, 4, 5]
    assert told[6] == "it is tame: nothing goes wrong, and one acts after the other"
    for number, (_, _, places) in enumerate(FORGED.values(), 1):
        assert re.match(rf"the specification does not allow actor [12] at {places} to leave ", told[number])
