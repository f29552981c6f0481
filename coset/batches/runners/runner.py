"""The port for running task groups. All its implementations run the same orders and store the same receipts. Jobs:
the groups that one of them runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from typing import Protocol

from coset.batches.attempt import BatchRef
from partitioning.commands import Repeat
from partitioning.errors import CosetError
from partitioning.kinds import Kind

# Takes the number of a task group, and a sentence about what it waits for.
TellOf = Callable[[int, str], None]


def nobody(number: int, sentence: str) -> None:
    """Nobody is told."""


class Runner(AbstractContextManager["Runner"], Protocol):
    """Runs task groups while its context is open. Threads may run several groups at once."""

    @property
    def has_spark(self) -> bool:
        """Whether it runs functions on Spark's DataFrames."""

    @property
    def at_once(self) -> int:
        """How many groups are worth running at once."""

    def group(self, batch: BatchRef, number: int) -> str:
        """Run a task group until its receipt is stored, and return a sentence about it.

        Raises the errors of the group's tasks: Refused with all findings, or another. Raises CosetError if the runner
        itself fails.
        """

    def cancel(self) -> None:
        """End all running groups and run no more. Another thread or a signal handler calls this.

        Waiting threads get an error.
        """


# Spark knows of a requested job, and can end it, within this time.
_KNOWN_WITHIN_SECONDS = 3
_TRY_EVERY_SECONDS = 0.1


class Jobs:
    """The jobs that threads of this process wait for, by name."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._cancelled = Event()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def check(self, name: str) -> None:
        """Raise CosetError if the jobs were ended."""
        if self.cancelled:
            raise _ended(name)

    @contextmanager
    def waiting_for(self, name: str) -> Iterator[None]:
        """Note that a thread requests a job and waits for it. Raises CosetError if the job is ended first."""
        self._names.add(name)
        try:
            self.check(name)
            yield
        except Exception as error:
            if self.cancelled:
                raise _ended(name) from error
            raise
        finally:
            self._names.discard(name)

    def end(self, end_all: Callable[[], object]) -> None:
        """End all jobs. `end_all` ends those that Spark knows of; it is repeated, because others may be on their
        way."""
        self._cancelled.set()
        deadline = time.monotonic() + _KNOWN_WITHIN_SECONDS
        while self._names and time.monotonic() < deadline:
            end_all()
            time.sleep(_TRY_EVERY_SECONDS)


def _ended(name: str) -> CosetError:
    return CosetError.of(Kind.RUN_ENDED, "the Spark job was ended", name, Repeat(), job=name)
