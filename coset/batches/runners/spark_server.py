"""A Spark server that stays (Spark Connect), on loopback and for this user only: started, and ended with its parent."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from coset.batches.runners import children
from coset.batches.runners.ports import free_ports
from coset.batches.runners.spark_settings import SPARK_SUBMIT, configuration, environment
from partitioning.commands import Repeat
from partitioning.errors import CosetError, Finding, about
from partitioning.kinds import Kind

# Where a server says which file its log is.
LOG_SETTING = "spark.coset.log"
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of a variable

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_READY_WITHIN_SECONDS = 60
_STOPPED_WITHIN_SECONDS = 5
_START_TRIES = 3
# What Java says if another process took the free port meanwhile.
_TAKEN = "java.net.BindException"


@dataclass(frozen=True, slots=True)
class SparkServer:
    """A running server: its address, such as `sc://127.0.0.1:15002`, and the token that it asks of its clients."""

    process: subprocess.Popen[bytes]
    port: int
    token: str
    log: Path

    @property
    def address(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a client needs."""
        return {"SPARK_MASTER": self.address, TOKEN: self.token}

    def stop(self) -> None:
        children.stop(self.process, _STOPPED_WITHIN_SECONDS)


def start_spark(master: str, log: Path) -> SparkServer:
    """Start a server that runs tasks at `master`, with this process's environment: what tasks need must be in it.

    Raises CosetError if it does not listen within a minute.
    """
    for _ in range(_START_TRIES):
        server = _start_once(master, log)
        if _listens(server):
            return server
        server.stop()
        if _TAKEN not in log.read_text(encoding="utf-8", errors="replace"):
            break
    raise CosetError(
        Finding(
            Kind.SPARK, "the Spark server does not start", str(log), ("read the log, then ", Repeat()), about(log=log)
        )
    )


def _start_once(master: str, log: Path) -> SparkServer:
    (port,), token = free_ports(1), secrets.token_urlsafe(32)
    settings = configuration(master) | {
        **listening_on(port),
        "spark.app.name": "coset",
        # The session is kept, because its Python processes have imported what tasks need.
        "spark.connect.session.manager.defaultSessionTimeout": "-1",
        # The job of a client that was killed is ended soon: a client has to ask again for what it waits for.
        "spark.connect.execute.reattachable.senderMaxStreamDuration": "10s",
        "spark.connect.execute.manager.detachedTimeout": "15s",
        "spark.connect.execute.manager.maintenanceInterval": "5s",
        LOG_SETTING: str(log),
    }
    command = [
        SPARK_SUBMIT,
        *("--master", master),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        *("--class", _SERVER, "spark-internal"),
    ]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as to:
        # Arguments can be read by everybody on this machine, an environment cannot.
        process = children.start(command, os.environ | environment() | {TOKEN: token}, to)
    return SparkServer(process, port, token, log)


def _listens(server: SparkServer) -> bool:
    deadline = time.monotonic() + _READY_WITHIN_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        # It must be this process that listens there: the next one to connect shows it the token.
        with suppress(psutil.Error):
            for at in psutil.Process(server.process.pid).net_connections("tcp"):
                if at.status == psutil.CONN_LISTEN and at.laddr.port == server.port:
                    return True
        time.sleep(0.1)
    return False


def listening_on(port: int) -> Mapping[str, str]:
    """The settings of a server that listens there, on loopback."""
    return {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
