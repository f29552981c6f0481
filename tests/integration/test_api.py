"""Batches from Python: a script plans and runs them as the command line does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import coset
from coset import Pipeline
from tests.landed import land_file

# No guard of `__main__`: nothing runs this file twice.
SCRIPT = """
import coset
from coset import Pipeline

pipeline = Pipeline("spent", source="{topics}")
orders = pipeline.stream("orders", key="customer", partitions=2)
orders.aggregate("count(*) AS n").combine("sum(n)::BIGINT AS n", running=True).write("spent", mode="upsert")
print(coset.plan(pipeline, "store"))
print(coset.run(pipeline, "store", docs="pages").tables)
print(coset.run(pipeline, "store"), coset.plan(pipeline, "store"))
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


def test_an_error_names_the_store_that_its_commands_need(tmp_path: Path) -> None:
    topics = landed(tmp_path)
    land_file(pa.table({"customer": ["ann"]}), "orders", topics, 1, 0)
    made = Pipeline("spent", source=topics)
    made.stream("orders", key="customer", partitions=2).write("spent")
    with pytest.raises(coset.Refused, match="key 'ann', orders-1 at offset 0, belongs in partition 0") as refused:
        coset.run(made, tmp_path / "store")
    assert refused.value.__notes__ == [f"commands need --store file://{tmp_path}/store"]
