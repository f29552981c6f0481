"""Open files: how many a command may have at once. Libraries that cannot open one more end in ways of their own."""

from __future__ import annotations

import resource

from partitioning.commands import Repeat
from partitioning.errors import Refused
from partitioning.kinds import Kind

_FEWEST = 128
_WANTED = 4096


def raise_limit() -> None:
    """Let this process, and those that it starts, open as many files as they may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft not in {resource.RLIM_INFINITY, hard} and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def check_limit() -> None:
    """Raise Refused if that is too few."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEWEST:
        what = f"this process may open {soft} files at once, and needs {_FEWEST} or more"
        then = (f"raise the limit, as `ulimit -n {_WANTED}` does, then ", Repeat())
        raise Refused.of(Kind.OPEN_FILES, what, "ulimit -n", then, limit=soft)
