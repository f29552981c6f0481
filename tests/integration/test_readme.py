"""Every command in the README and on pages of the docs runs, and so does their Python."""

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import takewhile
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from coset import Pipeline
from coset.batches.publication import abandon, publish
from coset.testing.runs import Trial
from dags.pipelines.tail_activity import pipeline as tail_activity
from demo.home import SOURCE, STORE, Home
from demo.landing import land
from demo.s3_server import S3Server
from partitioning.authoring.settings import DEFAULTS
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from tests.batches import decided, pipeline
from tests.examples import few
from tests.followed import REPORTED
from tests.forked import coset
from tests.running import next_batch

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DEMO = (ROOT / "docs" / "guide" / "start.md").read_text().partition("\n## The demo\n")[2]
RUNNERS = (ROOT / "docs" / "internals" / "runners.md").read_text()
COSET = ".venv/bin/coset"
ASSIGNS = re.compile(r"[A-Z_]+=\S+ ?")
# Which start at once; of the others, the start is not waited for again each time.
LIGHT = ("diff",)


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


DOCS = Path(__file__).parents[2] / "docs"


def programs(page: str) -> list[str]:
    """The blocks of Python on a page that are no doctests."""
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    return [block for block in blocks if ">>>" not in block]


def test_results_are_read_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder has the table of the page, to which two batches were published."""
    spent = Pipeline("spent", source=str(tmp_path / "landing"))
    orders = spent.stream("orders", key="customer", partitions=2)
    orders.aggregate("sum(amount)::BIGINT AS spent", name="totals").write("spent")
    trial = Trial(spent, tmp_path / ".coset")
    for amount in (3, 4):
        trial.land({"orders": [{"customer": "ann", "amount": amount}]})
        trial.run(DEFAULTS)
    monkeypatch.chdir(tmp_path)
    shown, names = io.StringIO(), dict[str, Any]()
    with redirect_stdout(shown):
        for block in programs("how-to/reading-results.md"):
            exec(block, names)
    assert re.findall(r"ann +(\d)|(True|False)", shown.getvalue())[-2:] == [("3", ""), ("", "True")]
    assert sorted(re.findall(r"ann +(\d)", shown.getvalue())) == ["3", "3", "4"]
    known = names["spent"]
    assert names["newest_batch"](known, "spent", "spent") == 1
    path = ".coset/store/tables/spent"
    assert polars.read_delta(path, version=names["versions"][0])["spent"].to_list() == [3]
    assert polars.scan_delta(path).select("spent").sum().collect().item() == 7
    with duckdb.connect() as connection:
        connection.register("rows", known.to_pyarrow_dataset())
        assert connection.execute("SELECT sum(spent) FROM rows").fetchone() == (7,)


def test_the_tests_on_the_page_of_tests_pass_as_they_stand(coset_trial: Any) -> None:
    names, page = dict[str, Any](), "guide/testing.md"
    for example in doctest.DocTestParser().get_examples((DOCS / page).read_text()):
        if example.exc_msg is None:
            exec(example.source, names)
    for block in programs(page):
        exec(block, names)
    names["test_the_number_of_tasks_does_not_matter"]()
    names["test_each_batch_adds_to_the_sums"](coset_trial)


def test_the_columns_of_an_upserted_table_are_read_without_the_helper_column_as_the_page_says(tmp_path: Path) -> None:
    spent = Pipeline("spent", source=str(tmp_path / "landing"))
    sums = spent.stream("orders", key="customer", partitions=2).partial("sum(amount)::BIGINT AS spent", by="customer")
    sums.combine("sum(spent)::BIGINT AS spent", running=True, name="totals").write("totals", mode="upsert")
    spent.flow("orders").select("amount", name="each").write("each")
    trial = Trial(spent, tmp_path / ".coset")
    trial.land({"orders": [{"customer": "ann", "amount": 3}]})
    trial.run(DEFAULTS)
    page = (DOCS / "how-to/reading-results.md").read_text()
    lines = dict(re.findall(r"^\| (pandas|Polars|DuckDB) \| `(.*_residue.*)` \|$", page, re.M))
    for table, columns in (("totals", ["customer", "spent"]), ("each", ["customer", "amount"])):
        path = f"{tmp_path}/.coset/store/tables/{table}"
        assert ("_residue" in DeltaTable(path).to_pandas().columns) == (table == "totals")
        names = {"DeltaTable": DeltaTable, "polars": polars, "duckdb": duckdb, "path": path}
        names["rows"] = DeltaTable(path).to_pyarrow_dataset()
        assert list(eval(lines["pandas"], names).columns) == columns
        assert eval(lines["Polars"], names).collect().columns == columns
        if table == "totals":
            assert polars.read_delta(path)["_residue"].to_list() == [None]
        assert eval(lines["DuckDB"], names).columns == columns
    assert len(lines) == 3


def test_a_server_of_ones_own_is_read_with_the_variables_that_the_page_names(
    s3: S3Server, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(*decided(store.root, pipeline("counted")))
    page = (DOCS / "how-to/reading-results.md").read_text()
    assert set(re.findall("AWS_[A-Z_]+", page)) == {"AWS_ALLOW_HTTP", *s3.environment}
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    path = f"{store.root}/tables/counted"
    assert len(DeltaTable(path).to_pandas()) == len(polars.read_delta(path))
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(OSError, match="http"):
        DeltaTable(path)


def test_coset_s_expectations_can_be_used_in_a_suite_of_ones_own() -> None:
    made: dict[str, object] = {}
    (program,) = programs("internals/proof.md")
    exec(program, made)
    types = [expectation.expectation_type for expectation in made["suite"].expectations]  # type: ignore[attr-defined]
    assert types == ["expect_keys_to_hash_to_their_partition", "expect_keys_to_meet_in_one_task"]
