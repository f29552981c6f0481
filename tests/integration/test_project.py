"""Commands in a project: pipelines by their names, in the environment that is meant, and production asked about."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.forked import coset

PROJECT = """
python_path = ["dags"]
default = "dev"

[environments.dev]
store = "stores/dev"
source = "landing/dev"
imports = ["pipelines"]
runner = "local"
docs = "docs"
schedules = {spent = "@yearly"}

[environments.prod]
production = true
store = "stores/prod"
source = "landing/prod"
imports = ["pipelines"]
runner = "local"
docs = "docs"
"""
SPENT = """
from coset import Pipeline

pipeline = Pipeline("spent", source="s3://elsewhere/topics")
orders = pipeline.stream("orders", key="customer", partitions=2)
orders.aggregate("sum(amount)::BIGINT AS spent", name="totals").write("spent")
"""
# Its function is one of its own file.
LARGE = """
from coset import Pipeline


def large(records):
    return records.filter(records["amount"].to_numpy() > 3)


pipeline = Pipeline("large", source="s3://elsewhere/topics")
orders = pipeline.stream("orders", key="customer", partitions=2)
orders.process(large, {"customer": "VARCHAR", "amount": "BIGINT"}, name="large").write("large_orders")
"""
FRAMED = """
from coset import Pipeline


def same(orders):
    return orders


pipeline = Pipeline("framed", source="s3://elsewhere/topics")
orders = pipeline.stream("orders", key="customer", partitions=2)
orders.spark(same, {"customer": "VARCHAR", "amount": "BIGINT"}, name="same").write("framed")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two pipelines; rows have landed for both environments, more in production."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "coset.toml").write_text(PROJECT)
    pipelines = folder / "dags" / "pipelines"
    pipelines.mkdir(parents=True)
    (pipelines / "money.py").write_text(SPENT)
    (pipelines / "large.py").write_text(LARGE)
    (pipelines / "functions.py").write_text("def twice(number):\n    return 2 * number\n")
    (folder / "few.csv").write_text("customer,amount\nann,3\nbob,4\n")
    (folder / "many.csv").write_text("customer,amount\nann,3\nbob,4\ncid,5\n")
    for words in (("few.csv",), ("many.csv", "--env", "prod")):
        done = said(folder, "land", "spent", "orders", *words)
        assert f"landing/{'prod' if len(words) > 1 else 'dev'}" in done.stdout
    return folder


def said(folder: Path, *words: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    unset = {name: value for name, value in os.environ.items() if not name.startswith(("COSET_", "SPARK_"))}
    done = coset(*words, folder=folder, environment=unset | variables)
    assert done.returncode == code, done
    return done


def test_all_pipelines_of_a_project_run_and_stand_somewhere(project: Path) -> None:
    ran = said(project / "dags", "run", "--all")
    assert ran.stderr.startswith(f"Environment dev ({project}/coset.toml)\n")
    assert "Pipeline large\n" in ran.stdout
    assert "Pipeline spent\n" in ran.stdout
    standing = json.loads(said(project, "status", "--all", "--json").stdout)
    assert [(each["pipeline"], each["published"]) for each in standing] == [("large", 0), ("spent", 0)]
    assert "Batch 0 is published.\n" in said(project, "status", "spent").stdout
    tables = json.loads(said(project, "rows", "large", "--json").stdout)
    assert [row["customer"] for row in tables[0]["first"]] == ["bob"]
    shown = [page.read_text() for page in project.rglob("*.html")]
    assert len(shown) >= 5
    assert all("<strong>dev</strong>" in page and "(dev)</title>" in page for page in shown)
    listed = json.loads(said(project, "list", "--json").stdout)
    assert [(row["pipeline"], row["file"]) for row in listed] == [
        ("large", "dags/pipelines/large.py"),
        ("spent", "dags/pipelines/money.py"),
    ]
    new_year = datetime(datetime.now(UTC).year + 1, 1, 1, tzinfo=UTC).timestamp() * 1000
    assert [(row["late"], row["due"]) for row in listed] == [(False, None), (False, new_year)]
    assert re.search(r"spent .* 20\d\d-01-01 00:00:00 UTC ", said(project, "list").stdout)
    assert "nothing to do" in said(project, "run", "--all").stdout.lower()


def test_a_pipeline_under_another_name_is_not_left_out_without_a_word(project: Path) -> None:
    file = project / "dags/pipelines/typed.py"
    file.write_text(SPENT.replace("pipeline = ", "pipelin = ").replace("pipeline.stream", "pipelin.stream"))
    ran = said(project, "run", "--all", code=3)
    assert "the file defines no `pipeline`" in ran.stderr
    assert "add: pipeline = Pipeline" in ran.stderr
    file.unlink()
    said(project, "run", "--all")


def test_a_pipeline_that_the_runner_cannot_run_is_refused_before_anything_is_stored_and_the_others_run(
    project: Path,
) -> None:
    file, other = (project / "dags/pipelines" / name for name in ("framed.py", "twice.py"))
    file.write_text(FRAMED)
    other.write_text(FRAMED.replace("framed", "twice"))
    ran = said(project, "run", "--all", code=3)
    assert "same is a function on Spark's DataFrames, and this runner has no Spark" in ran.stderr
    assert "choose --runner spark, spark-submit or connect" in ran.stderr
    # Of each that failed it is told.
    assert "framed" in ran.stderr
    assert "twice" in ran.stderr
    assert "Pipeline spent\n" in ran.stdout
    assert not list((project / "stores/dev").glob("framed/plans/*"))
    file.unlink()
    other.unlink()


def test_a_backfill_that_the_runner_cannot_run_is_refused_before_anything_is_stored(project: Path) -> None:
    file = project / "dags/pipelines/money.py"
    said(project, "run", "spent")
    file.write_text(FRAMED.replace('"framed"', '"spent"', 1))
    begun = said(project, "backfill", "spent", "--from", "0", code=3)
    assert "same is a function on Spark's DataFrames, and this runner has no Spark" in begun.stderr
    assert json.loads(said(project, "backfills", "spent", "--json").stdout)["backfills"] == []
    file.write_text(SPENT)


@pytest.mark.parametrize(("begun", "names"), [("", ["dev", "prod"]), ("p", ["prod"])])
def test_a_shell_completes_the_environments_of_the_project(begun: str, names: list[str], project: Path) -> None:
    words = {"_COSET_COMPLETE": "complete_bash", "COMP_WORDS": f"coset run spent --env {begun}", "COMP_CWORD": "4"}
    program = Path(sys.executable).with_name("coset")
    done = subprocess.run([program], cwd=project, env=os.environ | words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == names


def test_an_environment_has_its_own_store_and_sources_and_each_output_says_which(project: Path) -> None:
    standing = json.loads(said(project, "status", "spent", "--env", "prod", "--json").stdout)
    assert standing["environment"] == "prod"
    assert (standing["published"], sum(each["lag"] for each in standing["partitions"])) == (None, 3)
    text = said(project, "status", "spent", "--env", "prod")
    assert text.stderr == f"Environment prod, production ({project}/coset.toml)\n"
    assert "Next: coset run spent --new-store --env prod\n" in text.stdout
    refused = said(project, "explain", "spent", "--batch", "7", "--env", "prod", code=3)
    assert "`coset status spent --env prod`" in refused.stderr
    by_variable = json.loads(said(project, "status", "spent", "--json", COSET_ENV="prod").stdout)
    assert by_variable | {"partitions": []} == standing | {"partitions": []}
    mine = str(project / "stores" / "mine")
    assert (
        f"`coset plan spent --new-store --store {mine}`"
        in said(project, "plan", "spent", code=3, COSET_STORE=mine).stderr
    )
    elsewhere = said(project, "plan", "spent", "--new-store", "--json", COSET_STORE=mine)
    assert json.loads(elsewhere.stdout)["uri"].startswith(f"file://{project}/stores/mine/spent/")


def test_production_is_asked_about_before_what_cannot_be_undone(project: Path) -> None:
    # Its batches so far are those of the other environment.
    refused = said(project, "plan", "spent", "--env", "prod", code=3)
    assert "`coset plan spent --new-store --env prod`" in refused.stderr
    said(project, "plan", "spent", "--new-store", "--env", "prod")
    given_up = ("abandon", "spent", "--why", "a trial", "--env", "prod")
    refused = said(project, *given_up, "--json", code=3)
    (finding,) = json.loads(refused.stderr)["findings"]
    assert finding["what"] == "environment prod is production, and this cannot be undone"
    assert finding["next"] == "if it is meant, add `--yes`"
    said(project, "clean", "spent", "--dry-run", "--env", "prod")
    assert "Batch 0 is abandoned" in said(project, *given_up, "--yes").stdout
    said(project, "plan", "spent", "--take-away", "spent", "--env", "prod", code=3)
    said(project, "plan", "spent", "--env", "prod")


def test_a_file_that_is_wrong_is_refused_by_each_command(project: Path, tmp_path: Path) -> None:
    (tmp_path / "coset.toml").write_text("[environments.dev]\nstroe = 1\n")
    refused = said(tmp_path, "list", code=3)
    assert refused.stderr.splitlines() == [
        "Refused",
        "unknown key environments.dev.stroe",
        f"  where: {tmp_path}/coset.toml:2",
        "  next:  write 'store'",
    ]


def test_a_pipeline_that_is_not_named_is_asked_for(project: Path) -> None:
    for command in ("run", "status"):
        assert "give `--all` for all of the project" in said(project, command, code=3).stderr
