"""Backfills of batches whose rows do not lie any more as they were written: they work, or nothing of them runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.tables.compaction import compact
from coset.batches.tables.others import accept
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import WriteMode
from partitioning.documents.document import digest
from partitioning.documents.store import Store
from partitioning.errors import Refused
from tests.backfilled import Batches, Rows, appended, counted, stored
from tests.logs import log_of

NOW = timedelta(0)


def two_batches(store: Store, docs: Path, mode: WriteMode = "append") -> Batches:
    history = Batches(store, docs, pipeline=lambda threshold: appended(threshold, mode))
    for number in range(2):
        history.batch(number)
    return history


def table(store: Store, name: str = "counts") -> DeltaTable:
    return log_of(store, name)


def optimized_by_others(store: Store) -> None:
    table(store).optimize.compact()
    table(store).vacuum(0, dry_run=False, enforce_retention_duration=False)


def refused_before_anything_runs(history: Batches, *parts: str) -> None:
    before = stored(history.store)
    with pytest.raises(Refused) as refused:
        history.backfilled(Asked(0, 1, Settings()), threshold=5)
    for part in parts:
        assert part in str(refused.value)
    assert stored(history.store) == before


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_compacted_batches_are_compared_and_swapped_when_their_first_files_are_gone(
    mode: WriteMode, store: Store, tmp_path: Path
) -> None:
    history = two_batches(store, tmp_path, mode)
    before: Rows = history.seen()
    # What the first takes away, the second removes.
    for _ in range(2):
        compact(appended(0, mode)(f"{store.root}/topics", 4), store, NOW)
    assert not [entry for entry in store.list("tables/counts/data/plan-0/attempt-") if entry.size]
    backfill = history.backfilled(Asked(0, 1, Settings()), threshold=13)
    found = actions.comparison(store, backfill)
    # Of a replaced table nobody sees the rows of batch 0, and they are gone.
    assert [(one.batch, one.rows) for one in found.tables] == [(0, (9, 0)), (1, (9, 6))][
        -1 if mode == "replace" else 0 :
    ]
    actions.swap(store, backfill, digest(found), "")
    assert history.seen() == [row for row in before if int(str(row[2])) >= 13]


def test_rows_that_others_put_together_are_told_before_anything_runs(store: Store, tmp_path: Path) -> None:
    history = two_batches(store, tmp_path)
    before = history.seen()
    optimized_by_others(store)
    refused_before_anything_runs(history, "took it out: OPTIMIZE, at ", "into another table")
    assert history.seen() == before


def updated(log: DeltaTable) -> object:
    return log.update(updates={"n": "n"}, predicate="true")


CHANGES: dict[str, tuple[str, Callable[[DeltaTable], object]]] = {
    "a deletion": ("version 3 took it out: DELETE, at ", lambda log: log.delete("true")),
    "an update": ("version 3 took it out: UPDATE, at ", updated),
    "a table as it was": ("version 3 took it out: RESTORE, at ", lambda log: log.restore(0)),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_others_did_to_rows_is_told_as_the_log_has_it_and_may_be_taken_back(
    case: str, store: Store, tmp_path: Path
) -> None:
    history = two_batches(store, tmp_path)
    before, (says, change) = history.seen(), CHANGES[case]
    change(table(store))
    refused_before_anything_runs(history, says, "take it back: `DeltaTable(", ".restore(2)`; or else run the pipeline")
    accept(store, "counts", 3, who="me", why="it is to stay")
    refused_before_anything_runs(history, says, ".restore(2)`")
    table(store).restore(2)
    assert history.seen() == before
    history.backfilled(Asked(0, 1, Settings()), threshold=5)


def test_a_file_is_not_explained_by_what_the_log_has_lost(store: Store, tmp_path: Path) -> None:
    history = two_batches(store, tmp_path)
    table(store).delete("true")
    table(store).create_checkpoint()
    store.delete("tables/counts/_delta_log/00000000000000000003.json")
    refused_before_anything_runs(history, "its log does not say any more what took it out")


def test_rows_that_were_put_together_meanwhile_are_told(store: Store, tmp_path: Path) -> None:
    history = two_batches(store, tmp_path)
    backfill = history.backfilled(Asked(0, 1, Settings()), threshold=5)
    optimized_by_others(store)
    with pytest.raises(Refused, match="took it out: OPTIMIZE"):
        actions.comparison(store, backfill)


def test_a_replaced_table_may_be_put_together_by_anybody(store: Store, tmp_path: Path) -> None:
    history = two_batches(store, tmp_path, "replace")
    optimized_by_others(store)
    backfill = history.backfilled(Asked(1, 1, Settings()), threshold=13)
    found = actions.comparison(store, backfill)
    assert [one.rows for one in found.tables] == [(9, 6)]
    actions.swap(store, backfill, digest(found), "")
    assert [row[2] for row in history.seen()] == [13, 14, 15, 16, 17, 18]


def test_a_table_that_was_deleted_is_told_before_anything_runs(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, pipeline=counted)
    for number in range(2):
        history.batch(number)
    for entry in list(store.list("tables/")):
        store.delete(entry.key)
    gone = (f"{store.root}/tables/counts", f"{store.root}/tables/newest")
    refused_before_anything_runs(history, "the table is gone", *gone)


def test_files_that_are_lost_are_told_before_anything_runs(store: Store, tmp_path: Path) -> None:
    history = two_batches(store, tmp_path)
    (lost, *_) = [entry.key for entry in store.list("tables/counts/data/plan-1/") if entry.size]
    store.delete(lost)
    refused_before_anything_runs(history, "the file is missing", f"{store.root}/{lost}")


def test_what_others_did_before_a_swap_is_not_taken_back_by_restoring_the_table(store: Store, tmp_path: Path) -> None:
    history = two_batches(store, tmp_path, "append")
    write_deltalake(table(store), table(store).to_pyarrow_table().slice(0, 1), mode="append")
    backfill = history.backfilled(Asked(0, 1, Settings()), threshold=5)
    actions.swap(store, backfill, digest(actions.comparison(store, backfill)), "")
    with pytest.raises(Refused, match="version 3 of the table is not by pipeline 'kept': WRITE") as refused:
        history.batch(2)
    (finding,) = refused.value.findings
    assert finding.then.startswith("`coset accept-changes counts --up-to 4 ")


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_an_undo_whose_files_are_gone_says_how_its_rows_are_made_again(
    mode: WriteMode, store: Store, tmp_path: Path
) -> None:
    history = two_batches(store, tmp_path, mode)
    before: Rows = history.seen()
    backfill = history.backfilled(Asked(0, 1, Settings()), threshold=5)
    actions.swap(store, backfill, digest(actions.comparison(store, backfill)), "")
    # What the first takes away, the second removes.
    for _ in range(2):
        compact(appended(0, mode)(f"{store.root}/topics", 4), store, NOW)
    with pytest.raises(Refused) as refused:
        actions.undo(store, backfill, "")
    then = "leave what readers see; or make its rows again with the pipeline as it was before"
    assert {finding.then for finding in refused.value.findings} == {f"{then}: `coset backfill kept --from 0 --to 1`"}
    # As it says.
    again = history.backfilled(Asked(0, 1, Settings()))
    actions.swap(store, again, digest(actions.comparison(store, again)), "")
    assert history.seen() == before
