"""What `pip install` brings: the wheel of a clone, in an environment of its own, beside a company's own packages."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from inspect import getsource
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from packaging.requirements import Requirement

from tests.landed import land_table
from tests.offline_first import installing
from tests.released import clicks, land, place, restore, shop

if TYPE_CHECKING:
    from demo.s3_server import S3Server

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
BROUGHT = {"coset", "expectations", "partitioning", "spark_jobs"}
CONSTRAINTS = sorted(path.name for path in (ROOT / "constraints").iterdir())
NEWEST_PYTHON = "3.13"
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
# What it adds to the repository that `coset init` wrote: a pipeline with a function of its own, and its test.
SCORES = '''"""How each customer scores."""

import pyarrow as pa

from coset import Pipeline


def points(orders: pa.Table) -> pa.Table:
    """Ten points for each unit that was spent."""
    return pa.table({"customer": orders["customer"], "points": [10 * each for each in orders["amount"].to_pylist()]})


pipeline = Pipeline("scores", source="s3://landing/topics")
orders = pipeline.stream("orders", key="customer", partitions=4)
orders.process(points, {"customer": "VARCHAR", "points": "BIGINT"}, name="scored").write("scores", lineage=False)
'''
SCORES_TEST = '''"""How customers score."""

from coset.testing import run
from pipelines.scores import pipeline


def test_each_unit_gives_ten_points() -> None:
    published = run(pipeline, {"orders": [{"customer": "ann", "amount": 3}]})
    assert published["scores"] == [{"customer": "ann", "points": 30}]
'''
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
# Every file that Python opens below a folder, in any process of an environment, is written down.
WATCH = (
    "import os, sys; sys.addaudithook(lambda event, its: event == 'open' and isinstance(its[0], str) "
    "and os.path.abspath(its[0]).startswith({below!r}) "
    "and os.write(os.open({opened!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND), (its[0] + chr(10)).encode()))\n"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the clone, made from what git would commit of it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in files():
        (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "clone" / name)
    uv("build", "--quiet", "--wheel", "--out-dir", folder / "made", folder / "clone")
    (made,) = (folder / "made").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel and what it depends on."""
    return installed_in(tmp_path_factory.mktemp("bare"), f"coset @ {wheel.as_uri()}")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel with its extras."""
    return installed_in(tmp_path_factory.mktemp("installed"), f"coset[airflow,kafka] @ {wheel.as_uri()}", "pytest")


def installed_in(folder: Path, *what: str, version: str = "3.11", pinned: Path | None = None) -> Path:
    pinned = pinned or ROOT / f"constraints/constraints-{version}.txt"
    uv("venv", "--quiet", "--python", interpreter(version), folder)
    uv("pip", "install", "--quiet", "--constraint", pinned, "--python", folder / "bin/python", *what)
    if interpreter(version) == Path(sys.executable):
        link_compiled(folder)
    return folder / "bin"


def uv(*words: object) -> None:
    done = installing([UV, *words], ROOT)
    assert done.returncode == 0, done.stderr


def interpreter(version: str) -> Path:
    """The interpreter of a version of Python, as pyenv installs it or on the path."""
    if sys.version.startswith(f"{version}."):
        return Path(sys.executable)
    found = [
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python"),
        *map(Path, filter(None, [shutil.which(f"python{version}")])),
    ]
    assert found, f"install Python {version}: it is tested too"
    return found[0]


def link_compiled(folder: Path) -> None:
    """Spare an environment the compiling of what is compiled in this one; Python takes what is of the same source."""
    (there,) = folder.glob("lib/python*/site-packages")
    here = Path(pa.__file__).parents[1]
    for package in here.iterdir():
        for compiled in package.rglob("*.pyc") if (there / package.name).is_dir() else ():
            if (source := there / compiled.relative_to(here)).parent.parent.is_dir() and not source.exists():
                source.parent.mkdir(exist_ok=True)
                source.hardlink_to(compiled)


@pytest.fixture(scope="module")
def newest(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as `installed`, of the newest Python that is promised."""
    return installed_in(
        tmp_path_factory.mktemp("newest"), f"coset[airflow,kafka] @ {wheel.as_uri()}", version=NEWEST_PYTHON
    )


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


def of_released(source: str) -> str:
    """The code of a pipeline with all steps that keep something, as released versions ran it."""
    head = "from datetime import timedelta\n\nfrom coset import Pipeline\n\n\n"
    return f'{head}{getsource(shop)}\n\npipeline = shop("{source}")\n'


def files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().splitlines() if (ROOT / name).is_file()]


def rows(environment: Path, folder: Path, pipeline: str, table: str, **variables: str) -> list[dict[str, Any]]:
    told = run([environment / "coset", "rows", pipeline, table, "--limit", 100, "--json"], folder, **variables)
    (shown,) = json.loads(told)
    return shown["first"]


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


def test_what_is_run_can_be_run_where_it_is_installed(bare: Path) -> None:
    (java,) = bare.parent.glob("lib/python*/site-packages/spark_jobs/java/bin/java")
    assert os.access(java, os.X_OK)


def test_a_trial_needs_no_extra(bare: Path, company: Path) -> None:
    assert [*bare.parent.rglob("pyspark"), *bare.parent.rglob("airflow"), *bare.parent.rglob("confluent_kafka")] == [
        *bare.parent.rglob("site-packages/coset/airflow")
    ]
    assert "Batch 0 is published" in run([bare / "coset", "run", "views", "--runner", "local"], company)
    assert "Lag: 0" in run([bare / "coset", "status", "views"], company)
    assert "counts, version 1: 7 rows" in run([bare / "coset", "rows", "views"], company)
    assert "demo" not in run([bare / "coset", "--help"], company)


@pytest.mark.long
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


@pytest.mark.long
def test_a_trial_runs_on_the_python_between(
    wheel: Path, company: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there = installed_in(tmp_path_factory.mktemp("between"), f"coset @ {wheel.as_uri()}", version="3.12")
    assert run([there / "python", "--version"], company).startswith("Python 3.12.")
    assert "Batch 0 is published" in run([there / "coset", "run", "views", "--runner", "local"], company)
    assert "counts, version 1: 7 rows" in run([there / "coset", "rows", "views"], company)


@pytest.mark.long
def test_a_repository_that_uses_it_passes_strict_types(bare: Path, tmp_path: Path) -> None:
    run([bare / "coset", "init", "shop"], tmp_path)
    asked = ["--strict", "--python-executable", bare / "python", "dags/pipelines"]
    assert "Success" in run([sys.executable, "-m", "mypy", *asked], tmp_path / "shop")


@pytest.mark.long
def test_a_company_runs_its_own_pipeline_on_spark(newest: Path, company: Path) -> None:
    assert run([newest / "python", "--version"], company).startswith(f"Python {NEWEST_PYTHON}.")
    assert "Batch 0 is published" in run([newest / "coset", "run", "views", "--master", "local[2]"], company)


@pytest.mark.long
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


@pytest.fixture(scope="module")
def adopted(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that `coset init` has written, with a second pipeline, and in it which files of the clone are opened
    from then on."""
    folder = tmp_path_factory.mktemp("adopted")
    (site,) = installed.parent.glob("lib/python*/site-packages")
    (site / "watch.pth").write_text(WATCH.format(below=f"{ROOT}/", opened=str(folder / "opened")))
    run([installed / "python", "-c", f"open({str(ROOT / 'README.md')!r})"], folder)
    assert set((folder / "opened").read_text().splitlines()) == {f"{ROOT}/README.md"}
    (folder / "opened").unlink()
    run([installed / "coset", "init", "shop"], folder)
    (folder / "shop/dags/pipelines/scores.py").write_text(SCORES)
    (folder / "shop/tests/test_scores.py").write_text(SCORES_TEST)
    return folder / "shop"


@pytest.mark.long
def test_a_new_repository_is_tested_without_the_clone(wheel: Path, installed: Path, adopted: Path) -> None:
    (adopted / "wheels").mkdir()
    shutil.copy(wheel, adopted / "wheels")
    ci = (adopted / ".github/workflows/test.yml").read_text()
    assert re.findall(r"- run: (.*)", ci) == [
        "python -m pip install -r requirements.txt",
        "python -m pytest",
    ]
    run([UV, "pip", "install", "--dry-run", "--no-deps", "--target", "there", "-r", "requirements.txt"], adopted)
    told = run([installed / "python", "-m", "pytest", "-q"], adopted)
    assert re.search(r"^\d+ passed", told, re.M)
    assert not (adopted.parent / "opened").exists()


@pytest.mark.long
def test_a_new_repository_is_scheduled_without_the_clone(installed: Path, adopted: Path) -> None:
    run([installed / "coset", "land", "scores", "orders", "orders.csv"], adopted)
    variables = {
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
        "AIRFLOW_HOME": str(adopted / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(adopted / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "COSET_ENV": "dev",
        "PATH": f"{installed}:{os.environ['PATH']}",
    }
    run([installed / "airflow", "db", "migrate"], adopted, **variables)
    assert "No data found" in run([installed / "airflow", "dags", "list-import-errors"], adopted, **variables)
    run([installed / "airflow", "dags", "test", "scores"], adopted, **variables)
    assert [row["points"] for row in rows(installed, adopted, "scores", "scores")] == [30, 50, 40, 20]
    assert not (adopted.parent / "opened").exists()


@pytest.mark.long
@pytest.mark.parametrize("state", ["published", "run"])
def test_a_new_repository_goes_on_from_what_a_released_version_left(
    state: str, installed: Path, adopted: Path, s3: S3Server
) -> None:
    restore("0.2.0", state)
    at = place("0.2.0", state)
    (adopted / "dags/pipelines/left.py").write_text(of_released(f"{at}/topics"))
    with (adopted / "coset.toml").open("a") as file:
        file.write(f'\n[environments.{state}]\nstore = "{at}/store"\nrunner = "local"\n')
    variables = dict(s3.environment, COSET_ENV=state)
    said = run([installed / "coset", "run", "left"], adopted, **variables)
    assert ("Nothing to do" if state == "published" else "Batch 1 is published") in said
    land(f"{at}/topics", 2)
    assert "Batch 2 is published" in run([installed / "coset", "run", "left"], adopted, **variables)
    total = sum(amount for batch in range(3) for _, _, _, amount, _ in clicks(batch))
    assert sum(row["amount"] for row in rows(installed, adopted, "left", "totals", **variables)) == total
    assert not (adopted.parent / "opened").exists()


@pytest.mark.parametrize("file", ["requirements.txt", *(f"constraints/{name}" for name in CONSTRAINTS)])
def test_what_a_wheel_depends_on_is_what_is_pinned_here(file: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    pinned = pins(ROOT / file)
    wrong = [
        text
        for text in listed
        if (needed := Requirement(text)).name != "coset" and pinned.get(needed.name, "0") not in needed.specifier
    ]
    assert wrong == []


@pytest.mark.parametrize("file", CONSTRAINTS)
def test_the_constraints_of_each_python_have_the_versions_that_are_tested(file: str) -> None:
    constrained, tested = pins(ROOT / "constraints" / file), pins(ROOT / "requirements.txt")
    assert {name: version for name, version in constrained.items() if tested.get(name, version) != version} == {}


def pins(file: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", file.read_text(), re.M))
