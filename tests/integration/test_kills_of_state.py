"""A batch that goes on from state and is killed anywhere is taken up again: each click counts once, now and later."""

from __future__ import annotations

from pathlib import Path

import pytest

from coset.batches.kept import kept_state, rows_kept
from coset.batches.sweeping import sweep
from coset.cli.pipelines import load
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from tests.examples import few
from tests.histories import Click, History
from tests.killed import killed_once

_PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "kept.py")
# Before a group's receipt, all that its tasks left is nobody's; between two Delta commits, one table has the batch.
_POINTS = ("group-0.before", "group-0.after", "verdict.before", "verdict.after", "delta.after")


@pytest.mark.parametrize("point", few(_POINTS))
def test_a_run_killed_at(point: str, store: Store, tmp_path: Path) -> None:
    history = History(store, tmp_path, kept_pipeline)
    for batch, count in enumerate((30, 20, 10)):
        history.land([Click(f"key-{number}", number, batch) for number in range(count)], [], 4)
        if batch == 1:
            killed_once(point, _PIPELINE, store.root, tmp_path, DELAYS_SOURCE=f"{store.root}/topics")
        else:
            history.publish(history.plan(Settings(), 4))
    counts = {f"key-{number}": 1 + (number < 20) + (number < 10) for number in range(30)}
    assert kept(store, "totals") == counts
    sweep(kept_pipeline(f"{store.root}/topics", 4), store)
    assert kept(store, "totals") == counts


def kept_pipeline(source: str, _: int) -> Pipeline:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELAYS_SOURCE", source)
        return load(_PIPELINE)


def kept(store: Store, step: str) -> dict[str, int]:
    """How often each key was counted."""
    ledger = Ledger(store, "kept")
    with rows_kept(ledger, kept_state(ledger, step)) as rows:
        table = rows.read_all()
    return dict(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True))
