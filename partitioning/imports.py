"""Import paths: how plans and settings name a user's own code. Code itself is never stored or loaded from S3.

Who can write to the store can write a plan. So what a plan names is only called if the deployment allows it: whoever
runs Coset and its tasks names the packages in the environment variable COSET_IMPORTS, as COSET_IMPORTS=shop,lab.codecs.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from typing import Any

from partitioning.errors import Finding, Refused, about
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


def imported(path: str, where: str) -> Any:
    """What an import path names.

    Raises Refused if the deployment does not allow it, if it is not there, or if its module fails.
    """
    module, _, name = import_path(path, where).partition(":")
    if not is_allowed(module):
        package = module.partition(".")[0]
        then = f"if it is yours, set {ALLOWED}={package} wherever Coset and its tasks run; it may name several packages"
        raise Refused(Finding(Kind.IMPORT, f"{path!r} is not allowed to be called here", where, then, about(path=path)))
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:
        raise Refused(
            Finding(
                Kind.IMPORT,
                f"{path!r} cannot be imported: {error}",
                where,
                "put it into a module that is installed, or correct the path",
                about(path=path),
            )
        ) from error
