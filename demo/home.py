"""The demo's home: one folder that keeps its S3 server's data, Airflow's state, logs and Data Docs."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from coset.batches.runners.spark_server import TOKEN, start_spark
from coset.cli.output import step
from demo.s3_server import set_for_a_while, start_server
from partitioning.errors import Refused
from partitioning.kinds import Kind

STORE = "s3://coset"
LANDING = "s3://landing"
SOURCE = f"{LANDING}/topics"

_REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Home:
    """The absolute folder. Only one process at a time may serve it."""

    folder: Path

    @property
    def docs(self) -> Path:
        return self.folder / "docs"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def airflow(self) -> Path:
        return self.folder / "airflow"

    @contextmanager
    def served(self, meanwhile: Callable[[], object] = lambda: None) -> Iterator[Mapping[str, str]]:
        """Run the S3 server. The variables of its clients are put into this process's environment, and yielded.
        `meanwhile` is done while it starts.

        Raises Refused if another process serves the same folder, or if the server does not answer.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                what, then = "another process serves this folder", "end it first, then run again"
                raise Refused.of(Kind.DEMO, what, str(self.folder), then, folder=self.folder) from error
            running = self.folder / "server.pid"
            _stop_orphan(running, self.folder)
            with step("start S3") as said:
                server = start_server(self.folder / "s3", ("landing", "coset"), meanwhile)
                said.append(f"data in {self.folder / 's3'}")
            running.write_text(str(server.process.pid))
            variables = {**server.environment, "COSET_STORE": STORE, "COSET_DOCS": str(self.docs)}
            try:
                with set_for_a_while(variables):
                    yield variables
            finally:
                server.stop()
                running.unlink()

    @contextmanager
    def with_spark(self) -> Iterator[Mapping[str, str]]:
        """Run a Spark server, which ends with this process. Yields the variables of its clients, as `served`.

        Raises CosetError if it does not start.
        """
        with step("start Spark") as said:
            server = start_spark("local[*]", self.logs / "spark.log")
            said.append(f"log: {server.log}")
        try:
            with set_for_a_while(server.environment):
                yield server.environment
        finally:
            server.stop()

    @property
    def airflow_page(self) -> str:
        """The address of Airflow's page."""
        port = os.environ.get("AIRFLOW__API__PORT", "8080")
        return os.environ.get("AIRFLOW__API__BASE_URL", f"http://127.0.0.1:{port}")

    def airflow_environment(self) -> Mapping[str, str]:
        """The variables of Airflow: its own home, our DAGs, a page for this machine only, and the Spark server.

        `airflow standalone` starts its parts by name, so `PATH` begins with the folder that they are in. Tasks report
        to the page's address, which Airflow takes to be at port 8080 whatever its page's port is.
        """
        spark = {"conn_type": "spark", "host": os.environ["SPARK_MASTER"], "password": os.environ[TOKEN]}
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "AIRFLOW_HOME": str(self.airflow),
            "AIRFLOW__CORE__DAGS_FOLDER": str(_REPOSITORY / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(_REPOSITORY / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__BASE_URL": self.airflow_page,
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
        }


def _stop_orphan(running: Path, folder: Path) -> None:
    """Stop a server that was left running over this folder by a demo that was killed."""
    if not running.exists():
        return
    with suppress(psutil.NoSuchProcess):
        server = psutil.Process(int(running.read_text()))
        while f"-dir={folder / 's3' / 'data'}" in server.cmdline():
            server.kill()
            time.sleep(0.1)
    running.unlink()
