"""The broker that people start, and the demo that reads from one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.started import started

CHECKOUT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(900)


def test_a_broker_runs_until_it_is_ended_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with started([sys.executable, "-m", "demo.kafka_server"]) as server:
        assert server.stdout is not None
        assert re.match(r"Kafka runs at kafka://127\.0\.0\.1:\d+; Ctrl-C ends it", server.stdout.readline())
        begun = psutil.Process(server.pid).children(recursive=True)
        assert begun
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    assert psutil.wait_procs(begun, timeout=30)[1] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_the_demo_gives_the_same_result_from_a_broker(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo.kafka_demo"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (
        "The same result from the broker as from landed files (`make demo`): "
        "0 of 4,043 aircraft differ from the raw data."
    ) in done.stdout
    assert "112,441 records in" in done.stdout
