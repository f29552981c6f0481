"""Backfills because landed files were repaired: the same offsets, found anew; what is other is shown and approved."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.outlook import gaps
from coset.batches.backfills.pages import comparison_sections, preview_page
from coset.batches.interpreter import silently
from coset.batches.runners.local import Local
from coset.batches.steps import plan
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.model.backfill import Backfill
from partitioning.sections import markdown
from tests.backfilled import run_again
from tests.begun import Begun
from tests.goldens import expect_golden
from tests.landed import land_file
from tests.logs import log_of
from tests.running import next_batch, run_and_publish
from tests.sparse import counted, land, published

LOST = Settings.parse(accept_loss=["views-0@[4,12)"])


@pytest.fixture
def two_batches(begun: Begun) -> Store:
    return begun.by(first_two)


def first_two(store: Store) -> None:
    """Two published batches of a partition: of the offsets 0 to 3 in two files, then of 12 to 15; others are lost."""
    land(store, [0, 1])
    land(store, [2, 3])
    run_and_publish(next_batch(counted(store, "dense"), store.root))
    land(store, [12, 13, 14, 15])
    run_and_publish(next_batch(counted(store, "dense"), store.root, LOST))


def backfilled(store: Store, docs: Path, first: int, last: int | None = None) -> Backfill:
    asked = Asked(first, first if last is None else last, DEFAULTS, "landed anew", True)
    return run_again(counted(store, "dense"), store, asked, docs)


def seen(store: Store) -> list[tuple[str, int]]:
    table = log_of(store, "counted")
    return sorted((row["ad"], row["n"]) for row in table.to_pyarrow_table(columns=["ad", "n"]).to_pylist())


def values(store: Store, offsets: list[int], added: int, ads: list[str] | None = None) -> str:
    """Land a file of these offsets, its values so much greater."""
    table = pa.table({"ad": ads or [f"N{offset}" for offset in offsets], "n": pa.array([n + added for n in offsets])})
    return land_file(table, "views", f"{store.root}/topics", 0, offsets[0], offsets=offsets)


def test_other_values_are_shown_and_put_in_place_only_by_digest(two_batches: Store, tmp_path: Path) -> None:
    values(two_batches, [2, 3], 100)
    with pytest.raises(Refused, match="the file was changed since the batch was planned"):
        actions.begin(counted(two_batches, "dense"), two_batches, Asked(0, 0, DEFAULTS))
    before = seen(two_batches)
    asked = Asked(0, 0, DEFAULTS, repaired=True)
    shown = preview_page(two_batches, "counted", actions.preview(counted(two_batches, "dense"), two_batches, asked))
    assert "The input was repaired" in shown
    assert "views+0+0000000002.parquet" in shown
    request = backfilled(two_batches, tmp_path, 0)
    found = actions.comparison(two_batches, request, tmp_path)
    assert [(change.range, change.files, change.records, change.added) for change in found.repairs] == [
        ("views-0@[0,4)", (1, 0), (4, 4), ())
    ]
    assert str(found) == "different: 2 keys of counted (batch 0)"
    assert actions.review(two_batches, request).needs_approval
    assert seen(two_batches) == before
    assert "<h2>The input was repaired</h2>" in (tmp_path / "counted" / "backfill-0.html").read_text()
    actions.swap(two_batches, request, digest(found), "")
    assert seen(two_batches) == sorted((ad, n + 100 if ad in ("N2", "N3") else n) for ad, n in before)
    actions.undo(two_batches, request, "")
    assert seen(two_batches) == before


def test_the_same_rows_of_other_files_are_put_in_place_only_by_digest(two_batches: Store, tmp_path: Path) -> None:
    # One file where there were two.
    land(two_batches, [0, 1, 2, 3])
    two_batches.delete("topics/views/partition=0/views+0+0000000002.parquet")
    request = backfilled(two_batches, tmp_path, 0)
    found = actions.comparison(two_batches, request)
    assert found.same
    assert [(change.files, change.first) for change in found.repairs] == [
        ((1, 1), tuple(f"{two_batches.root}/topics/views/partition=0/views+0+000000000{n}.parquet" for n in (0, 2)))
    ]
    assert found.needs_approval
    actions.swap(two_batches, request, digest(found), "")


def test_offsets_that_were_lost_are_added_and_named(two_batches: Store, tmp_path: Path) -> None:
    land(two_batches, [4, 5, 6, 7, 8, 9])
    before, ledger = seen(two_batches), Ledger(two_batches, "counted")
    assert [str(gap.range) for gap in gaps(ledger)] == ["views-0@[4,12)"]
    request = backfilled(two_batches, tmp_path, 1)
    found = actions.comparison(two_batches, request)
    (change,) = found.repairs
    assert (change.records, change.added_text) == ((4, 10), "views-0@[4,10)")
    expect_golden("backfill_repaired.md", markdown(comparison_sections(found)))
    actions.swap(two_batches, request, digest(found), "")
    assert seen(two_batches) == sorted([*before, *((f"N{n}", n) for n in range(4, 10))])
    assert [str(gap.range) for gap in gaps(ledger)] == ["views-0@[10,12)"]
    # Later batches go on where they were.
    land(two_batches, [16, 17])
    published(two_batches, counted(two_batches, "dense"), tmp_path)
    assert len(seen(two_batches)) == len(before) + 6 + 2


@pytest.mark.parametrize(
    ("offsets", "added", "told"),
    [
        ([2], 0, "gap: no file holds views-0@[3,12)"),
        ([3], 0, "gap: no file holds views-0@[2,3)"),
        ([2, 4], 0, "2 records have the offsets [2,5): a gap"),
        ([1, 2, 3], 9, "two files hold views-0@[1,2), and differ from offset 1 on"),
    ],
    ids=["the last", "the first", "another", "twice"],
)
def test_a_repair_that_lacks_offsets_or_has_them_twice_is_refused(
    offsets: list[int], added: int, told: str, two_batches: Store, tmp_path: Path
) -> None:
    two_batches.delete("topics/views/partition=0/views+0+0000000002.parquet")
    values(two_batches, offsets, added)
    before = sorted(entry.key for entry in two_batches.list(""))
    with pytest.raises(Refused) as refused:
        actions.begin(counted(two_batches, "dense"), two_batches, Asked(0, 0, DEFAULTS, repaired=True))
    assert told in str(refused.value)
    assert sorted(entry.key for entry in two_batches.list("")) == before


def test_a_repair_may_hold_what_other_files_have_too(two_batches: Store, tmp_path: Path) -> None:
    two_batches.delete("topics/views/partition=0/views+0+0000000002.parquet")
    values(two_batches, [1, 2, 3], 0)
    request = backfilled(two_batches, tmp_path, 0)
    assert actions.comparison(two_batches, request).same


def test_a_repair_that_ends_too_early_is_refused(two_batches: Store) -> None:
    land(two_batches, [12, 13, 14])
    with pytest.raises(Refused, match=r"views-0@\[15,16\) was read, and no file holds it any more"):
        actions.begin(counted(two_batches, "dense"), two_batches, Asked(1, 1, DEFAULTS, repaired=True))


def test_a_repair_that_puts_keys_elsewhere_is_refused(store: Store, tmp_path: Path) -> None:
    pipeline = counted(store, "dense", partitions=2)
    homes = {ad: placement_hash(ad, "string") % 2 for ad in (f"N{n}" for n in range(20))}
    for partition in range(2):
        land(store, [0, 1], [ad for ad, home in homes.items() if home == partition][:2], partition)
    published(store, pipeline, tmp_path)
    land(store, [0, 1], [ad for ad, home in homes.items() if home == 1][2:4], 0)
    request = actions.begin(pipeline, store, Asked(0, 0, DEFAULTS, "", True))
    with Local(processes=1) as runner, pytest.raises(Refused, match="hash") as refused:
        actions.run(pipeline, store, request, runner, tmp_path, silently)
    assert "views-0" in str(refused.value)
    with pytest.raises(Refused, match="batch 0 has not run yet"):
        actions.comparison(store, request)


def test_a_request_keeps_in_mind_that_its_input_was_repaired(two_batches: Store, tmp_path: Path) -> None:
    pipeline = counted(two_batches, "dense")
    asked = Asked(0, 0, DEFAULTS, "", True)
    one = actions.begin(pipeline, two_batches, asked)
    assert one.repaired is True
    assert actions.begin(pipeline, two_batches, asked) == one
    other = actions.begin(pipeline, two_batches, Asked(0, 0, DEFAULTS))
    assert (other.number, other.repaired is True) == (1, False)
    # Offsets behind those of the batch are none of it.
    land(two_batches, [16, 17])
    ref, _ = plan(pipeline, two_batches.root)
    assert ref is not None
    assert [part.end for part in actions.planned(pipeline, two_batches, one, 0).streams[0].partitions] == [4]


def test_the_file_that_was_read_last_may_be_repaired_by_a_backfill(two_batches: Store, tmp_path: Path) -> None:
    values(two_batches, [12, 13, 14, 15], 100)
    land(two_batches, [16, 17])
    with pytest.raises(Refused, match="another file has the last of these offsets now") as refused:
        plan(counted(two_batches, "dense"), two_batches.root)
    (finding,) = refused.value.findings
    assert "`coset backfill counted --from N --input repaired`" in finding.then
    request = backfilled(two_batches, tmp_path, 1)
    actions.swap(two_batches, request, digest(actions.comparison(two_batches, request)), "")
    ref, _ = plan(counted(two_batches, "dense"), two_batches.root)
    assert ref is not None
    assert str(ref.load()[1].ranges()[0]) == "views-0@[16,18)"
