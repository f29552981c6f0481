"""What is installed where a task runs: it has to be what the driver has, or the task is refused before it reads."""

from __future__ import annotations

import os
import socket
import sys
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from partitioning.commands import Repeat, Then
from partitioning.errors import Refused
from partitioning.imports import ALLOWED
from partitioning.kinds import Kind
from partitioning.values import Value
from partitioning.version import VERSION

_ROOT = Path(__file__).resolve().parents[1]
# All of Coset that a task may call.
_FOLDERS = ("partitioning", "coset/sources", "spark_jobs")


class Code(Value, frozen=True):
    """A version of Coset with the digest of its code, the minor version of Python, and DuckDB's version."""

    coset: str
    digest: str
    python: str
    duckdb: str

    def __str__(self) -> str:
        return f"Coset {self.coset} ({self.digest}), Python {self.python}, DuckDB {self.duckdb or 'missing'}"


@cache
def installed() -> Code:
    """What is installed here. It is looked at once in a process, which keeps what it has imported."""
    digest = sha256()
    for folder in _FOLDERS:
        for file in sorted((_ROOT / folder).rglob("*.py")):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(_ROOT).as_posix()}\0{len(content)}\0".encode() + content)
    try:
        duckdb = version("duckdb")
    except PackageNotFoundError:
        duckdb = ""
    return Code(VERSION, digest.hexdigest()[:16], f"{sys.version_info.major}.{sys.version_info.minor}", duckdb)


def told(_: bytes) -> bytes:
    """What is installed here, and which packages plans may call here: asked of a worker, as an order is."""
    return msgspec.json.encode((installed(), os.environ.get(ALLOWED, "")))


def check(wanted: Code) -> None:
    """Raise Refused, with what there is and what is wanted, if this process has not what the driver has."""
    has = installed()
    if has != wanted:
        what = f"the worker on {socket.gethostname()} has {has}; wanted is {wanted}"
        raise Refused.of(
            Kind.WORKER, what, f"{sys.executable} on {socket.gethostname()}", INSTALL, has=has, wanted=wanted
        )


INSTALL: Then = (
    "install what is wanted on all workers and start Spark servers anew, or send what `coset pack` packs; then ",
    Repeat(),
)
