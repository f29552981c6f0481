"""The Spark jobs of the task groups that a runner runs, and how they are ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

from partitioning.commands import Repeat
from partitioning.errors import CosetError
from partitioning.kinds import Kind

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
