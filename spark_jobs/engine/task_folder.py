"""Task folder: where tasks put what does not fit into memory, and what is left of those that were killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Not that of versions which did not lock theirs.
PREFIX = "coset-orders-"


@contextmanager
def task_folder() -> Iterator[Path]:
    """A folder of this run alone, which ends with it.

    A process that is killed cannot remove its own. Whoever comes next does: a folder that nobody holds locked is
    nobody's, and the lock of a process ends with it.
    """
    _remove_left()
    folder, lock = _made()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _made() -> tuple[Path, int]:
    """A new folder, and what holds it locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Whoever looks before it is locked takes it for left, and removes it.
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _remove_left() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # It may be another user's, or gone by now.
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
