"""A batch that is killed at a level of unifiers, or between two, goes on from what is done: each view counts once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.receipt import Role
from tests.examples import few
from tests.forked import coset
from tests.killed import arm
from tests.landed import land_table
from tests.logs import log_of
from tests.there import there

_PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "pages_in_levels.py")
_STAGES = ["views", "parts.exchange.1", "parts.exchange.2", "parts.exchange"]
# The group that is being run, and how many have their receipts then: each level is a group, and a wave, of its own.
# A group's receipt is stored when what its tasks left is there: before it all that they left is nobody's.
_POINTS = {
    "group-0.before": 0, "group-0.after": 1, "group-1.before": 1, "group-1.after": 2, "group-2.before": 2,
    "group-2.after": 3, "group-3.before": 3,
}  # fmt: skip


@pytest.mark.parametrize(("point", "done"), few(_POINTS.items(), always=0))
def test_a_run_killed_at(point: str, done: int, store: Store, tmp_path: Path) -> None:
    keys, pages = ([f"{name}-{number % count}" for number in range(300)] for name, count in (("k", 31), ("page", 47)))
    source = f"{store.root}/topics"
    land_table(pa.table({"k": keys, "page": pages}), "views", source, key="k", partitions=5)
    environment = os.environ | {"VIEWS_SOURCE": source}
    words = ("run", "--runner", "local", _PIPELINE, "--store", store.root, "--docs", str(tmp_path), "--groups", "1")

    killed = coset(*words, environment=environment, first=partial(arm, point))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ledger = Ledger(store, "pages_in_levels")
    plan = there(ledger.plan(0))
    assert [{task.stage for task in group.tasks} for group in plan.groups] == [{stage} for stage in _STAGES]
    receipts = {entry.key: entry.etag for entry in store.list("pages_in_levels/receipts/0/")}
    assert len(receipts) == done

    finished = coset(*words, environment=environment)
    assert finished.returncode == 0, finished.stderr
    after = {entry.key: entry.etag for entry in store.list("pages_in_levels/receipts/0/")}
    assert len(after) == len(_STAGES)
    assert receipts.items() <= after.items()
    for group in range(done):
        assert f"group {group} of batch 0 of pages_in_levels: nothing to do, attempt 0 has run" in finished.stderr
    rows = log_of(store, "pages").to_pyarrow_table()
    assert rows.num_rows == len(set(pages))
    assert dict(zip(rows["page"].to_pylist(), rows["n"].to_pylist(), strict=True)) == Counter(pages)

    # What the killed run left beside it goes, with what has served; a batch needs neither any more.
    assert list(store.list("pages_in_levels/left/"))
    cleaned = coset("clean", _PIPELINE, "--store", store.root, environment=environment)
    assert cleaned.returncode == 0, cleaned.stderr
    assert not list(store.list("pages_in_levels/left/"))
    verdict = there(ledger.verdict(0))
    assert {artefact.role for artefact in verdict.artefacts} == {Role.TABLE, Role.KEYS}
