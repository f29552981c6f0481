"""What the command line says while it works."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

SEVERAL_AT_ONCE = """
import threading, time
from coset.cli.output import progress, step

both = threading.Barrier(2)

def group(number):
    with step(f"run group {number}") as said:
        both.wait()
        time.sleep(0.5 * number)
        progress("look", "at this")
        said.append(f"[done] {number}")

threads = [threading.Thread(target=group, args=(number,)) for number in (1, 2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


COUNTED = """
import time
from coset.cli.output import counted, doing, step, tracked

for _ in tracked(["a", "b"], "stream partitions", "land orders"):
    time.sleep(0.3)
with counted(3, "task groups", "run group"):
    for name in ("run group 0", "look", "run group 1"):
        with step(name):
            time.sleep(0.3)
with counted(2, "pipelines") as done:
    for groups in (1, 2):
        with counted(groups, "task groups", "run group"), step("run group 0"):
            time.sleep(0.3)
        done(1)
with counted(1, "task groups", "run group"), step("check"), counted(4_000_000, "rows judged") as done:
    time.sleep(0.3)
    done(1_000_000)
    time.sleep(0.3)
with doing("compact"), counted(2, "tables"), counted(400, "batches") as done:
    time.sleep(0.3)
    for _ in range(300):
        done(1)
    time.sleep(0.3)
"""


def test_in_a_terminal_a_bar_says_how_many_are_done_and_how_long_the_others_take() -> None:
    reading, writing = pty.openpty()
    subprocess.run([sys.executable, "-c", COUNTED], stderr=writing, check=True)
    os.close(writing)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", _all_of(reading))
    assert "0 of 2 stream partitions: land orders …" in shown
    assert re.search(r"━+ +1 of 2 stream partitions, [0-9]+ s left: land orders …", shown)
    assert "0 of 3 task groups: run group 0 …" in shown
    assert re.search(r"━+ +1 of 3 task groups, [0-9]+ s left: look …", shown)
    assert re.search(r"━+ +1 of 3 task groups, [0-9]+ s left: run group 1 …", shown)
    assert "0 of 2 pipelines; 0 of 1 task groups: run group 0 …" in shown
    assert re.search(r"━+ +1 of 2 pipelines, [0-9]+ s left; 0 of 2 task groups: run group 0 …", shown)
    assert re.search(r"0 of 1 task groups; 1,000,000 of 4,000,000 rows judged, [0-9]+ s left: check …", shown)
    assert "0 of 2 tables; 0 of 400 batches: compact …" in shown
    assert re.search(r"0 of 2 tables; 300 of 400 batches, [0-9]+ s left: compact …", shown)


def test_several_steps_at_once_share_the_last_line_of_a_terminal() -> None:
    reading, writing = pty.openpty()
    subprocess.run([sys.executable, "-c", SEVERAL_AT_ONCE], stderr=writing, check=True)
    os.close(writing)
    shown = _all_of(reading)
    # What is left on each line once the last one has been drawn over.
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line.split("\x1b[2K")[-1]) for line in shown.splitlines()]
    assert any("run group 1, run group 2 …" in line or "run group 2, run group 1 …" in line for line in lines)
    said = [line.strip("\r") for line in lines if line.startswith(("ok", "  "))]
    assert [re.sub(r" +[0-9.]+ s ", "", line) for line in said] == [
        "       look                     at this",
        "ok     run group 1 [done] 1",
        "       look                     at this",
        "ok     run group 2 [done] 2",
    ]


def test_in_a_file_there_is_a_line_for_each_step() -> None:
    done = subprocess.run([sys.executable, "-c", SEVERAL_AT_ONCE], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert [line.split()[:4] for line in done.stderr.splitlines() if line.startswith("ok")] == [
        ["ok", "run", "group", "1"],
        ["ok", "run", "group", "2"],
    ]


def _all_of(reading: int) -> str:
    """All that was written to a terminal."""
    shown = ""
    with os.fdopen(reading, encoding="utf-8") as terminal:
        while True:
            try:
                shown += terminal.readline()
            except OSError:  # so a terminal ends
                return shown
