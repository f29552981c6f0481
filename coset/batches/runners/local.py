"""Runs task groups in processes of this machine without Spark: for tests, the benchmark and an author's trial."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from threading import Lock, Thread
from types import ModuleType, TracebackType

from coset.batches.ref import BatchRef
from partitioning.commands import Repeat
from partitioning.errors import CosetError, Finding
from partitioning.kinds import Kind
from partitioning.model.task_engine import MEMORY
from spark_jobs.group import Work, answer, group_name, group_of, pieces, run_group, steps_of
from spark_jobs.worker_code import Wanted

# Processes forked from this one could inherit a lock that one of its threads holds. So they are forked from a server
# process that has imported what tasks need and does nothing else.
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["spark_jobs.engine.preloaded"])
# One thread at a time starts processes.
_STARTING = Lock()

# A broken pool terminates its other processes within this time.
_ENDS_WITHIN_SECONDS = 10
_REMEDY = (
    "if memory ran out, lower `--memory` or run fewer tasks at once; if a function of a step ends its process, "
    "correct it; then "
)


class Local:
    """Runs the tasks of a group in `processes`. One process is this one."""

    has_spark = False
    at_once = 1

    def __init__(self, processes: int | None = None, memory: str = MEMORY) -> None:
        self._processes = processes or os.cpu_count() or 1
        self._answer = partial(answer, memory=memory)
        self._pool: ProcessPoolExecutor | None = None
        self._cancelled = False

    def __enter__(self) -> Local:
        if self._processes > 1:
            self._pool = self._new_pool()
        return self

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._processes, _FORKED, _begin, (dict(os.environ),))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def group(self, batch: BatchRef, number: int) -> str:
        ledger, plan = batch.load()
        group = group_of(ledger, plan, number)
        functions = [step.function for step in steps_of(plan, group) if step.function]
        where = group_name(plan, number) + (f", with the functions {', '.join(functions)}" if functions else "")
        return run_group(ledger, plan, number, partial(self._run, where))

    def cancel(self) -> None:
        self._cancelled = True
        if self._pool is not None:
            _kill(self._pool)

    def _run(self, where: str, work: Work, _: Wanted) -> Sequence[bytes]:
        # A process begins a task at no cost, so none is put together with others: what is cancelled begins no other.
        sent = pieces(work, max(self._processes, len(work)))
        if self._pool is None or self._cancelled:
            return [self._answer_here(piece) for piece in sent]
        try:
            with _ctrl_c_held(), _without_main():
                answers = self._pool.map(self._answer, sent)
            if self._cancelled:
                # `cancel` did not see the processes that were starting.
                _kill(self._pool)
            return list(answers)
        except BrokenProcessPool as error:
            # The next group gets a new pool.
            broken, self._pool = self._pool, self._new_pool()
            what = f"a process that ran tasks ended {_how(tuple(broken._processes.values()))}"
            broken.shutdown()
            raise CosetError(Finding.of(Kind.RUN_ENDED, what, where, (_REMEDY, Repeat()), work=where)) from error

    def _answer_here(self, piece: bytes) -> bytes:
        if self._cancelled:
            raise CosetError(Finding.of(Kind.RUN_ENDED, "the task group was ended", "this process", Repeat()))
        return self._answer(piece)


def _how(processes: Iterable[BaseProcess]) -> str:
    """How the first of these processes has ended. The pool has terminated the others."""
    for process in processes:
        process.join(_ENDS_WITHIN_SECONDS)
    codes = [process.exitcode for process in processes if process.exitcode not in {None, -signal.SIGTERM}]
    killed = next((-code for code in codes if code is not None and code < 0), None)
    if killed is None:
        return f"with exit code {codes[0]}" if codes else "for no reason that is known"
    memory = ": most often, memory ran out" if killed == signal.SIGKILL else ""
    return f"by signal {int(killed)}{memory}"


def _kill(pool: ProcessPoolExecutor) -> None:
    # From Python 3.14 on the pool has a method for this.
    for process in tuple(pool._processes.values()):
        process.kill()


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Keep Ctrl-C from processes that are started in this block, from their first moment on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes that are started in this block do not run the script again that started this one."""
    with _STARTING:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _begin(environment: Mapping[str, str]) -> None:
    """Take over the parent's environment, and end when the parent ends."""
    os.environ.clear()
    os.environ.update(environment)
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
