"""Traces: what the real code stored in a schedule, step by step, in the words of the specification, and whether TLC
finds that the specification may do that.

A trace has what others can see: landed records, plans, receipts, runs and their files, verdicts, commits to tables,
commit receipts and swaps. What an actor reads is no part of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from partitioning.model.backfill import Swap, SwapKind
from partitioning.model.plan import Plan
from partitioning.model.receipt import Artefact
from tests.model import programs
from tests.model.cases import Case
from tests.model.explore import Judge, Schedule
from tests.model.seams import PREFIX
from tests.model.server import Objects
from tests.model.view import View
from tests.model.world import LANDS, World
from tests.specification.tlc import QUICK, states, tla, tlc

_FILE = re.compile(rf"{PREFIX}tables/[^/]+/data/plan-([0-9]+)/([^/]+)/")
# The programs whose steps are those of an actor. All others are the specification's `Others`.
_ACTORS = (programs.run, programs.swap)
_LEFT, _AGAIN = "-killed", "-again"
Run = tuple[int, str]
# How far the partitions have records.
Ends = tuple[tuple[int, int], ...]
# No schedule of the model has more.
BATCHES = 6


class Stored(NamedTuple):
    """What is stored, as the specification has it: batches by number, runs by the order in which they ended."""

    landed: int
    commits: frozenset[int]
    swapped: int
    files: frozenset[int]
    receipts: tuple[int, ...]
    plans: tuple[tuple[int, ...], ...]
    verdicts: tuple[tuple[Any, ...], ...]
    made: tuple[tuple[Any, ...], ...]
    swaps: tuple[tuple[int, int], ...]
    logs: tuple[tuple[tuple[str, int, int, int], ...], ...]


class Event(NamedTuple):
    """Who changed what is stored, and what it is then. Nobody but an actor has a number."""

    by: int
    stored: Stored


class Trace(NamedTuple):
    """What happened in a schedule, and whether nothing went wrong and each acted after the other."""

    events: tuple[Event, ...]
    tame: bool = False


class Memory(NamedTuple):
    """What tells how what is stored came about: in which order records landed and runs ended, and the runs whose files
    were removed."""

    landed: tuple[Ends, ...] = ((),)
    runs: tuple[Run, ...] = ()
    made: tuple[tuple[Any, ...], ...] = ()
    gone: frozenset[int] = frozenset()


class Tracer:
    """Makes traces of the schedules of a case."""

    def __init__(self, case: Case, world: World, judge: Judge) -> None:
        self._world, self._tables, self._alone = world, case.tables, judge.alone
        self._views = dict[Objects, View]()
        self._known = dict[tuple[Memory, Objects], tuple[Memory, Stored]]()
        nothing = View(Objects({}, -1), programs.PIPELINE)
        self._memory, self._nothing = _read(Memory(), nothing, case.tables)
        self._before = list[Event]()
        for program, objects in case.begun():
            self._memory = self._add(self._before, self._memory, program, 1, objects)

    def of(self, schedule: Schedule) -> Trace:
        """The trace of a schedule, from an empty store on, until somebody who runs alone after it is done."""
        events, memory, acted = list(self._before), self._memory, list[int]()
        state, late = self._world.first(), list[int]()
        for move in schedule:
            actor = late.pop(move.actor) if move.what == LANDS else move.actor
            then = self._world.after(state, move)
            late += [actor] * (len(then.late) - len(late))
            acted += [actor] if acted[-1:] != [actor] else []
            if then.objects is not state.objects:
                program = self._world.programs[actor][1]
                memory = self._add(events, memory, program, actor + 1, then.objects)
            state = then
        for objects, _ in self._alone(state.objects):
            memory = self._add(events, memory, programs.run, len(state.nodes) + 1, objects)
        return Trace(tuple(events), not any(move.what for move in schedule) and len(acted) == len(set(acted)))

    def _add(self, events: list[Event], memory: Memory, program: Any, by: int, objects: Objects) -> Memory:
        if (memory, objects) not in self._known:
            view = self._views.setdefault(objects, View(objects, programs.PIPELINE))
            self._known[memory, objects] = _read(memory, view, self._tables)
        memory, now = self._known[memory, objects]
        function = program.func if isinstance(program, partial) else program
        if now != (events[-1].stored if events else self._nothing):
            events.append(Event(by if function in _ACTORS else 0, now))
        return memory


def _read(memory: Memory, view: View, tables: int) -> tuple[Memory, Stored]:
    ends, of_files = _ends(view), _runs(view)
    landed = memory.landed if ends in memory.landed else (*memory.landed, ends)
    new = [run for run in of_files if run not in memory.runs and _complete(view, run, of_files[run])]
    runs = (*memory.runs, *new)
    made = (*memory.made, *((run[0], *_span(view.plans[run[0]], landed), (_AGAIN in run[1])) for run in new))
    gone = memory.gone | {n for n, run in enumerate(runs, 1) if not _complete(view, run, of_files.get(run, 0))}
    batches = range(BATCHES)

    def number(run: Run | None) -> int:
        return runs.index(run) + 1 if run in runs else 0

    def verdict(batch: int) -> tuple[str, int] | tuple[()]:
        if (found := view.verdicts.get(batch)) is None:
            return ()
        return ("publish", number(_run_of(found.artefacts))) if found.artefacts else ("abandon", 0)

    def swap(found: Swap) -> tuple[int, int]:
        again = found.turn is SwapKind.SWAP
        (batch,) = found.batches
        return batch, number(next(run for run in runs if run[0] == batch and (_AGAIN in run[1]) is again))

    def entries(table: str) -> Iterator[tuple[str, int, int, int]]:
        for actions in view.logs.get(table, ()):
            info: dict[str, str] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
            added = (f"{PREFIX}tables/{table}/{each['add']['path']}" for each in actions if "add" in each)
            run = number(next(map(_run_at, added), None))
            if "coset.swap" in info:
                yield "swap", view.swaps[int(info["coset.swap"])].batches[0], run, int(info["coset.swap"]) + 1
            elif "coset.plan" in info:
                yield "batch", int(info["coset.plan"]), run, 0

    return Memory(landed, runs, made, gone), Stored(
        landed=len(landed) - 1,
        commits=frozenset(view.commits),
        swapped=max(view.swapped, default=-1) + 1,
        files=frozenset(range(1, len(runs) + 1)) - gone,
        receipts=tuple(number(_receipt(view, batch)) for batch in batches),
        plans=tuple(_span(view.plans[batch], landed) if batch in view.plans else () for batch in batches),
        verdicts=tuple(map(verdict, batches)),
        made=made,
        swaps=tuple(swap(each) for _, each in sorted(view.swaps.items())),
        logs=tuple(tuple(entries(f"t{table}")) for table in range(tables)),
    )


def _span(plan: Plan, landed: Sequence[Ends]) -> tuple[int, int]:
    """After which arrivals a plan begins and ends. -1 if that is after none of them."""
    (stream,) = plan.streams
    of = [tuple((each.partition, getattr(each, end)) for each in stream.partitions) for end in ("start", "end")]
    begin, end = (tuple(each for each in offsets if each[1]) for offsets in of)
    return _at(landed, begin), _at(landed, end)


def _at(landed: Sequence[Ends], offsets: Ends) -> int:
    return landed.index(offsets) if offsets in landed else -1


def _receipt(view: View, batch: int) -> Run | None:
    """The run that the receipt of the open attempt names."""
    prefix, attempt = f"{PREFIX}{programs.PIPELINE}/receipts/{batch}/attempt-", 0
    while f"{prefix}{attempt}/failed.json" in view.objects.by_key:
        attempt += 1
    of_attempt = (receipt for number, receipt in view.receipts(batch) if number == attempt)
    return next((_run_of(receipt.artefacts) for receipt in of_attempt), None)


def _ends(view: View) -> Ends:
    ends = dict[int, int]()
    for name, offset in sorted(view.arrived):
        ends[int(name.rpartition("-")[2])] = offset + 1
    return tuple(ends.items())


def _runs(view: View) -> dict[Run, int]:
    """The runs that left files, each with how many."""
    found = dict[Run, int]()
    for key, _ in view.objects.under(f"{PREFIX}tables/"):
        if (run := _run_at(key)) and not run[1].endswith(_LEFT):
            found[run] = found.get(run, 0) + 1
    return found


def _complete(view: View, run: Run, there: int) -> bool:
    plan = view.plans[run[0]]
    return there == sum(len(stage.tasks) * len(stage.writes) for stage in plan.stages)


def _run_at(key: str) -> Run | None:
    match = _FILE.match(key)
    return (int(match[1]), match[2]) if match else None


def _run_of(artefacts: Iterable[Artefact]) -> Run | None:
    return next((_run_at(f"{PREFIX}{each.path}") for each in artefacts), None)


# ---- held against the specification


class Held(NamedTuple):
    """The traces that are refused, by their place, and why. How many different events were looked at, in how many
    states of the specification."""

    refused: dict[int, str]
    events: int
    states: int


class _Tree:
    """Traces as a tree of events. The first event is the empty store."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        known, self.events, self.before = dict[tuple[int, Event], int](), [traces[0].events[0]], [0]
        self.ways = [list(self._way(trace, known)) for trace in traces]

    def _way(self, trace: Trace, known: dict[tuple[int, Event], int]) -> Iterator[int]:
        place = 1
        for event in trace.events:
            if (place, event) not in known:
                known[place, event] = len(self.events) + 1
                self.events.append(event)
                self.before.append(place)
            place = known[place, event]
            yield place

    def module(self, asked: Iterable[int]) -> str:
        """The tree in TLA+."""
        after: list[list[int]] = [[] for _ in self.events]
        acts: list[set[int]] = [set() for _ in self.events]
        for number in range(len(self.events), 1, -1):
            before = self.before[number - 1] - 1
            after[before].append(number)
            acts[before] |= acts[number - 1] | {self.events[number - 1].by} - {0}
        different = {each: number for number, each in enumerate(dict.fromkeys(e.stored for e in self.events), 1)}
        said = {
            "Different": tuple(different),
            "Which": tuple(different[event.stored] for event in self.events),
            "By": tuple(event.by for event in self.events),
            "After": tuple(map(frozenset, after)),
            "StillActs": tuple(map(frozenset, acts)),
            "Asked": frozenset(asked),
        }
        lines = (f"{name} == {tla(value)}" for name, value in said.items())
        return "\n".join(("---- MODULE Observed ----", *lines, "====", ""))


def held(traces: Sequence[Trace], folder: Path) -> Held:
    """Hold traces of pipelines with as many tables against the specification, in a folder to work in."""
    tree = _Tree(traces)
    accepted, _, states = _told(tree, folder)
    refused = {number: "it is tame: nothing goes wrong, and one acts after the other" for number in _tame(traces)}
    left = {
        number: next(place for place in way if place not in accepted)
        for number, way in enumerate(tree.ways)
        if way[-1] not in accepted
    }
    before = {number: tree.before[place - 1] for number, place in left.items()}
    may = _told(tree, folder, before.values())[1] if left else {}
    for number, place in left.items():
        by, stored = tree.events[place - 1]
        whose = f"actor {by} at {' or '.join(sorted(may[before[number], by]))}" if by else "the others"
        refused[number] = f"the specification does not allow {whose} to leave {stored}"
    return Held(refused, len(tree.events), states)


def allowed(traces: Sequence[Trace], folder: Path) -> list[bool]:
    """Whether the specification allows each of the traces: what `held` tells, without why."""
    tree = _Tree(traces)
    accepted, _, _ = _told(tree, folder)
    return [way[-1] in accepted for way in tree.ways]


def _tame(traces: Sequence[Trace]) -> Iterator[int]:
    return (number for number, trace in enumerate(traces) if trace.tame)


def _told(
    tree: _Tree, folder: Path, asked: Iterable[int] = ()
) -> tuple[set[int], dict[tuple[int, int], set[str]], int]:
    """What TLC says: the events that it accepts, where each actor may be after those that are asked about, and how many
    states it found."""
    (folder / "Observed.tla").write_text(tree.module(asked))
    stored = tree.events[0].stored
    bounds = {
        "Actors": frozenset(event.by for event in tree.events if event.by),
        "Survivor": 1,
        "Tables": frozenset(range(1, len(stored.logs) + 1)),
        "LastBatch": len(stored.plans) - 1,
        "Records": 9,
        "LastRun": 99,
        "Crashes": 0,
        "Losses": 0,
        "Does": frozenset(("abandon", "clean", "swap", "refuse")),
        "Dropped": "none",
    }
    said = tlc("Traces", folder, ("SPECIFICATION Traced", "INVARIANT Told"), bounds, QUICK)
    assert "No error has been found." in said, said[-3000:]
    may = dict[tuple[int, int], set[str]]()
    for event, actor, place in re.findall(r'^<<"at", ([0-9]+), ([0-9]+), "(.*)">>$', said, re.M):
        may.setdefault((int(event), int(actor)), set()).add(place)
    let_through = Counter(int(number) for number in re.findall(r'^<<"accepted", ([0-9]+), [0-9]+>>$', said, re.M))
    actors = max(let_through.values())
    return {event for event, times in let_through.items() if times == actors}, may, states(said)
