"""What `pip install` brings: the wheel of a clone, in an environment of its own, beside a company's own packages."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.wheels import ROOT, company_in, files, installed_in, pins, refused, run

BROUGHT = {"coset", "expectations", "partitioning", "spark_jobs"}
CONSTRAINTS = sorted(path.name for path in (ROOT / "constraints").iterdir())


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel and what it depends on."""
    return installed_in(tmp_path_factory.mktemp("bare"), f"coset @ {wheel.as_uri()}")


@pytest.fixture
def company(tmp_path: Path) -> Path:
    """A repository with packages of its own that have the names of folders here, and records that have landed."""
    return company_in(tmp_path)


def test_a_wheel_has_four_names_at_its_top_and_every_file_below_them(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        brought = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in brought} == BROUGHT
    assert brought == {name for name in files() if name.partition("/")[0] in BROUGHT}


def test_what_is_run_can_be_run_where_it_is_installed(bare: Path) -> None:
    (java,) = bare.parent.glob("lib/python*/site-packages/spark_jobs/java/bin/java")
    assert os.access(java, os.X_OK)


@pytest.mark.long
def test_a_trial_needs_no_extra(bare: Path, company: Path) -> None:
    assert [*bare.parent.rglob("pyspark"), *bare.parent.rglob("airflow"), *bare.parent.rglob("confluent_kafka")] == [
        *bare.parent.rglob("site-packages/coset/airflow")
    ]
    assert "Batch 0 is published" in run([bare / "coset", "run", "views", "--runner", "local"], company)
    assert "Lag: 0" in run([bare / "coset", "status", "views"], company)
    assert "counts, version 1: 7 rows" in run([bare / "coset", "rows", "views"], company)
    assert "demo" not in run([bare / "coset", "--help"], company)


@pytest.mark.long
def test_what_only_an_extra_brings_is_named_with_the_extra(bare: Path, company: Path) -> None:
    told = refused([bare / "coset", "run", "views", "--runner", "spark", "--json"], company)
    (finding,) = json.loads(told.splitlines()[-1])["findings"]
    assert (finding["kind"], finding["what"]) == ("extra", "py4j is not installed, and the extra spark brings it")
    assert finding["where"] == str(bare / "python")
    assert finding["next"] == "pip install 'coset[spark]', or choose --runner local, which needs no Spark"
    # Nothing is named, and there is one that runs.
    assert "Batch 0 is published" in run([bare / "coset", "run", "views"], company)
    for runner in ("connect", "spark-submit"):
        told = refused([bare / "coset", "run", "views", "--runner", runner], company)
        assert "pip install 'coset[spark]', or choose --runner local" in told
    (company / "topics.py").write_text(
        "from coset import Pipeline\n"
        'pipeline = Pipeline("topics", source="kafka://127.0.0.1:9")\n'
        'views = pipeline.stream("views", format="json", columns={"n": "BIGINT"}, key="k", partitions=1)\n'
        'views.write("views_read")\n'
    )
    told = refused([bare / "coset", "explain", "topics.py"], company)
    assert "confluent_kafka is not installed, and the extra kafka brings it" in told
    assert "pip install 'coset[kafka]'" in told


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
def test_a_repository_that_uses_it_passes_strict_types(bare: Path, tmp_path: Path) -> None:
    run([bare / "coset", "init", "shop"], tmp_path)
    asked = ["--strict", "--python-executable", bare / "python", "dags/pipelines"]
    assert "Success" in run([sys.executable, "-m", "mypy", *asked], tmp_path / "shop")


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


def test_the_extra_of_tested_versions_has_all_that_a_wheel_depends_on_and_each_range_ends() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed, tested = (list(map(Requirement, listed)) for listed in (project["dependencies"], extras["tested"]))
    assert [each.name for each in tested] == [each.name for each in needed]
    listed = map(Requirement, chain(project["dependencies"], *extras.values()))
    open_ended = [str(each) for each in listed if each.name != "coset" and not re.search("<|==", str(each.specifier))]
    assert open_ended == []


@pytest.mark.parametrize("file", CONSTRAINTS)
def test_the_constraints_of_each_python_have_the_versions_that_are_tested(file: str) -> None:
    constrained, tested = pins(ROOT / "constraints" / file), pins(ROOT / "requirements.txt")
    assert {name: version for name, version in constrained.items() if tested.get(name, version) != version} == {}
