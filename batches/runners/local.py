"""Task groups in processes of this machine, without Spark: for tests, the benchmark and a pipeline author's trial."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from threading import Thread
from types import TracebackType

from batches.ref import BatchRef
from partitioning.errors import CosetError, Finding
from partitioning.kinds import Kind
from spark_jobs.group import MEMORY, Work, answer, pieces, run_group

# Forked from this process they could inherit a lock that a thread of it holds: they are forked from one that has
# imported what tasks need and does nothing else.
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["spark_jobs.preloaded"])


class Local:
    """Runs the tasks of a group in so many processes; in this very one, if it is one."""

    at_once = 1

    def __init__(self, processes: int | None = None, memory: str = MEMORY) -> None:
        self._processes = processes or os.cpu_count() or 1
        self._answer = partial(answer, memory=memory)
        self._pool: ProcessPoolExecutor | None = None
        self._cancelled = False

    def __enter__(self) -> Local:
        if self._processes > 1:
            self._pool = ProcessPoolExecutor(self._processes, _FORKED, _begin, (dict(os.environ),))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def group(self, batch: BatchRef, number: int) -> str:
        ledger, plan = batch.load()
        return run_group(ledger, plan, number, self._run)

    def cancel(self) -> None:
        self._cancelled = True
        if self._pool is not None:
            _kill(self._pool)

    def _run(self, work: Work) -> Sequence[bytes]:
        sent = pieces(work, self._processes)
        if self._pool is None or self._cancelled:
            return [self._answer_here(piece) for piece in sent]
        try:
            with _ctrl_c_held():
                answers = self._pool.map(self._answer, sent)
            if self._cancelled:
                # Who cancelled did not see the processes that were starting.
                _kill(self._pool)
            return list(answers)
        except BrokenProcessPool as error:
            raise CosetError(
                Finding(
                    Kind.RUN_ENDED,
                    f"a process of the pool ended: {error}",
                    "this machine",
                    "look at its memory, then run again",
                )
            ) from error

    def _answer_here(self, piece: bytes) -> bytes:
        if self._cancelled:
            raise CosetError(Finding(Kind.RUN_ENDED, "the task group was ended", "this process", "run again"))
        return self._answer(piece)


def _kill(pool: ProcessPoolExecutor) -> None:
    # From Python 3.14 on the pool has a method for this.
    for process in tuple(pool._processes.values()):
        process.kill()


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Leave Ctrl-C to this process: those it starts meanwhile never get it, not even while they are starting."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(environment: Mapping[str, str]) -> None:
    """Take over the parent's environment, and end with it."""
    os.environ.clear()
    os.environ.update(environment)
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
