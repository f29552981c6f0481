"""Child programs, which end with the process that started them, and ports of this machine for them."""

from __future__ import annotations

import ctypes
import ipaddress
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from signal import Signals
from typing import IO

import psutil

_PR_SET_PDEATHSIG = 1
_LINUX = ctypes.CDLL(None) if sys.platform == "linux" else None


def start(
    command: Sequence[str], environment: Mapping[str, str], log: IO[bytes], asked: Signals = signal.SIGTERM
) -> subprocess.Popen[bytes]:
    """Start a program that writes to a log file. Ctrl-C in the terminal does not reach it.

    On Linux it gets the signal `asked` when the calling thread ends, in whatever way.
    """
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_sent_at_death(asked),
    )


def stop(process: subprocess.Popen[bytes], within_seconds: float, asked: Signals = signal.SIGTERM) -> None:
    """Ask a program to end and wait for it, then kill it and all that it started."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.send_signal(asked)
    with suppress(subprocess.TimeoutExpired):
        process.wait(within_seconds)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()


def _sent_at_death(asked: Signals) -> Callable[[], None] | None:
    if _LINUX is None:
        return None
    return lambda: _LINUX.prctl(_PR_SET_PDEATHSIG, int(asked))


def free_ports(count: int) -> tuple[int, ...]:
    """Different free ports. Another process may take one before it is used."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = tuple(server.getsockname()[1] for server in held)
    for server in held:
        server.close()
    return ports


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
