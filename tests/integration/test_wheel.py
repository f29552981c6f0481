"""What `pip install` brings: the wheel of a clone, in an environment of its own, beside a company's own packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from packaging.requirements import Requirement

from tests.landed import land_table

ROOT = Path(__file__).parents[2]
BROUGHT = {"coset", "expectations", "partitioning", "spark_jobs"}
# Names that a company's own repository has.
OWN = ("batches", "bench", "cli", "dags", "demo", "plugins", "sources", "tests")
PIPELINE = '''"""How often each user looked."""

from coset import Pipeline
from sources.places import LANDING

pipeline = Pipeline("views", source=LANDING)
pipeline.stream("views", key="user", partitions=3).aggregate("count(*) AS n", name="counts").write("counts")
'''
DAG = '''"""Airflow: the DAG of views."""

from coset import Settings
from coset.airflow import Place, coset_dag
from dags.pipelines.views import pipeline

dag = coset_dag(pipeline, settings=Settings(groups=1), places={"here": Place()})
'''


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the clone, made from what git would commit of it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in files():
        (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "clone" / name)
    run(
        [Path(sys.executable).with_name("uv"), "build", "--quiet", "--wheel", "--out-dir", folder / "made", "clone"],
        folder,
    )
    (made,) = (folder / "made").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel and what it depends on."""
    return installed_in(tmp_path_factory.mktemp("bare"), f"coset @ {wheel.as_uri()}")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel with its extras."""
    return installed_in(tmp_path_factory.mktemp("installed"), f"coset[airflow,kafka] @ {wheel.as_uri()}")


def installed_in(folder: Path, what: str) -> Path:
    uv = Path(sys.executable).with_name("uv")
    run([uv, "venv", "--quiet", "--python", sys.executable, folder], folder)
    pinned = ["--constraint", ROOT / "requirements.txt"]
    run([uv, "pip", "install", "--quiet", *pinned, "--python", folder / "bin/python", what], folder)
    return folder / "bin"


@pytest.fixture
def company(tmp_path: Path) -> Path:
    """A repository with packages of its own that have the names of folders here, and records that have landed."""
    for name in OWN:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "sources/places.py").write_text(f"LANDING = 'file://{tmp_path}/landing'\n")
    (tmp_path / "dags/pipelines").mkdir()
    (tmp_path / "dags/pipelines/__init__.py").write_text("")
    (tmp_path / "dags/pipelines/views.py").write_text(PIPELINE)
    (tmp_path / "dags/views.py").write_text(DAG)
    table = pa.table({"user": [f"user-{number % 7}" for number in range(100)]})
    land_table(table, "views", f"file://{tmp_path}/landing", key="user", partitions=3)
    return tmp_path


def files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().splitlines() if (ROOT / name).is_file()]


def run(words: list[object], folder: Path, **variables: str) -> str:
    left = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "AWS_", "COSET_"))}
    environment = left | {"PYTHONPATH": str(folder)} | variables
    done = subprocess.run([*map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_has_four_names_at_its_top_and_every_file_below_them(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        brought = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in brought} == BROUGHT
    assert brought == {name for name in files() if name.partition("/")[0] in BROUGHT}


def test_what_is_run_can_be_run_where_it_is_installed(installed: Path) -> None:
    (java,) = installed.parent.glob("lib/python*/site-packages/spark_jobs/java/bin/java")
    assert os.access(java, os.X_OK)


def test_a_trial_needs_no_extra(bare: Path, company: Path) -> None:
    assert [*bare.parent.rglob("pyspark"), *bare.parent.rglob("airflow"), *bare.parent.rglob("confluent_kafka")] == [
        *bare.parent.rglob("site-packages/coset/airflow")
    ]
    assert "Batch 0 is published" in run([bare / "coset", "run", "views", "--runner", "local"], company)
    assert "Lag: 0" in run([bare / "coset", "status", "views"], company)
    assert "counts, version 1: 7 rows" in run([bare / "coset", "rows", "views"], company)
    assert "demo" not in run([bare / "coset", "--help"], company)


def test_a_new_repository_needs_no_extra_either(bare: Path, tmp_path: Path) -> None:
    run([bare / "coset", "init", "shop"], tmp_path)
    shop = tmp_path / "shop"
    run([bare / "coset", "land", "spent", "orders", "orders.csv"], shop)
    assert "Batch 0 is published" in run([bare / "coset", "run", "spent", "--runner", "local"], shop)
    assert "spent, version 1: 3 rows" in run([bare / "coset", "rows", "spent"], shop)
    code = (
        "from coset.testing import run\n"
        "from pipelines.spent import pipeline\n"
        "print(run(pipeline, {'orders': [{'customer': 'a', 'amount': 1}]})['spent'])\n"
    )
    told = run([bare / "python", "-c", code], shop, PYTHONPATH=str(shop / "dags"))
    assert told == "[{'customer': 'a', 'orders': 1, 'spent': 1}]\n"


@pytest.mark.long
def test_a_company_runs_its_own_pipeline_on_spark(installed: Path, company: Path) -> None:
    assert "Batch 0 is published" in run([installed / "coset", "run", "views", "--master", "local[2]"], company)


@pytest.mark.long
def test_a_companys_airflow_has_the_dag_and_the_plugin(installed: Path, company: Path) -> None:
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
    told = run([installed / "python", "-W", "ignore", "-c", code], company, **variables)
    assert told.split()[-2:] == ["views", "coset"]


def test_what_a_wheel_depends_on_is_what_is_pinned_here() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    pinned = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.M))
    wrong = [
        text
        for text in listed
        if (needed := Requirement(text)).name != "coset" and pinned.get(needed.name, "0") not in needed.specifier
    ]
    assert wrong == []
