"""Airflow's API on the port that the compose file publishes, as a user's browser reaches it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from tests.compose.engine import Failed

_STARTED_WITHIN_SECONDS = 600
_ENDED_WITHIN_SECONDS = 900


class AirflowApi:
    """Asks Airflow as its admin."""

    def __init__(self, port: int) -> None:
        self._root = f"http://127.0.0.1:{port}"
        self._token = ""

    def wait_until_started(self, dag: str, password: Callable[[], str]) -> None:
        """Wait for the scheduler, log in, and wait for the DAG. Raises Failed if that takes too long."""
        self._token = ""
        deadline = time.monotonic() + _STARTED_WITHIN_SECONDS
        while time.monotonic() < deadline:
            try:
                if self._ask("GET", "/api/v2/monitor/health")["scheduler"]["status"] == "healthy":
                    login = {"username": "admin", "password": password()}
                    self._token = self._ask("POST", "/auth/token", login)["access_token"]
                    self._ask("GET", f"/api/v2/dags/{dag}")
                    return
            except (OSError, urllib.error.HTTPError):
                pass
            time.sleep(1)
        raise Failed(f"Airflow has not started within {_STARTED_WITHIN_SECONDS} seconds, or has no DAG {dag}")

    def run(self, dag: str, meanwhile: Callable[[], None]) -> list[dict[str, Any]]:
        """Start the DAG by hand and wait for its end; its task instances. Raises Failed if it does not succeed."""
        self.pause(dag, paused=False)
        return self.succeeded(dag, self.start(dag), meanwhile)

    def succeeded(self, dag: str, run: str, meanwhile: Callable[[], None]) -> list[dict[str, Any]]:
        """Wait for the end of a run; its task instances. Raises Failed if it does not succeed."""
        state, tasks = self.ended(dag, run, meanwhile), self.tasks(dag, run)
        if state != "success":
            told = ", ".join(f"{task['task_id']} {task['map_index']}: {task['state']}" for task in tasks)
            raise Failed(f"run {run} ended as {state}: {told}")
        return tasks

    def health(self) -> dict[str, str | None]:
        """How Airflow says that its parts are."""
        return {part: said["status"] for part, said in self._ask("GET", "/api/v2/monitor/health").items()}

    def pause(self, dag: str, *, paused: bool) -> None:
        """Let the DAG run by its schedule, or not."""
        self._ask("PATCH", f"/api/v2/dags/{dag}", {"is_paused": paused})

    def start(self, dag: str) -> str:
        """Start the DAG by hand; the id of the run."""
        return str(self._ask("POST", f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None})["dag_run_id"])

    def runs(self, dag: str) -> list[dict[str, Any]]:
        """The runs of a DAG, in the order of their times."""
        runs: list[dict[str, Any]] = self._ask("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=run_after")["dag_runs"]
        return runs

    def ended(self, dag: str, run: str, meanwhile: Callable[[], None]) -> str:
        """Wait for the end of a run; its state. Raises Failed if that takes too long."""
        deadline = time.monotonic() + _ENDED_WITHIN_SECONDS
        while (state := self._ask("GET", f"/api/v2/dags/{dag}/dagRuns/{run}")["state"]) in ("queued", "running"):
            if time.monotonic() > deadline:
                raise Failed(f"run {run} has not ended within {_ENDED_WITHIN_SECONDS} seconds")
            meanwhile()
        return str(state)

    def tasks(self, dag: str, run: str) -> list[dict[str, Any]]:
        """The task instances of a run."""
        tasks: list[dict[str, Any]]
        tasks = self._ask("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"]
        return tasks

    def clear(self, dag: str, run: str, *tasks: str, only_failed: bool = False) -> None:
        """Clear tasks of a run with what is behind them, as people do on the page."""
        asked = {"dag_run_id": run, "task_ids": tasks, "only_failed": only_failed, "include_downstream": True}
        self._ask("POST", f"/api/v2/dags/{dag}/clearTaskInstances", {**asked, "dry_run": False})

    def mark_failed(self, dag: str, run: str, task: str, index: int) -> None:
        """Mark a mapped copy of a task as failed, as people do on the page."""
        where = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/{index}"
        self._ask("PATCH", where, {"new_state": "failed"})

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._root + path, data, headers, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
            return json.load(answer)
