"""Task folder: where tasks spill data, and how the folders of killed tasks are removed."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

# Older versions used another prefix, and did not lock their folders.
PREFIX = "coset-orders-"


@contextmanager
def task_folder() -> Iterator[Path]:
    """A temporary folder for one run.

    A killed process cannot remove its folder, so the next run does. The owner holds a lock, which ends with its
    process: a folder that is not locked has no owner.
    """
    _remove_left()
    folder, lock = _made()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


class KeptFolder:
    """A temporary folder, `path`, that stays as long as this object, in the process that made it."""

    def __init__(self) -> None:
        asked = os.getpid(), tempfile.gettempdir()
        if not _of_process(*asked).exists():
            # Temporary folders are cleaned up where processes last for long.
            _of_process.cache_clear()
        self.path = Path(tempfile.mkdtemp(dir=_of_process(*asked)))
        weakref.finalize(self, _remove, self.path, os.getpid())


@lru_cache(maxsize=1)
def _of_process(process: int, _: str) -> Path:
    """The folder with all that a process keeps in a folder for temporary files: each run looks at all folders there."""
    _remove_left()
    folder, lock = _made()
    atexit.register(_remove, folder, process, lock)
    return folder


def _remove(folder: Path, process: int, *locks: int) -> None:
    # A process that was forked off has the object too.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
        for lock in locks:
            os.close(lock)


def _made() -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Another run may remove the folder before it is locked.
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _remove_left() -> None:
    # Others may have thousands of files there, and each task looks.
    temp = tempfile.gettempdir()
    for folder in (Path(temp, name) for name in os.listdir(temp) if name.startswith(PREFIX)):
        # The folder may be another user's, or gone by now.
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
