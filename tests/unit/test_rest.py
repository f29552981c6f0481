"""What `make test` leaves out runs while there is time: what a change touches first, and all in turn."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import pytest

from tests.durations import QUICK, _Durations, recorded
from tests.rest import ROOT, nearest, ordered

A, B = (
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
    (tmp_path / "test_a.py").write_text(A)
    (tmp_path / "test_b.py").write_text(B)
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
