"""Which runner is chosen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from coset.batches.runners.runner import Runner, RunnerKind, TellOf
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.task_engine import TaskMemory
from partitioning.numbers import MEMORY

# The masters that Spark knows.
_MASTER = re.compile(r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|spark://.+:\d+|yarn|k8s://.+")


def runner(
    kind: RunnerKind,
    master: str,
    memory: str,
    settings: Mapping[str, str] = MappingProxyType({}),
    tell: TellOf | None = None,
) -> Runner:
    """The runner of this kind. The imports of the others are left out. `settings` are Spark's. `tell` is told what a
    group waits for.

    Raises Refused if `master` or `settings` do not fit the kind, or if `memory` is not an amount of memory.
    """
    MEMORY.check(TaskMemory.of(memory).bytes, f"--memory {memory}, in bytes")
    if settings and kind in {RunnerKind.CONNECT, RunnerKind.LOCAL}:
        what = f"the runner {kind} starts no Spark, so it takes no settings of Spark"
        then = "leave them out; a Spark server has those of its start"
        raise Refused.of(Kind.RUNNER, what, "--conf", then, kind=kind)
    match kind:
        case RunnerKind.SPARK:
            from coset.batches.runners.spark import Spark  # noqa: PLC0415

            return Spark(_master(kind, master), memory, settings, tell)
        case RunnerKind.SPARK_SUBMIT:
            from coset.batches.runners.spark_submit import SparkSubmit  # noqa: PLC0415

            return SparkSubmit(_master(kind, master), memory, settings, tell)
        case RunnerKind.CONNECT:
            from coset.batches.runners.connect import Connect  # noqa: PLC0415

            return Connect(master, memory, tell=tell)
        case RunnerKind.LOCAL:
            from coset.batches.runners.local import Local  # noqa: PLC0415

            return Local(memory=memory)


def _master(kind: RunnerKind, master: str) -> str:
    if RunnerKind.at(master) is RunnerKind.CONNECT:
        needed = f"choose --runner {RunnerKind.CONNECT}, or name a master such as local[*]"
        what = f"the runner {kind} needs a master, and this is a Spark server"
        raise Refused.of(Kind.ARGUMENT, what, master, needed, kind=kind)
    if not _MASTER.fullmatch(master):
        masters = "name local[*], spark://host:port, yarn, k8s://…, or a Spark server as sc://host:port"
        what = f"{master!r} is not a Spark master"
        raise Refused.of(Kind.ARGUMENT, what, "--master or SPARK_MASTER", masters, master=master)
    return master
