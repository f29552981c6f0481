"""`coset` commands, each a process of its own, without the seconds that an interpreter needs to import everything.

They are forked from one process that has imported what commands use and has done nothing else. Its own arguments,
environment, folder, output, process group and end make such a command what `.venv/bin/coset` is, but for the start.
The processes in which such a command runs tasks are forked from there as well.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TypeVar

from coset.batches.runners import local  # noqa: F401 - it says what its own processes need, which is less

_ENDS_WITHIN_SECONDS = 300
# As it is before any test has made it longer: a command finds what its own folder and PYTHONPATH lead to.
_PATH = tuple(sys.path)

Answer = TypeVar("Answer")

_all_are_ready: Barrier
_forked = multiprocessing.get_context("forkserver")
_server = forkserver._forkserver


def serve() -> None:
    """Start the process that commands are forked from, for all processes that are forked from this one."""
    _server.ensure_running()
    _server.ensure_running = resource_tracker.ensure_running  # type: ignore[method-assign]


def preload() -> None:
    """Have all imported by the process that others are forked from; to be called before there is one."""
    _forked.set_forkserver_preload(["tests.preloaded"])


def coset(
    *words: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    first: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as `subprocess.run` would; `first` is called in its process before it begins."""
    with TemporaryDirectory() as written:
        out, err = Path(written, "stdout"), Path(written, "stderr")
        _server.ensure_running()
        server: str = _server._forkserver_address  # type: ignore[attr-defined]
        where = dict(environment or os.environ), folder or Path.cwd()
        command = partial(_command, server, _PATH, words, *where, out, err, first)
        process = _forked.Process(target=command)
        process.start()
        try:
            process.join(_ENDS_WITHIN_SECONDS)
            if process.exitcode is None:
                raise subprocess.TimeoutExpired(words, _ENDS_WITHIN_SECONDS)
            return subprocess.CompletedProcess(words, process.exitcode, out.read_text(), err.read_text())
        finally:
            process.kill()
            process.join()
            process.close()


def how(ended: subprocess.CompletedProcess[str]) -> str:
    """How a command ended, in one line that says the most in its beginning: logs are cut."""
    return (
        f"exit code {ended.returncode}, stderr {_short(ended.stderr)}, stdout {_short(ended.stdout)}, of {ended.args}"
    )


def _short(text: str) -> str:
    """A crash says in its beginning where it was, all else in its end what is wrong."""
    return repr(text if len(text) <= 8000 else f"{text[:4000]} … {text[-4000:]}")


def at_once(count: int, prepared: Callable[[int], Callable[[], Answer]]) -> list[Answer]:
    """What so many processes answer, which begin at one moment when all are prepared, each by its number.

    They may say nothing else.
    """
    with _forked.Pool(count, _take_place, (_forked.Barrier(count), dict(os.environ))) as pool:
        answers = pool.map_async(partial(_begin_together, prepared), range(count), chunksize=1)
        return answers.get(_ENDS_WITHIN_SECONDS)


def _take_place(begin: Barrier, environment: Mapping[str, str]) -> None:
    global _all_are_ready
    _all_are_ready = begin
    os.environ.clear()
    os.environ.update(environment)


def _begin_together(prepared: Callable[[int], Callable[[], Answer]], number: int) -> Answer:
    with TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        does = prepared(number)
        _all_are_ready.wait(_ENDS_WITHIN_SECONDS)
        answer = does()
        sys.stderr.flush()
        said.seek(0)
        if error := said.read():
            raise RuntimeError(error.decode())
    return answer


def _command(
    server: str,
    path: tuple[str, ...],
    words: tuple[str, ...],
    environment: Mapping[str, str],
    folder: Path,
    out: Path,
    err: Path,
    first: Callable[[], None] | None,
) -> None:
    """What the forked process does."""
    # Else it would start a server of its own, which imports for longer than most commands take.
    _server._forkserver_address = server  # type: ignore[attr-defined]
    _server.ensure_running = resource_tracker.ensure_running  # type: ignore[method-assign]
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:] = path
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    for number, said in ((1, out), (2, err)):
        with said.open("wb") as to:
            os.dup2(to.fileno(), number)
    # What is made here ends with the process, as its own do.
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["coset", *words]
    if first is not None:
        first()
    try:
        _main()
    finally:
        # A process of `multiprocessing` ends without it.
        atexit._run_exitfuncs()
        sys.stdout.flush()


def _main() -> None:
    from coset.cli.main import main

    main()
