"""`python -m tests.model` takes one guard after the other out of the real code, and tells which invariant finds it, how
soon, and by how short a schedule; and whether the specification refuses what the code then does. With names it looks
for those only.

It ends non-zero if a fault is not found within a minute, or otherwise than `faults.toml` says.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from tests.seeded.__main__ import ROOT, Fault, faults

if TYPE_CHECKING:
    from tests.model.explore import Violation
    from tests.model.traces import Trace

FAULTS = Path(__file__).with_name("faults.toml")
SECONDS = 60
# So many schedules by chance are held against the specification.
TRACES = 100


class Found(NamedTuple):
    """Which invariant breaks first with a fault, after how many turns and seconds, a test of it, and what else the code
    then does, as traces."""

    by: str
    turns: int
    seconds: float
    told: str
    traces: list[Trace]


class Spoiled(SourceFileLoader):
    """Loads the file of a fault with the fault in it."""

    fault: Fault

    def get_data(self, path: str) -> bytes:
        return self.fault.changed(Path(path).read_text()).encode()

    def path_stats(self, path: str) -> dict[str, float]:
        # What is compiled is not kept, and nothing that was kept is taken.
        raise OSError


class Spoiling:
    """Finds the module of a fault."""

    def __init__(self, fault: Fault) -> None:
        self.name = fault.file.removesuffix(".py").replace("/", ".")
        assert self.name not in sys.modules
        self._fault = fault

    def find_spec(self, name: str, path: Sequence[str] | None, _: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name or (found := PathFinder.find_spec(name, path)) is None:
            return None
        loader = Spoiled(name, str(ROOT / self._fault.file))
        loader.fault, found.loader = self._fault, loader
        return found


def look(fault: Fault) -> Violation | None:
    """What breaks first in the case of a fault: in a schedule by chance, or beside an actor that never gets well."""
    sys.meta_path.insert(0, Spoiling(fault))
    from random import Random

    from tests.model.cases import CASES
    from tests.model.explore import Violation, by_chance
    from tests.model.lasting import ENDS, GETS_ON, beside, ills
    from tests.model.schedules import shrunk
    from tests.model.seams import seams

    began, random = time.process_time(), Random(1)
    with seams():
        try:
            world, judge = CASES[fault.room].world(1, 1, reads=True)
            for ill in ills(CASES[fault.room]) if fault.found_by in (GETS_ON, ENDS) else ():
                beside(judge, ill)
            while time.process_time() - began < SECONDS:
                by_chance(world, judge, random)
        except Violation as found:
            return shrunk(fault.room, found)
    return None


def one(fault: Fault) -> bytes:
    """What is found of one fault, in a process of its own; pickled, so that nobody else imports what it is made of."""
    began = time.process_time()
    violation = look(fault)
    from random import Random

    from tests.model.cases import CASES
    from tests.model.explore import by_chance
    from tests.model.schedules import as_test, turns
    from tests.model.seams import seams
    from tests.model.traces import Tracer

    seconds = time.process_time() - began
    if violation is None:
        return pickle.dumps(Found("NOT FOUND", 0, seconds, fault.wrong, []))
    with seams():
        world, judge = CASES[fault.room].world(1, 1, reads=True)
        judge.broken = lambda *_: None  # type: ignore[method-assign]
        tracer, random = Tracer(CASES[fault.room], world, judge), Random(1)
        schedules = (violation.schedule, *(by_chance(world, judge, random) for _ in range(TRACES)))
        traces = [tracer.of(each)._replace(tame=False) for each in schedules]
    told = as_test(fault.room, violation)
    return pickle.dumps(Found(violation.invariant, len(turns(violation.schedule)), seconds, told, traces))


def refused(found: Mapping[str, Found]) -> set[str]:
    """The faults with which the code does what the specification does not allow, by their names."""
    from tests.model.traces import allowed

    by_tables: defaultdict[int, list[tuple[str, Trace]]] = defaultdict(list)
    for name, each in found.items():
        for trace in each.traces:
            by_tables[len(trace.events[0].stored.logs)].append((name, trace))
    names = set[str]()
    for named in by_tables.values():
        with TemporaryDirectory() as folder:
            are_allowed = allowed([trace for _, trace in named], Path(folder))
        names |= {name for (name, _), is_allowed in zip(named, are_allowed, strict=True) if not is_allowed}
    return names


def main(names: Sequence[str]) -> int:
    known = {fault.name: fault for fault in faults(FAULTS)}
    asked = names or list(known)
    # Each is put into code that was not imported yet.
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        pickled = pool.map(one, [known[name] for name in asked], chunksize=1)
    found = {name: Found(*pickle.loads(each)) for name, each in zip(asked, pickled, strict=True)}
    against, missed = refused(found), 0
    print("| fault | case | found by | specification | turns | CPU s |\n| --- | --- | --- | --- | ---: | ---: |")
    for name, (by, turns, seconds, told, _) in found.items():
        fault, too = known[name], "too" if name in against else ""
        print(f"| `{name}` | {fault.room} | {by} | {too} | {turns} | {seconds:.1f} |")
        if (by, name in against) != (fault.found_by, fault.refused):
            missed += 1
            print(told)
    print(f"{len(asked) - missed} of {len(asked)} faults are found by the invariant that is named")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
