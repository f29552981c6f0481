"""The Python on the pages that needs a store or Great Expectations runs as it stands there."""

from __future__ import annotations

import doctest
import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable

from coset import Pipeline
from coset.batches.publication import publish
from coset.testing.runs import Trial
from demo.s3_server import S3Server
from partitioning.authoring.settings import DEFAULTS
from partitioning.documents.store import Store
from tests.batches import decided, pipeline

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
        for block in programs("guide/reading-results.md"):
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


def test_the_tests_on_the_page_of_pipelines_of_ones_own_pass_as_they_stand(coset_trial: Any) -> None:
    names, page = dict[str, Any](), "guide/own-pipeline.md"
    for example in doctest.DocTestParser().get_examples((DOCS / page).read_text()):
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
    page = (DOCS / "guide/reading-results.md").read_text()
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
    page = (DOCS / "guide/reading-results.md").read_text()
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
