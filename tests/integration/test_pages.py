"""The Python on the pages that needs a store or Great Expectations runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coset.batches.publication import publish
from partitioning.documents.store import Store
from tests.batches import RECORDS, decided, pipeline

DOCS = Path(__file__).parents[2] / "docs"


def program(page: str) -> str:
    """The one block of Python on a page that is no doctest."""
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    (found,) = (block for block in blocks if ">>>" not in block)
    return found


def test_results_are_read_as_the_page_on_publication_says(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(*decided(store.root, pipeline("tail_activity")))
    monkeypatch.setenv("COSET_STORE", store.root)
    exec(program("internals/publication.md"), {})
    shown = capsys.readouterr().out
    assert f"{2 * RECORDS}" in shown
    assert "'coset.plan': '0'" in shown
    assert "'coset.digest': 'sha256:" in shown


def test_coset_s_expectations_can_be_used_in_a_suite_of_ones_own() -> None:
    made: dict[str, object] = {}
    exec(program("internals/proof.md"), made)
    types = [expectation.expectation_type for expectation in made["suite"].expectations]  # type: ignore[attr-defined]
    assert types == ["expect_keys_to_hash_to_their_partition", "expect_keys_to_meet_in_one_task"]
