"""Task groups as Spark applications of their own, through spark-submit."""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path
from threading import RLock
from types import TracebackType

from coset.batches.ref import BatchRef
from coset.batches.runners import children
from coset.batches.runners.reach import check_reach
from coset.batches.runners.shipped import Shipped
from coset.batches.runners.spark_settings import SPARK_JOBS, SPARK_SUBMIT, configuration, environment, log_file
from partitioning.commands import Repeat
from partitioning.errors import CosetError, Finding, about
from partitioning.kinds import Kind
from partitioning.model.failure import ErrorKind
from spark_jobs.group import MEMORY, group_of

APPLICATION = str(SPARK_JOBS / "run_group.py")
_TAIL = 30
_STOPPED_WITHIN_SECONDS = 3


class SparkSubmit:
    """Runs each group with spark-submit and waits for it."""

    at_once = 1

    def __init__(self, master: str, memory: str = MEMORY) -> None:
        self._master = master
        self._memory = memory
        # A signal's handler may ask for it in the thread that has it.
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
        where = f"task group {number} of {batch.plan_uri}"
        failure = failure_name(number)
        log = log_file("spark-submit")
        code = self._submit(arguments(batch, number, failure, self._memory, log), log, where)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        if code == 0:
            log.unlink()
            return next((line for line in reversed(lines) if line.startswith(f"group {number} of ")), "")
        if (failed := ledger.failure(plan.batch, failure)) is not None:
            if failed.failed.kind is not ErrorKind.ERROR:
                # It came from a task, and does not name the log.
                log.unlink()
            raise failed.failed.error()
        tail = "\n".join(lines[-_TAIL:])
        raise CosetError(
            Finding(
                Kind.SPARK,
                f"spark-submit ended with exit code {code}: {tail}",
                where,
                (f"see {log}, then ", Repeat()),
                about(code=code),
            )
        )

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            running = tuple(self._running)
        for process in running:
            children.stop(process, _STOPPED_WITHIN_SECONDS)

    def _submit(self, arguments: list[str], log: Path, where: str) -> int:
        """Run the application; its exit code."""
        archive = Shipped().archive()
        settings = [f"{name}={value}" for name, value in configuration(self._master).items()]
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
            process = children.start(command, os.environ | environment(), to)
            self._running.add(process)
        try:
            code = process.wait()
        except BaseException:
            children.stop(process, _STOPPED_WITHIN_SECONDS)
            raise
        with self._lock:
            self._running.remove(process)
            if self._cancelled:
                raise _ended(where)
        return code


def arguments(batch: BatchRef, group: int, failure: str, memory: str = MEMORY, log: Path | None = None) -> list[str]:
    """The arguments of `run_group.py`."""
    options = {
        "plan": batch.plan_uri,
        "digest": batch.digest,
        "group": str(group),
        "failure": failure,
        "memory": memory,
    }
    if log is not None:
        options["log"] = str(log)
    return [part for name, value in options.items() for part in (f"--{name}", value)]


def failure_name(group: int) -> str:
    """A name for what one run of a group fails with, of its own, so that nobody reads another's."""
    return f"group-{group}-{secrets.token_hex(4)}"


def _ended(where: str) -> CosetError:
    return CosetError(Finding(Kind.RUN_ENDED, "spark-submit was ended", where, Repeat(), about(work=where)))
