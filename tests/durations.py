"""How long tests take: the longest files begin first, tests that take seconds are `long`, and a run tells which did.

`--record-durations` writes down what a run took, in `durations.json`: all files, by which later runs are ordered, and
tests that are not quick. Of these `make test` tries what finds a fault of `tests/seeded`.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

RECORDED = Path(__file__).with_suffix(".json")
SHOWN = 10
CPU = "cpu_seconds"
_TICKS = os.sysconf("SC_CLK_TCK")
# Files whose tests share nothing, and would wait for too long one after the other: each last parameter is as a file.
DEALT = ("test_passing_faults", "test_both_ends")
# Files that need what is there once for a process, and takes long to start: one process runs them one after the other.
CHAINED = {
    "Airflow": ("tests/airflow/",),
    "a Kafka broker": (
        "tests/integration/test_kafka",
        "tests/integration/test_records.py",
        "tests/integration/test_set_aside.py",
        "tests/integration/test_year",
    ),
    "a Spark server": (
        "tests/behaviour/test_runners.py",
        "tests/behaviour/test_step_kinds.py",
        "tests/integration/test_cli.py",
        "tests/integration/test_doctor.py",
        "tests/integration/test_formats.py",
        "tests/integration/test_next_steps_pipelines.py",
        "tests/integration/test_random_pipelines.py",
        "tests/spark/test_connect.py",
        "tests/spark/test_group.py",
        "tests/spark/test_hot_keys_on_spark.py",
        "tests/spark/test_shipped.py",
    ),
}
AIRFLOW = "what needs Airflow"
# These have servers of their own.
UNCHAINED = ("test_kafka_demo", "test_kafka_leaders", "test_kafka_secured")


# A test is quick if its cases take no more seconds together, or each.
QUICK, QUICK_CASE = 1.5, 0.2
_FAULTS = Path(__file__).with_name("seeded") / "faults.toml"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.json anew")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Durations(), "durations of this run")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, and before it what was never recorded: it may take longer than all that would
    still run beside it. Most cases of tests that are not quick are `long`."""
    took = defaultdict[str, float](float)
    for name, seconds in recorded().items():
        if "::" not in name:
            took[chain(name)] += seconds
    chains = {name: chain(name) for name in {together(item.nodeid) for item in items}}
    items.sort(key=lambda item: (-took.get(name := chains[together(item.nodeid)], math.inf), name))
    finders = {str(fault["found_by"]) for fault in tomllib.loads(_FAULTS.read_text())["fault"]}
    for test, of_test in groupby(items, lambda item: item.nodeid.partition("[")[0]):
        cases = list(of_test)
        for case in cases[tried(len(cases), recorded().get(test, 0.0), finds=test in finders) :]:
            if case.nodeid not in finders:
                case.add_marker(pytest.mark.long)


def tried(cases: int, seconds: float, *, finds: bool) -> int:
    """How many of a test's cases `make test` tries, which took so many seconds together: as many as are quick, and of a
    test that finds a seeded fault the first in any case. A fault may name another case.

    >>> tried(8, 1, finds=False), tried(8, 8, finds=False), tried(8, 80, finds=False), tried(8, 80, finds=True)
    (8, 1, 0, 1)
    >>> tried(80, 8, finds=False)
    80
    """
    if seconds <= max(QUICK, cases * QUICK_CASE):
        return cases
    return max(int(cases * QUICK / seconds), 1 if finds else 0)


@cache
def recorded() -> dict[str, float]:
    """Seconds of what runs together, as they were last recorded; and of tests that are not quick, by their names."""
    took: dict[str, float] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    return took


def together(nodeid: str) -> str:
    """The tests that run one after the other: a file's, or those of its part if it is dealt.

    >>> together("tests/unit/test_plan.py::test_a_plan[2-max]")
    'tests/unit/test_plan.py'
    >>> together("tests/integration/test_passing_faults.py::test_it_passes[2-run]")
    'tests/integration/test_passing_faults.py, run'
    """
    file, _, test = nodeid.partition("::")
    part = test.rpartition("-")[2].removesuffix("]")
    return f"{file}, {part}" if Path(file).stem in DEALT and "-" in test else file


def chain(name: str) -> str:
    """What runs one after the other because it shares what takes long to start: several files, most often only one.

    >>> chain("tests/airflow/test_dag_runs.py")
    'what needs Airflow'
    >>> chain("tests/unit/test_plan.py")
    'tests/unit/test_plan.py'
    """
    if Path(name).stem in UNCHAINED:
        return name
    return next((f"what needs {server}" for server, files in CHAINED.items() if name.startswith(files)), name)


class _Durations:
    """Seconds of what runs together, and of the processor: also of servers that go on, while the tests last."""

    def __init__(self) -> None:
        self._took, self._computed = defaultdict[str, float](float), defaultdict[str, float](float)
        self._tests = Counter[str]()
        self._of_test = defaultdict[str, float](float)
        self._running = set[str]()
        self._at, self._began = "", 0.0
        self._collected = set[str]()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            self._collected |= {together(item.nodeid), item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running.add(nodeid)
        if together(nodeid) != self._at:
            self._at, self._began = together(nodeid), _computed()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.discard(nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        try:
            return (yield)
        finally:
            # To ask for it after each test would take longer than most tests do.
            if nextitem is None or together(nextitem.nodeid) != self._at:
                item.user_properties.append((CPU, _computed() - self._began))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = together(report.nodeid)
        self._took[name] += report.duration
        self._of_test[report.nodeid.partition("[")[0]] += report.duration
        if report.when == "teardown":
            self._tests[name] += 1
            self._computed[name] += float(str(dict(report.user_properties).get(CPU, 0)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        for nodeid in sorted(self._running):
            terminalreporter.write_line(f"Not ended: {nodeid}")
        if len(self._took) > 1:
            for what, by in (("longest files", self._took), ("files that computed most", self._computed)):
                terminalreporter.write_line(f"The {min(SHOWN, len(by))} {what}:")
                for name in sorted(by, key=lambda name: -by[name])[:SHOWN]:
                    seconds, computed, tests = self._took[name], self._computed[name], self._tests[name]
                    terminalreporter.write_line(f"{seconds:7.1f} s, CPU {computed:6.1f} s, {tests:4} tests  {name}")
            took, computed = sum(self._took.values()), sum(self._computed.values())
            terminalreporter.write_line(f"{took:7.1f} s, CPU {computed:6.1f} s, {self._tests.total():4} tests  in all")
            whole = "with what collects, commands and servers, which are none of a file's"
            terminalreporter.write_line(f"{'':11}CPU {_computed():6.1f} s, {whole}")
        if config.getoption("--record-durations"):
            RECORDED.write_text(json.dumps(self._recorded(), indent=1, sort_keys=True) + "\n")

    def _recorded(self) -> dict[str, float]:
        """What was recorded, with what ran now in its place, and without what is no test any more."""
        there = {
            name: Path(file).exists() and (file not in self._collected or name in self._collected)
            for name in recorded()
            for file in [re.split("::|,", name)[0]]
        }
        before = {name: took for name, took in recorded().items() if there[name] and name not in self._of_test}
        slow = {test: took for test, took in self._of_test.items() if took > QUICK}
        return before | {name: round(seconds, 1) for name, seconds in (self._took | slow).items()}


def _computed(process: str = "self") -> float:
    """Seconds of the processor that a process took, all that it started, and what of them has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        stat = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, stat[11:15])) / _TICKS + sum(map(_computed, _started(process)))
    return 0.0


def _started(process: str) -> Iterator[str]:
    """The processes that one has started and that it has not waited for; its threads may end meanwhile."""
    for thread in Path("/proc", process, "task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            yield from Path(thread, "children").read_text().split()
