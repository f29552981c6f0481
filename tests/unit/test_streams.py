"""What a command finds where it is started: a full disk, a pipe that nobody reads, few open files, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from coset.sources.s3 import AGAIN, reaching
from partitioning.errors import Unreachable

WORDS = ("assign", "--stream", "views=8", "--stream", "clicks=12")
WRONG = ("assign", "--stream", "views=0")


def coset(words: tuple[str, ...], redirected: str = "", before: str = "") -> subprocess.CompletedProcess[str]:
    line = f'{before}"{sys.executable}" -m coset.cli.main {" ".join(words)} {redirected}'
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("words", [WORDS, (*WORDS, "--json")], ids=["text", "json"])
def test_a_full_disk_is_a_finding(words: tuple[str, ...]) -> None:
    done = coset(words, "> /dev/full")
    assert done.returncode == 6
    told = done.stderr
    if "--json" in words:
        (finding,) = json.loads(told)["findings"]
        told = f"{finding['what']}\n  where: {finding['where']}\n"
    assert "the output cannot be written: No space left on device\n  where: standard output\n" in told
    assert "Traceback" not in done.stderr


def test_output_that_nobody_reads_is_no_error() -> None:
    # More than a pipe holds.
    done = coset(("assign", "--stream", "views=4000", "--scheme", "max"), "| head -1; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (141, "")
    assert done.stdout == "Scheme max: 4,000 tasks\n"
    assert (coset(WORDS, ">&-").returncode, coset(WORDS, ">&- 2>&-").returncode) == (0, 0)


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full", ">&- 2>&- <&-"])
def test_the_exit_code_tells_even_if_words_cannot(redirected: str) -> None:
    assert coset(WRONG, redirected).returncode == 3


def test_a_limit_of_open_files_is_raised_or_told() -> None:
    done = coset(WORDS, "", before="ulimit -n 20; ")
    assert (done.returncode, done.stdout) == (3, "")
    assert "this process may open 20 files at once, and needs 128 or more\n  where: ulimit -n\n" in done.stderr
    assert "`ulimit -n 4096`" in done.stderr
    done = coset(WORDS, "", before="ulimit -Sn 20; ")
    assert (done.returncode, done.stderr) == (0, "")


IMPORTING = """
import sys
from coset.cli.machine import hold_while_importing

hold_while_importing()
sys.path.insert(0, sys.argv[1])
try:
    import swallowing
    for _ in range(100):
        import time
        time.sleep(0.1)
    print("went on")
except KeyboardInterrupt:
    print("interrupted", getattr(sys.modules.get("swallowing"), "whole", False))
"""


def interrupted(module: str, folder: Path, *after: float) -> tuple[str, float]:
    """What is printed if Ctrl-C comes while the module is imported, so many seconds after it began; and how long it
    took from then on."""
    (folder / "swallowing.py").write_text(f"import time\nprint('imports', flush=True)\n{module}\nwhole = True\n")
    process = subprocess.Popen([sys.executable, "-c", IMPORTING, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "imports\n"
    for seconds in after:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
    began = time.monotonic()
    said = process.communicate(timeout=60)[0].strip()
    return said, time.monotonic() - began


# As a library that catches everything, or a callback of the interpreter's.
SWALLOWING = """
try:
    time.sleep({})
except BaseException:
    pass
"""


def test_ctrl_c_is_not_swallowed_by_an_import_and_ends_one_that_takes_too_long(tmp_path: Path) -> None:
    assert interrupted(SWALLOWING.format(1), tmp_path, 0.2)[0] == "interrupted True"
    said, took = interrupted("time.sleep(60)", tmp_path, 0.2)
    assert said == "interrupted False"
    assert took < 15
    said, took = interrupted("time.sleep(60)", tmp_path, 0.2, 0.2)
    assert said == "interrupted False"
    assert took < 1.5


SLOW = """
import sys, time
print("imports", flush=True)
time.sleep(1)
sys.path.remove({folder!r})
del sys.modules["typer"]
import typer
"""


def test_ctrl_c_while_the_command_itself_is_imported_ends_it_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(SLOW.format(folder=str(tmp_path)))
    process = subprocess.Popen(
        [sys.executable, "-m", "coset.cli.main", *WORDS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        # What runs in the background of a script has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "imports\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 130


def test_ctrl_c_before_a_command_begins_ends_it_without_a_traceback() -> None:
    lines = (
        "import os, signal; from coset.cli import main; "
        "main.app = lambda: os.kill(os.getpid(), signal.SIGINT); main.main()"
    )
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_full_disk_is_freed_before_the_same_command_is_run_again() -> None:
    full = "/dev/full"
    with (
        pytest.raises(Unreachable, match=r"the file cannot be written: .* No space left on device") as caught,
        reaching("the file cannot be written", full, AGAIN),
        pa.OSFile(full, "wb") as file,
    ):
        file.write(b"1")
    assert caught.value.findings[0].then == "free its disk, then run the same command again"
