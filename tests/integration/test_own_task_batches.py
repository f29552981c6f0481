"""A key with 40 % of the records, given a task of its own: from plan to published table, against DuckDB."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coset.batches.attempt import Attempt
from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.history import statistics
from partitioning.authoring.flow import Flow
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.plan import Plan
from partitioning.model.reasons import OwnTasks
from partitioning.model.schemes import HotKeys
from tests.backfilled import run_again
from tests.hot import HOT, Met, Skewed, counted_on, skewed
from tests.there import there

OWN = Settings(hot_keys=HotKeys.OWN_TASK)
TURNS = (
    ("own task", ""),
    ("own task", ""),
    ("leave", "tasks(5)"),
    ("own task", "elastic(2)"),
    ("own task", ""),
    ("split", ""),
)


def own(plan: Plan) -> list[str]:
    return [key.key for stage in plan.stages if isinstance(stage.why, OwnTasks) for key in stage.why.keys]


def newest(views: Flow) -> Flow:
    """The newest record of each key, kept by the step and in a table of its own."""
    latest = views.latest("v", name="newest")
    latest.write("current", mode="upsert")
    return latest


def test_a_full_join_gives_the_hot_key_a_task_of_its_own_and_the_same_rows(store: Store, tmp_path: Path) -> None:
    met = Met(store)
    met.land(1)
    assert own(met.run(None)) == []
    met.land(2)
    plan = met.run(tmp_path)
    assert own(plan) == [HOT]
    assert met.rows() == met.direct()
    # Its task has hardly anything else, and the others have what they had without it.
    found = there(statistics(Attempt.published(Ledger(store, "met"), plan)))
    taken = [figures.own for _, figures in sorted(found.tasks.items())]
    assert len(taken) == 5
    assert max(taken[:4]) < 1_000 < taken[4] < 1_800


def test_state_follows_its_keys_whether_they_have_own_tasks_or_not(store: Store) -> None:
    skew = Skewed(store, counted_on)
    for number, (hot_keys, scheme) in enumerate(TURNS):
        skew.land(skewed(4_000, seed=number))
        plan = skew.run(None, hot_keys, *([scheme] if scheme else []))
        assert (HOT in own(plan)) == (number > 0 and hot_keys == "own task")
    assert skew.newest("n, v") == skew.direct_of_all("SELECT k, count(*), sum(v) FROM views GROUP BY k")


@pytest.mark.long
def test_an_upserted_table_is_the_same_whether_keys_have_own_tasks_or_not(store: Store) -> None:
    skew = Skewed(store, newest)
    for number, (hot_keys, scheme) in enumerate(TURNS):
        made = skewed(4_000, seed=number)
        skew.land(made.set_column(1, "v", pa.array(range(4_000 * number, 4_000 * (number + 1)), pa.int64())))
        plan = skew.run(None, hot_keys, *([scheme] if scheme else []))
        assert (HOT in own(plan)) == (number > 0 and hot_keys == "own task")
    table = DeltaTable(f"{store.root}/tables/current").to_pyarrow_table().select(["k", "v"])
    rows = sorted(zip(*table.to_pydict().values(), strict=True))
    assert rows == skew.direct_of_all("SELECT k, max(v) FROM views GROUP BY k")


@pytest.mark.long
def test_a_backfill_gives_the_same_keys_a_task_of_their_own_and_the_same_rows(store: Store, tmp_path: Path) -> None:
    skew = Skewed(store, counted_on)
    for seed in (1, 2):
        skew.land(skewed(4_000, seed=seed))
        plan = skew.run(None, "own task")
    assert own(plan) == [HOT]
    backfill = run_again(skew.pipeline, store, Asked(0, 1, OWN), tmp_path)
    again = there(Ledger(store, backfill.name).plan(1))
    assert [stage.tasks for stage in again.stages] == [stage.tasks for stage in plan.stages]
    assert str(actions.comparison(store, backfill)).startswith("identical: ")
