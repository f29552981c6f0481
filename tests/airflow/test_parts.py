"""Airflow as people run it, over PostgreSQL and with two schedulers: batches are published once, whoever dies."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.connect.proto import GetStatusResponse

from coset.batches.runners.connection import connected
from coset.batches.runners.spark_server import SparkServer
from coset.sources.s3 import storage_options
from partitioning.documents.stores import store_at
from tests.airflow_parts import ROOT, SCHEDULERS, Parts, airflow_parts
from tests.landed import land_table
from tests.postgres import postgres
from tests.small import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
BY_HAND, BY_MINUTE = "by_hand", "by_minute"
ROWS, KEYS = 200, 20
DAGS = '''"""Airflow: the DAGs of two pipelines of the tests, one of which runs every minute."""

import os
from datetime import timedelta

from coset import Pipeline, Settings
from coset.airflow import coset_dag

for name, schedule in {"by_hand": None, "by_minute": "* * * * *"}.items():
    pipeline = Pipeline(name, source=os.environ["PARTS_SOURCE"])
    views = pipeline.stream(f"views_{name}", key="k", partitions=4)
    held = views.process("tests.functions:held", {"k": "VARCHAR", "v": "BIGINT"})
    held.aggregate("count(*) AS n, sum(v)::BIGINT AS v").write(name)
    again = {"retry_delay": timedelta(seconds=1)}
    globals()[name] = coset_dag(pipeline, schedule=schedule, settings=Settings(groups=2), default_args=again)
'''


@dataclass
class Deployed:
    """Airflow's parts, and what was landed for it."""

    parts: Parts
    source: str
    store: str
    spark: SparkServer
    landed: dict[str, int] = field(default_factory=dict)

    @property
    def gate(self) -> Path:
        """While this file is there, tasks wait."""
        return self.parts.folder / "gate"

    def land(self, dag: str) -> None:
        """Land as many records as ever, each another than all before it."""
        first = self.landed.get(dag, 0)
        rows = {"k": [f"key-{n % KEYS}" for n in range(ROWS)], "v": range(first, first + ROWS)}
        table = pa.table(rows | {"gate": [str(self.gate)] * ROWS})
        land_table(table, f"views_{dag}", self.source, key="k", partitions=4)
        self.landed[dag] = first + ROWS

    def held(self) -> tuple[str, str, psutil.Process]:
        """Land records and start a run; once a task of it waits, gives it, the scheduler that has a group of it run,
        and the process of that."""
        self.land(BY_HAND)
        self.gate.touch()
        self.gate.with_suffix(".met").unlink(missing_ok=True)
        run = self.parts.api.start(BY_HAND)
        assert until(self.gate.with_suffix(".met").exists, within=300), self.parts.said()
        assert until(lambda: self.asked_for() == 2), "the jobs of both groups are on the server"
        running = [task["id"] for task in self.groups(run) if task["state"] == "running"]
        found = next(at for each in running if (at := self.parts.at(each)))
        return run, *found

    def ended(self, run: str, dag: str = BY_HAND) -> str:
        """Open the gate, and wait for the end of a run; its state."""
        self.gate.unlink(missing_ok=True)
        return self.parts.api.ended(dag, run, lambda: time.sleep(0.5))

    def asked_for(self) -> int:
        """How many jobs the Spark server has that have not ended."""
        with connected(self.spark.address, self.spark.token) as session:
            known = session.client._get_operation_statuses().operation_statuses
        return [job.state for job in known].count(GetStatusResponse.OperationStatus.OPERATION_STATE_RUNNING)

    def commits(self) -> int:
        """How many batches the table has that are published."""
        table, options = f"{self.store}/tables/{BY_HAND}", storage_options()
        return DeltaTable(table, storage_options=options).version() if DeltaTable.is_deltatable(table, options) else 0

    def check_published(self, dag: str = BY_HAND) -> None:
        """All that was landed is in the table, once."""
        table = DeltaTable(f"{self.store}/tables/{dag}", storage_options=storage_options())
        rows, landed = table.to_pyarrow_table(), self.landed[dag]
        assert table.version() == landed // ROWS, "one commit for each batch"
        assert (sum(rows["n"].to_pylist()), sum(rows["v"].to_pylist())) == (landed, sum(range(landed)))

    def check_reconnected(self, run: str) -> None:
        """The second try of a group went on with the job of the first, and no task wrote twice."""
        logs = self.parts.folder.glob(f"logs/dag_id={BY_HAND}/run_id={run}/task_id=run/*/attempt=2.log")
        assert any("reconnects to the job that was left on the Spark server" in log.read_text() for log in logs)
        table = DeltaTable(f"{self.store}/tables/{BY_HAND}", storage_options=storage_options())
        ours = f"/plan-{table.version() - 1}/"
        published = {uri.rpartition("/tables/")[2] for uri in table.file_uris() if ours in uri}
        stored = {entry.key.removeprefix("tables/") for entry in store_at(self.store).list(f"tables/{BY_HAND}/")}
        assert {key for key in stored if ours in key} == published

    def groups(self, run: str) -> list[dict[str, Any]]:
        """The mapped copies of a run's task `run`."""
        return [task for task in self.parts.api.tasks(BY_HAND, run) if task["task_id"] == "run"]

    def tries(self, run: str) -> int:
        """How often the group of a run was tried that was tried most."""
        return max(int(task["try_number"]) for task in self.groups(run))


@pytest.fixture(scope="module")
def deployed(spark_server: SparkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder, place = tmp_path_factory.mktemp("parts"), uuid.uuid4().hex
    source, store = f"s3://test/{place}/topics", f"s3://test/{place}/store"
    (folder / "dags").mkdir()
    (folder / "dags" / "parts.py").write_text(DAGS)
    connection = {"conn_type": "spark", "host": spark_server.address, "password": spark_server.token}
    variables = {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
        "COSET_DOCS": str(folder / "docs"),
        "COSET_STORE": store,
        "PARTS_SOURCE": source,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    with postgres() as database, airflow_parts(folder, database, BY_HAND, variables) as parts:
        parts.api.pause(BY_HAND, paused=False)
        yield Deployed(parts, source, store, spark_server)


def test_a_run_by_the_schedule_publishes_what_was_landed_and_all_parts_are_well(deployed: Deployed) -> None:
    api = deployed.parts.api
    deployed.land(BY_MINUTE)
    api.pause(BY_MINUTE, paused=False)
    assert until(lambda: bool(api.runs(BY_MINUTE)), within=120), deployed.parts.said()
    (run, *_) = api.runs(BY_MINUTE)
    assert deployed.ended(run["dag_run_id"], BY_MINUTE) == "success"
    api.pause(BY_MINUTE, paused=True)
    deployed.check_published(BY_MINUTE)
    assert set(api.health().values()) == {"healthy"}
    assert run["run_type"] == "scheduled"
    begun = datetime.fromisoformat(run["run_after"])
    for task in api.tasks(BY_MINUTE, run["dag_run_id"]):
        if task["end_date"]:
            spent = [
                (datetime.fromisoformat(task[name]) - begun).total_seconds() for name in ("start_date", "end_date")
            ]
            print(f"{task['task_id']} {task['map_index']}: from {spent[0]:.1f} s to {spent[1]:.1f} s after its time")


def test_a_scheduler_that_is_killed_in_mid_run_with_its_tasks_costs_no_record_and_doubles_none(
    deployed: Deployed,
) -> None:
    (run, killed, _), parts = deployed.held(), deployed.parts
    began = time.monotonic()
    parts.kill(killed)
    assert deployed.ended(run) == "success", parts.said()
    print(f"the run has ended {time.monotonic() - began:.0f} s after {killed} was killed")
    assert deployed.tries(run) == 2
    deployed.check_published()
    deployed.check_reconnected(run)
    parts.start_scheduler(killed)


def test_a_scheduler_that_is_stopped_with_its_tasks_and_goes_on_once_it_was_given_up_doubles_none(
    deployed: Deployed,
) -> None:
    (run, name, task), parts = deployed.held(), deployed.parts
    (other,) = set(SCHEDULERS) - {name}
    scheduler, log = psutil.Process(parts.running[name].pid), parts.folder / f"{other}.log"
    stopped, given_up = [scheduler, *scheduler.children(recursive=True)], log.read_text().count("Reset the following")
    for process in stopped:
        process.suspend()
    assert until(lambda: log.read_text().count("Reset the following") > given_up, within=120), parts.said()
    # It may have stopped while it held rows of Airflow's database that others wait for.
    for process in stopped:
        process.resume()
    assert deployed.ended(run) == "success", parts.said()
    # The one that goes on may give up what the other began, if that is slow to answer.
    assert deployed.tries(run) >= 2
    deployed.check_published()
    assert until(lambda: not task.is_running(), within=120), parts.said()
    deployed.check_published()


def test_a_task_whose_process_is_killed_is_tried_again(deployed: Deployed) -> None:
    run, _, process = deployed.held()
    process.kill()
    assert deployed.ended(run) == "success", deployed.parts.said()
    assert deployed.tries(run) == 2
    deployed.check_published()
    deployed.check_reconnected(run)


def test_what_was_marked_failed_publishes_nothing_until_it_is_cleared_and_cleared_again_changes_nothing(
    deployed: Deployed,
) -> None:
    before = deployed.commits()
    (run, *_), api = deployed.held(), deployed.parts.api
    api.mark_failed(BY_HAND, run, "run", 0)
    assert deployed.ended(run) == "failed"
    assert deployed.commits() == before
    api.clear(BY_HAND, run, "run", only_failed=True)
    assert deployed.ended(run) == "success", deployed.parts.said()
    deployed.check_published()
    api.clear(BY_HAND, run, "run")
    assert deployed.ended(run) == "success"
    deployed.check_published()
