"""The demo from nothing to its results, with a kill in the middle, and a second time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.timeout(1800)
FOLDERS = {"airflow", "docs", "lock", "logs", "s3"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("demo")
    yield made
    for process in psutil.process_iter(["cmdline"]):
        if any(str(made) in word for word in process.info["cmdline"] or ()):
            process.kill()


def command(home: Path) -> list[str]:
    return [sys.executable, "-m", "cli.main", "demo", "--home", str(home)]


def kill_once_planned(home: Path) -> None:
    """Start the demo; when its first batch is planned, kill it and Airflow, but not its S3 server."""
    with subprocess.Popen(command(home), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        assert any("planned" in line for line in demo.stderr)
        children = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGKILL)
    for child in children:
        if "weed" not in child.name():
            child.kill()


def test_the_demo_goes_on_after_a_kill_and_its_results_equal_the_raw_data(home: Path) -> None:
    kill_once_planned(home)
    done = subprocess.run(command(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Of 4,043 aircraft, 0 have a figure that differs." in done.stdout
    assert "gcd(12, 8) = 4" in done.stdout
    assert done.stdout.count("all 9 expectations met") == 3
    assert str(home / "docs" / "tail_activity" / "index.html") in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.endswith(("  yes", "  no"))]
    assert {row[-1] for row in rows} == {"yes"}
    assert "336,776" in rows[-1]


def test_a_second_demo_has_nothing_to_do_and_starts_no_airflow(home: Path) -> None:
    logs = sorted((home / "logs").iterdir())
    started = time.monotonic()
    done = subprocess.run(command(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Nothing to do: no new records since batch 2")
    assert time.monotonic() - started < 60
    assert sorted((home / "logs").iterdir()) == logs


def test_the_demo_keeps_everything_in_its_folder_and_ends_its_server(home: Path) -> None:
    assert {path.name for path in home.iterdir()} == FOLDERS
    running = [each.info["cmdline"] for each in psutil.process_iter(["cmdline"]) if each.pid != os.getpid()]
    assert not [words for words in running if any(str(home) in word for word in words or ())]


def test_only_one_process_serves_a_folder(tmp_path: Path) -> None:
    serve = [sys.executable, "-m", "cli.main", "serve", "--home", str(tmp_path)]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as first:
        assert first.stdout is not None
        assert any(line.startswith("export AWS_ENDPOINT_URL=") for line in first.stdout)
        second = subprocess.run(serve, capture_output=True, text=True, check=False)
        first.terminate()
    assert second.returncode == 3
    assert "another process serves this folder" in second.stderr
