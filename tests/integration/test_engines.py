"""DuckDB is another version than the one that made what is kept, and what is planned already."""

from __future__ import annotations

from pathlib import Path

import pytest

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from partitioning.authoring.settings import Settings
from partitioning.commands import BackfillAsking, Command, PlanAsking, Replan, SwapAsking
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.task_engine import Differs, Engine
from spark_jobs.sql import engines
from tests.backfilled import Batches, counted, run_again
from tests.histories import Click
from tests.refused import finding_of

BEFORE = "1.5.0"
NOW = engines.HERE
# What the latest is found by gives other values in the version that is here, and a filter fails.
CHANGES = engines._Changes(
    (BEFORE, NOW),
    (
        engines._Change(NOW, ("<",), Differs.REFUSED, (1, 20), ("DATE",), (), "x >= y", "true", "error"),
        engines._Change(NOW, ("row_number",), Differs.VALUE, (1, 20), (), (), "row_number()", "1", "0"),
        engines._Change(
            NOW, ("levenshtein",), Differs.VALUE, (1, 20), ("VARCHAR",), (), "levenshtein('é', 'e')", "2", "1"
        ),
    ),
)


@pytest.fixture
def history(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Batches:
    """A batch that the version before has published, and one that has arrived since."""
    monkeypatch.setattr(engines, "_changes", lambda: CHANGES)
    history = Batches(store, tmp_path)
    with monkeypatch.context() as then:
        then.setattr(engines, "HERE", BEFORE)
        then.setattr("spark_jobs.group._check_engine", lambda *_: None)
        history.batch(0)
    assert Ledger(store, "kept").plan(0).engine == Engine(BEFORE)  # type: ignore[union-attr]
    history.land([Click(f"key-{key}", 10 + key, 1) for key in range(3)], [], 4)
    return history


def refused(history: Batches) -> tuple[Finding, list[Command]]:
    finding = finding_of(history.plan, Settings(), 4)
    assert isinstance(finding.next, tuple)
    return finding, [part for part in finding.next if not isinstance(part, str)]


def test_what_another_engine_made_otherwise_is_gone_on_from_only_by_name(history: Batches) -> None:
    found, ways = refused(history)
    assert found.kind is Kind.STATE_CHANGED
    assert f"its engine changed from DuckDB {BEFORE} to DuckDB {NOW}, where row_number() was 1, is 0" in found.what
    assert "jaccard" not in found.what
    backfill = BackfillAsking("kept", 0, cascade=True)
    assert ways == [PlanAsking("kept", go_on="newest"), backfill, PlanAsking("kept", begin_anew="newest")]
    ref = history.plan(Settings(go_on=("newest",)), 4)
    plan = ref.load()[1]
    assert plan.on == ("newest",)
    assert [(each.name, each.used_by) for each in plan.planned_for.answers or ()] == [
        ("<", ("chosen",)),
        ("row_number", ("newest",)),
    ]
    history.publish(ref)
    # From here on both batches are of one engine.
    history.land([Click("key-1", 20, 2)], [], 4)
    assert history.plan(Settings(), 4).load()[1].engine == Engine(NOW)


def test_a_backfill_lets_a_step_go_on_though_no_row_of_it_differs(history: Batches) -> None:
    """And rows may differ though the pipeline is the same."""
    pipeline = counted(0)(f"{history.store.root}/topics", 4)
    backfill = run_again(pipeline, history.store, Asked(0, None, Settings()), history.docs)
    review = actions.review(history.store, backfill)
    assert (review.found.engines, review.found.same, review.found.may_differ) == (((BEFORE, NOW),), True, True)
    assert f"It was run in DuckDB {NOW}, before in {BEFORE}" in review.page
    assert not review.blockers
    # What is refused names the swap, now that there is something to put in place.
    _, ways = refused(history)
    assert ways[1] == SwapAsking("kept", 0, review.digest)
    actions.swap(history.store, backfill, review.digest, "")
    plan = history.plan(Settings(), 4).load()[1]
    assert (plan.batch, plan.engine, plan.on) == (1, Engine(NOW), ())


def test_a_plan_runs_in_its_own_engine_only(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "HERE", BEFORE)
    history = Batches(store, tmp_path)
    finding = finding_of(history.batch, 0)
    assert (finding.kind, finding.next) == (
        Kind.ENGINE,
        (f"install duckdb=={BEFORE} again, or plan it for this one: ", Replan("kept")),
    )
