"""Measuring: processor time, memory and wall time of a process and all that it started.

Memory is sampled by a process that is no part of them, as which this file runs.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_TICK = os.sysconf("SC_CLK_TCK")
# Raised where a process is asked that is there no more.
_ENDED = (FileNotFoundError, ProcessLookupError)
# How often memory is sampled: what is freed sooner may be missed.
_EVERY_SECONDS = 0.05
# Started so, a process is nobody's child.
_ALONE = ["sh", "-c", '"$@" &', "sh"]


@dataclass(slots=True)
class Cost:
    """The cost of a run; `memory` is the most that all processes had at once, in bytes: a page that some share counts
    once."""

    wall: float = 0.0
    cpu: float = 0.0
    memory: int = 0


@contextmanager
def measured(since_start: bool = False) -> Iterator[Cost]:
    """Measure this process and its descendants, from now on or `since_start` of this process."""
    cost = Cost()
    with _most_memory() as most:
        before = 0.0 if since_start else _cpu()
        started = _started() if since_start else time.monotonic()
        yield cost
        cost.wall = time.monotonic() - started
        cost.cpu = _cpu() - before
        cost.memory = most()


def cpu_of(pid: int) -> float:
    """Processor seconds of a process, its threads and its ended children."""
    # The name, in parentheses, may hold spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / _TICK


def cpu_of_all(root: int) -> float:
    """Processor seconds of a process and all that it started. If one of these ends meanwhile, its parent has its time,
    and all are asked again."""
    while True:
        with suppress(*_ENDED):
            return sum(map(cpu_of, _tree(root)))
        cpu_of(root)


def memory_of_all(root: int) -> int:
    """What a process and all that it started have now, in bytes: of a page that several share each has its part."""
    return sum(map(_part, _tree(root)))


def alone(function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a process of its own, which has imported nothing else before."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def _cpu() -> float:
    return cpu_of_all(os.getpid())


def _started() -> float:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    since_boot = float(Path("/proc/uptime").read_text().split()[0])
    return time.monotonic() - (since_boot - int(fields[19]) / _TICK)


def _tree(root: int) -> list[int]:
    """A process and its descendants."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(*_ENDED):
                parents.setdefault(_status(int(folder.name), "PPid"), []).append(int(folder.name))
    family, new = [], [root]
    while new:
        family += new
        new = [child for pid in new for child in parents.get(pid, ())]
    return family


@contextmanager
def _most_memory() -> Iterator[Callable[[], int]]:
    """Sample the memory of this process and its descendants until the most of it is asked for."""
    (asked, ask), (answered, answer) = os.pipe(), os.pipe()
    sampler = [sys.executable, __file__, str(os.getpid()), str(asked), str(answer)]
    try:
        subprocess.run([*_ALONE, *sampler], pass_fds=(asked, answer), check=True)
        os.close(answer)

        def most() -> int:
            os.write(ask, b"?")
            return int(os.read(answered, 32))

        yield most
    finally:
        for end in (asked, ask, answered):
            os.close(end)


def _sample(root: int, asked: int, answer: int) -> None:
    """Look at a process and its descendants, until it is `asked` for the most that they had, or they are gone."""
    most = 0
    while Path(f"/proc/{root}").exists():
        is_asked, _, _ = select.select([asked], [], [], _EVERY_SECONDS)
        most = max(most, memory_of_all(root))
        if is_asked:
            os.write(answer, str(most).encode())
            return


def _part(pid: int) -> int:
    with suppress(*_ENDED):
        return _status(pid, "Pss", "smaps_rollup") * 1024
    return 0


def _status(pid: int, name: str, file: str = "status") -> int:
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


if __name__ == "__main__":
    _sample(*map(int, sys.argv[1:]))
