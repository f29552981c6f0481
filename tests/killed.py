"""A process that is killed, or stopped, right before or after one of the effects that a `coset` command has."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.forked import coset

EFFECTS = ("plan", "job", "verdict", "delta", "commit")
POINTS = tuple(f"{effect}.{moment}" for effect in EFFECTS for moment in ("before", "after"))


def killed_once(point: str, pipeline: str, root: str, docs: Path, **environment: str) -> CompletedProcess[str]:
    """Run a batch that is killed at `point`, and once more, to its end."""
    words = ("run", "--runner", "local", pipeline, "--store", root, "--docs", str(docs))
    killed = coset(*words, environment=os.environ | environment, first=partial(arm, point))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = coset(*words, environment=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done


def deadly(
    effect: Callable[..., Any], moment: str, when: Callable[..., bool], by: signal.Signals
) -> Callable[..., Any]:
    """The same function, but it is the last thing that this process does, or does not do, unless it goes on later."""
    times = count()

    def die() -> None:
        os.kill(os.getpid(), by)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not when(*args, **kwargs) or next(times):
            return effect(*args, **kwargs)
        if moment == "before":
            die()
        result = effect(*args, **kwargs)
        if moment == "after":
            die()
        return result

    return wrapped


def arm(point: str, by: signal.Signals = signal.SIGKILL) -> None:
    """Send this process a signal at `point`: one of `POINTS` such as plan.before, or group-1.after for a receipt."""
    effect, moment = point.split(".")
    owners: tuple[type, ...]
    if effect == "job":
        from coset.batches.runners.spark import Spark

        owners, name, when = (Spark,), "group", always
    elif effect == "delta":
        from deltalake import DeltaTable

        owners, name, when = (DeltaTable,), "create_write_transaction", always
    else:
        from partitioning.documents.folder_store import FolderStore
        from partitioning.documents.s3_store import S3Store

        ending = f"/{effect}.json" if effect.startswith("group-") else f"/{effect}s/"
        owners, name = (FolderStore, S3Store), "put_new"
        when = lambda _, key, *__: ending in key and "/turns/" not in key  # noqa: E731
    for owner in owners:
        setattr(owner, name, deadly(getattr(owner, name), moment, when, by))


def always(*_: Any, **__: Any) -> bool:
    return True
