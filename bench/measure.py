"""Measuring: processor time, memory and wall time of a process and all that it started."""

from __future__ import annotations

import multiprocessing
import os
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


@dataclass(slots=True)
class Cost:
    """The cost of a run; `memory` is the sum of the processes' peaks, in bytes."""

    wall: float = 0.0
    cpu: float = 0.0
    memory: int = 0


@contextmanager
def measured(since_start: bool = False) -> Iterator[Cost]:
    """Measure this process and its descendants, from now on or `since_start` of this process."""
    cost = Cost()
    before = 0.0 if since_start else _cpu()
    started = _started() if since_start else time.monotonic()
    _forget_peaks()
    yield cost
    cost.wall = time.monotonic() - started
    cost.cpu = _cpu() - before
    cost.memory = sum(_peak(pid) for pid in _tree(os.getpid()))


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


def _forget_peaks() -> None:
    for pid in _tree(os.getpid()):
        with suppress(*_ENDED):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak(pid: int) -> int:
    """The most memory that a process had, in bytes; 0 of one that has ended."""
    with suppress(*_ENDED):
        return _status(pid, "VmHWM") * 1024
    return 0


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)
