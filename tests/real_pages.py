"""The pages that real batches leave: two that were proved, a backfill that differs, and one that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from partitioning.documents.store import Store
from tests.commands import PIPELINE, arrive, coset, land_first, succeeded

_BETWEEN = "expect_column_values_to_be_between"
_EXPECTED = [
    {"type": _BETWEEN, "kwargs": {"column": "delay", "max_value": 10}},
    {"type": _BETWEEN, "kwargs": {"column": "seats", "max_value": 1}, "severity": "warning"},
]


def leave_pages(store: Store, docs: Path, environment: pytest.MonkeyPatch) -> None:
    """Run batches 0 to 2 of `delays` in an empty store, and backfill 0 of batch 1."""
    changed, failing = Path(PIPELINE).with_name("delays_late.py"), docs / "delays.py"
    failing.write_text(Path(PIPELINE).read_text().replace('.write("delays")', f'.write("delays", expect={_EXPECTED})'))
    environment.setenv("COSET_DOCS", str(docs))
    land_first(store, environment)
    for _ in range(2):
        succeeded("run", PIPELINE, "--runner", "local")
        arrive(store, 40)
    succeeded("backfill", str(changed), "--from", "1", "--go-on", "delays", "--runner", "local")
    assert coset("run", str(failing), "--runner", "local").exit_code == 3
