"""What tasks make and hand to each other is proved: what is lost, doubled, misplaced or changed is caught."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from coset.batches import steps
from coset.batches.ref import BatchRef
from coset.sources import parts_reader
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import WriteMode
from partitioning.documents.document import encode
from partitioning.documents.receipts import receipts
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Refused
from partitioning.model.leaving import BATCH, GONE, Leaving, LeftPart, LeftPartition
from partitioning.model.plan import PlannedWrite
from partitioning.model.receipt import Artefact, Receipt, Role
from partitioning.values import replace
from spark_jobs.engine import tally, writers
from spark_jobs.engine.order_steps import Steps
from spark_jobs.engine.states import KeptByKey
from spark_jobs.engine.tally import Tally
from spark_jobs.engine.writers import Writers
from spark_jobs.tables.column_bounds import RowsFile
from tests.histories import Click, History
from tests.judged import BALANCE, COVERED, HASH, IN_PLACE, MEET, PRODUCED, Refusal, caught_by, refusal, saying
from tests.landed import land_table
from tests.logs import log_of
from tests.misread import read_otherwise
from tests.real_batches import STAGE, delays, land_delays, stored
from tests.running import next_batch, run_and_publish, run_groups, task_receipts
from tests.there import there
from tests.totals import totals

Parts = tuple[LeftPart, ...]


def planned(store: Store) -> BatchRef:
    """Flights of which four tasks each leave some for three others."""
    source = f"{store.root}/topics"
    columns = {
        "tailnum": [f"N{number % 40}" for number in range(400)],
        "origin": [f"A{number % 29}" for number in range(400)],
    }
    land_table(pa.table(columns), "flights", source, key="tailnum", partitions=4)
    pipeline = Pipeline("delays", source=source)
    by_origin = pipeline.stream("flights", key="tailnum", partitions=4).rekey("origin", name="by_origin")
    by_origin.aggregate("count(*) AS flights", name="counted").write("delays")
    return next_batch(pipeline, store.root, Settings.parse(scheme=["by_origin.exchange=tasks(3)"], groups=2))


def run_spoiled(ref: BatchRef, patch: pytest.MonkeyPatch, spoil: Callable[[Parts], Parts]) -> None:
    """Run the batch; whoever reads of partition 1 what tasks left reads other parts of it than the order says."""

    def spoiled(left: LeftPartition) -> LeftPartition:
        return replace(left, parts=spoil(left.parts)) if left.partition == 1 else left

    read_otherwise(patch, lambda read: replace(read, partitions=tuple(map(spoiled, read.partitions))))
    run_groups(ref)


def exchanged(ref: BatchRef) -> list[Artefact]:
    return [artefact for task in task_receipts(ref) for artefact in task.left(Role.EXCHANGE)]


def test_nothing_is_wrong_with_the_batch_itself(store: Store) -> None:
    ref = planned(store)
    run_and_publish(ref)
    assert [len(artefact.parts) for artefact in exchanged(ref)] == [3, 3, 3, 3]
    assert sum(artefact.records for artefact in exchanged(ref)) == 400


@caught_by(COVERED)
def test_a_part_that_is_not_read_is_missed(store: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    ref = planned(store)
    run_spoiled(ref, monkeypatch, lambda parts: (*parts[:1], *parts[2:]))
    return refusal(ref)


@caught_by(COVERED)
def test_a_part_that_is_read_twice_is_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    ref = planned(store)
    run_spoiled(ref, monkeypatch, lambda parts: (*parts, parts[0]))
    return refusal(ref)


@caught_by(COVERED)
def test_a_part_that_is_read_in_place_of_another_is_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    def others(parts: Parts) -> Parts:
        instead = replace(parts[1], first=parts[0].first, task=parts[0].task)
        return (instead, *parts[1:])

    ref = planned(store)
    run_spoiled(ref, monkeypatch, others)
    return refusal(ref)


def test_records_that_are_left_in_a_wrong_partition_are_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    right = tally.destinations

    def wrong(leaving: Leaving, task: int, rows: pa.RecordBatch) -> np.ndarray:
        partitions = right(leaving, task, rows)
        partitions[:2] = (partitions[:2] + 1) % leaving.placement.partitions
        return partitions

    monkeypatch.setattr(writers, "destinations", wrong)
    ref = planned(store)
    run_groups(ref)
    said = refusal(ref)
    # Equal keys do not meet any more.
    assert {IN_PLACE, MEET, HASH} == set(said.failed)
    (finding,) = (what for what in said.findings if IN_PLACE in what or "belongs in partition" in what)
    assert "by_origin.exchange-" in finding
    assert "where the task that wrote it did not put it" in finding


def rewritten(data: bytes) -> bytes:
    return data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]


@pytest.mark.parametrize("change", [rewritten, None], ids=["changed", "gone"])
def test_a_file_that_changed_or_went_before_it_was_read_is_refused(
    change: Callable[[bytes], bytes] | None, store: Store, tmp_path: Path
) -> None:
    ref = planned(store)
    _, plan = ref.load()
    for number in plan.waves[0]:
        run_one(ref, number)
    path = written(ref, plan.waves[0])[0].path
    data = there(store.get(path))
    if change is None:
        store.delete(path)
    else:
        store.put(path, change(data))
    with pytest.raises(Refused, match="the file is gone or was changed since a task left it") as refused:
        run_groups(ref)
    assert {finding.where for finding in refused.value.findings} == {f"{store.root}/{path}"}
    assert "coset replan delays" in refused.value.findings[0].then


def run_one(ref: BatchRef, number: int) -> None:
    from coset.batches.runners.local import Local

    with Local(processes=1) as runner:
        runner.group(ref, number)


def written(ref: BatchRef, groups: Sequence[int]) -> list[Artefact]:
    ledger, plan = ref.load()
    found = [ledger.receipt(plan.batch, 0, number) for number in groups]
    return [file for one in found if one for task in one.tasks for file in task.left(Role.EXCHANGE)]


class _Dropping(RowsFile):
    """Loses the first row of what it is given."""

    def write(self, rows: pa.RecordBatch | pa.Table) -> int:
        super().write(rows.slice(1))
        return len(rows)


def test_a_file_of_a_table_that_lacks_a_row_is_refused_by_its_task(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "RowsFile", _Dropping)
    with pytest.raises(Refused, match="the file has 8 records, 9 were written to it"):
        run_groups(planned(store))


def test_a_later_wave_waits_for_the_earlier(store: Store) -> None:
    ref = planned(store)
    _, plan = ref.load()
    with pytest.raises(Refused, match="task group 0 of batch 0 has no receipt") as refused:
        run_one(ref, plan.waves[1][0])
    assert [len(finding.places) for finding in refused.value.findings] == [len(plan.waves[0])]
    assert "coset run delays" in refused.value.findings[0].then


def lost(artefact: Artefact) -> Artefact:
    return replace(artefact, parts=artefact.parts[1:])


def out_of_order(artefact: Artefact) -> Artefact:
    return replace(artefact, parts=artefact.parts[::-1])


def elsewhere(artefact: Artefact) -> Artefact:
    return replace(artefact, parts=(*artefact.parts[:-1], replace(artefact.parts[-1], partition=9)))


def another(artefact: Artefact) -> Artefact:
    return replace(artefact, name="other.exchange")


FORGED: dict[Callable[[Artefact], Artefact], str] = {
    lost: "does not agree with itself",
    out_of_order: "does not agree with itself",
    elsewhere: "does not agree with itself",
    another: "left other.exchange, which is not planned for it",
}


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_an_index_that_does_not_fit_is_refused(forge: Callable[[Artefact], Artefact], store: Store) -> None:
    ref = planned(store)
    run_groups(ref)
    ledger, plan = ref.load()
    receipt = there(ledger.receipt(plan.batch, 0, 0))
    key = ledger.key("receipts", plan.batch, "attempt-0", "group-0")
    store.delete(key)
    ledger.put_receipt(forged(receipt, forge), plan.batch)
    with pytest.raises(CosetError, match=FORGED[forge]):
        receipts(ledger, plan, 0)


def forged(receipt: Receipt, forge: Callable[[Artefact], Artefact]) -> Receipt:
    first, *others = receipt.tasks
    files = tuple(forge(file) if file.role is Role.EXCHANGE else file for file in first.artefacts)
    return replace(receipt, tasks=(replace(first, artefacts=files), *others))


def test_chunks_are_put_together_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_reader, "_CHUNK", 100)
    run_and_publish(planned(store))


_ALL = KeptByKey.all


def less(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """All but the first row."""
    table = rows.read_all()
    return pa.RecordBatchReader.from_batches(table.schema, table.slice(1).to_batches())


def twice(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """All rows, the first once more."""
    table = rows.read_all()
    return pa.RecordBatchReader.from_batches(table.schema, pa.concat_tables([table, table.slice(0, 1)]).to_batches())


@pytest.fixture
def of_tables(store: Store) -> BatchRef:
    return stored(land_delays(store), delays(store))


@pytest.fixture
def of_an_exchange(store: Store) -> BatchRef:
    """Flights that move to where their origins are counted; nothing else is done to them before."""
    columns = {"tailnum": [f"N{n % 40}" for n in range(400)], "origin": [f"A{n % 29}" for n in range(400)]}
    land_table(pa.table(columns), "flights", f"{store.root}/topics", key="tailnum", partitions=4)
    made = Pipeline("delays", source=f"{store.root}/topics")
    flights = made.stream("flights", key="tailnum", partitions=4)
    flights.repartition(3, name="moved").write("moved")
    return stored(store, made)


# ---- result tables


@caught_by(PRODUCED)
def test_a_writer_that_loses_its_file_is_refused(of_tables: BatchRef, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    write = Writers.table

    def lose(self: Writers, planned: PlannedWrite, rows: pa.RecordBatchReader) -> Artefact | None:
        artefact = write(self, planned, rows)
        return None if self.order.task.task == 2 else artefact

    monkeypatch.setattr(Writers, "table", lose)
    run_groups(of_tables)
    return saying(refusal(of_tables), f"task {STAGE}/2, table delays: ", " rows made, 0 rows left")


@caught_by(PRODUCED)
@pytest.mark.parametrize("change", [less, twice])
def test_a_writer_that_drops_or_doubles_a_row_is_refused(
    of_tables: BatchRef, monkeypatch: pytest.MonkeyPatch, change: Callable[[pa.RecordBatchReader], pa.RecordBatchReader]
) -> Refusal:
    write = Writers.table
    monkeypatch.setattr(Writers, "table", lambda self, planned, rows: write(self, planned, change(rows)))
    run_groups(of_tables)
    return saying(refusal(of_tables), "Production, not met: What a task left has as many rows as its steps made")


@caught_by(PRODUCED)
def test_a_writer_that_stops_before_the_end_is_refused(of_tables: BatchRef, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    def stop(self: Writers, *_: object) -> None:
        """Reads nothing, writes nothing."""

    monkeypatch.setattr(Writers, "table", stop)
    run_groups(of_tables)
    return refusal(of_tables)


# ---- exchanges and state


@caught_by(PRODUCED)
@pytest.mark.parametrize(
    ("of", "name", "at", "said"),
    [
        # Those who read it have read all that was left.
        (Writers, "left", 1, "90 rows made, 89 rows left, 90 records taken and only moved, 89 rows"),
        # Where records only move, SQL loses one.
        (Steps, "left", None, "90 records taken and only moved, 89 rows left"),
        (Steps, "table", None, "records taken and only moved"),
    ],
)
def test_a_row_that_is_lost_on_its_way_into_an_exchange_or_after_it_is_missed(
    of_an_exchange: BatchRef, monkeypatch: pytest.MonkeyPatch, of: type, name: str, at: int | None, said: str
) -> Refusal:
    as_it_was = getattr(of, name)

    def losing(self: object, *given: Any) -> Any:
        if at is None:
            return less(as_it_was(self, *given))
        return as_it_was(self, *given[:at], less(given[at]), *given[at + 1 :])

    monkeypatch.setattr(of, name, losing)
    run_groups(of_an_exchange)
    where = "" if name == "table" else "task flights/3, exchange flights.exchange: "
    return saying(refusal(of_an_exchange), f"{where}{said}")


def second(store: Store, docs: Path, patch: pytest.MonkeyPatch, spoil: Callable[[], None]) -> Refusal:
    """The second batch of running totals, whose tasks are spoiled before they run."""
    history = History(store, docs, totals)
    for batch in range(2):
        history.land([Click(f"key-{number}", number, batch) for number in range(40)], [], 4)
        ref = history.plan(Settings.parse(groups=2), 4)
        if batch == 0:
            history.publish(ref)
    spoil()
    run_groups(ref)
    return refusal(ref, docs)


@caught_by(PRODUCED)
@pytest.mark.parametrize("lost", ["a row", "the file"])
def test_state_that_is_lost_is_missed_before_the_next_batch_goes_on_from_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> Refusal:
    write = Writers.left

    def lose(self: Writers, leaving: Leaving, rows: pa.RecordBatchReader, temp: Path) -> Artefact | None:
        if leaving.role is not Role.STATE or self.order.task.task != 1:
            return write(self, leaving, rows, temp)
        return write(self, leaving, less(rows), temp) if lost == "a row" else None

    said = second(store, tmp_path, monkeypatch, lambda: monkeypatch.setattr(Writers, "left", lose))
    assert "/1, state totals.state: " in said.findings[0]
    return said


# ---- upserted tables


def upserting(source: str, partitions: int) -> Pipeline:
    pipeline = Pipeline("kept", source=source)
    clicks = pipeline.stream("clicks", key="k", partitions=partitions)
    clicks.aggregate("count(*) AS n", name="counts").to_stream().write("last", mode="upsert")
    return pipeline


def upserted_by(
    store: Store, docs: Path, patch: pytest.MonkeyPatch, change: Callable[[list[Artefact]], Iterable[Artefact]]
) -> Refusal:
    """The second batch of an upserted table, of whose files the receipts say what `change` makes of them."""
    write = Writers.upserted

    def changed(self: Writers, *given: Any) -> Iterator[Artefact]:
        yield from change(list(write(self, *given)))

    return second_of_upserted(store, docs, lambda _: patch.setattr(Writers, "upserted", changed), range(40))


@caught_by(PRODUCED)
def test_a_partition_of_an_upserted_table_that_is_not_written_anew_is_missed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    said = upserted_by(store, tmp_path, monkeypatch, lambda files: files[1:])
    assert "table last, partition " in said.findings[0]
    assert "no file was left" in said.findings[0]
    return said


@caught_by(PRODUCED)
def test_a_partition_of_an_upserted_table_that_loses_a_row_is_missed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    make = Writers._with_origin
    monkeypatch.setattr(Writers, "_with_origin", lambda self, rows, write: make(self, rows, write).slice(1))
    history = History(store, tmp_path, upserting)
    history.land([Click(f"key-{number}", number, 0) for number in range(40)], [], 4)
    ref = history.plan(Settings.parse(scheme="tasks(2)"), 4)
    run_groups(ref)
    return refusal(ref, tmp_path)


def second_of_upserted(
    store: Store, docs: Path, between: Callable[[BatchRef], object], keys: range = range(10)
) -> Refusal:
    """The second batch of an upserted table of 40 keys: `between` is called with it when it is planned."""
    history = History(store, docs, upserting)
    history.land([Click(f"key-{number}", number, 0) for number in range(40)], [], 4)
    run_and_publish(history.plan(Settings.parse(scheme="tasks(2)"), 4), docs)
    history.land([Click(f"key-{number}", number, 1) for number in keys], [], 4)
    ref = history.plan(Settings.parse(scheme="tasks(2)"), 4)
    between(ref)
    run_groups(ref)
    return refusal(ref, docs)


@caught_by(BALANCE)
def test_a_receipt_that_hides_a_row_that_went_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    count = Tally.gone

    def hiding(self: Tally, *given: Any) -> tuple[Counter[int], list[pa.RecordBatch]]:
        gone, keys = count(self, *given)
        return gone - Counter([min(gone)]), keys

    said = second_of_upserted(store, tmp_path, lambda _: monkeypatch.setattr(Tally, "gone", hiding))
    return saying(said, "Balance of tables, not met: Rows before,", "last, partition 0: it has ", "after the batch")


@caught_by(BALANCE)
def test_an_old_row_that_stays_beside_the_one_that_takes_its_place_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    def staying(self: KeptByKey, since: int | None) -> str:
        columns = f'{self._columns}, "{BATCH.name}", "{GONE.name}"'
        return f"{_ALL(self, since)} UNION ALL SELECT {columns}, false FROM {self._needed} WHERE k = 'key-3'"

    return second_of_upserted(store, tmp_path, lambda _: monkeypatch.setattr(KeptByKey, "all", staying))


@caught_by(BALANCE)
def test_a_row_of_another_key_that_state_lost_is_missed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    def losing(self: KeptByKey, since: int | None) -> str:
        return f"SELECT * FROM ({_ALL(self, since)}) WHERE k <> 'key-33'"

    # Keys of each partition come, so that each is written anew.
    return second_of_upserted(store, tmp_path, lambda _: monkeypatch.setattr(KeptByKey, "all", losing), keys=range(30))


@caught_by(BALANCE)
@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_a_table_that_somebody_changes_after_the_batch_is_planned_is_refused(
    store: Store, tmp_path: Path, mode: WriteMode
) -> Refusal:
    def made(source: str, partitions: int) -> Pipeline:
        pipeline = Pipeline("kept", source=source)
        clicks = pipeline.stream("clicks", key="k", partitions=partitions).to_stream()
        clicks.select("seen", name="times").write("last", mode=mode)
        return pipeline

    history = History(store, tmp_path, made)
    for batch in range(2):
        history.land([Click(f"key-{number}", number, batch) for number in range(40)], [], 4)
        ref = history.plan(Settings.parse(scheme="tasks(2)"), 4)
        if batch == 0:
            run_and_publish(ref, tmp_path)
    table = log_of(store, "last")
    write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="append")
    run_groups(ref)
    return saying(
        refusal(ref, tmp_path), "    - last: version 2 of the table is not by pipeline 'kept': WRITE (Append)"
    )


# ---- what lies in the store


def replaced(ref: BatchRef, role: Role, change: Callable[[bytes], bytes], **says: int) -> Artefact:
    """Put another object in the place of a task's first file; the receipt says of it what is so now, or `says`."""
    ledger, plan = ref.load()
    receipt = there(ledger.receipt(plan.batch, 0, 0))
    first, *others = receipt.tasks
    (file,) = first.left(role)
    ledger.store.put(file.path, change(ledger.store.get(file.path) or b""))
    entry = there(ledger.store.head(file.path))
    forged = replace(file, size=entry.size, etag=entry.etag, **says)
    artefacts = tuple(forged if each is file else each for each in first.artefacts)
    changed = replace(receipt, tasks=(replace(first, artefacts=artefacts), *others))
    ledger.store.put(ledger.key("receipts", plan.batch, "attempt-0", "group-0"), encode(changed))
    return file


def without_a_row(data: bytes) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(data)).slice(1), sink)
    return sink.getvalue()


def test_a_file_with_other_rows_than_its_receipt_says_is_refused(of_tables: BatchRef, tmp_path: Path) -> None:
    run_groups(of_tables)
    file = replaced(of_tables, Role.TABLE, without_a_row)
    steps.audit(of_tables)
    with pytest.raises(Refused, match=f"the file has {file.records - 1} records, its receipt says {file.records}"):
        steps.check(of_tables, tmp_path)


@caught_by(PRODUCED)
def test_a_file_with_other_rows_is_refused_though_its_receipt_agrees_with_it(of_tables: BatchRef) -> Refusal:
    run_groups(of_tables)
    (file, *_) = (file for task in task_receipts(of_tables) for file in task.left(Role.TABLE))
    replaced(of_tables, Role.TABLE, without_a_row, records=file.records - 1)
    return refusal(of_tables)


@pytest.mark.parametrize(("cut", "says"), [(9, "bytes, not"), (0, "the file has the content sha256:")])
def test_state_that_was_truncated_or_replaced_since_a_task_left_it_is_refused(
    store: Store, tmp_path: Path, cut: int, says: str
) -> None:
    history = History(store, tmp_path, totals)
    history.land([Click(f"key-{number}", number, 0) for number in range(40)], [], 4)
    ref = history.plan(Settings.parse(groups=2), 4)
    run_groups(ref)
    path = next(file.path for task in task_receipts(ref) for file in task.left(Role.STATE))
    data = store.get(path) or b""
    store.put(path, data[cut:-1] + (b"" if cut else b"x"))
    steps.audit(ref)
    with pytest.raises(Refused, match=says):
        steps.check(ref, tmp_path)
    ledger, plan = ref.load()
    assert ledger.verdict(plan.batch) is None


# ---- receipts


@caught_by(PRODUCED)
def test_a_receipt_that_does_not_say_what_was_made_for_a_table_is_refused(of_tables: BatchRef) -> Refusal:
    run_groups(of_tables)
    change_made(of_tables, ())
    return saying(refusal(of_tables), "nothing was made for it, ")


def test_a_receipt_of_a_version_that_did_not_count_passes_and_the_page_says_so(
    of_tables: BatchRef, tmp_path: Path
) -> None:
    run_groups(of_tables)
    change_made(of_tables, None)
    run_and_publish(of_tables, tmp_path)
    (page,) = tmp_path.rglob("batch-0-attempt-0.html")
    assert "1 were written by an earlier version, which did not count what was made" in page.read_text()


def change_made(ref: BatchRef, made: tuple[()] | None) -> None:
    """Change what the first task of the batch says that it made."""
    ledger, plan = ref.load()
    receipt = there(ledger.receipt(plan.batch, 0, 0))
    first, *others = receipt.tasks
    assert [each.records for each in first.made or ()] == [file.records for file in first.left(Role.TABLE)]
    changed = replace(receipt, tasks=(replace(first, made=made), *others))
    ledger.store.put(ledger.key("receipts", plan.batch, "attempt-0", "group-0"), encode(changed))


def test_what_is_made_is_in_the_receipts(of_an_exchange: BatchRef) -> None:
    run_groups(of_an_exchange)
    made = [each for task in task_receipts(of_an_exchange) for each in task.made or ()]
    by_name = {name: sum(each.records for each in made if each.name == name) for name in ("flights.exchange", "moved")}
    assert by_name == {"flights.exchange": 400, "moved": 400}
