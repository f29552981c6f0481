"""Every command in the README, and on the pages of the demo and the runners, runs; heavy ones in tests of their own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import duckdb
import pytest
from pyiceberg.catalog import load_catalog

from coset.batches.publication import abandon
from dags.pipelines.tail_activity import pipeline as tail_activity
from demo.home import SOURCE, STORE, Home
from demo.landing import land
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from tests.examples import few
from tests.followed import REPORTED
from tests.forked import coset
from tests.running import next_batch

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DEMO = (ROOT / "docs" / "guide" / "demo.md").read_text()
RUNNERS = (ROOT / "docs" / "internals" / "runners.md").read_text()
COSET = ".venv/bin/coset"
ASSIGNS = re.compile(r"[A-Z_]+=\S+ ?")
# Which start at once; of the others, the start is not waited for again each time.
LIGHT = ("assign", "diff")


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)


def commands(page: str) -> list[str]:
    return [line for block in blocks("sh", page) for line in block.splitlines()]


TRIAL = [line for line in commands(README) if "spent.py" in line]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that `make serve` tells of, with a plan of batch 2 of the demo's pipeline."""
    home = Home(tmp_path_factory.mktemp("home"))
    with home.served(), home.with_spark():
        land(0, SOURCE)
        for number in range(3):
            next_batch(tail_activity, STORE)
            if number < 2:
                abandon(Ledger(store_at(STORE), tail_activity.name), "to come to batch 2")
        yield dict(os.environ)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `.venv` and the README's files are."""
    made = tmp_path_factory.mktemp("checkout")
    (made / ".venv").symlink_to(sys.prefix)
    (made / "orders.csv").write_text(blocks("csv")[0])
    for name, page in (("spent.py", README), ("late.py", DEMO)):
        assert f"`{name}`" in page
        (source,) = blocks("python", page)
        (made / name).write_text(source)
    return made


def test_the_trial_needs_no_server_and_no_java(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "COSET_STORE", "JAVA_HOME", "SPARK_MASTER"):
        monkeypatch.delenv(name, raising=False)
    environment = dict(os.environ, PATH=str(folder))
    *_, rows, followed, asked = (run(command, environment, folder) for command in TRIAL)
    assert rows.strip() == blocks("text")[0].strip()
    assert followed == "lake.shop.spent has what its table has now\n"
    lake = load_catalog("lake", uri=f"sqlite:///{folder}/lake.db")
    assert lake.load_table("shop.spent").scan().count() == 3
    query = asked.replace(f"{folder}/landing", "/shop/landing")
    assert query.strip() == blocks("sql")[0].strip()
    with duckdb.connect() as alone:
        assert sorted(alone.sql(asked).fetchall()) == [("ann", 2, 19.75), ("bob", 1, 3.0), ("cid", 1, 1.0)]
    assert "Plan sha256:" in run(f"{COSET} explain spent.py", environment, folder)


@pytest.mark.long
@pytest.mark.parametrize("command", commands(DEMO))
def test_the_command_runs(command: str, environment: dict[str, str], folder: Path) -> None:
    assert run(command, environment, folder)


@pytest.mark.long
@pytest.mark.parametrize("command", few(commands(RUNNERS)))
def test_the_command_of_a_runner_publishes_a_batch(command: str, environment: dict[str, str], folder: Path) -> None:
    assert "at version" in run(command, environment | {"COSET_STORE": f"{STORE}/{uuid.uuid4().hex}"}, folder)


def run(command: str, environment: dict[str, str], folder: Path) -> str:
    split = shlex.split(command.replace("$PWD", str(folder)))
    assigned = dict(word.split("=", 1) for word in takewhile(ASSIGNS.match, split))
    environment = environment | assigned
    program, *words = split[len(assigned) :]
    assert program == COSET
    if words[0] in LIGHT:
        done = subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
    else:
        done = coset(*words, environment=environment, folder=folder)
    assert done.returncode in (REPORTED if words[0] == "report" else {0}), done.stderr
    return done.stdout


def test_the_readme_names_no_other_kind_of_command() -> None:
    assert [
        line
        for line in commands(README + DEMO)
        if not re.fullmatch(rf"({ASSIGNS.pattern})*\.venv/bin/coset .+|make (demo|test)", line)
    ] == []


@pytest.mark.parametrize(
    ("page", "needed"),
    [
        ("README.md", {"demo", "test", "test-all", "serve", "airflow", "bench"}),
        ("CONTRIBUTING.md", {"test", "test-all", "check", "format", "explore"}),
    ],
)
def test_make_has_the_targets_that_a_page_names(page: str, needed: set[str]) -> None:
    targets = set(re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / page).read_text(), re.MULTILINE))
    assert targets >= needed
    for target in targets:
        subprocess.run(
            ["make", "--dry-run", target, "WAS=1.5.5", "NOW=2.0.1"], cwd=ROOT, capture_output=True, check=True
        )


@pytest.mark.long
def test_the_pipeline_of_the_example_is_published(environment: dict[str, str], folder: Path) -> None:
    assert store_at(STORE).get("late/commits/0.json") is not None
