"""Published batches run again under another scheme or pipeline, compared, put in place and taken back."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from coset.batches import publication
from coset.batches import steps as batch_steps
from coset.batches.backfills import actions, swaps
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.outlook import gaps
from coset.batches.interpreter import silently
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.sweeping import STATES_KEPT, left_over, sweep
from coset.batches.tables.compaction import compact
from coset.batches.tables.exchanged import exchange
from partitioning.authoring import state_sql
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.commands import Shown, Undo
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Conflict, CosetError, Refused
from partitioning.hashes import placement_hash
from partitioning.model.backfill import Swapped
from spark_jobs.engine import order_steps as steps_of_kernel
from tests.backfilled import Batches, appended, counted, goes_on, stored, timed
from tests.counts import Counts
from tests.histories import Click, History
from tests.logs import log_of


def test_batches_are_run_again_under_another_scheme_swapped_and_taken_back(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path)
    for number in range(3):
        history.batch(number)
    before = history.seen()
    backfill = history.backfilled(Asked(0, 1, Settings.parse(scheme="tasks(12)"), "hot"))
    history.batch(3)
    found = actions.comparison(store, backfill)
    assert str(found) == "identical: 18 rows of 2 batches, and 10 that steps keep"
    assert all(state.same for state in found.states)
    after = history.seen()
    assert set(after) > set(before)
    for turn in (1, 2):
        files = set(log_of(store, "counts").file_uris())
        swapped = actions.swap(store, backfill, digest(found), "") if turn == 1 else actions.undo(store, backfill, "")
        now = set(log_of(store, "counts").file_uris())
        assert history.seen() == after
        assert swapped.tables.keys() == {"counts"}
        assert len(now - files) > (8 if turn == 1 else 0)
        assert any("plan-2" in file for file in now)
    history.batch(4)


def test_the_page_of_a_backfill_says_that_nobody_looked_at_the_tables(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, pipeline=appended)
    history.batch(0)
    history.backfilled(Asked(0, 0, Settings.parse(scheme="tasks(2)")))
    (page,) = tmp_path.rglob("batch-0-attempt-0.html")
    text = page.read_text()
    assert "What was not proved" in text
    assert "Whether counts held the batch before was not looked at" in text
    assert "Every result table holds what the ledger published last" not in text


def test_a_changed_pipeline_is_swapped_by_the_digest_of_what_was_seen(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, pipeline=appended)
    for number in range(2):
        history.batch(number)
    before = history.seen()
    backfill = history.backfilled(Asked(0, 1, Settings()), threshold=5)
    found = actions.comparison(store, backfill)
    assert found.changes == ("counts: SQL of chosen",)
    assert str(found) == "different: 5 keys of counts (batch 0)"
    assert [(table.batch, table.rows, table.keys) for table in found.tables] == [(0, (9, 4), 5), (1, (9, 9), 0)]
    with pytest.raises(Refused, match="sha256:0 was approved, but the comparison is sha256:"):
        actions.swap(store, backfill, "sha256:0", "")
    assert history.seen() == before
    actions.swap(store, backfill, digest(found), "they were none")
    assert history.seen() == [row for row in before if row[3] == 1 or int(str(row[2])) >= 5]
    # It is so already.
    assert actions.swap(store, backfill, digest(found), "") == actions.swap(store, backfill, digest(found), "once more")
    assert len(list(swaps.swaps(store, "kept"))) == 1
    assert actions.comparison(store, backfill) == found
    # Another backfill of one of them is of what readers see now, and is the first to be taken back.
    again = history.backfilled(Asked(0, 0, Settings()))
    actions.swap(store, again, digest(actions.comparison(store, again)), "")
    assert history.seen() == before
    with pytest.raises(Refused, match=r"its rows are those of kept\.backfill-1, not of kept\.backfill-0") as refusal:
        actions.undo(store, backfill, "")
    assert refusal.value.findings[0].next == ("take that back first: ", Undo("kept", 1))
    actions.undo(store, again, "")
    actions.undo(store, backfill, "")
    assert history.seen() == before


def test_a_preview_says_what_would_be_run_and_stores_nothing(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path)
    for number in range(2):
        history.batch(number)
    before, pipeline = stored(store), counted(0)(f"{store.root}/topics", 4)
    pairs = actions.preview(pipeline, store, Asked(0, 1, Settings.parse(scheme="elastic(3)")))
    assert [(old.batch, len(old.stages[0].tasks), len(new.stages[0].tasks)) for old, new in pairs] == [
        (0, 4, 12),
        (1, 4, 12),
    ]
    assert all(old.streams == new.streams for old, new in pairs)
    assert stored(store) == before


@pytest.mark.parametrize(
    ("first", "last", "published", "told"),
    [
        (0, 2, 2, "batches 0 to 2 were requested, but batches 0 to 1 are"),
        (1, 0, 2, "batches 1 to 0 were requested, but batches 0 to 1 are"),
        (2, 2, 2, "batch 2 was requested, but batches 0 to 1 are"),
        (1, None, 1, "batches from 1 on were requested, but only batch 0 is"),
        (0, None, 0, "batches from 0 on were requested, but no batch is"),
    ],
)
def test_only_published_batches_are_run_again(
    first: int, last: int | None, published: int, told: str, store: Store, tmp_path: Path
) -> None:
    history = Batches(store, tmp_path)
    for number in range(published):
        history.batch(number)
    with pytest.raises(Refused, match=f"{told} published"):
        history.backfilled(Asked(first, last, Settings()))


def test_files_that_are_gone_are_named_before_anything_runs(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path)
    history.batch(0)
    landed = [key for key in stored(store) if key.startswith("topics/clicks/")]
    for key in landed[:2]:
        store.delete(key)
    before = stored(store)
    with pytest.raises(Refused) as refused:
        history.backfilled(Asked(0, 0, Settings()))
    (finding,) = refused.value.findings
    assert [place.where.partition("topics/")[2] for place in finding.places] == [
        key.removeprefix("topics/") for key in landed[:2]
    ]
    assert stored(store) == before


@pytest.mark.long
def test_batches_from_before_and_after_a_change_of_count_are_run_again_as_they_lay(
    store: Store, tmp_path: Path
) -> None:
    history = Batches(store, tmp_path)
    for number, partitions in enumerate((4, 8, 8)):
        history.batch(number, partitions)
    before = history.seen(), history.seen("newest")
    backfill = history.backfilled(Asked(0, 2, Settings.parse(scheme="tasks(3)")), partitions=8)
    ledger = Ledger(store, backfill.name)
    plans = [ledger.plan(batch) for batch in range(3)]
    assert [plan.streams[0].declared.partitions for plan in plans if plan] == [4, 8, 8]
    found = actions.comparison(store, backfill)
    assert found.same
    actions.swap(store, backfill, digest(found), "")
    assert (history.seen(), history.seen("newest")) == before


def test_of_a_replaced_table_readers_see_the_last_batch(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, pipeline=lambda threshold: appended(threshold, "replace"))
    for number in range(2):
        history.batch(number)
    backfill = history.backfilled(Asked(0, 1, Settings()), threshold=13)
    actions.swap(store, backfill, digest(actions.comparison(store, backfill)), "")
    assert [row[2] for row in history.seen()] == [13, 14, 15, 16, 17, 18]
    history.batch(2)
    before = history.seen()
    # It is not shown any more: there is nothing to take back for readers.
    actions.undo(store, backfill, "")
    assert history.seen() == before


@pytest.mark.long
def test_what_is_kept_must_be_what_later_batches_went_on_from(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path)
    for number in range(3):
        history.batch(number)
    seen = history.seen(), history.seen("newest")
    backfill = history.backfilled(Asked(0, 0, Settings()), threshold=5)
    found = actions.comparison(store, backfill)
    with pytest.raises(
        Refused, match="it changes the state of newest, on which later batches, up to 2, depend"
    ) as refused:
        actions.swap(store, backfill, digest(found), "")
    assert refused.value.findings[-1].then == "run them too: `coset backfill kept --from 0 --cascade`"
    assert list(swaps.swaps(store, "kept")) == []
    # As it says.
    cascade = history.backfilled(Asked(0, None, Settings.parse(scheme="tasks(3)")), threshold=5)
    assert cascade.batches == (0, 1, 2)
    actions.swap(store, cascade, digest(actions.comparison(store, cascade)), "")
    newest = {row[0]: row for row in seen[1]}
    assert history.seen() == [row for row in seen[0] if int(str(row[2])) >= 5]
    assert history.seen("newest") == [row for row in newest.values() if int(str(row[1])) >= 5]
    actions.undo(store, cascade, "")
    assert (history.seen(), history.seen("newest")) == seen
    again = history.backfilled(Asked(0, None, Settings()), threshold=12)
    actions.swap(store, again, digest(actions.comparison(store, again)), "")
    # The next batch goes on from there.
    changed = Batches(store, tmp_path, lambda _: counted(12))
    changed.batch(3)
    records = [(f"key-{(n + key) % 13}", 10 * n + key) for n in range(4) for key in range(9) if 10 * n + key >= 12]
    assert [row[:2] for row in history.seen("newest")] == sorted(dict(records).items())
    with pytest.raises(
        Refused, match="it changes the state of newest, on which later batches, up to 3, depend"
    ) as refused:
        actions.undo(store, again, "")
    back = "make the pipeline what it was before, and run them again: `coset backfill kept --from 0 --cascade`"
    assert refused.value.findings[-1].then == back


def running(added: int) -> Callable[[str, int], Pipeline]:
    """Totals of keys; with so much added, columns behind the first."""

    def pipeline(source: str, partitions: int) -> Pipeline:
        one, more = Pipeline("kept", source=source), "".join(f", max(id + {n}) AS most_{n}" for n in range(added))
        clicks, kept = (
            one.stream("clicks", key="k", partitions=partitions),
            "".join(f", max(most_{n}) AS most_{n}" for n in range(added)),
        )
        totals = clicks.aggregate(f"count(*) AS n{more}").combine(
            f"sum(n)::BIGINT AS n{kept}", running=True, name="newest"
        )
        totals.write("newest", mode="upsert")
        return one

    return pipeline


def test_an_undo_says_which_columns_a_table_keeps(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, running)
    for number in range(2):
        history.batch(number)
    backfill = history.backfilled(Asked(0, None, Settings()), threshold=2)
    actions.swap(store, backfill, digest(actions.comparison(store, backfill)), "")
    Batches(store, tmp_path, lambda _: running(2)).batch(2)
    with pytest.raises(Refused) as refused:
        actions.undo(store, backfill, "")
    but = "but for new columns, which stay (most_0 of table 'newest', most_1 of table 'newest'), "
    again = f"make the pipeline what it was before, {but}and run them again: `coset backfill kept --from 0 --cascade`"
    assert {finding.then for finding in refused.value.findings} == {again}


@pytest.mark.long
def test_a_backfill_finds_state_identical_of_which_an_earlier_version_wrote_what_was_over_too(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = Batches(store, tmp_path, timed)
    with monkeypatch.context() as earlier:
        earlier.setattr(state_sql, "_lasts", lambda _source, number, _keep, _step: f"{number} IS NOT NULL")
        for number in (0, 40, 80):
            # What is late comes last, and closes nothing.
            history.land([Click(f"key-{key}", 10 * number + key, 0) for key in range(9)], [], 2)
            history.batch(number, 2)
    again = history.backfilled(Asked(0, None, Settings.parse(scheme="tasks(3)")), 2)
    assert str(actions.comparison(store, again)).startswith("identical: ")


@pytest.mark.long
def test_an_upserted_table_gets_all_rows_that_should_have_been(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path)
    for minute, identities in enumerate([dict.fromkeys(range(20), 10), {1: 3}, {2: 30}, {3: 4, 4: 40}]):
        history.land([Click(f"key-{key}", identity, minute) for key, identity in identities.items()], [], 4)
        history.publish(history.plan(Settings(), 4), judged=False)
    cascade = history.backfilled(Asked(1, None, Settings()), threshold=5)
    actions.swap(store, cascade, digest(actions.comparison(store, cascade)), "")
    wanted = dict.fromkeys((f"key-{key}" for key in range(20)), 10) | {"key-2": 30, "key-4": 40}
    assert [row[:2] for row in history.seen("newest")] == sorted(wanted.items())


@pytest.mark.long
def test_what_was_removed_since_cannot_be_taken_back(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path)
    for number in range(2):
        history.batch(number)
    cascade = history.backfilled(Asked(0, None, Settings()), threshold=5)
    actions.swap(store, cascade, digest(actions.comparison(store, cascade)), "")
    seen = history.seen(), history.seen("newest")
    compact(counted(0)(f"{store.root}/topics", 4), store, timedelta(0))
    with pytest.raises(Refused, match="the table has not had the file since version 3, and it is removed"):
        actions.undo(store, cascade, "")
    assert (history.seen(), history.seen("newest")) == seen
    assert len(list(swaps.swaps(store, "kept"))) == 1
    changed = Batches(store, tmp_path, lambda _: counted(5))
    changed.batch(2)


def test_a_batch_that_went_on_from_what_is_exchanged_is_refused(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path)
    history.batch(0)
    backfill = history.backfilled(Asked(0, 0, Settings()), threshold=5)
    found = actions.comparison(store, backfill)
    history.land([Click("key-1", 50, 1)], [], 4)
    pipeline = counted(0)(f"{store.root}/topics", 4)
    # Planned at the same moment, and stored when the swap was decided.
    plan = preview(pipeline, store).plan
    assert plan is not None
    actions.swap(store, backfill, digest(found), "")
    ref = BatchRef.of(store, Ledger(store, "kept").put_plan(plan))
    with pytest.raises(Refused, match="a backfill has replaced the state of newest after batch 0 since"):
        history.publish(ref)
    _, ref_anew, _ = batch_steps.replan(pipeline, store.root, goes_on(pipeline, Settings()), "exchanged")
    assert ref_anew is not None
    history.publish(ref_anew)
    assert [row[1] for row in history.seen("newest")] == [50, 5, 6, 7, 8]


@pytest.mark.long
def test_another_result_of_the_same_pipeline_is_a_defect(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = Batches(store, tmp_path, pipeline=appended)
    history.batch(0)
    with monkeypatch.context() as patch:
        select = steps_of_kernel.Steps.table
        patch.setattr(steps_of_kernel.Steps, "table", lambda self, write: _doubled(select(self, write)))
        backfill = history.backfilled(Asked(0, 0, Settings.parse(scheme="elastic(2)")))
    with pytest.raises(CosetError, match="the pipeline is the same, but its rows are not: different: 9 keys of counts"):
        actions.comparison(store, backfill)


def _doubled(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    table = rows.read_all()
    column = table.schema.get_field_index("n")
    return table.set_column(column, "n", pc.multiply(table["n"], 2)).to_reader()


@pytest.mark.parametrize(
    "now",
    [
        {"source": "elsewhere"},
        {"format": "json", "columns": {"k": "VARCHAR", "id": "BIGINT", "seen": "TIMESTAMP"}},
        {"layout": "time"},
        {"offset": "o"},
    ],
    ids=str,
)
def test_files_of_a_batch_are_read_as_and_where_they_lay(now: dict[str, Any], store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, pipeline=appended)
    history.batch(0)

    def declared_anew(_: int) -> Callable[[str, int], Pipeline]:
        def pipeline(source: str, partitions: int) -> Pipeline:
            one = Pipeline("kept", source=source)
            declared: dict[str, Any] = {
                name: f"{store.root}/{value}" if name == "source" else value for name, value in now.items()
            }
            chosen = one.stream("clicks", key="k", partitions=partitions, **declared).filter("id >= 0", name="chosen")
            counts = chosen.aggregate("count(*) AS n, sum(id)::BIGINT AS total", name="counts")
            counts.write("counts", lineage=True)
            return one

        return pipeline

    again = Batches(store, tmp_path, pipeline=declared_anew)
    backfill = again.backfilled(Asked(0, 0, Settings.parse(scheme="tasks(12)")))
    assert str(actions.comparison(store, backfill)) == "identical: 9 rows of 1 batch"


def test_other_records_than_the_first_run_read_are_told(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, pipeline=appended)
    history.batch(0)
    backfill = history.backfilled(Asked(0, 0, Settings()))
    key = f"{backfill.name}/audits/0/attempt-0/tables.zip"
    with ZipFile(io.BytesIO(store.get(key) or b"")) as tables:
        audited = pq.read_table(io.BytesIO(tables.read("coverage.parquet")))
    digests = [
        f"{digest}0" if place == 2 else digest for place, digest in enumerate(audited["digest_found"].to_pylist())
    ]
    column = audited.schema.get_field_index("digest_found")
    sink, packed = io.BytesIO(), io.BytesIO()
    pq.write_table(audited.set_column(column, audited.schema.field(column), [digests]), sink)
    with ZipFile(packed, "w") as tables:
        tables.writestr("coverage.parquet", sink.getvalue())
    store.put(key, packed.getvalue())
    with pytest.raises(CosetError, match="the backfill read other records of clicks-2 than the first run"):
        actions.comparison(store, backfill)


@pytest.mark.long
def test_what_was_compared_with_rows_that_do_not_count_any_more_is_compared_again(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, pipeline=appended)
    history.batch(0)
    one, other = (history.backfilled(Asked(0, 0, Settings(groups=groups)), threshold=groups) for groups in (3, 4))
    found, then = actions.comparison(store, one), actions.comparison(store, other)
    actions.swap(store, one, digest(found), "")
    with pytest.raises(Refused, match=r"it was compared with the plan sha256:[0-9a-f]+, which no longer counts"):
        actions.swap(store, other, digest(then), "")
    again = actions.comparison(store, other)
    assert [(table.rows, table.keys) for table in again.tables] == [((6, 5), 1)]
    actions.swap(store, other, digest(again), "")
    assert len(history.seen()) == 5


@pytest.mark.long
def test_of_those_who_swap_at_once_one_decides(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, pipeline=appended)
    for number in range(2):
        history.batch(number)
    backfill = history.backfilled(Asked(0, 1, Settings()), threshold=5)
    found = actions.comparison(store, backfill)

    def swapped(number: int) -> object:
        try:
            return actions.swap(store, backfill, digest(found), f"by {number}")
        except (Conflict, Refused) as error:
            return type(error)

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(swapped, range(4)))
    # Who comes after the decision gets it too, as it was approved alike.
    first, *others = (one for one in told if isinstance(one, Swapped))
    assert all(other == first for other in others)
    assert {one for one in told if not isinstance(one, Swapped)} <= {Conflict, Refused}
    log = log_of(store, "counts")
    assert sum("coset.swap" in entry for entry in log.history()) == 1
    assert len(history.seen()) == 13


@pytest.mark.parametrize("at", ["before the commit", "after the commit"])
def test_a_swap_that_stopped_is_finished_first(
    at: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = Batches(store, tmp_path, pipeline=appended)
    history.batch(0)
    before = history.seen()
    backfill = history.backfilled(Asked(0, 0, Settings()), threshold=5)
    found = actions.comparison(store, backfill)

    def killed(*place: Any) -> int:
        if at == "after the commit":
            exchange(*place)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(swaps, "exchange", killed)
        with pytest.raises(KeyboardInterrupt):
            actions.swap(store, backfill, digest(found), "")
    assert swaps.finish(store, "kept") is not None
    assert len(history.seen()) == 4
    actions.undo(store, backfill, "")
    assert history.seen() == before


@pytest.mark.long
def test_compacted_batches_are_exchanged_unless_they_were_put_together(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, pipeline=appended)
    for number in range(3):
        history.batch(number)
    before, pipeline = history.seen(), appended(0)(f"{store.root}/topics", 4)
    week = timedelta(days=7)
    counts = Counts()
    (done,) = compact(pipeline, store, week, counting=counts)
    assert str(done) == "counts: 12 files became 3, 0 old files removed"
    assert counts.ended == ["1 of 1 tables", "3 of 3 batches"]
    assert [str(done) for done in compact(pipeline, store, week)] == ["counts: nothing to merge, 0 old files removed"]
    assert history.seen() == before
    backfill = history.backfilled(Asked(0, 1, Settings()), threshold=5)
    actions.swap(store, backfill, digest(actions.comparison(store, backfill)), "")
    assert history.seen() == [row for row in before if int(str(row[2])) >= 5]
    assert compact(pipeline, store, week)[0].made == 2
    actions.undo(store, backfill, "")
    assert history.seen() == before
    last = history.backfilled(Asked(1, 1, Settings()), threshold=13)
    assert compact(pipeline, store, week, across=True)[0].made == 1
    assert history.seen() == before
    entries = log_of(store, "counts").history()
    newest = max(entry["version"] for entry in entries if entry["operation"] == "OPTIMIZE")
    why = f"the table does not have this file any more: version {newest} took it out: OPTIMIZE"
    with pytest.raises(Refused, match=why):
        actions.swap(store, last, digest(actions.comparison(store, last)), "")
    assert history.seen() == before
    # It was not decided either: nobody has to finish what cannot be done.
    assert [swap.backfill for swap in swaps.swaps(store, "kept")] == [0, 0]
    history.batch(3)


@pytest.mark.long
def test_cleaning_leaves_what_a_backfill_has_run_and_what_it_took_away(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path)
    for number in range(2):
        history.batch(number)
    pipeline = counted(0)(f"{store.root}/topics", 4)
    backfill = history.backfilled(Asked(0, 1, Settings()))
    sweep(pipeline, store)
    found = actions.comparison(store, backfill)
    actions.swap(store, backfill, digest(found), "")
    sweep(pipeline, store)
    actions.undo(store, backfill, "")
    assert left_over(pipeline, store).files == ()


def test_what_another_pipeline_has_begun_is_not_gone_on_with(store: Store, tmp_path: Path) -> None:
    """Else its first batches would be of one pipeline, and its last of another."""
    history = Batches(store, tmp_path)
    for number in range(2):
        history.batch(number)
    of = f"{store.root}/topics"
    first = actions.begin(counted(0)(of, 4), store, asked := Asked(0, 1, Settings()))
    # As long as nothing of it is planned, it is of no pipeline.
    assert actions.begin(counted(1)(of, 4), store, asked) == first
    actions.planned(counted(0)(of, 4), store, first, 0)
    assert actions.begin(counted(0)(of, 4), store, asked) == first
    other = actions.begin(counted(1)(of, 4), store, asked)
    assert other.number == first.number + 1
    assert actions.begin(counted(1)(of, 4), store, asked) == other


@pytest.mark.long
def test_cleaning_spares_what_a_backfill_at_workgoes_on_from(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path)
    for number in range(13):
        history.land([Click("key-1", number, number)], [], 4)
        history.publish(history.plan(Settings(), 4), judged=False)
    pipeline = counted(0)(f"{store.root}/topics", 4)
    asked = Asked(1, 2, Settings.parse(scheme="tasks(2)"))
    backfill = actions.begin(pipeline, store, asked)

    def stopped(name: str) -> AbstractContextManager[list[str]]:
        if name == "plan batch 2":
            sweep(pipeline, store)
        return silently(name)

    with Local(processes=1) as runner:
        actions.run(pipeline, store, backfill, runner, tmp_path, stopped)
    assert actions.comparison(store, backfill).same
    # Afterwards it goes, and no other backfill can begin there.
    sweep(pipeline, store)
    with pytest.raises(Refused, match="the state of newest after batch 0 was cleaned away or is lost"):
        actions.begin(pipeline, store, asked)
    assert actions.begin(pipeline, store, Asked(0, 0, Settings())).batches == (0,)


@pytest.mark.long
@pytest.mark.parametrize("swept", ["before the swap", "after the swap"])
def test_cleaning_spares_what_the_next_batch_goes_on_from_in_a_backfill(
    store: Store, tmp_path: Path, swept: str
) -> None:
    # Only the backfill keeps the clicks of batch 1, which are more than all later ones.
    history = Batches(store, tmp_path, pipeline=lambda lower: counted(100 - lower))
    for number in range(STATES_KEPT + 8):
        keys, first = (40, 0) if number == 1 else (1, 100)
        history.land([Click(f"key-{key}", first + number, number) for key in range(keys)], [], 4)
        history.publish(history.plan(Settings(), 4), judged=False)
    backfill, pipeline = history.backfilled(Asked(0, None, Settings()), threshold=100), counted(0)
    found = actions.comparison(store, backfill)
    if swept == "before the swap":
        sweep(pipeline(f"{store.root}/topics", 4), store)
    actions.swap(store, backfill, digest(found), "")
    if swept == "after the swap":
        sweep(pipeline(f"{store.root}/topics", 4), store)
    goes_on = History(store, tmp_path, pipeline)
    goes_on.land([Click("key-50", 200, 20)], [], 4)
    goes_on.publish(goes_on.plan(Settings(), 4), judged=False)
    assert len(history.seen("newest")) == 41


def test_gaps_are_what_was_skipped_and_what_was_given_up(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path)
    ledger = Ledger(store, "kept")
    history.land([Click(f"key-{number}", number, 0) for number in range(20)], [], 4)
    history.publish(history.plan(Settings(starts={"clicks-1": 2}), 4), judged=False)
    ((skipped, why, _),) = [(str(gap.range), gap.why, gap.then) for gap in gaps(ledger)]
    assert (skipped, why) == ("clicks-1@[0,2)", "batch 0 was asked to start at 2")
    history.land([Click("key-1", 1, 0)], [], 4)
    history.plan(Settings(), 4)
    publication.abandon(ledger, "wrong")
    assert [(gap.why, Shown().says(gap.then)) for gap in gaps(ledger)][1:] == [
        ("batch 1 was given up: wrong", "`coset run kept` reads them")
    ]
    history.publish(history.plan(Settings(), 4), judged=False)
    assert len(gaps(ledger)) == 1


@pytest.mark.long
def test_a_backfill_in_which_an_upserted_table_moves_has_each_key_once(store: Store, tmp_path: Path) -> None:
    """All keys move from some of its partitions to others, and nothing is left in the first."""
    history = Batches(store, tmp_path)
    first, *others = [key for key in map("key-{}".format, range(60)) if placement_hash(key) % 8 >= 4]
    for number, partitions in enumerate((4, 8, 8)):
        clicks = [Click(key, 20 + number, number) for key in others]
        history.land([*clicks, Click(first, 21 if number < 2 else 5, number)], [], partitions)
        ref = history.plan(Settings(), partitions)
        history.publish(ref, judged=False)
    assert next(write.anew for write in ref.load()[1].writes() if write.declared.table == "newest")
    backfill = history.backfilled(Asked(0, 2, Settings.parse(scheme="cogroup")), 8, threshold=10)
    actions.swap(store, backfill, digest(actions.comparison(store, backfill)), "")
    assert [row[:2] for row in history.seen("newest")] == sorted([(first, 21), *((key, 22) for key in others)])
