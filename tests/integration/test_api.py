"""Batches from Python: a script plans and runs them as the command line does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import coset
from coset import Pipeline, Settings
from tests.commands import coset as coset_command
from tests.landed import land_file

# No guard of `__main__`: nothing runs this file twice.
SCRIPT = """
import coset
from coset import Pipeline, Settings

pipeline = Pipeline("spent", source="{topics}")
orders = pipeline.stream("orders", key="customer", partitions=2)
orders.aggregate("count(*) AS n").combine("sum(n)::BIGINT AS n", running=True).write("spent", mode="upsert")
print(coset.plan(pipeline, "store"))
print(coset.run(pipeline, "store", docs="pages").tables)
print(coset.run(pipeline, "store"), coset.plan(pipeline, "store"))
"""

MISPLACED = """
from coset import Pipeline, Settings

pipeline = Pipeline("misplaced", source="{topics}")
pipeline.stream("orders", key="customer", partitions=2).write("spent")
"""


def landed(folder: Path) -> str:
    topics = f"file://{folder}/topics"
    land_file(pa.table({"customer": ["ann", "ann"]}), "orders", topics, 0, 0)
    return topics


def test_a_script_publishes_what_has_landed_and_is_told_that_nothing_is_new(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(topics=landed(tmp_path)))
    ran = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("PlannedBatch(batch=0, records=2)\n{'spent': 1}\nNone None\n", "")
    assert (tmp_path / "pages" / "spent" / "index.html").exists()


def test_an_open_batch_keeps_its_plan(tmp_path: Path) -> None:
    def pipeline(condition: str) -> Pipeline:
        made = Pipeline("spent", source=landed(tmp_path))
        made.stream("orders", key="customer", partitions=2).filter(condition, name="some").write("spent")
        return made

    planned = coset.plan(pipeline("customer <> 'bob'"), tmp_path / "store")
    assert planned is not None
    assert "Batch 0 of spent: 2 records to read." in planned.page
    with pytest.raises(coset.Refused, match="unknown runner 'spork'"):
        coset.run(pipeline("true"), tmp_path / "store", runner="spork")  # type: ignore[arg-type]
    published = coset.run(pipeline("false"), tmp_path / "store")
    assert published is not None
    assert (published.batch, published.records, published.tables) == (0, 2, {"spent": 1})
    assert DeltaTable(tmp_path / "store" / "tables" / "spent").count() == 2


def test_an_error_says_what_its_commands_need_and_they_work_so(tmp_path: Path) -> None:
    folder = tmp_path / "with blanks"
    topics = landed(folder)
    land_file(pa.table({"customer": ["ann"]}), "orders", topics, 1, 0)
    (folder / "misplaced.py").write_text(MISPLACED.format(topics=topics))
    (folder / "script.py").write_text("import coset\nfrom misplaced import pipeline\ncoset.run(pipeline, 'store')\n")
    ran = subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert "key 'ann', orders-1 at offset 0, belongs in partition 0" in ran.stderr
    runs = "those that run tasks --runner local"
    needed = f"--store 'file://{folder}/store', {runs}, and '{folder}/misplaced.py' for misplaced"
    assert ran.stderr.splitlines()[-1] == f"commands need {needed}"
    done = coset_command("report", str(folder / "misplaced.py"), "--batch", "0", "--store", f"file://{folder}/store")
    assert "misplaced, batch 0: ✗ failed" in done.stdout


def test_a_pipeline_that_no_file_has_needs_one_for_commands(tmp_path: Path) -> None:
    topics = landed(tmp_path)
    land_file(pa.table({"customer": ["ann"]}), "orders", topics, 1, 0)
    made = Pipeline("spent", source=topics)
    made.stream("orders", key="customer", partitions=2).write("spent")
    with pytest.raises(coset.Refused) as refused:
        coset.run(made, tmp_path / "store")
    runs = "those that run tasks --runner local"
    needed = f"--store file://{tmp_path}/store, {runs}, and the pipeline in a file of its own"
    assert refused.value.__notes__ == [f"commands need {needed}"]


def test_an_empty_store_is_not_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = Pipeline("spent", source=landed(tmp_path))
    made.stream("orders", key="customer", partitions=2).write("spent")
    for asked in (coset.plan, coset.run):
        with pytest.raises(coset.Refused, match="no store is named"):
            asked(made, "")
    assert [each.name for each in tmp_path.iterdir()] == ["topics"]


@pytest.mark.parametrize(
    ("pipeline", "settings", "what"),
    [
        ("spent.py", Settings(), "'spent.py' is no pipeline"),
        (Pipeline("spent"), {"scheme": "tasks(8)"}, "{'scheme': 'tasks(8)'} are no settings"),
        (Pipeline("spent"), Settings(scheme="tasks(8)"), "are no settings"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_pipeline_and_no_settings_is_refused(
    pipeline: Any, settings: Any, what: str, tmp_path: Path
) -> None:
    for does in (coset.plan, coset.run):
        with pytest.raises(coset.Refused, match=re.escape(what)):
            does(pipeline, tmp_path / "store", settings)
    assert not (tmp_path / "store").exists()
