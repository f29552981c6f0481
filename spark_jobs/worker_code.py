"""What is there where a task runs: Coset, and the code of users. It has to be what the driver has, or the task is
refused before it reads."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from partitioning.commands import Repeat, Then
from partitioning.errors import Finding, refuse
from partitioning.imports import ALLOWED, code_of
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


class Wanted(Value, frozen=True):
    """What the process that runs a group has, and its tasks need: `functions` are digests of the code that they call,
    by import path."""

    code: Code
    functions: dict[str, str]


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


def wanted_for(functions: Iterable[str]) -> Wanted:
    """What tasks need that call these functions: what this process has. Of code that is not here nothing is wanted."""
    return Wanted(installed(), {path: code for path in sorted(functions) if (code := code_of(path)) is not None})


def check(wanted: Wanted) -> None:
    """Raise Refused, with the found and the wanted code, if this process has other code than the driver. A function
    that is not here is the finding of who calls it."""
    refuse(_differences(wanted))


def _differences(wanted: Wanted) -> Iterator[Finding]:
    host = socket.gethostname()
    where, has = f"{sys.executable} on {host}", installed()
    if has != wanted.code:
        what = f"the worker on {host} has {has}; wanted is {wanted.code}"
        yield Finding.of(Kind.WORKER, what, where, INSTALL, has=has, wanted=wanted.code)
    for path, code in wanted.functions.items():
        if (here := _code_here(path)) not in {None, code}:
            package = path.partition(".")[0]
            what = f"the worker on {host} has {path} with the code {here}; wanted is {code}, as the driver has it"
            then: Then = (
                f"install the driver's {package} on all workers and start Spark servers anew, or ship it: "
                f"COSET_SHIP={package}, set for the process that runs task groups; then ",
                Repeat(),
            )
            yield Finding.of(Kind.WORKER, what, where, then, function=path, has=here, wanted=code)


# Looked at once in a process, as a module that has changed since is still what was imported.
_code_here = cache(code_of)

INSTALL: Then = (
    "install what is wanted on all workers and start Spark servers anew, or send what `coset pack` packs; then ",
    Repeat(),
)
