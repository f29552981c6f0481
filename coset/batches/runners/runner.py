"""The port for running task groups. All its implementations run the same orders and store the same receipts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from coset.batches.ref import BatchRef

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
