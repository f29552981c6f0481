"""Two tables that are swapped one after the other, and a swap that stopped between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coset.batches.backfills import actions
from coset.batches.backfills.request import backfill, comparison_of
from coset.batches.backfills.swap import swaps
from coset.batches.steps import plan
from coset.cli.pipelines import load
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.store import Store
from partitioning.model.backfill import SwapKind
from tests.commands import succeeded
from tests.histories import Click, table_of
from tests.landed import land_table
from tests.logs import log_of
from tests.running import run_and_publish_unjudged

NEWEST = str(Path(__file__).parent / "pipelines" / "newest.py")
Rows = list[tuple[object, ...]]


def land(store: Store, batch: int) -> None:
    clicks = [Click(f"key-{key}", 10 * batch + key, batch) for key in range(3 * batch, 10)]
    land_table(table_of(clicks), "clicks", f"{store.root}/topics", key="k", partitions=4)


def batch(store: Store) -> None:
    """Run the next batch, without Great Expectations."""
    pipeline = load(NEWEST)
    ref, said = plan(pipeline, store.root, Settings())
    assert ref is not None, said
    run_and_publish_unjudged(ref)


def seen(store: Store) -> tuple[Rows, Rows]:
    """The rows of both tables: that which is appended to, and that which is upserted."""

    def rows(table: str, *columns: str) -> Rows:
        delta = log_of(store, table)
        return sorted(tuple(row.values()) for row in delta.to_pyarrow_table(columns=[*columns]).to_pylist())

    return rows("counts", "k", "n"), rows("newest", "k", "id")


@pytest.fixture
def two_batches(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("DELAYS_SOURCE", f"{store.root}/topics")
    monkeypatch.setenv("COSET_STORE", store.root)
    monkeypatch.setenv("COSET_DOCS", str(tmp_path))
    for number in range(2):
        land(store, number)
        batch(store)
    return store


def backfilled(store: Store, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backfill 0: clicks from identity 5 on. It waits for approval."""
    monkeypatch.setenv("NEWEST_FROM", "5")
    succeeded("backfill", NEWEST, "--from", "0", "--cascade", "--runner", "local")


def half(store: Store, to: SwapKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Swap backfill 0, or take it back, but be killed between the two tables."""
    request = backfill(store, "newest", 0)
    found = comparison_of(store, request)
    assert found is not None

    def killed(*_: Any) -> int:
        raise KeyboardInterrupt

    if to is SwapKind.UNDO:
        actions.swap(store, request, digest(found), "")
    with monkeypatch.context() as patch:
        patch.setattr(swaps, "replace_rows" if to is SwapKind.SWAP else "restore_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            actions.swap(store, request, digest(found), "") if to is SwapKind.SWAP else actions.undo(store, request, "")


def chosen(rows: Rows) -> Rows:
    return [row for row in rows if int(str(row[1])) >= 5]
