"""The DAGs of a project: all of them from one file, in the environment that COSET_ENV names."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coset.project.project import scheduled_run
from partitioning.commands import Run
from partitioning.errors import Refused

PROJECT = """
pipelines = ["pipelines"]

[environments.dev]
store = "dev"

[environments.prod]
production = true
store = "s3://lake/coset"
source = "s3://live/topics"
"""
PIPELINE = """
from coset import Pipeline

pipeline = Pipeline("{name}", source="s3://landing/topics")
pipeline.stream("orders", key="customer", partitions=2).aggregate("count(*) AS n", name="counted").write("{name}")
"""


@pytest.fixture
def dag_file(airflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DAG file of a project with two pipelines, where Airflow is told nothing but the environment."""
    (tmp_path / "coset.toml").write_text(PROJECT)
    (tmp_path / "pipelines").mkdir()
    for name in ("spent", "visits"):
        (tmp_path / "pipelines" / f"{name}.py").write_text(PIPELINE.format(name=name))
    for name in [name for name in os.environ if name.startswith("COSET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COSET_ENV", "prod")
    for name in ("COSET_STORE", "COSET_DOCS"):
        # So that it is taken out again, whoever sets it.
        monkeypatch.setenv(name, "")
    return tmp_path / "dags.py"


def test_a_project_has_the_dags_of_all_its_pipelines(dag_file: Path) -> None:
    from coset.airflow import coset_dags
    from coset.airflow.deployment import store_root
    from coset.airflow.shown import shown

    made: dict[str, Any] = {"__file__": str(dag_file)}
    coset_dags(made, schedule="@hourly", schedules={"visits": "@daily"}, verify="@weekly", tags=["shop"])
    dags = {name: dag for name, dag in made.items() if name != "__file__"}
    assert set(dags) == {
        f"{name}{kind}" for name in ("spent", "visits") for kind in ("", "_backfill", "_undo", "_verify")
    }
    schedules = [dags[name].schedule for name in ("spent", "visits", "visits_verify")]
    assert schedules == ["@hourly", "@daily", "@weekly"]
    assert store_root() == "s3://lake/coset"
    assert shown().line(Run("spent")) == "coset run spent --store s3://lake/coset --env prod"


@given(
    schedule=st.sampled_from(
        ["@hourly", "@daily", "@weekly", "30 6 * * 1-5", "*/7 * * * *", "0 4 1,15 * *", "0 0 29 2 *"]
    ),
    now=st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_dag_by_the_schedule_of_the_project_runs_when_the_project_says(
    dag_file: Path, schedule: str, now: datetime
) -> None:
    from airflow.sdk import DAG, CronTriggerTimetable

    from coset.airflow.schedule import scheduled_run as run_of_dag

    by_project = scheduled_run(schedule, now)
    ran = datetime.fromtimestamp(by_project.ran / 1000, UTC)
    by_dag = run_of_dag(DAG("spent", schedule=CronTriggerTimetable(schedule, timezone="UTC")), ran)
    assert (by_project.ran, by_project.next) == (by_dag.ran, by_dag.next)


def test_dags_run_by_the_schedules_of_the_project(dag_file: Path) -> None:
    from airflow.sdk import CronTriggerTimetable

    from coset.airflow import coset_dags

    scheduled = 'schedule = "@hourly"\nschedules = {visits = ""}\n'
    (dag_file.parent / "coset.toml").write_text(f"{PROJECT}{scheduled}")
    made: dict[str, Any] = {"__file__": str(dag_file)}
    coset_dags(made, schedules={"visits": "@daily"})
    assert made["spent"].timetable == CronTriggerTimetable("@hourly", timezone="UTC")
    assert made["visits"].schedule == "@daily"
    with pytest.raises(Refused, match=r"spent has two schedules: '@hourly' in coset\.toml, and '@daily' here"):
        coset_dags(made, schedule="@daily")
    with pytest.raises(Refused, match="there is no pipeline 'visit' whose schedule this could be"):
        coset_dags(made, schedules={"visit": "@daily"})


def test_the_web_server_finds_the_project_around_the_dags(dag_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coset.airflow.deployment import store_root

    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(dag_file.parent / "pipelines"))
    assert store_root() == "s3://lake/coset"


def test_a_pipeline_that_cannot_be_loaded_fails_the_file(dag_file: Path) -> None:
    from coset.airflow import coset_dags

    (dag_file.parent / "pipelines" / "broken.py").write_text("1 / 0\n")
    with pytest.raises(Refused, match="the pipeline's file fails: ZeroDivisionError"):
        coset_dags({"__file__": str(dag_file)})
