"""Airflow as people run it: each part a process of its own, over PostgreSQL, tasks in processes of the schedulers."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from coset.batches.runners import children
from coset.batches.runners.children import free_ports
from tests.compose.airflow_api import AirflowApi
from tests.started import kill_with_all_it_started

ROOT = Path(__file__).parents[1]
AIRFLOW = str(Path(sys.executable).with_name("airflow"))
SCHEDULERS = ("scheduler-0", "scheduler-1")
# How long one waits for the other scheduler to go on with what one that has died was at: both together at most.
DIED_AFTER = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
}


@dataclass
class Parts:
    """The parts that run; `folder` has their logs."""

    folder: Path
    environment: Mapping[str, str]
    api: AirflowApi
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *words: str) -> None:
        """Start a part under this name, by its words on Airflow's command line."""
        with (self.folder / f"{name}.log").open("ab") as to:
            self.running[name] = children.start([AIRFLOW, *words], self.environment, to)

    def start_scheduler(self, name: str) -> None:
        self.start(name, "scheduler", "--skip-serve-logs")

    def at(self, task: str) -> tuple[str, psutil.Process] | None:
        """The scheduler that has a task run, by the task's id, and the process of the task. None if none has."""
        for name in SCHEDULERS:
            for process in psutil.Process(self.running[name].pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if " ".join(process.cmdline()).strip() == f"airflow worker -- {task}":
                        return name, process
        return None

    def kill(self, scheduler: str) -> None:
        """Kill a scheduler and all that it started, as if its host died."""
        kill_with_all_it_started(self.running.pop(scheduler))

    def said(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"{log}:\n{log.read_text(errors='replace')[-3000:]}" for log in self.folder.glob("*.log"))


@contextmanager
def airflow_parts(folder: Path, database: str, dag: str, variables: Mapping[str, str]) -> Iterator[Parts]:
    """All parts of Airflow with two schedulers, once they know the DAG of the file `dag` in the folder `dags`."""
    (port,) = free_ports(1)
    page = f"http://127.0.0.1:{port}"
    settings = {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "2",
        # No file changes.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{page}/execution/",
        "AIRFLOW__CORE__FERNET_KEY": "",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
        "AIRFLOW__API__BASE_URL": page,
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(),
        **DIED_AFTER,
        **variables,
    }
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    parts = Parts(folder, bare | settings, AirflowApi(port))
    subprocess.run([AIRFLOW, "db", "migrate"], env=parts.environment, check=True, capture_output=True)
    try:
        parts.start("api", "api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1")
        parts.start("dags", "dag-processor")
        parts.start("triggers", "triggerer", "--skip-serve-logs")
        for name in SCHEDULERS:
            parts.start_scheduler(name)
        passwords = folder / "simple_auth_manager_passwords.json.generated"
        parts.api.wait_until_started(dag, lambda: str(json.loads(passwords.read_text())["admin"]))
        yield parts
    finally:
        for process in parts.running.values():
            children.stop(process, within_seconds=10)
