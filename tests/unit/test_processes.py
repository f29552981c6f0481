"""Tests that run in several processes tell the same as in one, also of a process that ends in the midst of a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rest import ROOT

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
