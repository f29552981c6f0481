"""Streams: standard output and standard error that may be closed, full, or read by nobody any more."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from partitioning.commands import Repeat
from partitioning.errors import Unreachable
from partitioning.kinds import Kind

# As a shell has it for a command that was ended because nobody reads what it prints.
UNREAD = 128 + 13


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
            # What is still to be written goes nowhere.
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
