"""Batches that write beside the rows that are there, and would make other rows dead than those of their keys: each is
refused before anything is published."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from coset.batches import steps
from coset.batches.ref import BatchRef
from coset.batches.tables import deletion_vectors
from coset.batches.tables.logs import Logs
from coset.batches.tables.table_reader import count_live
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.artefact import Artefact
from partitioning.model.plan import PlannedWrite
from partitioning.model.receipt import Keyed
from spark_jobs.engine import kernel
from spark_jobs.engine.states import KeptByKey
from spark_jobs.engine.tally import Tally
from spark_jobs.engine.writers import Writers
from spark_jobs.tables.table_schema import folder
from tests.begun import Begun
from tests.histories import Click, History
from tests.judged import BALANCE, PRODUCED, Refusal, caught_by, refusal, saying
from tests.logs import log_of
from tests.running import run_and_publish, run_groups
from tests.there import there

KEYS = 40
Keys = Sequence[pa.RecordBatch]


def people(source: str, partitions: int) -> Pipeline:
    pipeline = Pipeline("kept", source=source)
    newest = pipeline.stream("clicks", key="k", partitions=partitions).latest("seen", name="newest")
    newest.write("people", mode="upsert", deletes="id < 0", updates="beside")
    return pipeline


def two_batches(store: Store) -> None:
    """Of forty keys six have changed; now some change, one goes, and one is new."""
    history = History(store, Path(), people)
    history.land([Click(f"key-{number}", number, 0) for number in range(KEYS)], [], 4)
    run_and_publish(history.plan(Settings.parse(scheme="tasks(2)"), 4))
    history.land([Click(f"key-{number}", number, 1) for number in range(7, 13)], [], 4)
    run_and_publish(history.plan(Settings.parse(scheme="tasks(2)"), 4))
    history.land([Click(f"key-{number}", number, 2) for number in (0, 1, 3, 4, 50)] + [Click("key-2", -1, 2)], [], 4)


@pytest.fixture
def store(begun: Begun) -> Store:
    return begun.by(two_batches)


@pytest.fixture
def ref(store: Store) -> BatchRef:
    """The third batch, planned."""
    ref = History(store, Path(), people).plan(Settings.parse(scheme="tasks(2)"), 4)
    assert [write.beside for write in ref.load()[1].writes()] == [True]
    return ref


def test_the_batch_is_published_if_nothing_is_wrong(ref: BatchRef, store: Store) -> None:
    run_and_publish(ref)
    vectors = log_of(store, "people").deletion_vectors()
    masks = pa.table(vectors)["selection_vector"].to_pylist()
    # delta-rs says of each row up to the last dead one whether it lives.
    assert sum(alive.count(False) for alive in masks) == 11


def ran(ref: BatchRef) -> Refusal:
    run_groups(ref)
    return refusal(ref)


# ---- what tasks write


def named(key: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    return lambda keys: keys.set_column(0, "k", pa.array([key] * len(keys), pa.string()))


WRITTEN: dict[str, Callable[[Keys], Keys]] = {
    "no key": lambda keys: [],
    "no key but the first": lambda keys: [batch.slice(0, 1) for batch in keys][:1] if keys else [],
    "another key of the table": lambda keys: [named("key-33")(batch) for batch in keys],
    "a key that the table does not have": lambda keys: [named("key-99")(batch) for batch in keys],
    "a key more": lambda keys: [*keys, *(named("key-33")(batch.slice(0, 1)) for batch in keys[:1])],
    "a key whose row is dead": lambda keys: [named("key-7")(batch) for batch in keys],
    "keys in capitals": lambda keys: [named("KEY-2")(batch) for batch in keys],
}


@caught_by(BALANCE)
@pytest.mark.parametrize("wrong", WRITTEN)
def test_a_task_that_writes_other_keys_than_it_replaces_is_refused(
    ref: BatchRef, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> Refusal:
    write = Writers.replaced

    def writing(self: Writers, planned: PlannedWrite, keys: Keys) -> Artefact | None:
        return write(self, planned, WRITTEN[wrong](keys))

    monkeypatch.setattr(Writers, "replaced", writing)
    return ran(ref)


@caught_by(BALANCE)
def test_as_many_rows_of_other_keys_are_refused(ref: BatchRef, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """The numbers agree."""
    write = Writers.replaced

    def writing(self: Writers, planned: PlannedWrite, keys: Keys) -> Artefact | None:
        (batch,) = keys or [None]
        if batch is None or "key-2" not in (names := batch["k"].to_pylist()):
            return write(self, planned, keys)
        ours = pa.array(["key-33" if name == "key-2" else name for name in names], pa.string())
        return write(self, planned, [batch.set_column(0, "k", ours)])

    monkeypatch.setattr(Writers, "replaced", writing)
    return saying(ran(ref), "5 keys were replaced, and 5 rows of the table would go, which are not theirs alone")


@caught_by(BALANCE)
@pytest.mark.parametrize("more", [-1, 1])
def test_a_receipt_that_counts_other_rows_is_refused(
    ref: BatchRef, monkeypatch: pytest.MonkeyPatch, more: int
) -> Refusal:
    count = Tally.gone

    def counting(self: Tally, *given: Any) -> Any:
        gone, keys = count(self, *given)
        for number in gone:
            gone[number] += more
        return gone, keys

    monkeypatch.setattr(Tally, "gone", counting)
    return ran(ref)


@caught_by(BALANCE)
def test_a_receipt_with_the_digest_of_other_keys_is_refused(ref: BatchRef, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    monkeypatch.setattr(kernel, "keyed", lambda write, rows: Keyed(sum(map(len, rows)), "0" * 16))
    return ran(ref)


@caught_by(BALANCE)
def test_a_state_that_lost_what_the_table_has_is_refused(ref: BatchRef, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    find = KeptByKey._find

    def losing(self: KeptByKey, needed: str) -> None:
        self._known = f"SELECT * FROM ({self._known}) WHERE k <> 'key-1'"
        find(self, needed)

    monkeypatch.setattr(KeptByKey, "_find", losing)
    return ran(ref)


@caught_by(BALANCE)
def test_a_row_of_a_key_that_did_not_come_is_refused(ref: BatchRef, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    make = KeptByKey.all

    def more(self: KeptByKey) -> str:
        return f"SELECT * REPLACE (CASE k WHEN 'key-50' THEN 'key-33' ELSE k END AS k) FROM ({make(self)})"

    monkeypatch.setattr(KeptByKey, "all", more)
    return ran(ref)


def test_new_rows_that_are_not_written_are_missed(ref: BatchRef, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Writers.upserted
    monkeypatch.setattr(Writers, "upserted", lambda self, *given: list(write(self, *given))[1:])
    assert set(ran(ref).failed) == {PRODUCED, BALANCE}


# ---- what others do to the table after the batch is planned


def once_more(table: DeltaTable) -> None:
    rows = pa.table({"k": ["key-1"], "id": [1], "seen": pa.array([0], pa.timestamp("us"))})
    write_deltalake(table, rows.append_column("_residue", pa.array([0], pa.int32())), mode="append")


OTHERS: dict[str, Callable[[DeltaTable], object]] = {
    "DELETE": lambda table: table.delete("k = 'key-1'"),
    "UPDATE": lambda table: table.update(predicate="k = 'key-1'", updates={"id": "7"}),
    "WRITE (Append)": once_more,
    "RESTORE": lambda table: table.restore(1),
}


@caught_by(BALANCE)
@pytest.mark.parametrize("what", OTHERS)
def test_what_others_did_is_told(ref: BatchRef, store: Store, what: str) -> Refusal:
    OTHERS[what](log_of(store, "people"))
    return saying(ran(ref), f"is not by pipeline 'kept': {what}")


@caught_by(BALANCE)
def test_a_row_that_somebody_calls_back_to_life_is_told(ref: BatchRef, store: Store) -> Refusal:
    """As a writer would that forgets the vector."""
    amend(store, lambda added: {name: value for name, value in added.items() if name != "deletionVector"})
    return saying(ran(ref), "is not by pipeline 'kept'")


def uncounted(store: Store) -> None:
    amend(store, lambda added: {name: value for name, value in added.items() if name != "stats"}, changes=False)


def moved(store: Store) -> None:
    log_of(store, "people").optimize.compact()


@pytest.mark.parametrize("between", [uncounted, moved])
def test_a_file_of_which_nobody_counted_the_rows_and_rows_that_others_only_moved_are_found(
    ref: BatchRef, store: Store, between: Callable[[Store], None]
) -> None:
    run_groups(ref)
    steps.audit(ref)
    steps.check(ref, None)
    # Between the verdict and the commit.
    between(store)
    steps.publish(ref)
    assert count_live(log_of(store, "people")) == KEYS


def amend(store: Store, change: Callable[[dict[str, Any]], dict[str, Any]], *, changes: bool = True) -> None:
    """Commit a version in which the files that have dead rows are others."""
    logs, where = Logs(), folder(store, "people")
    table = there(logs.table(where))
    version = table.version()
    actions = map(json.loads, (table.commit(version) or b"").splitlines())
    added = [action["add"] for action in actions if "add" in action]
    dead = [file for file in added if "deletionVector" in file]
    assert dead
    lines = [{"commitInfo": {"timestamp": 0, "operation": "OTHER"}}]
    lines += [{"remove": {**file, "deletionTimestamp": 0, "dataChange": changes}} for file in dead]
    lines += [{"add": change({**file, "dataChange": changes})} for file in dead]
    store_at(where).put_new(f"_delta_log/{version + 1:020}.json", "\n".join(map(json.dumps, lines)).encode())


# ---- vectors that are not what the log says


def first_vector(store: Store) -> str:
    (vector,) = [entry.key for entry in store_at(folder(store, "people")).list(deletion_vectors.PREFIX)]
    return vector


def flipped(place: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[:-1],
    "another size": flipped(4),
    "another magic number": flipped(5),
    "another row": flipped(30),
    "another checksum": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_vector_that_is_damaged_is_refused(ref: BatchRef, store: Store, damage: str) -> None:
    place = store_at(folder(store, "people"))
    place.put(first_vector(store), DAMAGES[damage](there(place.get(first_vector(store)))))
    is_refused(ref, "a deletion vector cannot be read: it is missing, or not what the log says")


def test_a_vector_that_is_gone_is_refused(ref: BatchRef, store: Store) -> None:
    store_at(folder(store, "people")).delete(first_vector(store))
    is_refused(ref, r"cannot be read: it is missing.*\n.*deletion_vector_")


def test_a_vector_outside_the_table_is_refused(ref: BatchRef, store: Store) -> None:
    def outside(added: dict[str, Any]) -> dict[str, Any]:
        vector = {**added["deletionVector"], "storageType": "p", "pathOrInlineDv": "s3://elsewhere/vector.bin"}
        return {**added, "deletionVector": vector}

    amend(store, outside)
    is_refused(ref, "it lies outside its table, where Coset does not read it")


def is_refused(ref: BatchRef, what: str) -> None:
    run_groups(ref)
    steps.audit(ref)
    with pytest.raises(Refused, match=what):
        steps.check(ref, None)
