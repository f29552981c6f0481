"""Commands in a project: pipelines by name, in the environment that is meant, which says where tables lie."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import Result

from coset.batches.ref import BatchRef
from coset.batches.runners.spark_settings import check_reach
from coset.batches.tables.table_base import move
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.root_names import taken_from_pipelines, taken_from_tables
from tests.batches import rows
from tests.commands import coset as coset_here
from tests.commands import refused, succeeded
from tests.forked import coset
from tests.swapped import NEWEST, chosen, land
from tests.there import there

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


@pytest.fixture(params=["folder", "s3"])
def placed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, str]:
    """A store, and an address beside it at which the environment has its tables."""
    if request.param == "s3":
        request.getfixturevalue("s3")
        root = f"s3://test/{tmp_path.name}"
    else:
        root = f"file://{tmp_path}"
    return entered(f"{root}/store", f"{root}/lake", monkeypatch, tmp_path), f"{root}/lake"


def entered(root: str, tables: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Store:
    """The environment of this store and these tables; the store."""
    monkeypatch.setenv("COSET_STORE", root)
    monkeypatch.setenv("COSET_TABLES", tables)
    monkeypatch.setenv("COSET_DOCS", str(folder / "docs"))
    monkeypatch.setenv("DELAYS_SOURCE", f"{root}/topics")
    return store_at(root)


def done(*words: str) -> Result:
    result = succeeded(*words)
    return result


def seen(store: Store) -> tuple[list[tuple[object, ...]], ...]:
    """What readers see of each key in both tables: by their logs, wherever they lie."""
    return tuple(sorted(row[:2] for row in rows(store_at(store.root).root, table)) for table in ("counts", "newest"))


@pytest.mark.long
def test_all_that_is_done_to_tables_happens_where_they_lie(
    placed: tuple[Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lake = placed
    for number in range(2):
        land(store, number)
        done("run", NEWEST, "--runner", "local")
    before, ledger = seen(store), Ledger(store_at(store.root), "newest")
    (entry,) = {each.rpartition("/data/")[0] for each in map(ledger.uri, written(ledger, "newest"))}
    assert entry == f"{lake}/newest"
    assert list(store_at(f"{store.root}/tables").list("")) == []
    assert "Table newest, version 2: 10 rows" in done("rows", NEWEST).stdout

    monkeypatch.setenv("NEWEST_FROM", "5")
    compared = done("backfill", NEWEST, "--from", "0", "--cascade", "--runner", "local").stdout
    (approved,) = set(re.findall("sha256:[0-9a-f]{64}", compared))
    done("swap", NEWEST, "0", "--approve", approved, "--why", "as it is to be")
    assert seen(store)[1] == chosen(before[1])
    done("undo", NEWEST, "0", "--why", "too early")
    assert seen(store) == before

    left = store_at(lake)
    left.put("newest/data/plan-0/attempt-0-ffffffff/none.parquet", b"of a task that was killed")
    left.put("other/data/plan-0/attempt-0-ffffffff/none.parquet", b"of nobody")
    assert "Removed 1 file" in done("clean", NEWEST, "--yes").stdout
    assert [each.key for each in left.list("other/")] == ["other/data/plan-0/attempt-0-ffffffff/none.parquet"]
    done("compact", NEWEST, "--yes")
    assert seen(store) == before
    assert f"{lake} " in done("doctor", NEWEST).stdout


def written(ledger: Ledger, table: str) -> list[str]:
    verdict = there(ledger.verdict(1))
    return [file.path for file in verdict.rows_of(table)]


def test_another_address_is_refused_until_the_tables_are_copied_and_moved_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, old, new = (f"file://{tmp_path}/{name}" for name in ("store", "lake", "bucket"))
    store = entered(root, old, monkeypatch, tmp_path)
    land(store, 0)
    done("run", NEWEST, "--runner", "local")
    before = seen(store)
    entered(root, new, monkeypatch, tmp_path)
    land(store, 1)
    refused(coset_here("run", NEWEST, "--runner", "local"), old, new, f"coset move-tables {new}")
    refused(coset_here("move-tables", new, "--why", "a bucket of its own"), "table counts is not there")
    shutil.copytree(tmp_path / "lake", tmp_path / "bucket")
    next((tmp_path / "bucket" / "newest" / "data").rglob("*.parquet")).unlink()
    refused(coset_here("move-tables", new, "--why", "a bucket of its own"), "lacks 1 of its files there")
    shutil.copytree(tmp_path / "lake", tmp_path / "bucket", dirs_exist_ok=True)
    assert f"lie at {new} now" in done("move-tables", new, "--why", "a bucket of its own").stdout
    shutil.rmtree(tmp_path / "lake")
    assert seen(store) == before
    assert "already" in done("move-tables", new, "--why", "a bucket of its own").stdout
    # What is there beside pipelines and tables is no name for one.
    own = {each.name for each in (tmp_path / "store").iterdir()} - {"newest", "topics"}
    assert own >= {"docs", "store-id", "tables-at-0.json", "tables-at-1.json"}
    assert [name for name in own if not taken_from_pipelines(name)] == []
    there = {each.name for each in (tmp_path / "bucket").iterdir()} - {"newest", "counts"}
    assert [name for name in there if not taken_from_tables(name)] == []
    assert there == {"store-id"}
    # What was published before lies there too: it is run again, and put in place.
    done("run", NEWEST, "--runner", "local")
    done("backfill", NEWEST, "--from", "0", "--scheme", "tasks(3)", "--cascade", "--runner", "local")
    assert not (tmp_path / "lake").exists()


def test_an_address_is_one_store_s_and_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = f"file://{tmp_path}/lake"
    for name in ("first", "second"):
        store = entered(f"file://{tmp_path}/{name}", lake, monkeypatch, tmp_path)
        land(store, 0)
        ran = coset_here("run", NEWEST, "--runner", "local")
        if name == "first":
            assert ran.exit_code == 0, ran.output
    refused(ran, "has the tables of another store")
    for inside in (f"{store.root}/newest", f"file://{tmp_path}"):
        with pytest.raises(Refused, match="lies within the store, or around it"):
            move(store_at(store.root), inside, "nowhere else")


def test_tables_in_a_folder_are_not_for_workers_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = entered(f"file://{tmp_path}/store", f"file://{tmp_path}/lake", monkeypatch, tmp_path)
    land(store, 0)
    done("run", NEWEST, "--runner", "local")
    plan = there(Ledger(store, "newest").plan(0))
    with pytest.raises(Refused) as found:
        check_reach(BatchRef.of(store, plan), "spark://elsewhere:7077")
    assert f"file://{tmp_path}/lake" in {finding.where for finding in found.value.findings}
