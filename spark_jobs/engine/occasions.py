"""Occasions of this process, by the clocks and names of its machine."""

from __future__ import annotations

import os
import socket
import time

import psutil

from partitioning.model.occasion import Occasion

# Airflow gives it to the processes of its tasks.
_AIRFLOW_RUN = "AIRFLOW_CTX_DAG_RUN_ID"


def now() -> int:
    """Milliseconds since 1970, in UTC."""
    return time.time_ns() // 1_000_000


def occasion(began: int) -> Occasion:
    """What began then, in this process, and ends now."""
    user = psutil.Process().username()
    return Occasion(began, now(), socket.gethostname(), user, os.environ.get(_AIRFLOW_RUN, ""))


class Stopwatch:
    """Measures how long work takes: time that passes, and CPU time of all threads of this process, in seconds.

    It may begin with what earlier work took.
    """

    def __init__(self, passed: float = 0, cpu: float = 0) -> None:
        self._started = time.monotonic() - passed
        self._cpu_started = time.process_time() - cpu

    @property
    def passed(self) -> float:
        return time.monotonic() - self._started

    @property
    def cpu(self) -> float:
        return time.process_time() - self._cpu_started
