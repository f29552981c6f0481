"""The port for running task groups. All its implementations run the same orders and store the same receipts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from coset.batches.ref import BatchRef

if TYPE_CHECKING:
    from partitioning.model.graph import Step


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


# The address of a Spark server begins with this. Anything else is a master.
SERVER = "sc://"
# That of a master which starts executors as pods.
KUBERNETES = "k8s://"


class RunnerKind(StrEnum):
    """The runners: one application for all groups, one for each group, a resident server, or no Spark."""

    SPARK = "spark"
    SPARK_SUBMIT = "spark-submit"
    CONNECT = "connect"
    LOCAL = "local"

    @classmethod
    def at(cls, master: str) -> RunnerKind:
        """The runner for a master or a server's address."""
        return cls.CONNECT if master.startswith(SERVER) else cls.SPARK


def check_runs(steps: Iterable[Step], where: str, runner: Runner) -> None:
    """Raise Refused if some of these steps need Spark and this runner has none."""
    if not runner.has_spark and (named := [step.name for step in steps if step.on_dataframes]):
        from spark_jobs.group import without_spark  # noqa: PLC0415

        raise without_spark(named, where)
