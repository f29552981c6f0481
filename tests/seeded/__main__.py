"""`make seeded` puts each fault of `faults.toml` alone into a clone, and tells which test of `make test` finds it.

The test that is known to find it runs first. If that does not, tests next to the fault, by imports, run before others,
and quick ones before slow ones; one that nothing finds takes all of `make test`. A test finds a fault only if it fails
with it and passes without it. It ends non-zero if a fault is not found by the test that is named, or by none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.durations import recorded
from tests.rest import imports, nearest

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).with_name("faults.toml")
# Faults that are tried at once.
_AT_ONCE = 2
# How many seconds of tests, as they were recorded, run before the next are looked at.
_STEPS = (20.0, 120.0, 400.0)
_ITSELF = "pytest itself"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", re.M)


@dataclass(frozen=True)
class Fault:
    """A fault: what is `wrong` for a user if this text of a file is the other. `found_by` is the test, or
    the invariant of the model, that finds it; or the specification has `refused` traces of it too."""

    name: str
    room: str
    wrong: str
    file: str
    before: str
    after: str
    found_by: str = ""
    refused: bool = False

    def changed(self, text: str) -> str:
        """The text of its file with the fault in it."""
        assert text.count(self.before) == 1, f"{self.name}: what it changes is not in {self.file} once"
        return text.replace(self.before, self.after)

    def put_into(self, clone: Path) -> None:
        (clone / self.file).write_text(self.changed((clone / self.file).read_text()))

    def take_out_of(self, clone: Path) -> None:
        (clone / self.file).write_text((ROOT / self.file).read_text())


def faults(file: Path = FAULTS) -> list[Fault]:
    return [Fault(**each) for each in tomllib.loads(file.read_text())["fault"]]


def steps(fault: Fault, took: Mapping[str, float], importing: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
    """Files of tests in the order in which they are to look for a fault, the nearest and quickest first.

    >>> at = Fault("name", "room", "wrong", "a.py", "x", "y")
    >>> list(steps(at, {"tests/b.py": 1, "tests/c.py": 500, "tests/d.py": 1}, {"tests/b.py": ["a.py"]}))
    [['a.py', 'tests/b.py'], ['tests/c.py', 'tests/d.py']]
    """
    near = nearest([fault.file], importing)
    # What imports most of Coset says little by that.
    place = {file: number // 50 for number, file in enumerate(near)}
    left = sorted((file for file in took if file in place), key=lambda file: (place[file], took[file], file))
    asked = [fault.file]
    for most in _STEPS:
        while left and (not asked or sum(took.get(file, 0) for file in [*asked, left[0]]) <= most):
            asked.append(left.pop(0))
        if asked:
            yield asked
        asked = []
    yield [*left, *sorted(set(took) - set(place))]


def finder(fault: Fault, clone: Path, asked: Sequence[str]) -> str:
    """The first of these tests that fails with the fault, and passes without it."""
    unsound = list[str]()
    while test := failing(clone, asked, unsound):
        if test.startswith(_ITSELF):
            return test
        fault.take_out_of(clone)
        passes = not failing(clone, [test])
        fault.put_into(clone)
        if passes:
            return test
        unsound.append(test)
    return ""


def failing(clone: Path, asked: Sequence[str], but: Sequence[str] = ()) -> str:
    """The first of these tests that fails."""
    several = ["--processes", "3"] if len(asked) > 50 else []
    sought = "tests/unit/test_processes.py::test_a_fault_stands_in_its_file_once_and_still_parses"
    left_out = [word for test in (sought, *but) for word in ("--deselect", test)]
    words = ["-x", "-m", "not long", "-p", "no:cacheprovider", *left_out, *several]
    command = [sys.executable, "-m", "pytest", *words, *asked]
    done = subprocess.run(
        command, cwd=clone, env={**os.environ, "PYTHONPATH": str(clone)}, capture_output=True, text=True, check=False
    )
    # 5: all tests of these files are long.
    if done.returncode in (0, 5):
        return ""
    failed = _FAILED.search(done.stdout)
    return failed[1] if failed else f"{_ITSELF}: {(done.stdout + done.stderr).strip()[-200:]}"


def look(fault: Fault, took: Mapping[str, float], importing: Mapping[str, Collection[str]]) -> tuple[Fault, str, float]:
    """A fault with the test that finds it, and after how many seconds."""
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "coset"
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, clone], check=True)
        (clone / ".venv").symlink_to(ROOT / ".venv")
        fault.put_into(clone)
        began = time.monotonic()
        looks = chain([[fault.found_by]] if fault.found_by else [], filter(None, steps(fault, took, importing)))
        test = next(filter(None, (finder(fault, clone, asked) for asked in looks)), "")
        return fault, test, time.monotonic() - began


def main(names: Collection[str]) -> int:
    """Look for the faults of these names, or for all."""
    importing, took = imports(), dict[str, float]()
    for name, seconds in recorded().items():
        file = name.partition(",")[0]
        took[file] = took.get(file, 0) + seconds
    took = {file: took.get(file, 60) for file in importing if "/test_" in file}
    asked = [fault for fault in faults() if not names or fault.name in names]
    missed = 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for looked in as_completed(pool.submit(look, fault, took, importing) for fault in asked):
            fault, test, seconds = looked.result()
            is_known = bool(test) and test.startswith(fault.found_by)
            said = test if is_known else f"{test or 'NOT FOUND'}, not by {fault.found_by or 'any'}: {fault.wrong}"
            print(f"{fault.room:12} {fault.name:40} {seconds:6.0f} s  {said}", flush=True)
            missed += not is_known
    print(f"{len(asked) - missed} of {len(asked)} faults are found by the test that is known to")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
