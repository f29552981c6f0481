"""Runs each task group as a Spark application, with spark-submit."""

from __future__ import annotations

import os
import secrets
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import RLock
from types import MappingProxyType, TracebackType

from coset.batches.ref import BatchRef
from coset.batches.runners import children
from coset.batches.runners.given_settings import Settings
from coset.batches.runners.runner import TellOf, nobody
from coset.batches.runners.shipped import Shipped
from coset.batches.runners.spark_settings import (
    SPARK_JOBS,
    SPARK_SUBMIT,
    check_reach,
    configuration,
    environment,
    log_file,
)
from partitioning.commands import Repeat
from partitioning.errors import CosetError
from partitioning.kinds import Kind
from partitioning.model.failure import ErrorKind
from partitioning.model.task_engine import MEMORY
from spark_jobs.engine.location import LOCATION
from spark_jobs.group import group_name, group_of, nothing_to_do
from spark_jobs.waiting_for_workers import MEANWHILE, Tell

APPLICATION = str(SPARK_JOBS / "run_group.py")
_TAIL = 30
_LOOK_EVERY_SECONDS = 1
_STOPPED_WITHIN_SECONDS = 3


class SparkSubmit:
    """Runs each group with spark-submit and waits for it. `location` is where the master leads, if that is not what
    this process's environment says."""

    has_spark = True
    at_once = 1

    def __init__(
        self,
        master: str,
        memory: str = MEMORY,
        settings: Settings = MappingProxyType({}),
        tell: TellOf | None = None,
        location: str | None = None,
    ) -> None:
        self._master = master
        self._tell = tell or nobody
        self._memory = memory
        self._settings = settings
        self._here = {LOCATION: location} if location else {}
        # A signal handler may need the lock in the thread that holds it.
        self._lock = RLock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._cancelled = False

    def __enter__(self) -> SparkSubmit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open between groups."""

    def group(self, batch: BatchRef, number: int) -> str:
        check_reach(batch, self._master)
        ledger, plan = batch.load()
        group_of(ledger, plan, number)
        # A cluster that runs the driver takes one that starts no Spark for a failure.
        if said := nothing_to_do(ledger, plan, number, ledger.attempt(plan.batch)):
            return said
        where = f"task group {number} of {batch.plan_uri}"
        failure = failure_name(number)
        log = log_file("spark-submit")
        tell = partial(self._tell, number)
        code = self._submit(arguments(batch, number, failure, self._memory, log), log, where, tell)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        if code == 0:
            log.unlink()
            # A driver elsewhere prints it there.
            elsewhere = f"{group_name(plan, number)}: done; the log of its driver in {self._master} says more"
            return next((line for line in reversed(lines) if line.startswith(f"group {number} of ")), elsewhere)
        if (failed := ledger.failure(plan.batch, failure)) is not None:
            if failed.failed.kind is not ErrorKind.ERROR:
                # The error is of a task and does not name the log.
                log.unlink()
            raise failed.failed.error()
        tail = "\n".join(lines[-_TAIL:])
        what, then = f"spark-submit ended with exit code {code}: {tail}", (f"see {log}, then ", Repeat())
        raise CosetError.of(Kind.SPARK, what, where, then, code=code)

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            running = tuple(self._running)
        for process in running:
            children.stop(process, _STOPPED_WITHIN_SECONDS)

    def _submit(self, arguments: list[str], log: Path, where: str, tell: Tell) -> int:
        """Run the application and return its exit code. Meanwhile `tell` what it waits for."""
        archive = Shipped().archive()
        settings = [f"{name}={value}" for name, value in configuration(self._master, self._settings).items()]
        command = [
            SPARK_SUBMIT,
            *("--master", self._master),
            *(part for setting in settings for part in ("--conf", setting)),
            *(("--py-files", archive) if archive else ()),
            APPLICATION,
            *arguments,
        ]
        with self._lock, log.open("wb") as to:
            if self._cancelled:
                raise _ended(where)
            process = children.start(command, os.environ | environment() | self._here, to)
            self._running.add(process)
        try:
            code = _waited(process, log, tell)
        except BaseException:
            children.stop(process, _STOPPED_WITHIN_SECONDS)
            raise
        with self._lock:
            self._running.remove(process)
            if self._cancelled:
                raise _ended(where)
        return code


def arguments(batch: BatchRef, group: int, failure: str, memory: str = MEMORY, log: Path | None = None) -> list[str]:
    """The arguments of `run_group.py`, submitted by this process."""
    options = {
        "plan": batch.plan_uri,
        "digest": batch.digest,
        "group": str(group),
        "failure": failure,
        "memory": memory,
        "submitter": str(os.getpid()),
    }
    if log is not None:
        options["log"] = str(log)
    return [part for name, value in options.items() for part in (f"--{name}", value)]


def _waited(process: subprocess.Popen[bytes], log: Path, tell: Tell) -> int:
    """Wait for the application and return its exit code."""
    with log.open(encoding="utf-8", errors="replace") as output:
        part = ""
        while True:
            ended = process.poll()
            *lines, part = (part + output.read()).split("\n")
            for line in lines:
                if line.startswith(MEANWHILE):
                    tell(line.removeprefix(MEANWHILE))
            if ended is not None:
                return ended
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_EVERY_SECONDS)


def failure_name(group: int) -> str:
    """A unique name for the error of one run of a group, so that no run reads another's."""
    return f"group-{group}-{secrets.token_hex(4)}"


def _ended(where: str) -> CosetError:
    return CosetError.of(Kind.RUN_ENDED, "spark-submit was ended", where, Repeat(), work=where)
