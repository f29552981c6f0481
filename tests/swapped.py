"""Two tables that are swapped one after the other, and a swap that stopped between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from coset.batches.backfills import actions, swaps
from coset.batches.backfills.request import backfill, comparison_of
from coset.cli.pipelines import load
from partitioning.documents.document import digest
from partitioning.documents.store import Store
from partitioning.model.backfill import SwapKind
from tests.begun import Begun
from tests.commands import succeeded
from tests.histories import Click, table_of
from tests.landed import land_table
from tests.logs import log_of
from tests.running import next_batch, run_and_publish_unjudged
from tests.there import there

NEWEST = str(Path(__file__).parent / "pipelines" / "newest.py")
Rows = list[tuple[object, ...]]


def land(store: Store, batch: int) -> None:
    clicks = [Click(f"key-{key}", 10 * batch + key, batch) for key in range(3 * batch, 10)]
    land_table(table_of(clicks), "clicks", f"{store.root}/topics", key="k", partitions=4)


def batch(store: Store) -> None:
    """Run the next batch, without Great Expectations."""
    run_and_publish_unjudged(next_batch(load(NEWEST), store.root))


def seen(store: Store) -> tuple[Rows, Rows]:
    """The rows of both tables: that which is appended to, and that which is upserted."""

    def rows(table: str, *columns: str) -> Rows:
        delta = log_of(store, table)
        return sorted(tuple(row.values()) for row in delta.to_pyarrow_table(columns=[*columns]).to_pylist())

    return rows("counts", "k", "n"), rows("newest", "k", "id")


def entered(store: Store, docs: Path, environment: pytest.MonkeyPatch) -> Store:
    """The environment of commands names this store."""
    environment.setenv("DELAYS_SOURCE", f"{store.root}/topics")
    environment.setenv("COSET_STORE", store.root)
    environment.setenv("COSET_DOCS", str(docs))
    return store


def published(store: Store) -> None:
    """Two batches."""
    with pytest.MonkeyPatch.context() as environment:
        entered(store, Path(), environment)
        for number in range(2):
            land(store, number)
            batch(store)


def compared(store: Store) -> None:
    """Two batches, and backfill 0 of them: clicks from identity 5 on. It waits for approval."""
    published(store)
    before = seen(store)
    with pytest.MonkeyPatch.context() as environment, TemporaryDirectory() as docs:
        entered(store, Path(docs), environment)
        environment.setenv("NEWEST_FROM", "5")
        succeeded("backfill", NEWEST, "--from", "0", "--cascade", "--runner", "local")
    assert seen(store) == before


@pytest.fixture
def two_batches(begun: Begun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    return entered(begun.by(published), tmp_path, monkeypatch)


@pytest.fixture
def backfilled(begun: Begun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    store = entered(begun.by(compared), tmp_path, monkeypatch)
    monkeypatch.setenv("NEWEST_FROM", "5")
    return store


def interrupted(store: Store, to: SwapKind, name: str, replaced: Callable[..., object]) -> None:
    """Swap backfill 0, or take it back, with this in place of a part of it: it ends there."""
    request = backfill(store, "newest", 0)
    found = digest(there(comparison_of(store, request)))
    if to is SwapKind.UNDO:
        actions.swap(store, request, found, "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swaps, name, replaced)
        with pytest.raises(KeyboardInterrupt):
            actions.swap(store, request, found, "") if to is SwapKind.SWAP else actions.undo(store, request, "")


def killed(*_: object) -> int:
    raise KeyboardInterrupt


def half(store: Store, to: SwapKind) -> None:
    """Swap backfill 0, or take it back, but be killed between the two tables."""
    interrupted(store, to, "replace_rows" if to is SwapKind.SWAP else "restore_rows", killed)


def chosen(rows: Rows) -> Rows:
    return [row for row in rows if int(str(row[1])) >= 5]
