"""Batches that write beside the rows that are there, and would make other rows dead than those of their keys: each is
refused before anything is published."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

from coset.batches import steps
from coset.batches.ref import BatchRef
from coset.batches.tables import dead_rows, deletion_vectors, delta, noting
from coset.batches.tables.dead_rows import ROW, DeadRows, check_noted
from coset.batches.tables.live_files import LiveFile, live_files
from coset.batches.tables.log_copy import TableLog
from coset.batches.tables.logs import Logs, opened
from coset.batches.tables.table_reader import count_live, live_rows
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.plan import PlannedWrite
from partitioning.model.receipt import Artefact, Keyed
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


def one_batch(store: Store) -> None:
    """Of forty keys six change."""
    history = History(store, Path(), people)
    history.land([Click(f"key-{number}", number, 0) for number in range(KEYS)], [], 4)
    run_and_publish(history.plan(Settings.parse(scheme="tasks(2)"), 4))
    history.land([Click(f"key-{number}", number, 1) for number in range(7, 13)], [], 4)


def two_batches(store: Store) -> None:
    """Then some change, one goes, and one is new."""
    one_batch(store)
    history = History(store, Path(), people)
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
    said = "5 keys were replaced, and 5 rows of the table would go, which are not theirs alone, unless tasks ran in "
    return saying(ran(ref), f"{said}another version of Coset: a new attempt tells")


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

    def more(self: KeptByKey, since: int | None) -> str:
        return f"SELECT * REPLACE (CASE k WHEN 'key-50' THEN 'key-33' ELSE k END AS k) FROM ({make(self, since)})"

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
    refused = saying(ran(ref), f"is not by pipeline 'kept': {what}")
    assert "if others changed a table, take that back or accept it; if the input" in refused.next[0]
    return refused


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


# ---- dead rows that the publisher itself finds or notes wrongly


Dead = list[DeadRows]
Actions = list[dict[str, Any]]


def ran_and_audited(store: Store) -> None:
    two_batches(store)
    ref = History(store, Path(), people).plan(Settings.parse(scheme="tasks(2)"), 4)
    run_groups(ref)
    steps.audit(ref)


def decided(store: Store) -> None:
    ran_and_audited(store)
    steps.check(third(store), None)


def third(store: Store) -> BatchRef:
    return BatchRef.of(store, there(Ledger(store, "kept").plan(2)))


def positions(dead: DeadRows) -> list[int]:
    rows: list[int] = dead.rows[ROW].to_pylist()
    return rows


def earlier(dead: DeadRows) -> BitMap64:
    return dead.all - BitMap64(positions(dead))


def lives(dead: DeadRows) -> int:
    return next(row for row in range(dead.of) if row not in dead.all)


def at(dead: DeadRows, *rows: int) -> DeadRows:
    """The same, if these rows of the file were those that the batch makes dead."""
    keys = dead.rows.take([number % len(dead.rows) for number in range(len(rows))])
    numbered = keys.set_column(keys.column_names.index(ROW), ROW, pa.array(rows, pa.int64()))
    return replace(dead, rows=numbered, all=earlier(dead) | BitMap64(rows))


FOUND: dict[str, tuple[Callable[[DeadRows, DeadRows], Dead], str]] = {
    "a row that lives": (lambda a, b: [at(a, positions(a)[0], lives(a)), b], "1 row of keys that did not come"),
    "a row that lives, besides": (lambda a, b: [at(a, *positions(a), lives(a)), b], "1 row of keys that did not come"),
    "the rows before": (lambda a, b: [at(a, *(row - 1 for row in positions(a))), b], "2 rows of keys that did not"),
    "rows of another file": (lambda a, b: [at(a, *positions(b)[:2]), b], "2 rows of keys that did not come"),
    "a row twice": (lambda a, b: [at(a, *positions(a), positions(a)[0]), b], "dead twice"),
    "a row that is dead": (lambda a, b: [at(a, *positions(a), earlier(a)[0]), b], "dead twice"),
    "and rows that live again": (lambda a, b: [replace(a, all=BitMap64(positions(a))), b], "or live again"),
    "a row behind the last": (lambda a, b: [at(a, positions(a)[0], a.of), b], "that the file does not have"),
    "rows of fewer": (lambda a, b: [replace(a, of=len(a.all)), b], "that the file does not have"),
    "rows of more": (lambda a, b: [replace(a, of=a.of + 1), b], "that the file does not have"),
    "all but a row": (lambda a, b: [at(a, positions(a)[0]), b], "1 row of keys that came would live beside"),
    "no row of a file": (lambda a, b: [a], "3 rows of keys that came would live beside"),
    "no row": (lambda a, b: [], "5 rows of keys that came would live beside"),
    "rows of a file that is not there": (
        lambda a, b: [a, replace(b, file=LiveFile({**b.file.added, "path": "data/none.parquet"}))],
        r"a file of the table is missing: .*none\.parquet",
    ),
}


def number(dead: DeadRows) -> int:
    return len(dead.rows)


@pytest.mark.parametrize("wrong", FOUND)
def test_rows_that_are_found_wrongly_are_refused(begun: Begun, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    store = begun.by(ran_and_audited)
    (change, said), find = FOUND[wrong], dead_rows._dying
    monkeypatch.setattr(dead_rows, "_dying", lambda *given: change(*sorted(find(*given), key=number)))
    with unchanged(store), pytest.raises(Refused, match=said):
        steps.check(third(store), None)
    assert Ledger(store, "kept").verdict(2) is None


def unvectored(action: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in action.items() if name != "deletionVector"}


def adds(action: dict[str, Any]) -> bool:
    return "deletionVector" in action.get("add", {})


def removes(action: dict[str, Any]) -> bool:
    return "remove" in action


def only(which: Callable[[dict[str, Any]], bool], **changes: Any) -> Callable[[Actions], Actions]:
    """Change what the first such action says of its file."""

    def changed(actions: Actions) -> Actions:
        first = next(action for action in actions if which(action))
        ((what, said),) = first.items()
        return [{what: {**said, **changes}} if action is first else action for action in actions]

    return changed


def without(*which: Callable[[dict[str, Any]], bool]) -> Callable[[Actions], Actions]:
    """Leave out the first of each such action."""

    def fewer(actions: Actions) -> Actions:
        first = [next(action for action in actions if of_kind(action)) for of_kind in which]
        return [action for action in actions if action not in first]

    return fewer


def swapped(actions: Actions) -> Actions:
    """Two files have each other's vector."""
    one, other = [action["add"] for action in actions if adds(action)]
    return [
        {"add": {**action["add"], "deletionVector": (other if action["add"] is one else one)["deletionVector"]}}
        if adds(action)
        else action
        for action in actions
    ]


def of_before(actions: Actions) -> Actions:
    """A file keeps the vector that it had."""
    had = next(action["remove"] for action in actions if removes(action))
    return only(adds, deletionVector=had["deletionVector"])(actions)


def forgotten(actions: Actions) -> Actions:
    """What is taken out is the file as it was without dead rows."""
    first = next(action for action in actions if removes(action))
    return [{"remove": unvectored(first["remove"])} if action is first else action for action in actions]


def another(actions: Actions) -> Actions:
    """A file goes in which no row dies."""
    added = next(action["add"] for action in actions if "add" in action and not adds(action))
    return [*actions, {"remove": {**added, "path": added["path"].replace("plan-2", "plan-1")}}]


def all_others(store: Store) -> Callable[[Actions], Actions]:
    def more(actions: Actions) -> Actions:
        with opened(folder(store, "people")) as log:
            live = live_files(there(log))
        return [*actions, *({"remove": dict(file.added)} for file in live if file.vector is None)]

    return more


NOTED: dict[str, tuple[Callable[[Actions], Actions], str]] = {
    "each other's vector": (swapped, "other dead rows than were found"),
    "the vector that it had": (of_before, "other dead rows than were found"),
    "no vector": (
        lambda actions: [{"add": unvectored(each["add"])} if adds(each) else each for each in actions],
        "other dead rows than were found",
    ),
    "another partition": (only(adds, partitionValues={"_residue": "7"}), "other dead rows than were found"),
    "another size": (only(adds, size=1), "other dead rows than were found"),
    "fewer rows": (only(adds, stats='{"numRecords": 1}'), "other dead rows than were found"),
    "that it comes and does not go": (without(removes), "a file would be in the table twice"),
    "that it goes and does not come": (without(adds), "not be there with its rows that live"),
    "nothing": (without(removes, adds), "not be there with its rows that live"),
    "that it comes twice": (
        lambda actions: [*actions, next(action for action in actions if adds(action))],
        "a file would be in the table twice",
    ),
    "that it goes twice": (
        lambda actions: [*actions, next(action for action in actions if removes(action))],
        "taken out that the table does not have",
    ),
    "that it goes as it was before": (forgotten, "taken out that the table does not have"),
    "that a file goes that is not there": (another, "taken out that the table does not have"),
    "dead rows of a file that comes": (
        lambda actions: [
            {"add": {**each["add"], "deletionVector": next(filter(adds, actions))["add"]["deletionVector"]}}
            if "add" in each and not adds(each)
            else each
            for each in actions
        ],
        "a file would come with dead rows",
    ),
}


@pytest.mark.parametrize("wrong", NOTED)
def test_a_version_that_notes_something_else_is_refused(
    begun: Begun, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    change, said = NOTED[wrong]
    is_refused_at_the_end(begun.by(decided), monkeypatch, change, said)


def test_a_version_that_takes_out_a_file_of_which_no_row_dies_is_refused(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = begun.by(decided)
    is_refused_at_the_end(store, monkeypatch, all_others(store), "taken out whose rows live")


def is_refused_at_the_end(
    store: Store, monkeypatch: pytest.MonkeyPatch, change: Callable[[Actions], Actions], said: str
) -> None:
    def checking(log: TableLog, actions: Actions, *given: Any) -> None:
        check_noted(log, change(actions), *given)

    monkeypatch.setattr(noting, "check_noted", checking)
    with unchanged(store), pytest.raises(Refused, match=said):
        steps.publish(third(store))


PACKED: dict[str, tuple[Callable[[bytes, Actions], tuple[bytes, Actions]], str]] = {
    "a bit": (lambda content, vectors: (flipped(30)(content), vectors), "not what the log says"),
    "its end": (lambda content, vectors: (content[:-1], vectors), "not what the log says"),
    "its place": (lambda content, vectors: (content, [{**each, "offset": 2} for each in vectors]), "not what the log"),
    "its size": (lambda content, vectors: (content, [{**each, "sizeInBytes": 9} for each in vectors]), "not what the"),
    "how many": (
        lambda content, vectors: (content, [{**each, "cardinality": 9} for each in vectors]),
        "another number",
    ),
    "its name": (
        lambda content, vectors: (content, [{**each, "pathOrInlineDv": "0" * 20} for each in vectors]),
        "it is missing",
    ),
}


@pytest.mark.parametrize("wrong", PACKED)
def test_vectors_that_are_packed_wrongly_are_refused(begun: Begun, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    store = begun.by(decided)
    change, said = PACKED[wrong]

    def packing(version: int, rows: Sequence[BitMap64]) -> tuple[str, bytes, Actions]:
        name, content, vectors = deletion_vectors.packed(version, rows)
        return name, *change(content, vectors)

    monkeypatch.setattr(noting, "packed", packing)
    with unchanged(store), pytest.raises(Refused, match=said):
        steps.publish(third(store))


@pytest.mark.parametrize("between", [moved, lambda store: log_of(store, "people").delete("k = 'key-33'")])
def test_rows_of_files_that_others_have_replaced_since_are_refused(
    begun: Begun, monkeypatch: pytest.MonkeyPatch, between: Callable[[Store], None]
) -> None:
    store = begun.by(decided)
    with opened(folder(store, "people")) as log:
        ref = third(store)
        (write,), files = ref.load()[1].writes(), there(Ledger(store, "kept").verdict(2)).files_of("people")
        found = dead_rows.dying(there(log), store, write, files)
    between(store)
    monkeypatch.setattr(delta, "dying", lambda *given: found)
    with unchanged(store), pytest.raises(Refused, match="taken out that the table does not have"):
        steps.publish(ref)


def test_readers_that_would_not_know_of_dead_rows_are_asked_to(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first version with dead rows says so."""
    store = begun.by(one_batch)
    monkeypatch.setattr(noting, "_enabling", lambda log: ())
    ref = History(store, Path(), people).plan(Settings.parse(scheme="tasks(2)"), 4)
    with unchanged(store), pytest.raises(Refused, match="readers would not be asked to know which rows are dead"):
        run_and_publish(ref)


@contextmanager
def unchanged(store: Store) -> Iterator[None]:
    """Nothing of this is published: the table has the version, the rows and the vectors that it had."""

    def seen() -> tuple[int, list[tuple[Any, ...]], list[str]]:
        table = log_of(store, "people")
        vectors = [entry.key for entry in store_at(folder(store, "people")).list(deletion_vectors.PREFIX)]
        return table.version(), sorted(live_rows(table).read_all().to_pylist(), key=str), vectors

    before = seen()
    yield
    assert seen() == before
