"""Batches that take rows back wrongly, or whose migration loses one: each is refused before it is published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coset.batches import kept_queries
from coset.batches.ref import BatchRef
from partitioning.authoring.change_sql import taken_back
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.model.mark_columns import CHANGE
from spark_jobs.engine import order_steps
from tests.histories import Click, History
from tests.integration.test_changed_state import Changing, clicks, history, tallied
from tests.judged import MIGRATED, QUERIES, Refusal, caught_by, refusal, results, saying
from tests.running import run_and_publish, run_and_publish_unjudged, run_groups

# How the SQL that takes rows back is wrong, as in tests/seeded/faults.toml.
FAULTS: dict[str, Callable[[str], str]] = {
    "old-row-stays-at-its-place": lambda rows: f"SELECT * FROM ({taken_back(rows)}) WHERE false",
    "taken-back-twice": lambda rows: f'SELECT * REPLACE (-2 * "{CHANGE}" AS "{CHANGE}") FROM ({rows})',
}


def counting(source: str, partitions: int) -> Pipeline:
    """How many keys have each identity as their newest."""
    pipeline = Pipeline("kept", source=source)
    clicks = pipeline.stream("clicks", key="k", partitions=partitions)
    by_id = clicks.latest("seen", name="newest").rekey("id", key_format="long", name="by_id")
    by_id.aggregate("count(*) AS n", name="counts").write("counts", mode="upsert")
    return pipeline


def several(source: str, partitions: int) -> Pipeline:
    """The same, and other tables of the same rows, one of which may depend on their order."""
    pipeline = counting(source, partitions)
    by_id = pipeline.flow("by_id")
    by_id.aggregate("max(k) AS last, avg(id) AS mean", name="last").write("last", mode="upsert")
    by_id.aggregate("list_sort(list(k)) AS all", name="listed").write("listed", mode="upsert")
    return pipeline


def second(store: Store, docs: Path, made: Callable[[str, int], Pipeline] = counting) -> tuple[History, BatchRef]:
    """The second batch, planned: of twelve keys, three of each identity, one moves from identity 1 to 2."""
    history = History(store, docs, made)
    history.land([Click(f"key-{number}", number % 4, 0) for number in range(12)], [], 4)
    run_and_publish(history.plan(Settings.parse(scheme="tasks(2)"), 4), docs)
    history.land([Click("key-1", 2, 1)], [], 4)
    return history, history.plan(Settings.parse(scheme="tasks(2)"), 4)


def seen(ref: BatchRef) -> str:
    """What is said of the tables that were held against their queries."""
    (found,) = (result for result in results(ref) if result["expectation"] == QUERIES)
    assert found["success"]
    return str(found["result"]["observed_value"])


@caught_by(QUERIES)
@pytest.mark.parametrize("fault", FAULTS)
def test_an_old_row_that_is_not_taken_back_once_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> Refusal:
    _, ref = second(store, tmp_path)
    monkeypatch.setattr(order_steps, "taken_back", FAULTS[fault])
    run_groups(ref)
    published = 3 if fault == "old-row-stays-at-its-place" else 1
    wrong = f'counts, key 1: {{"id":1,"n":{published}}} would be published, {{"id":1,"n":2}} is right'
    return saying(refusal(ref, tmp_path), f"    - {wrong}")


def test_what_is_held_is_told_and_what_depends_on_the_order_of_rows_is_not(store: Store, tmp_path: Path) -> None:
    _, ref = second(store, tmp_path, several)
    run_and_publish(ref, tmp_path)
    said = "8 rows of 2 tables; not looked at: listed, as step listed calls list, whose answer may depend on the order"
    assert seen(ref).startswith(said)


def test_what_would_cost_too_much_is_not_read_and_its_size_is_told(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_queries, "_LEAST", 0)
    monkeypatch.setattr(kept_queries, "_PART", 1 << 40)
    _, ref = second(store, tmp_path)
    run_and_publish(ref, tmp_path)
    assert seen(ref).startswith("0 rows of 0 tables; not looked at: counts, as ")
    assert f" would be read: `coset verify {ref.load()[1].pipeline} --sample next` looks at its keys in turn" in seen(
        ref
    )


def test_what_was_wrong_before_is_not_held_against_a_batch_and_what_it_makes_wrong_is(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, ref = second(store, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(order_steps, "taken_back", FAULTS["old-row-stays-at-its-place"])
        run_and_publish_unjudged(ref)
    history.land([Click("key-2", 3, 2)], [], 4)
    third = history.plan(Settings.parse(scheme="tasks(2)"), 4)
    run_and_publish(third, tmp_path)
    assert seen(third) == "4 rows of 1 table"
    history.land([Click("key-3", 1, 3)], [], 4)
    fourth = history.plan(Settings.parse(scheme="tasks(2)"), 4)
    monkeypatch.setattr(order_steps, "taken_back", FAULTS["old-row-stays-at-its-place"])
    run_groups(fourth)
    said = saying(refusal(fourth, tmp_path), 'counts, key 3: {"id":3,"n":4} would be published')
    assert "key 1" not in said.findings[0]


__all__ = ["history"]


@caught_by(MIGRATED)
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("with_twice_without_one", "11 rows of 12 that were kept"),
        ("with_twice_under_another_key", "12 rows, but not of the keys that were kept"),
    ],
)
def test_a_migration_that_loses_a_row_or_changes_a_key_is_refused(
    history: Changing, function: str, said: str
) -> Refusal:
    history.batch(tallied(), clicks(*range(12)))
    ref = history.planned(tallied(function), clicks(1), "tasks(1)")
    run_groups(ref)
    return saying(refusal(ref), said)
