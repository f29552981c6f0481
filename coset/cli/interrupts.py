"""Interrupts: Ctrl-C while modules are imported, where it would be lost, or leave half a module behind."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_LOOKED_AT_EVERY_SECONDS = 0.05
# An import that takes longer is interrupted where it is; so is any by a second Ctrl-C.
_PATIENCE_SECONDS = 2.0
_IMPORTING = "<frozen importlib._bootstrap>"


@contextmanager
def told_by_the_exit_code() -> Iterator[None]:
    """Ctrl-C ends the process with the exit code that a shell gives for it, and without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


@contextmanager
def put_off() -> Iterator[None]:
    """Ctrl-C waits for the end, while the command itself is imported."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        with told_by_the_exit_code():
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hold_while_importing() -> None:
    """From now on Ctrl-C waits for the end of the import that it meets, for some seconds at most.

    Code that is imported may swallow it: some callbacks of the interpreter do, and libraries that catch everything.
    """
    held: list[float] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGALRM and not held:
            return
        again = number == signal.SIGINT and bool(held)
        if not held:
            held.append(time.monotonic())
        if again or not _imports(frame) or time.monotonic() - held[0] > _PATIENCE_SECONDS:
            signal.setitimer(signal.ITIMER_REAL, 0)
            held.clear()
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, _LOOKED_AT_EVERY_SECONDS)

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGALRM, interrupt)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False
