"""The Spark jobs that a runner waits for, and their end when it is cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

from partitioning.commands import Repeat
from partitioning.errors import CosetError, Finding, about
from partitioning.kinds import Kind

# A job that was asked for is known to Spark, and can be ended there, within this.
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
        """Raises CosetError if nothing is to be run any more."""
        if self.cancelled:
            raise _ended(name)

    @contextmanager
    def waiting_for(self, name: str) -> Iterator[None]:
        """While a job is asked for and waited for. Raises CosetError if it is ended before it is done."""
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
        """End all jobs, by what ends those that Spark knows of; it is tried again, for a job may be on its way."""
        self._cancelled.set()
        deadline = time.monotonic() + _KNOWN_WITHIN_SECONDS
        while self._names and time.monotonic() < deadline:
            end_all()
            time.sleep(_TRY_EVERY_SECONDS)


def _ended(name: str) -> CosetError:
    return CosetError(Finding(Kind.RUN_ENDED, "the Spark job was ended", name, Repeat(), about(job=name)))
