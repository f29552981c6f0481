"""Starts a resident Spark server (Spark Connect) on loopback, for this user only. It ends with its parent process."""

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
from coset.batches.runners.children import free_ports
from coset.batches.runners.spark_settings import PYTHON, SPARK_SUBMIT, configuration, environment
from partitioning.commands import Repeat
from partitioning.errors import CosetError
from partitioning.kinds import Kind

# The setting in which a server says where its log is.
LOG_SETTING = "spark.coset.log"
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of a variable

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_READY_WITHIN_SECONDS = 60
_STOPPED_WITHIN_SECONDS = 5
_START_TRIES = 3
# Java's error if another process has taken the free port.
_TAKEN = "java.net.BindException"


@dataclass(frozen=True, slots=True)
class SparkServer:
    """A running server, with its address, such as `sc://127.0.0.1:15002`, and its token."""

    process: subprocess.Popen[bytes]
    port: int
    token: str
    log: Path

    @property
    def address(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that a client needs."""
        return {"SPARK_MASTER": self.address, TOKEN: self.token}

    def stop(self) -> None:
        children.stop(self.process, _STOPPED_WITHIN_SECONDS)


def start_spark(master: str, log: Path) -> SparkServer:
    """Start a server that runs tasks at `master`. Tasks get this process's environment.

    Raises CosetError if the server does not listen within a minute.
    """
    for _ in range(_START_TRIES):
        server = _start_once(master, log)
        if _listens(server):
            return server
        server.stop()
        if _TAKEN not in log.read_text(encoding="utf-8", errors="replace"):
            break
    what, then = "the Spark server does not start", ("read the log, then ", Repeat())
    raise CosetError.of(Kind.SPARK, what, str(log), then, log=log)


def _start_once(master: str, log: Path) -> SparkServer:
    (port,), token = free_ports(1), secrets.token_urlsafe(32)
    settings = configuration(master) | {
        **listening_on(port),
        "spark.app.name": "coset",
        # The session never ends, because its Python processes have imported what tasks need.
        "spark.connect.session.manager.defaultSessionTimeout": "-1",
        # Jobs of a killed client wait for the next one, and their answers are kept from the first.
        "spark.connect.execute.manager.detachedTimeout": "15min",
        "spark.connect.execute.reattachable.observerRetryBufferSize": "100m",
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
        # Everybody on this machine can read arguments, but not an environment.
        process = children.start(command, os.environ | environment(settings[PYTHON]) | {TOKEN: token}, to)
    return SparkServer(process, port, token, log)


def _listens(server: SparkServer) -> bool:
    deadline = time.monotonic() + _READY_WITHIN_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        # Only this server may listen there: clients show it the token.
        with suppress(psutil.Error):
            for at in psutil.Process(server.process.pid).net_connections("tcp"):
                if at.status == psutil.CONN_LISTEN and at.laddr.port == server.port:
                    return True
        time.sleep(0.1)
    return False


def listening_on(port: int) -> Mapping[str, str]:
    """The settings of a server that listens on this port of loopback."""
    return {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
