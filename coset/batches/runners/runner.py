"""The port for running task groups. All its implementations run the same orders and store the same receipts. Jobs:
the groups that one of them runs. Which one is chosen.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from threading import Event
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from coset.batches.ref import BatchRef
from partitioning.commands import Repeat
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind
from partitioning.model.task_engine import TaskMemory
from partitioning.numbers import MEMORY

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


# The address of a Spark server begins with this. Anything else is a master.
SERVER = "sc://"
# That of a master which starts executors as pods.
KUBERNETES = "k8s://"
# The masters that Spark knows.
_MASTER = re.compile(r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|spark://.+:\d+|yarn|k8s://.+")


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


def runner(
    kind: RunnerKind,
    master: str,
    memory: str,
    settings: Mapping[str, str] = MappingProxyType({}),
    tell: TellOf | None = None,
) -> Runner:
    """The runner of this kind. The imports of the others are left out. `settings` are Spark's. `tell` is told what a
    group waits for.

    Raises Refused if `master` or `settings` do not fit the kind, or if `memory` is not an amount of memory.
    """
    MEMORY.check(TaskMemory.of(memory).bytes, f"--memory {memory}, in bytes")
    if settings and kind in {RunnerKind.CONNECT, RunnerKind.LOCAL}:
        what = f"the runner {kind} starts no Spark, so it takes no settings of Spark"
        then = "leave them out; a Spark server has those of its start"
        raise Refused.of(Kind.RUNNER, what, "--conf", then, kind=kind)
    match kind:
        case RunnerKind.SPARK:
            from coset.batches.runners.spark import Spark  # noqa: PLC0415

            return Spark(_master(kind, master), memory, settings, tell)
        case RunnerKind.SPARK_SUBMIT:
            from coset.batches.runners.spark_submit import SparkSubmit  # noqa: PLC0415

            return SparkSubmit(_master(kind, master), memory, settings, tell)
        case RunnerKind.CONNECT:
            from coset.batches.runners.connect import Connect  # noqa: PLC0415

            return Connect(master, memory, tell=tell)
        case RunnerKind.LOCAL:
            from coset.batches.runners.local import Local  # noqa: PLC0415

            return Local(memory=memory)


def check_runs(steps: Iterable[Step], where: str, runner: Runner) -> None:
    """Raise Refused if some of these steps need Spark and this runner has none."""
    if not runner.has_spark and (named := [step.name for step in steps if step.on_dataframes]):
        from spark_jobs.group import without_spark  # noqa: PLC0415

        raise without_spark(named, where)


def _master(kind: RunnerKind, master: str) -> str:
    if RunnerKind.at(master) is RunnerKind.CONNECT:
        needed = f"choose --runner {RunnerKind.CONNECT}, or name a master such as local[*]"
        what = f"the runner {kind} needs a master, and this is a Spark server"
        raise Refused.of(Kind.ARGUMENT, what, master, needed, kind=kind)
    if not _MASTER.fullmatch(master):
        masters = "name local[*], spark://host:port, yarn, k8s://…, or a Spark server as sc://host:port"
        what = f"{master!r} is not a Spark master"
        raise Refused.of(Kind.ARGUMENT, what, "--master or SPARK_MASTER", masters, master=master)
    return master
