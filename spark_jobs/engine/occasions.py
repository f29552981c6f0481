"""Occasions: when, where and by whom this process did something."""

from __future__ import annotations

import os
import socket
import time
from datetime import UTC, datetime

import psutil

from partitioning.model.journal import Occasion

# Airflow sets this variable in the processes of its tasks.
_AIRFLOW_RUN = "AIRFLOW_CTX_DAG_RUN_ID"


def now() -> int:
    """Milliseconds since 1970, in UTC."""
    return time.time_ns() // 1_000_000


def clock_time() -> str:
    """The time in UTC, to the second, as documents say when somebody asked."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def occasion(began: int) -> Occasion:
    """An occasion of this process that began at `began` and ends now."""
    user = psutil.Process().username()
    return Occasion(began, now(), socket.gethostname(), user, os.environ.get(_AIRFLOW_RUN, ""))


class Stopwatch:
    """Measures elapsed time, and CPU time of all threads of this process, in seconds. It may start above zero."""

    def __init__(self, elapsed: float = 0, cpu: float = 0) -> None:
        self._started = time.monotonic() - elapsed
        self._cpu_started = time.process_time() - cpu

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    @property
    def cpu(self) -> float:
        return time.process_time() - self._cpu_started
