"""The DAGs of a project: all of them from one file, in the environment that COSET_ENV names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

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
    coset_dags(made, schedule="@hourly", schedules={"visits": "@daily"}, tags=["shop"])
    dags = {name: dag for name, dag in made.items() if name != "__file__"}
    assert set(dags) == {f"{name}{kind}" for name in ("spent", "visits") for kind in ("", "_backfill", "_undo")}
    assert (dags["spent"].schedule, dags["visits"].schedule) == ("@hourly", "@daily")
    assert store_root() == "s3://lake/coset"
    assert shown().line(Run("spent")) == "coset run spent --env prod"


def test_the_web_server_finds_the_project_around_the_dags(dag_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coset.airflow.deployment import store_root

    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(dag_file.parent / "pipelines"))
    assert store_root() == "s3://lake/coset"


def test_a_pipeline_that_cannot_be_loaded_fails_the_file(dag_file: Path) -> None:
    from coset.airflow import coset_dags

    (dag_file.parent / "pipelines" / "broken.py").write_text("1 / 0\n")
    with pytest.raises(Refused, match="the pipeline's file fails: ZeroDivisionError"):
        coset_dags({"__file__": str(dag_file)})
