"""The port behind which task groups run. Whatever is behind it, the same orders run and leave the same receipts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from coset.batches.ref import BatchRef


class Runner(AbstractContextManager["Runner"], Protocol):
    """Runs task groups, between its entering and its end. It may be asked for several at once, by threads."""

    @property
    def at_once(self) -> int:
        """How many groups it is worth asking for at once."""

    def group(self, batch: BatchRef, number: int) -> str:
        """Run a task group until its receipt is stored; a sentence on what was done.

        Raises what the group's tasks raised: Refused, with all findings, or one of the other errors; CosetError if
        what runs it fails itself.
        """

    def cancel(self) -> None:
        """End what is running, and run nothing more, from another thread or from a signal's handler.

        Those who wait get an error.
        """
