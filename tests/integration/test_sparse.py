"""Streams with missing offsets, as compacted and transactional topics leave them: read, counted and reported."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from coset.batches import steps
from coset.batches.ends import known_after
from coset.batches.planning import preview
from coset.batches.progress import progress
from coset.cli.metrics import metrics
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from tests.batches import rows
from tests.refused import finding_of
from tests.sparse import FIRST, SECOND, counted, land, planned, published


@pytest.fixture
def landed(store: Store) -> Store:
    land(store, FIRST)
    land(store, SECOND)
    return store


def test_records_are_counted_as_the_files_say_and_gaps_are_reported(landed: Store, tmp_path: Path) -> None:
    ref = published(landed, counted(landed), tmp_path)
    _, plan = ref.load()
    assert (plan.records, plan.streams[0].partitions[0].missing) == (9, 12)
    assert [file.records for file in plan.streams[0].partitions[0].files] == [5, 4]
    assert {(key, n) for key, _, n, *_ in rows(landed.root, "counted")} == {
        (f"N{offset}", offset) for offset in FIRST + SECOND
    }
    report = steps.report(ref, tmp_path)
    assert "12 offsets of the ranges have no record." in report
    assert "| views-0@[0,10)  | 5       | views+0+0000000000.parquet | the file itself holds no more |" in report
    assert "| views-0@[10,12) | 2       | between two files          | as few as markers leave       |" in report
    assert "9 records in 1 stream partition" in report
    assert "Missing offsets" in steps.plan_page(ref)
    land(landed, [23, 24])
    again = published(landed, counted(landed), tmp_path)
    assert str(again.load()[1].ranges()[0]) == "views-0@[21,25)"
    assert again.load()[1].records == 2


def test_what_is_not_declared_sparse_is_refused_and_told_how_to_declare_it(landed: Store) -> None:
    with pytest.raises(Refused) as refused:
        preview(counted(landed, "dense"), landed)
    said = [(finding.what, finding.then) for finding in refused.value.findings]
    assert "views: 5 records have the offsets [0,10): a gap" in said[0][0]
    assert said[0][1].endswith('if its topic is compacted or transactional, declare offsets="sparse"')
    assert said[-1][0] == "views: gap: no file holds views-0@[10,12)"
    assert 'declare offsets="sparse(2)"' in said[-1][1]


def test_a_hole_that_is_larger_than_declared_is_refused_with_its_range(landed: Store) -> None:
    finding = finding_of(preview, counted(landed, "sparse(1)"), landed)
    assert finding.what == "views: gap: no file holds views-0@[10,12)"
    assert 'declare offsets="sparse(2)"' in finding.then
    assert planned(landed, counted(landed, "sparse(2)")).records == 9


def test_a_hole_after_what_is_committed_is_refused_if_it_is_larger_than_declared(landed: Store, tmp_path: Path) -> None:
    published(landed, counted(landed), tmp_path)
    land(landed, [122, 123])
    with pytest.raises(Refused, match=r"views-0@\[21,122\)|\[21,122\) is lost"):
        preview(counted(landed), landed)
    assert str(planned(landed, counted(landed, "sparse(101)")).ranges()[0]) == "views-0@[21,124)"


@pytest.mark.parametrize("offsets", [[0, 1, 1], [0, 2, 1, 1]])
def test_a_file_with_more_records_than_offsets_is_a_duplicate_all_the_same(store: Store, offsets: list[int]) -> None:
    land(store, offsets)
    with pytest.raises(Refused, match="a duplicate"):
        preview(counted(store), store)


def test_a_limit_takes_whole_files(landed: Store, tmp_path: Path) -> None:
    land(landed, [21, 22, 23])
    for limit, end, records in ((1, 10, 5), (5, 10, 5), (8, 10, 5), (9, 21, 9), (10, 22, 10), (11, 23, 11)):
        plan = planned(landed, counted(landed), Settings(limit=limit))
        assert (plan.ranges()[0].end, plan.records) == (end, records), limit
    published(landed, counted(landed), tmp_path, Settings(limit=9))
    assert planned(landed, counted(landed)).records == 3


def test_a_start_within_a_file_with_gaps_is_refused(landed: Store) -> None:
    with pytest.raises(Refused, match=r"offset 4 is within a file of 5 records with the offsets \[0,10\)"):
        preview(counted(landed), landed, Settings(starts={"views-0": 4}))
    assert planned(landed, counted(landed), Settings(starts={"views-0": 10})).records == 4


def test_a_compacted_table_is_read_whole(landed: Store, tmp_path: Path) -> None:
    made = Pipeline("latest", source=f"{landed.root}/topics")
    made.table("views", key="ad", partitions=1, offsets="sparse").select("n").to_stream().write("latest")
    land(landed, [30, 40], ["N0", "N1"])
    _, plan = published(landed, made, tmp_path).load()
    assert plan.records == 11
    assert {row[:2] for row in rows(landed.root, "latest")} == {
        *((f"N{offset}", offset) for offset in (*FIRST[2:], *SECOND)),
        ("N0", 30),
        ("N1", 40),
    }


def test_ranges_of_a_sparse_partition_are_dealt_to_tasks_and_add_up(landed: Store, tmp_path: Path) -> None:
    made = Pipeline("counted", source=f"{landed.root}/topics")
    parts = made.stream("views", key="ad", partitions=1, offsets="sparse").partial("count(*) AS views", by="ad")
    parts.combine("sum(views)::BIGINT AS views", name="totals").write("counted")
    ref = published(landed, made, tmp_path, Settings.parse(scheme=f"{parts.step}=records(4)"))
    _, plan = ref.load()
    assert len([task for stage in plan.stages for task in stage.tasks if task.span]) == 6
    assert len(rows(landed.root, "counted")) == 9


def test_records_of_a_sparse_stream_are_spread_as_by_their_keys(store: Store, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    kept = {0: 0, 1: 0}
    for partition in (0, 1):
        keys = [key for key in map(str, range(400)) if placement_hash(key) % 2 == partition]
        offsets = sorted(random.choice(1000, len(keys), replace=False).tolist())
        for first in range(0, len(keys), 50):
            land(store, offsets[first : first + 50], keys[first : first + 50], partition)
        kept[partition] = len(keys)
    made = counted(store, partitions=2)
    ref = published(store, made, tmp_path, Settings.parse(scheme="tasks(4)"))
    assert ref.load()[1].records == sum(kept.values()) == len(rows(store.root, "counted"))


LOST = [list(range(first, first + 10)) for first in (0, 10, 30)]


def test_a_lost_file_of_a_stream_without_other_gaps_is_refused(store: Store) -> None:
    for offsets in LOST:
        land(store, offsets)
    finding = finding_of(preview, counted(store), store)
    assert finding.what == "views: gap: no file holds views-0@[20,30)"
    assert 'declare offsets="sparse(10)"' in finding.then


def test_a_burst_of_compaction_beside_nearly_dense_files_is_refused_until_it_is_declared_or_accepted(
    store: Store,
) -> None:
    # Of 100 offsets three are missing; then 40 in a row, as where the same keys came again and again.
    land(store, [offset for offset in range(100) if offset not in {13, 50, 51}])
    land(store, list(range(140, 240)))
    finding = finding_of(preview, counted(store), store)
    assert finding.what == "views: gap: no file holds views-0@[100,140)"
    (declared,) = re.findall(r'declare offsets="([^"]+)"', finding.then)
    (lost,) = re.findall(r"--accept-loss '([^']+)'", finding.then)
    assert planned(store, counted(store, declared)).records == 197
    plan = preview(counted(store), store, Settings.parse(accept_loss=[lost])).plan
    assert plan is not None
    assert (plan.records, [str(loss) for loss in plan.lost]) == (197, ["views-0@[100,140)"])


def test_a_lost_file_of_a_stream_that_declares_as_much_is_a_warning_wherever_it_is_told(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for offsets in LOST:
        land(store, offsets)
    made = counted(store, "sparse(10)")
    ref = published(store, made, tmp_path)
    warning = "10 offsets missing, which neither markers nor compaction explain"
    assert warning in steps.plan_page(ref)
    assert warning in steps.report(ref, tmp_path)
    assert any(warning in page.read_text() for page in tmp_path.rglob("*.html"))
    standing = Ledger(store, made.name).standing()
    now = progress(made, known_after(Ledger(store, made.name), standing.published).ends, datetime.now(UTC))
    told = list(metrics(made.name, standing, now, [], None))
    assert 'coset_doubtful_offsets{pipeline="counted",stream="views",partition="0"} 10' in told
