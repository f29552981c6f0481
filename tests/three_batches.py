"""Three published batches of clicks, of which a step keeps the latest by key."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from partitioning.documents.store import Store
from tests.begun import Begun
from tests.commands import succeeded
from tests.histories import Click, table_of
from tests.landed import land_table
from tests.swapped import NEWEST, entered

__all__ = ["NEWEST", "three_batches"]


@pytest.fixture
def three_batches(begun: Begun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    return entered(begun.by(published), tmp_path, monkeypatch)


def published(store: Store) -> None:
    """Three batches of ten clicks each."""
    with pytest.MonkeyPatch.context() as environment, TemporaryDirectory() as docs:
        entered(store, Path(docs), environment)
        for batch in range(3):
            clicks = [Click(f"key-{key}", 10 * batch + key, batch) for key in range(10)]
            land_table(table_of(clicks), "clicks", f"{store.root}/topics", key="k", partitions=4)
            succeeded("run", NEWEST, "--runner", "local")
