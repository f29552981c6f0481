"""Three published batches of clicks, of which a step keeps the latest by key."""

from __future__ import annotations

from pathlib import Path

import pytest

from partitioning.documents.store import Store
from tests.commands import succeeded
from tests.histories import Click, table_of
from tests.landed import land_table

NEWEST = str(Path(__file__).parent / "pipelines" / "newest.py")


@pytest.fixture
def three_batches(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three published batches of ten clicks each, of which a step keeps the latest by key."""
    monkeypatch.setenv("DELAYS_SOURCE", f"{store.root}/topics")
    monkeypatch.setenv("COSET_STORE", store.root)
    monkeypatch.setenv("COSET_DOCS", str(tmp_path))
    for batch in range(3):
        clicks = [Click(f"key-{key}", 10 * batch + key, batch) for key in range(10)]
        land_table(table_of(clicks), "clicks", f"{store.root}/topics", key="k", partitions=4)
        succeeded("run", NEWEST, "--runner", "local")
    return store
