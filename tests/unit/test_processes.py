"""Tests that run in several processes, in turns, and the seeded faults: they tell the same as in one."""

from __future__ import annotations

import ast
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path

import pytest
from numba.core.registry import CPUDispatcher

from coset.sources.databases import connect_to_ask
from partitioning.authoring.settings import Settings
from partitioning.documents.stores import store_at
from partitioning.model.schemes import Scheme
from spark_jobs.engine.task_database import connect
from tests.durations import QUICK, _Durations, recorded
from tests.forked import at_once
from tests.real_batches import delays, land_delays
from tests.rest import ROOT, nearest, ordered
from tests.running import next_batch, run_groups
from tests.seeded.__main__ import Fault, faults

CONFTEST = """
import os, pytest

@pytest.fixture(scope="session")
def server(tmp_path_factory):
    print("begins")
    yield os.getpid()
    with open("ended", "a") as file:
        file.write(f"{os.getpid()}\\n")
"""
A = """
import os, pytest

def test_one(server, tmp_path):
    assert server == os.getpid()
    print("said by one")

def test_ends():
    os._exit(7)

def test_behind_it(server):
    assert server == os.getpid()

@pytest.mark.parametrize("case", range(3))
def test_cases(case, tmp_path):
    print("said by", case)
    assert case != 1
"""
B = """
def test_b(server, capfd):
    print("captured")
    assert capfd.readouterr().out == "captured\\n"

def test_b_too(server):
    assert server
"""
C = """
def test_c(server):
    assert server
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\ntmp_path_retention_policy = failed\n")
    for name, text in (("conftest", CONFTEST), ("test_a", A), ("test_b", B), ("test_c", C)):
        (folder / f"{name}.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", "-ptests.processes", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


@pytest.mark.parametrize("processes", [2, 5])
def test_a_process_that_ends_in_a_test_fails_this_test_alone(processes: int, tmp_path: Path) -> None:
    done = run(tmp_path, f"--processes={processes}")
    assert done.returncode == 1
    assert re.search(r"2 failed, 7 passed", done.stdout), done.stdout + done.stderr
    assert re.findall(r"^FAILED (\S+)", done.stdout, re.M) == ["test_a.py::test_ends", "test_a.py::test_cases[1]"]
    assert "Its process ended with code 7" in done.stdout
    # What a test that failed printed, and nobody else.
    assert re.findall(r"^said by.*|^begins", done.stdout, re.M) == ["said by 1"]
    # Of a session's server each process has its own, which it ends after all files that it runs.
    ended = (tmp_path / "ended").read_text().split()
    assert len(ended) == len(set(ended)) <= 3


def test_the_first_failure_ends_the_run_if_it_is_to(tmp_path: Path) -> None:
    done = run(tmp_path, "--processes=2", "-x", "-k", "cases")
    assert done.returncode == 1
    assert re.search(r"1 failed, 1 passed", done.stdout), done.stdout + done.stderr


def test_what_a_session_cannot_end_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "ended").mkdir()
    done = run(tmp_path, "--processes=2", "-k", "test_b")
    assert done.returncode == 1
    assert "IsADirectoryError" in done.stdout


def test_what_needs_airflow_leaves_its_variables_to_no_other_file(tmp_path: Path) -> None:
    changes = 'import os\n\ndef test_it():\n    os.environ["CHANGED"] = "by Airflow"\n'
    others = """
import os, pytest

@pytest.mark.parametrize("case", range(3))
def test_it(case):
    assert "CHANGED" not in os.environ
"""
    # By their names these come behind it.
    files = {"tests/airflow/test_air.py": changes} | {f"zz/test_{name}.py": others for name in "pqr"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = run(tmp_path, "--processes=2", *files)
    assert re.search(r"^10 passed", done.stdout, re.M), done.stdout + done.stderr


def compiled() -> set[tuple[str, str]]:
    """The functions that Numba has loaded, with the types of their arguments."""
    engine = [vars(module) for name, module in sys.modules.items() if name.startswith("spark_jobs.engine.")]
    functions = [each for names in engine for each in names.values() if isinstance(each, CPUDispatcher)]
    return {(str(function), str(types)) for function in functions for types in function.signatures}


def loading(root: str, scheme: str, _: int) -> Callable[[], set[tuple[str, str]]]:
    """A process that runs all tasks of a batch, and tells which functions are loaded only then."""

    def loaded() -> set[tuple[str, str]]:
        before = compiled()
        run_groups(next_batch(delays(store_at(root)), root, Settings(scheme=Scheme.parse(scheme))))
        return compiled() - before

    return loaded


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(3)"])
def test_a_process_has_all_compiled_functions_that_its_tasks_need(scheme: str, tmp_path: Path) -> None:
    land_delays(store_at(str(tmp_path)))
    assert at_once(1, partial(loading, str(tmp_path), scheme)) == [set()]


def asking(_: int) -> Callable[[], list[tuple[int]]]:
    def asked() -> list[tuple[int]]:
        with connect() as connection:
            connection.execute("CREATE TABLE seen AS SELECT 7 AS number")
        with connect_to_ask() as connection:
            return connection.execute("FROM seen").fetchall()

    return asked


def test_tasks_and_questions_of_a_process_share_a_database_which_is_slow_to_open() -> None:
    assert at_once(1, asking) == [[(7,)]]


NEAR, FAR = (
    """
import pytest
from hypothesis import given, strategies

def test_short():
    assert False, "make test runs it"

@pytest.mark.long
def test_long():
    assert True

@given(strategies.integers())
def test_with_examples(number):
    assert True
""",
    """
import pytest

@pytest.mark.long
@pytest.mark.parametrize("number", range(3))
def test_of_cases(number):
    assert True
""",
)


@pytest.mark.parametrize(
    ("near", "turn", "order"),
    [
        ("", 0, "abcdef"),
        ("", 2, "efabcd"),
        ("", 5, "efabcd"),
        ("c", 2, "cefabd"),
        ("d", 0, "dabcef"),
        ("eda", 2, "efdabc"),
    ],
)
def test_what_is_next_to_a_change_and_what_has_its_turn_begin_by_turns(near: str, turn: int, order: str) -> None:
    took = dict.fromkeys("abcdef", 10.0)
    assert "".join(ordered(took, {file: place for place, file in enumerate(near)}, turn, step=20)) == order


def test_what_has_its_turn_has_as_much_time_as_what_is_next_to_a_change() -> None:
    took = {"a": 30, "b": 10, "c": 10, "d": 10, "e": 10, "f": 10}
    assert "".join(ordered(took, {"f": 0}, 0, step=30)) == "fabcde"
    assert "".join(ordered(took, {"a": 0}, 1, step=30)) == "abcdef"


@pytest.mark.parametrize("minutes", [10, 40])
def test_each_file_begins_in_one_of_so_many_runs_whatever_was_changed(minutes: int) -> None:
    took = {name: seconds for name, seconds in recorded().items() if "::" not in name}
    begun, seconds = set[str](), minutes * 60 * 5
    near = {file: place for place, file in enumerate(sorted(took, key=lambda file: -took[file]))}
    for run in range(689, 689 + math.ceil(sum(took.values()) / (seconds / 4))):
        order = ordered(took, near, run, seconds / 4)
        passed = accumulate((took[file] for file in order), initial=0.0)
        begun |= {file for file, at in zip(order, passed, strict=False) if at < seconds}
    assert begun == took.keys()


def test_tests_are_recorded_that_are_not_quick() -> None:
    durations, file = _Durations(), "tests/rest.py"
    for test, seconds in {"a[1]": QUICK, "a[2]": 1, "b[1]": 1, "b[2]": QUICK - 1, "c": 9}.items():
        report = pytest.TestReport(f"{file}::test_{test}", (file, 1, ""), {}, "passed", None, "call", duration=seconds)
        durations.pytest_runtest_logreport(report)
    assert {name: took for name, took in durations._recorded().items() if name.startswith(file)} == {
        file: 2 * QUICK + 10,
        f"{file}::test_a": QUICK + 1,
        f"{file}::test_c": 9,
    }


def test_a_change_is_followed_through_theimports_of_the_clone() -> None:
    from tests.rest import imports

    files = nearest(["partitioning/planning/watermarks.py"], imports())
    tests = [file for file in files if file.startswith("tests/integration/test_")]
    assert "tests/integration/test_watermarks.py" in tests[:3]
    assert "tests/integration/test_windows.py" in tests


@pytest.mark.parametrize(
    ("minutes", "processes", "told"),
    [
        (5, (), ["5 passed, 1 deselected"]),
        (0, ("--processes", "2"), ["2 tests  test_a.py", "3 tests  test_b.py", "5 not run"]),
    ],
)
def test_a_run_ends_when_its_time_is_over_and_tells_what_it_did_not_run(
    minutes: int, processes: tuple[str, ...], told: list[str], tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long: what takes long\n")
    (tmp_path / "test_a.py").write_text(NEAR)
    (tmp_path / "test_b.py").write_text(FAR)
    plugins = ("no:cacheprovider", "tests.processes", "tests.rest")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(f"-p{name}" for name in plugins), *processes, f"--rest={minutes}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in told if line not in done.stdout] == []


FAULTS = faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_stands_in_its_file_once_and_still_parses(fault: Fault) -> None:
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.before) == 1
    again = text.replace(fault.before, fault.after)
    assert ast.dump(ast.parse(again)) != ast.dump(ast.parse(text))


def test_the_names_of_faults_are_their_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.found_by], ids=lambda fault: fault.name)
def test_what_finds_a_fault_is_a_test_that_make_test_runs(fault: Fault) -> None:
    file, _, name = fault.found_by.partition("[")[0].partition("::")
    (test,) = (
        node
        for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name == name.rpartition(".")[2]
    )
    assert "pytest.mark.long" not in map(ast.unparse, test.decorator_list)
    assert name.startswith("test_") or ">>> " in (ast.get_docstring(test) or "")
