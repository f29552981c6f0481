"""The wheel in each Python that is promised, and with the oldest and newest of what it depends on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.wheels import ROOT, UV, company_in, installed_in, of_released, run

pytestmark = pytest.mark.long
NEWEST_PYTHON = "3.13"
ALL_STEPS_TEST = """

def test_all_steps() -> None:
    from coset.testing import run

    clicks = [
        {"member": f"m-{click % 3}", "click": click, "clicked": 1000 * click, "amount": click, "page": f"p-{click % 2}"}
        for click in range(9)
    ]
    members = [{"member": f"m-{number}", "town": "here"} for number in range(3)]
    published = run(pipeline, {"clicks": clicks, "members": members}, {"clicks": clicks[-3:], "members": []})
    assert published["totals"] == [
        {"member": "m-0", "amount": 15, "n": 4},
        {"member": "m-1", "amount": 19, "n": 4},
        {"member": "m-2", "amount": 23, "n": 4},
    ]
    assert [row["click"] for row in published["newest"]] == [6, 7, 8]
    assert (len(published["clicks_once"]), len(published["named"])) == (9, 12)
"""


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


@pytest.mark.parametrize("end", ["lowest-direct", "highest"])
def test_a_new_repository_works_at_both_ends_of_what_it_depends_on(
    end: str, wheel: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # What is highest only the registry says.
    pinned = tmp_path / "pinned.txt"
    run([UV, "pip", "compile", "--quiet", "--resolution", end, ROOT / "pyproject.toml", "-o", pinned], tmp_path)
    there = installed_in(tmp_path_factory.mktemp("end"), f"coset @ {wheel.as_uri()}", "pytest", pinned=pinned)
    run([there / "coset", "init", "shop"], tmp_path)
    run([there / "coset", "land", "spent", "orders", "orders.csv"], tmp_path / "shop")
    assert "Batch 0 is published" in run([there / "coset", "run", "spent"], tmp_path / "shop")
    (tmp_path / "shop/tests/test_all_steps.py").write_text(f"{of_released('s3://landing/topics')}{ALL_STEPS_TEST}")
    told = run([there / "python", "-W", "error::UserWarning", "-m", "pytest", "-q"], tmp_path / "shop")
    assert re.search(r"^\d+ passed", told, re.M)


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
