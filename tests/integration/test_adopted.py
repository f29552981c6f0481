"""A repository that `coset init` has written works without the clone, and goes on from what a released version left."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.released import clicks, land, place, restore
from tests.wheels import ROOT, UV, installed_in, of_released, run

if TYPE_CHECKING:
    from demo.s3_server import S3Server

pytestmark = pytest.mark.long
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
# Every file that Python opens below a folder, in any process of an environment, is written down.
WATCH = (
    "import os, sys; sys.addaudithook(lambda event, its: event == 'open' and isinstance(its[0], str) "
    "and os.path.abspath(its[0]).startswith({below!r}) "
    "and os.write(os.open({opened!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND), (its[0] + chr(10)).encode()))\n"
)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel with its extras."""
    return installed_in(tmp_path_factory.mktemp("installed"), f"coset[airflow,kafka] @ {wheel.as_uri()}", "pytest")


def rows(environment: Path, folder: Path, pipeline: str, table: str, **variables: str) -> list[dict[str, Any]]:
    told = run([environment / "coset", "rows", pipeline, table, "--limit", 100, "--json"], folder, **variables)
    (shown,) = json.loads(told)
    return shown["first"]


@pytest.fixture(scope="module")
def adopted(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that `coset init` has written, with a second pipeline, and in it which files of the clone are opened
    from then on."""
    folder = tmp_path_factory.mktemp("adopted")
    (site,) = installed.parent.glob("lib/python*/site-packages")
    (site / "watch.pth").write_text(WATCH.format(below=f"{ROOT}/", opened=str(folder / "opened")))
    run([installed / "python", "-c", f"open({str(ROOT / 'README.md')!r})"], folder)
    run([installed / "coset", "init", "shop"], folder)
    assert set(opened_of_clone(folder / "shop")) == {f"{ROOT}/README.md"}
    (folder / "opened").unlink()
    (folder / "shop/dags/pipelines/scores.py").write_text(SCORES)
    (folder / "shop/tests/test_scores.py").write_text(SCORES_TEST)
    return folder / "shop"


def opened_of_clone(adopted: Path) -> list[str]:
    """The files of the clone that were opened."""
    told = adopted.parent / "opened"
    return told.read_text().splitlines() if told.exists() else []


def test_a_new_repository_is_tested_without_the_clone(wheel: Path, installed: Path, adopted: Path) -> None:
    (adopted / "wheels").mkdir()
    shutil.copy(wheel, adopted / "wheels")
    ci = (adopted / ".github/workflows/test.yml").read_text()
    assert re.findall(r"- run: (.*)", ci) == ["python -m pip install -r requirements.txt", "python -m pytest"]
    run([UV, "pip", "install", "--dry-run", "--no-deps", "--target", "there", "-r", "requirements.txt"], adopted)
    told = run([installed / "python", "-m", "pytest", "-q"], adopted)
    assert re.search(r"^\d+ passed", told, re.M)
    assert opened_of_clone(adopted) == []


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
    assert "No data found" in run(
        [installed / "airflow", "dags", "list-import-errors", "--local"], adopted, **variables
    )
    run([installed / "airflow", "dags", "test", "scores"], adopted, **variables)
    assert [row["points"] for row in rows(installed, adopted, "scores", "scores")] == [30, 50, 40, 20]
    assert opened_of_clone(adopted) == []


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
    assert opened_of_clone(adopted) == []
