"""Makes the class archive by starting Spark once and using it as the runners do.

`make setup` calls it: python -m coset.batches.runners.rehearsal
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from coset.batches.runners.children import free_ports
from coset.batches.runners.connection import Gone, connected
from coset.batches.runners.spark import application
from coset.batches.runners.spark_server import TOKEN, listening_on
from coset.batches.runners.spark_settings import (
    ARCHIVES,
    archive_file,
    configuration,
    environment,
    log_file,
    making_option,
    outdated,
)
from partitioning.errors import CosetError
from spark_jobs.group import Sent, answer, pieces
from spark_jobs.on_connect import run_orders
from spark_jobs.on_spark import tasks_of
from spark_jobs.worker_code import wanted_for

_MASTER = "local[1]"
# The task fails on this order, which does not matter here.
_NO_WORK = [Sent([b"{}"], 0)]


def make_archive(folder: Path = ARCHIVES) -> str:
    """Make the archive unless it exists, and return a sentence. Spark starts without one too, but slower."""
    archive = archive_file(os.environ | environment(), folder)
    if archive is None:
        return "No class archive is made: there is no Java, or its version is unknown"
    if archive.exists():
        return f"The class archive exists: {archive}"
    folder.mkdir(parents=True, exist_ok=True)
    for old in outdated(folder):
        old.unlink()
    log = log_file("rehearsal")
    with tempfile.TemporaryDirectory(dir=folder) as workshop:
        unfinished = Path(workshop) / archive.name
        try:
            _rehearse(unfinished, log)
            unfinished.replace(archive)
        except (PySparkException, Py4JError, CosetError, Gone, OSError) as error:
            return f"No class archive is made: {error}; see {log}"
    log.unlink()
    return f"The class archive is made: {archive}"


def _rehearse(archive: Path, log: Path) -> None:
    """Run a job in an application and one on a Spark server, in one JVM that writes the archive when it ends."""
    (port,), token = free_ports(1), secrets.token_urlsafe(32)
    os.environ.update({**environment(sys.executable), TOKEN: token})
    settings = {
        **configuration(_MASTER, archive=making_option(archive)),
        **listening_on(port),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    }
    with application(_MASTER, settings, log) as spark:
        tasks_of(spark, "rehearsal", str(log))(_NO_WORK, wanted_for(()))
        with connected(f"sc://127.0.0.1:{port}", token) as client:
            run_orders(client, pieces(_NO_WORK, 1), answer)


if __name__ == "__main__":
    print(make_archive())
