"""Commands that tests start, and what is left of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


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


def kill_all_that_name(folder: Path) -> None:
    """Kill every process in whose command line the folder is."""
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in process.info["cmdline"] or ()):
            process.kill()


def kill_with_all_it_started(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it started, as if its host died."""
    for each in (process, *psutil.Process(process.pid).children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()
