"""The demo from nothing to its results, with a kill in the middle, and a second time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from batches.runners.ports import free_ports
from tests.small import until

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


@contextmanager
def started(words: list[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs, and is killed in the end if it still does."""
    with subprocess.Popen(
        words, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def kill_once_planned(home: Path) -> None:
    """Start the demo and kill it when its first batch is planned; what it started ends with it."""
    with started(command(home)) as demo:
        assert demo.stderr is not None
        assert any("planned" in line for line in demo.stderr)
        begun = psutil.Process(demo.pid).children(recursive=True)
        assert {"weed", "java", "airflow"} <= {process.name() for process in begun}
        demo.send_signal(signal.SIGKILL)
    assert psutil.wait_procs(begun, timeout=30)[1] == []


def test_the_demo_goes_on_after_a_kill_and_its_results_equal_the_raw_data(home: Path) -> None:
    kill_once_planned(home)
    done = subprocess.run(command(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Of 4,043 aircraft, 0 have a figure that differs." in done.stdout
    assert "gcd(12, 8) = 4" in done.stdout
    assert done.stdout.count("all 10 expectations met") == 3
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


def serve(home: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "cli.main", "serve", "--home", str(home), *words]


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_servers_end_with_the_command_that_started_them(told: signal.Signals, home: Path) -> None:
    with started(serve(home)) as serving:
        assert serving.stdout is not None
        assert any(line.startswith("Ctrl-C ends it") for line in serving.stdout)
        begun = psutil.Process(serving.pid).children(recursive=True)
        assert {"weed", "java"} <= {process.name() for process in begun}
        serving.send_signal(told)
        assert serving.wait(30) == {signal.SIGINT: 0, signal.SIGTERM: 128 + told, signal.SIGKILL: -told}[told]
    assert psutil.wait_procs(begun, timeout=30)[1] == []


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGKILL])
def test_all_of_airflow_ends_with_the_command_that_started_it(told: signal.Signals, home: Path) -> None:
    (port,) = free_ports(1)
    with started(serve(home, "--airflow"), AIRFLOW__API__PORT=str(port)) as serving:
        assert serving.stdout is not None
        assert any(f"http://127.0.0.1:{port}, admin's password in {home}" in line for line in serving.stdout)
        assert until(lambda: _answers(port), within=180)
        begun = psutil.Process(serving.pid).children(recursive=True)
        names = [process.name() for process in begun]
        assert {"weed", "java", "airflow"} <= set(names)
        assert len([name for name in names if "airflow" in name]) > 4
        serving.send_signal(told)
        serving.wait(30)
    assert psutil.wait_procs(begun, timeout=60)[1] == []


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def test_only_one_process_serves_a_folder(tmp_path: Path) -> None:
    with started(serve(tmp_path)) as first:
        assert first.stdout is not None
        assert any(line.startswith("export AWS_ENDPOINT_URL=") for line in first.stdout)
        second = subprocess.run(serve(tmp_path), capture_output=True, text=True, check=False)
        first.terminate()
        first.wait(30)
    assert second.returncode == 3
    assert "another process serves this folder" in second.stderr
