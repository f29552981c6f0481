"""`python -m tests.model` takes one guard after the other out of the real code, and tells which invariant finds it, how
soon, and by how short a schedule; and whether the specification refuses what the code then does. With names it looks
for those only.

It ends non-zero if a fault is not found within a minute, or otherwise than `faults.toml` says.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING

from tests.seeded.__main__ import ROOT, Fault, faults

if TYPE_CHECKING:
    from tests.model.explore import Schedule, Violation

FAULTS = Path(__file__).with_name("faults.toml")
SECONDS = 60
# So many schedules by chance are held against the specification.
TRACES = 100
_WITH = "--with"


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


def refused(fault: Fault, schedule: Schedule) -> bool:
    """Whether the specification does not allow what the code does in this schedule, or in some by chance."""
    from random import Random

    from tests.model.cases import CASES
    from tests.model.explore import by_chance
    from tests.model.seams import seams
    from tests.model.traces import Tracer, held

    with seams():
        world, judge = CASES[fault.room].world(1, 1, reads=True)
        judge.broken = lambda *_: None  # type: ignore[method-assign]
        tracer, random = Tracer(CASES[fault.room], world, judge), Random(1)
        traces = [tracer.of(each) for each in (schedule, *(by_chance(world, judge, random) for _ in range(TRACES)))]
    with TemporaryDirectory() as folder:
        return bool(held([trace._replace(tame=False) for trace in traces], Path(folder)).refused)


def one(fault: Fault) -> int:
    """Look for one fault, in this process."""

    began = time.process_time()
    found = look(fault)
    from tests.model.schedules import as_test, turns

    seconds, by = time.process_time() - began, found.invariant if found else "NOT FOUND"
    steps = len(turns(found.schedule)) if found else 0
    is_refused = found is not None and refused(fault, found.schedule)
    too = "too" if is_refused else ""
    print(f"| `{fault.name}` | {fault.room} | {by} | {too} | {steps} | {seconds:.1f} |", flush=True)
    if found and (by, is_refused) == (fault.found_by, fault.refused):
        return 0
    print(as_test(fault.room, found) if found else fault.wrong)
    return 1


def main(names: Sequence[str]) -> int:
    known = {fault.name: fault for fault in faults(FAULTS)}
    if names[:1] == [_WITH]:
        return one(known[names[1]])
    print("| fault | case | found by | specification | turns | CPU s |\n| --- | --- | --- | --- | ---: | ---: |")
    asked = names or list(known)
    missed = [
        name
        for name in asked
        if subprocess.run([sys.executable, "-m", __package__, _WITH, name], check=False).returncode
    ]
    print(f"{len(asked) - len(missed)} of {len(asked)} faults are found by the invariant that is named")
    return min(len(missed), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
