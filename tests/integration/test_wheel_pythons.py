"""The wheel in each Python that is promised."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wheels import company_in, installed_in, run

pytestmark = pytest.mark.long
NEWEST_PYTHON = "3.13"


@pytest.fixture(scope="module")
def newest(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as `installed`, of the newest Python that is promised."""
    return installed_in(
        tmp_path_factory.mktemp("newest"), f"coset[airflow,kafka] @ {wheel.as_uri()}", version=NEWEST_PYTHON
    )


@pytest.fixture
def company(tmp_path: Path) -> Path:
    """A repository with packages of its own that have the names of folders here, and records that have landed."""
    return company_in(tmp_path)


def test_a_trial_runs_on_the_python_between(
    wheel: Path, company: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there = installed_in(tmp_path_factory.mktemp("between"), f"coset @ {wheel.as_uri()}", version="3.12")
    assert run([there / "python", "--version"], company).startswith("Python 3.12.")
    assert "Batch 0 is published" in run([there / "coset", "run", "views", "--runner", "local"], company)
    assert "counts, version 1: 7 rows" in run([there / "coset", "rows", "views"], company)


def test_a_company_runs_its_own_pipeline_on_spark(newest: Path, company: Path) -> None:
    assert run([newest / "python", "--version"], company).startswith(f"Python {NEWEST_PYTHON}.")
    assert "Batch 0 is published" in run([newest / "coset", "run", "views", "--master", "local[2]"], company)


def test_a_companys_airflow_has_the_dag_and_the_plugin(newest: Path, company: Path) -> None:
    home = company / "airflow"
    variables = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(company / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(company / "plugins"),
    }
    code = (
        "from airflow.dag_processing.dagbag import DagBag\n"
        "from airflow import plugins_manager\n"
        "bag = DagBag()\n"
        "assert bag.import_errors == {}, bag.import_errors\n"
        "print(*bag.dags, *(plugin['name'] for plugin in plugins_manager.get_plugin_info()))\n"
    )
    told = run([newest / "python", "-W", "ignore", "-c", code], company, **variables)
    assert told.split()[-2:] == ["views", "coset"]
