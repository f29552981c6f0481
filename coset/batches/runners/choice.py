"""Which runner: by a name on the command line, or by where Spark is."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.numbers import MEMORY

if TYPE_CHECKING:  # the command line imports this module whatever it is asked for
    from coset.batches.runners.runner import Runner

# What the address of a Spark server begins with; a master is anything else.
SERVER = "sc://"
# What Spark takes for a master.
_MASTER = re.compile(r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|spark://.+:\d+|yarn|k8s://.+")


# How much memory: the letters of the units are powers of a thousand, with an `i` of 1024.
_MEMORY = re.compile(r"(?P<amount>[0-9]{1,9}(\.[0-9]{1,9})?) ?(?P<unit>[KMGT])(?P<binary>i?)B?", re.IGNORECASE)


class RunnerKind(StrEnum):
    """The runners there are: an application for all groups, one for each, a server that stays, or no Spark at all."""

    SPARK = "spark"
    SPARK_SUBMIT = "spark-submit"
    CONNECT = "connect"
    LOCAL = "local"

    @classmethod
    def at(cls, master: str) -> RunnerKind:
        """The one for a master, or for a server's address."""
        return cls.CONNECT if master.startswith(SERVER) else cls.SPARK


def runner(kind: RunnerKind, master: str, memory: str) -> Runner:
    """The runner of that kind. What the others need is not imported.

    Raises Refused if it does not go with `master`, or for a `memory` that is none.
    """
    _check_memory(memory)
    match kind:
        case RunnerKind.SPARK:
            from coset.batches.runners.spark import Spark  # noqa: PLC0415

            return Spark(_master(kind, master), memory)
        case RunnerKind.SPARK_SUBMIT:
            from coset.batches.runners.spark_submit import SparkSubmit  # noqa: PLC0415

            return SparkSubmit(_master(kind, master), memory)
        case RunnerKind.CONNECT:
            from coset.batches.runners.connect import Connect  # noqa: PLC0415

            return Connect(master, memory)
        case RunnerKind.LOCAL:
            from coset.batches.runners.local import Local  # noqa: PLC0415

            return Local(memory=memory)
        case _:
            assert_never(kind)


def _master(kind: RunnerKind, master: str) -> str:
    if RunnerKind.at(master) is RunnerKind.CONNECT:
        needed = f"choose --runner {RunnerKind.CONNECT}, or name a master such as local[*]"
        raise Refused(
            Finding(
                Kind.ARGUMENT,
                f"the runner {kind} needs a master, and this is a Spark server",
                master,
                needed,
                about(kind=kind),
            )
        )
    if not _MASTER.fullmatch(master):
        masters = "name local[*], spark://host:port, yarn, k8s://…, or a Spark server as sc://host:port"
        raise Refused(
            Finding(
                Kind.ARGUMENT,
                f"{master!r} is no Spark master",
                "--master or SPARK_MASTER",
                masters,
                about(master=master),
            )
        )
    return master


def _check_memory(memory: str) -> None:
    match = _MEMORY.fullmatch(memory.strip())
    if match is None:
        raise Refused(
            Finding(
                Kind.ARGUMENT,
                f"{memory!r} is no amount of memory",
                "--memory",
                "write it as 512MB or 2GB",
                about(memory=memory),
            )
        )
    amount = float(match["amount"]) * (1024 if match["binary"] else 1000) ** (" KMGT".index(match["unit"].upper()))
    MEMORY.check(int(amount), f"--memory {memory}, in bytes")
