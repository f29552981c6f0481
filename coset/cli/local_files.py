"""Local files that a command writes because it was asked to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partitioning.errors import Refused
from partitioning.kinds import Kind


@contextmanager
def writing(file: Path, what: str) -> Iterator[None]:
    """Raise Refused if the file, to which `what` is written meanwhile, cannot be written."""
    try:
        yield
    except OSError as error:
        wrong, then = f"{what} cannot be written: {error}", "name a file in a folder that is there and can be written"
        raise Refused.of(Kind.LOCAL_FILE, wrong, str(file), then, file=file) from error
