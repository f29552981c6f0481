"""The demo's servers, and all of Airflow, end with the command that started them, however that ends."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from coset.batches.runners.children import free_ports
from demo.home import SOURCE
from tests.compose.airflow_api import AirflowApi
from tests.examples import few
from tests.small import until
from tests.started import kill_all_that_name, started

pytestmark = pytest.mark.timeout(900)
# What Airflow's own command starts: scheduler, page, and what reads DAGs and waits for triggers.
PARTS = 4
# By the signal that a command is sent, which code it ends with.
ENDS = {signal.SIGINT: 0, signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGKILL: -signal.SIGKILL}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("served")
    yield folder
    kill_all_that_name(folder)


def serve(home: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "coset.cli.main", "serve", "--home", str(home), *words]


@pytest.mark.long
@pytest.mark.parametrize("told", few([signal.SIGKILL, signal.SIGINT]))
def test_servers_end_with_the_command_that_started_them_and_one_process_serves_a_folder(
    told: signal.Signals, home: Path
) -> None:
    with started(serve(home)) as serving:
        assert serving.stdout is not None
        assert any(line.startswith("Ctrl-C ends it") for line in serving.stdout)
        second = subprocess.run(serve(home), capture_output=True, text=True, check=False)
        assert second.returncode == 3
        assert "another process serves this folder" in second.stderr
        begun = psutil.Process(serving.pid).children(recursive=True)
        assert {"weed", "java"} <= {process.name() for process in begun}
        serving.send_signal(told)
        assert serving.wait(30) == ENDS[told]
    assert psutil.wait_procs(begun, timeout=30)[1] == []


@pytest.mark.long
def test_airflow_runs_a_batch_at_the_port_that_was_chosen_and_ends_when_it_is_told(home: Path) -> None:
    (port,) = free_ports(1)
    with started(serve(home, "--airflow"), AIRFLOW__API__PORT=str(port)) as serving:
        airflow = AirflowApi(port)
        land = [sys.executable, "-m", "demo.landing", "0", SOURCE]
        subprocess.run(land, env=os.environ | exports(serving, home, port), check=True, capture_output=True)
        passwords = home / "airflow" / "simple_auth_manager_passwords.json.generated"
        airflow.wait_until_started("tail_activity", lambda: str(json.loads(passwords.read_text())["admin"]))
        # Tasks that do not reach the page fail, and so does the run.
        airflow.run("tail_activity", meanwhile=lambda: time.sleep(0.5))
        ends_with_it(serving, signal.SIGTERM)


@pytest.mark.long
def test_all_of_airflow_ends_with_the_command_that_started_it_if_that_is_killed(home: Path) -> None:
    (port,) = free_ports(1)
    with started(serve(home, "--airflow"), AIRFLOW__API__PORT=str(port)) as serving:
        exports(serving, home, port)
        assert until(lambda: _of_airflow(serving) > PARTS, within=180)
        ends_with_it(serving, signal.SIGKILL)


def exports(serving: subprocess.Popen[str], home: Path, port: int) -> dict[str, str]:
    """What the command says that others need, once it starts Airflow."""
    assert serving.stdout is not None
    last = f"http://127.0.0.1:{port}, admin's password in {home}"
    lines = itertools.takewhile(lambda line: last not in line, serving.stdout)
    return dict(shlex.split(line)[1].split("=", 1) for line in lines if line.startswith("export "))


def ends_with_it(serving: subprocess.Popen[str], told: signal.Signals) -> None:
    begun = psutil.Process(serving.pid).children(recursive=True)
    assert {"weed", "java", "airflow"} <= {process.name() for process in begun}
    assert _of_airflow(serving) > PARTS
    serving.send_signal(told)
    assert serving.wait(30) == ENDS[told]
    assert psutil.wait_procs(begun, timeout=60)[1] == []


def _of_airflow(serving: subprocess.Popen[str]) -> int:
    """How many processes of Airflow there are."""
    found = 0
    for each in psutil.Process(serving.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found += "airflow" in each.name()
    return found
