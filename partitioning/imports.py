"""Import paths: how plans and settings name a user's own code. Code itself is never stored or loaded from S3.

Who can write to the store can write a plan. So what a plan names is only called if the deployment allows it: whoever
runs Coset and its tasks names the packages in the environment variable COSET_IMPORTS, as COSET_IMPORTS=shop,lab.codecs.
"""

from __future__ import annotations

import importlib
import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from partitioning.commands import Then
from partitioning.errors import CosetError, Finding, Refused, about
from partitioning.kinds import Kind

ALLOWED = "COSET_IMPORTS"
# Coset's own, and the folder of the deployed pipelines.
_OWN = ("partitioning.planning.groups", "partitioning.planning.partitioners", "partitioning.samza", "dags.pipelines")
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*")


def is_import_path(text: str) -> bool:
    """Whether `text` has the form `package.module:name`.

    >>> is_import_path("shop.codecs:country"), is_import_path("murmur2")
    (True, False)
    """
    return _PATH.fullmatch(text) is not None


def import_path(named: str | Callable[..., Any], where: str) -> str:
    """The import path of a module's own function, or the path itself.

    >>> import_path(import_path, "here")
    'partitioning.imports:import_path'

    Raises Refused for what only the running program knows: lambdas, functions in functions, its main module's.
    """
    path = named if isinstance(named, str) else f"{named.__module__}:{getattr(named, '__qualname__', '<none>')}"
    if not is_import_path(path) or path.startswith("__main__:"):
        raise Refused(
            Finding(
                Kind.IMPORT,
                f"{path!r} cannot be imported by name",
                where,
                "name a function of a module: package.module:function",
                about(path=path),
            )
        )
    return path


def is_allowed(module: str) -> bool:
    """Whether the deployment allows what is in a module to be called."""
    allowed = (*_OWN, *os.environ.get(ALLOWED, "").split(","))
    return any(f"{module}.".startswith(f"{prefix.strip()}.") for prefix in allowed if prefix.strip())


def imported(path: str, where: str, *, tasks: bool = False) -> Any:
    """What an import path names. With `tasks` it is asked for by a process that runs tasks, which may be elsewhere.

    Raises Refused if the deployment does not allow it, if it is not there, cannot be called, or if its module fails.
    """
    module, _, name = import_path(path, where).partition(":")
    package = module.partition(".")[0]
    where = f"{where}, in the process that runs its tasks" if tasks else where
    if not is_allowed(module):
        then = f"if it is yours, set {ALLOWED}={package} wherever Coset and its tasks run; it may name several packages"
        if tasks:
            then = (
                f"if it is yours, set {ALLOWED}={package} where that process is started: a Spark server does not have "
                "what is set for this command, and has to be started anew"
            )
        raise Refused(Finding(Kind.IMPORT, f"{path!r} is not allowed to be called here", where, then, about(path=path)))
    try:
        found = getattr(importlib.import_module(module), name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        then = "put it into a module that is installed, or correct the path"
        if tasks:
            then = f"install it there, or ship it: COSET_SHIP={package}, set for the process that runs task groups"
        what = f"{path!r} cannot be imported: {_text(error)}"
        raise Refused(Finding(Kind.IMPORT, what, where, then, about(path=path))) from error
    if not callable(found):
        raise Refused(Finding(Kind.FUNCTION, f"{path} is no function", where, "name one", about(function=path)))
    return found


@contextmanager
def called(kind: Kind, what: str, where: str, then: Then) -> Iterator[None]:
    """Where code of users is called. Raises Refused for whatever it raises, however it ends; as they are for errors of
    Coset's and for Ctrl-C, which is not its own."""
    try:
        yield
    except (CosetError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Refused(Finding(kind, f"{what} {failed(error, ours=2)}", where, then, about(what=what))) from error


def failed(error: BaseException, *, ours: int = 1) -> str:
    """What code of users failed with, and at which line of its own file, whose frames come after so many of `ours`."""
    frames = traceback.extract_tb(error.__traceback__)[ours:]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    line = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"failed: {type(error).__name__}: {_text(error)}{line}"


def _text(error: BaseException) -> str:
    """What an error says; users' own may not even say that."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its text cannot be made: {type(failure).__name__})"
