"""The rest: what `make test` leaves out, for so many minutes. It is told which files no time was left for.

One half of the time goes to what the last commits touch, the other to all files in turn.
"""

from __future__ import annotations

import math
import re
import subprocess
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test

from tests.durations import chain, recorded, together

# A change is what so many commits did: few bring more at once.
COMMITS = 50
# What a file takes that was never recorded.
SECONDS = 60.0
NOT_RUN = "no time was left for it"
ROOT = Path(__file__).parents[1]
_IMPORTED = re.compile(r"^\s*(?:from ([\w.]+) import (\([^)]*\)|.*)|import (.*))", re.M)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rest", type=float, metavar="MINUTES", help="run what `make test` leaves out, for so long")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.rest is None:
        return
    changed = _git("log", f"-{COMMITS}", "--format=", "--name-only")
    until, turn = time.time() + 60 * config.option.rest, len(_git("rev-list", "HEAD"))
    config.pluginmanager.register(_Rest(until, turn, nearest(changed, imports())), "the rest")


def nearest(changed: Iterable[str], imports: Mapping[str, Collection[str]]) -> list[str]:
    """Files from what was changed on, in its order: then what imports it, what imports that, and so on.

    >>> nearest(["b.py", "a.py"], {"c.py": ["a.py"], "d.py": ["b.py"], "e.py": ["c.py", "f.py"], "g.py": ["f.py"]})
    ['b.py', 'a.py', 'd.py', 'c.py', 'e.py']
    """
    importers = defaultdict[str, list[str]](list)
    for file, imported in imports.items():
        for each in imported:
            importers[each].append(file)
    found = dict.fromkeys(changed)
    for file in (nearest := list(found)):
        nearest += (further := [each for each in importers[file] if each not in found])
        found |= dict.fromkeys(further)
    return nearest


def ordered(took: Mapping[str, float], near: Mapping[str, float], turn: int, step: float) -> list[str]:
    """Files in the order in which they begin, by the seconds that each took and by how near it is to a change.

    About half of a run's time goes to the nearest, and half to the others by their names: each run begins with these so
    many seconds, the `step`, behind where the run before began.

    >>> ordered({"a": 9, "b": 8, "c": 7, "d": 1}, {"d": 0}, turn=0, step=9)
    ['d', 'a', 'b', 'c']
    >>> ordered({"a": 9, "b": 8, "c": 7, "d": 1}, {"d": 0}, turn=1, step=9)
    ['d', 'b', 'c', 'a']
    """
    names, begin = sorted(took), turn * step % sum(took.values())
    first = bisect_right(list(accumulate(took[name] for name in names)), begin)
    in_turn = names[first:] + names[:first]
    by_change = sorted(in_turn, key=lambda file: near.get(file, math.inf))
    halves, spent, begun = (iter(by_change), iter(in_turn)), [0.0, 0.0], list[str]()
    while len(begun) < len(took):
        half = spent.index(min(spent))
        begun.append(next(file for file in halves[half] if file not in begun))
        spent[half] += took[begun[-1]]
    return begun


def begins(takes: float, left: float, every: float) -> bool:
    """Whether what takes so many seconds begins when so many are `left` of `every`: if it ends in time, or if it takes
    longer than half of all and begins in the first half.

    >>> begins(30, left=31, every=600), begins(30, left=29, every=600), begins(900, left=301, every=600)
    (True, False, True)
    """
    return left > min(takes, every / 2)


class _Rest:
    """Chooses, orders and ends the tests of a run."""

    def __init__(self, until: float, turn: int, nearest: Sequence[str]) -> None:
        self._until, self._turn, self._turns, self._every = until, turn, 1, until - time.time()
        self._seconds = dict[str, float]()
        self._near = {file: place for place, file in enumerate(nearest)}
        self._not_run = Counter[str]()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        config.hook.pytest_deselected(items=[item for item in items if not _is_left_out(item)])
        items[:] = sorted(filter(_is_left_out, items), key=self._nearness)
        near = {together(item.nodeid): self._nearness(item) for item in reversed(items)}
        took = {name: recorded().get(name, SECONDS) for name in near}
        # Half of the half: what is near may take the time of more, when it is long.
        step = self._every * config.option.processes / 4
        begun = ordered(took, near, self._turn, step) if took else []
        self._turns = math.ceil(sum(took.values()) / step) or 1
        tests = Counter(together(item.nodeid) for item in items)
        self._seconds = {name: took[name] / tests[name] for name in near}
        place = {name: number for number, name in enumerate(begun)}
        # What shares a server runs in one process.
        first = {chain(name): place[name] for name in reversed(begun)}
        items.sort(key=lambda item: (first[chain(together(item.nodeid))], place[together(item.nodeid)]))

    def _nearness(self, item: pytest.Item) -> float:
        """The place of a test's file among those next to a change, or of the file that its case is, as a page."""
        file, _, case = item.nodeid.removesuffix("]").partition("::")
        case = case.partition("[")[2]
        named = (place for near, place in self._near.items() if "." in case and near.endswith(f"/{case}"))
        return min(self._near.get(file, math.inf), *named, math.inf)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if not begins(self._seconds[together(item.nodeid)], self._until - time.time(), self._every):
            pytest.skip(NOT_RUN)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[2] == f"Skipped: {NOT_RUN}":
            self._not_run[together(report.nodeid)] += report.when == "setup"
            return "not run", "", "NOT RUN"
        return None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"Turn {self._turn % self._turns + 1} of {self._turns}, by the number of commits")
        for name, tests in sorted(self._not_run.items()):
            terminalreporter.write_line(f"Not run, as {NOT_RUN}: {tests:4} tests  {name}")


def _together(item: pytest.Item) -> str:
    return together(item.nodeid)


def _is_left_out(item: pytest.Item) -> bool:
    """Whether `make test` leaves a test out, or tries a fifth of its examples only."""
    return item.get_closest_marker("long") is not None or is_hypothesis_test(getattr(item, "obj", None))


def imports() -> dict[str, set[str]]:
    """The files that each file imports, anywhere in it."""
    files = _git("ls-files", "*.py")
    modules = {file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for file in files}
    return {file: {modules[name] for name in _imported((ROOT / file).read_text()) if name in modules} for file in files}


def _imported(text: str) -> Iterator[str]:
    """The names of all modules that a text may import.

    >>> sorted(_imported("import a.b, c\\nif x:\\n    from d import (\\n        e,\\n        f as g,\\n    )\\n"))
    ['a.b', 'c', 'd', 'd.e', 'd.f', 'd.g']
    """
    for module, names, modules in _IMPORTED.findall(text):
        if module:
            yield module
            yield from (f"{module}.{name}" for name in re.findall(r"\w+", names) if name != "as")
        else:
            yield from re.findall(r"[\w.]+", modules)


def _git(*command: str) -> list[str]:
    """The lines that Git answers; none where there is no repository."""
    done = subprocess.run(["git", *command], capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout.splitlines()
