"""`coset diff` of batches in a store and of what would be planned next; `coset explain` as pictures."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from coset.batches.publication import abandon
from coset.cli.pipelines import load
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from tests.commands import coset, succeeded
from tests.landed import land_table

PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "delays.py")


@pytest.fixture
def planned(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with some flights and planes, and the plan of a first batch, which was given up."""
    monkeypatch.setenv("DELAYS_SOURCE", f"{store.root}/topics")
    monkeypatch.setenv("COSET_STORE", store.root)
    tails = [f"N{number}" for number in range(20)]
    for stream, column, partitions in (("flights", "delay", 4), ("planes", "seats", 2)):
        table = pa.table({"tailnum": tails, column: pa.array(range(20), pa.int64())})
        land_table(table, stream, f"{store.root}/topics", key="tailnum", partitions=partitions)
    succeeded("plan", PIPELINE)
    abandon(Ledger(store, load(PIPELINE).name), "to plan another")
    return store


def test_a_batch_is_compared_with_what_would_be_planned_next(planned: Store) -> None:
    result = succeeded("diff", PIPELINE, "0", "next", "--scheme", "tasks(4)")
    assert result.stdout.startswith("delays, batch 0 (sha256:")
    assert "scheme cogroup → tasks(4)" in result.stdout
    assert "Results stay the same" in result.stdout
    assert not planned.head("delays/plans/1.json.gz")


def test_two_batches_are_compared_by_number_and_by_uri(planned: Store) -> None:
    succeeded("plan", PIPELINE, "--scheme", "tasks(4)")
    by_number = json.loads(coset("diff", PIPELINE, "0", "1", "--json").stdout)
    uris = [f"{planned.root}/delays/plans/{number}.json.gz" for number in (0, 1)]
    assert json.loads(coset("diff", *uris, "--json").stdout) == by_number
    assert {each["keys"] for each in by_number["handovers"]} == {"1/2"}


def test_a_batch_that_there_is_not_and_a_word_that_is_none_are_refused(planned: Store) -> None:
    for words, what in (
        ((PIPELINE, "0", "9"), "there is no batch 9 of delays"),
        ((PIPELINE, "next", "0"), "'next' is no batch number"),
        ((f"{planned.root}/delays/plans/9.json.gz", PIPELINE), "there is no such plan"),
    ):
        result = coset("diff", *words)
        assert (result.exit_code, result.stdout) == (3, "")
        assert what in result.stderr


def test_explain_draws_a_picture_beside_the_tables(planned: Store, tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    result = succeeded("explain", PIPELINE, "--batch", "0", "--svg", str(file))
    assert f"Drawn as {file}" in result.stdout
    assert "Stage flights+planes" in result.stdout
    assert ElementTree.parse(file).getroot().get("role") == "img"


def test_explain_prints_a_mermaid_flowchart_and_nothing_else(planned: Store) -> None:
    result = succeeded("explain", PIPELINE, "--batch", "0", "--mermaid")
    lines = result.stdout.splitlines()
    assert (lines[0], lines[2], lines[-1]) == ("```mermaid", "flowchart TB", "```")
    assert any('["Stage flights+planes"]' in line for line in lines)
    within = coset("explain", PIPELINE, "--batch", "0", "--mermaid", "--json")
    assert json.loads(within.stdout)["mermaid"].splitlines() == lines


def test_a_picture_that_cannot_be_written_is_refused(planned: Store, tmp_path: Path) -> None:
    result = coset("explain", PIPELINE, "--batch", "0", "--svg", str(tmp_path / "missing" / "plan.svg"))
    assert result.exit_code == 3
    assert "the picture cannot be written" in result.stderr
