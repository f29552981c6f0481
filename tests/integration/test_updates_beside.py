"""Small batches of a table with `updates="beside"` write new rows beside the dead ones, and it is its query for each
reader that knows deletion vectors."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaProtocolError

from bench.upserts import delta_jars, packages
from coset.batches.publication import abandon
from coset.batches.tables import logs
from coset.batches.tables.acceptance import accept
from coset.batches.tables.compaction import compact
from coset.batches.tables.handing_over import hand_over
from coset.testing.runs import Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import UpdateWay
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model import table_parts
from tests.begun import Begun
from tests.examples import share
from tests.readers import reader
from tests.trino import trino

KEYS = 200
Rows = dict[str, int]


def people(updates: UpdateWay = "beside", name: str = "people") -> Pipeline:
    pipeline = Pipeline(name, source="s3://landing/topics")
    people = pipeline.stream("people", key="k", partitions=4)
    people.latest("seen", name="newest").write("people", mode="upsert", deletes="gone", updates=updates)
    return pipeline


def record(key: int, at: int, *, gone: bool = False) -> Mapping[str, object]:
    return {"k": f"key-{key}", "seen": at, "n": 1000 * at + key, "gone": gone}


@pytest.fixture
def trial(begun: Begun) -> Trial:
    """A table with all keys, as of the first batch."""
    return trial_in(begun.by(all_keys))


def trial_in(store: Store) -> Trial:
    return Trial(people(), Path(urlsplit(store.root).path))


def all_keys(store: Store) -> None:
    first_batch(trial_in(store))


def first_batch(trial: Trial) -> None:
    trial.land({"people": [record(key, 0) for key in range(KEYS)]})
    trial.run(Settings.parse(scheme="tasks(3)"))


def batch(trial: Trial, rows: list[Mapping[str, object]], scheme: str = "tasks(3)") -> None:
    trial.land({"people": rows})
    said = trial.run(Settings.parse(scheme=scheme))
    assert said.startswith("Batch "), said
    assert trial.verify() == {}


def table(trial: Trial) -> DeltaTable:
    return DeltaTable(f"{trial.root.removeprefix('file://')}/tables/people")


def files(trial: Trial) -> set[str]:
    return set(pl.Series(table(trial).get_add_actions()["path"]).to_list())


def read(trial: Trial) -> Rows:
    """The table, as delta-rs reads it, and Polars, which Coset does not use. Polars 2.1.0 cannot read a table of which
    some files lie in folders that are named by their partition, as delta-rs names them when it tidies up."""
    rows = pl.DataFrame(QueryBuilder().register("rows", table(trial)).execute("SELECT k, n FROM rows").read_all())
    assert rows["k"].n_unique() == rows.height
    if not any(path.startswith("_residue=") for path in files(trial)):
        assert pl.scan_delta(table(trial).table_uri).select("k", "n").collect().sort("k").equals(rows.sort("k"))
    return dict(rows.iter_rows())


def test_a_small_batch_writes_its_own_rows_and_no_other_file_again(trial: Trial) -> None:
    first = files(trial)
    batch(trial, [record(1, 1), record(KEYS, 1), record(2, 1, gone=True)])
    assert first < files(trial)
    rows = read(trial)
    assert (rows["key-1"], rows[f"key-{KEYS}"], len(rows)) == (1001, 1000 + KEYS, KEYS)
    assert "key-2" not in rows
    new = Path(table(trial).table_uri.removeprefix("file://")) / "data/plan-1"
    assert sum(pl.read_parquet(file).height for file in new.rglob("*-[0-9].parquet")) == 2


def test_a_key_goes_comes_back_and_changes_again(trial: Trial) -> None:
    for at, gone in ((1, True), (2, False), (3, False), (4, True), (5, False)):
        batch(trial, [record(7, at, gone=gone)])
        assert read(trial).get("key-7") == (None if gone else 1000 * at + 7)
    assert len(read(trial)) == KEYS


def test_a_file_goes_once_all_its_rows_are_dead(trial: Trial) -> None:
    batch(trial, [record(1, 1)])
    (second,) = (path for path in files(trial) if "plan-1" in path)
    batch(trial, [record(1, 2)])
    assert second not in files(trial)
    assert read(trial)["key-1"] == 2001


def test_a_batch_of_many_rows_writes_partitions_again(trial: Trial) -> None:
    batch(trial, [record(1, 1)])
    batch(trial, [record(key, 2) for key in range(KEYS // 2)])
    assert {path.split("/")[1] for path in files(trial)} == {"plan-2"}
    assert len(read(trial)) == KEYS


def since(trial: Trial, at: int) -> int | None:
    """The batch since which another one wrote rows once more."""
    plan = Ledger(store_at(trial.root), "people").plan(at)
    assert plan is not None
    return plan.writes()[0].since


def test_files_of_small_batches_are_put_together_as_what_steps_keep_is(trial: Trial) -> None:
    again = dict[int, int | None]()
    for at in range(1, 8):
        batch(trial, [record(5 * at + n, at) for n in range(5)])
        again[at] = since(trial, at)
    assert again == {1: None, 2: None, 3: 0, 4: None, 5: None, 6: 3, 7: 0}
    assert {path.split("/")[1] for path in files(trial)} == {"plan-0", "plan-7"}
    right = {f"key-{key}": 1000 * (key // 5 if 5 <= key < 40 else 0) + key for key in range(KEYS)}
    assert read(trial) == right
    # What somebody has put together stays so, until newer files are.
    optimized(trial)
    for at in range(8, 12):
        batch(trial, [record(8 * at + n, at) for n in range(8)])
    assert [since(trial, at) for at in range(8, 12)] == [None, None, 7, None]
    assert read(trial) == right | {f"key-{key}": 1000 * (key // 8) + key for key in range(64, 96)}


def test_what_others_changed_stays_while_batches_have_other_keys(trial: Trial) -> None:
    batch(trial, [record(n, 1) for n in range(5)])
    table(trial).delete("k = 'key-3'")
    accept(store_at(trial.root), "people", table(trial).version(), who="me", why="asked to be forgotten")
    for at in range(2, 6):
        trial.land({"people": [record(10 * at + n, at) for n in range(5)]})
        trial.run(Settings.parse(scheme="tasks(3)"))
        assert "key-3" not in read(trial)


def test_other_numbers_of_tasks_and_tables_that_are_rewritten_from_now_on(trial: Trial) -> None:
    batch(trial, [record(1, 1)])
    batch(trial, [record(1, 2), record(3, 2)], "tasks(2)")
    batch(trial, [record(4, 3)], "tasks(5)")
    trial.go_on_with(people("rewrite"))
    trial.land({"people": [record(4, 4), record(5, 4)]})
    trial.run(Settings.parse(scheme="tasks(5)"))
    rows = read(trial)
    assert [rows[f"key-{key}"] for key in (1, 3, 4, 5)] == [2001, 2003, 4004, 4005]
    assert len(rows) == KEYS


def test_readers_need_to_know_vectors_and_nothing_else(trial: Trial) -> None:
    assert table(trial).protocol().reader_features is None
    batch(trial, [record(1, 1)])
    protocol = table(trial).protocol()
    assert (protocol.min_reader_version, protocol.reader_features) == (3, ["deletionVectors"])
    assert set(protocol.writer_features or ()) == {"appendOnly", "deletionVectors", "invariants"}
    assert table(trial).metadata().configuration["delta.enableDeletionVectors"] == "true"
    assert table(trial).metadata().configuration["coset.pipeline"] == "people"


def test_a_table_is_handed_over_and_readers_need_to_know_nothing_more(trial: Trial) -> None:
    """delta-rs would demand that they know variants."""
    batch(trial, [record(1, 1)])
    hand_over(store_at(trial.root), "people", "people", "others", who="me", why="theirs")
    asked = table(trial).protocol()
    assert (asked.reader_features, "variantType" in (asked.writer_features or ())) == (["deletionVectors"], False)
    # Theirs begins with the records that it reads: all that there are.
    trial.go_on_with(people(name="others"))
    trial.run(Settings.parse(scheme="tasks(3)", begin_anew=["newest", "people.upsert"]))
    trial.land({"people": [record(1, 2), record(3, 2, gone=True)]})
    trial.run(Settings.parse(scheme="tasks(3)"))
    rows = read(trial)
    assert (rows["key-1"], "key-3" in rows, len(rows)) == (2001, False, KEYS - 1)


def test_properties_that_others_set_are_no_reason_to_stop(trial: Trial) -> None:
    batch(trial, [record(1, 1)])
    table(trial).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    assert "variantType" in (table(trial).protocol().reader_features or ())
    batch(trial, [record(1, 2), record(2, 2)])
    assert read(trial)["key-1"] == 2001


def test_a_log_that_begins_with_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CHECKPOINT_EVERY", 3)
    with Trial.made(people()) as trial:
        first_batch(trial)
        for at in range(1, 9):
            trial.land({"people": [record(at, at), record(at + 1, at, gone=True)]})
            # Another thread has no copy of the log yet, and begins with the newest checkpoint.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(trial.run, Settings.parse(scheme="tasks(3)")).result()
            assert len(read(trial)) == KEYS - 1
        assert trial.verify() == {}
        log = Path(table(trial).table_uri.removeprefix("file://")) / "_delta_log"
        assert len(list(log.glob("*.checkpoint.parquet"))) == 3


def test_a_column_more(trial: Trial) -> None:
    trial.land({"people": [{**record(1, 1), "city": "Oslo"}]})
    trial.run(Settings.parse(scheme="tasks(3)"))
    batch(trial, [{**record(2, 2), "city": "Rome"}, {**record(1, 2), "city": None}])
    asked = QueryBuilder().register("rows", table(trial)).execute("SELECT k, city FROM rows WHERE city IS NOT NULL")
    assert pl.DataFrame(asked.read_all()).rows() == [("key-2", "Rome")]
    assert len(read(trial)) == KEYS


def test_keys_of_several_columns() -> None:
    """A row may have a value of each column of a key that goes, and be of another key; null is a value."""
    pipeline = Pipeline("people", source="s3://landing/topics")
    stream = pipeline.stream("people", key="id", partitions=4)
    newest = stream.rekey(("country", "number"), name="by_both").latest("seen", name="newest")
    newest.write("people", mode="upsert", deletes="gone", updates="beside")
    with Trial.made(pipeline) as trial:

        def land(at: int, *keys: tuple[str | None, int | None], gone: bool = False) -> None:
            rows = [{"id": "x", "country": a, "number": b, "seen": at, "gone": gone} for a, b in keys]
            trial.land({"people": rows})
            trial.run(Settings.parse(scheme="tasks(3)"))
            assert trial.verify() == {}

        countries: list[str | None] = ["no", "it", None]
        land(0, *[(country, number) for country in countries for number in (*range(9), None)])
        land(1, ("no", 1), ("it", 2), (None, 3))
        land(2, ("it", 1), ("no", None), gone=True)
        land(3, ("it", 1), ("no", 2))
        asked = QueryBuilder().register("rows", table(trial)).execute("SELECT country, number, seen FROM rows")
        rows = {(country, number): seen for country, number, seen in pl.DataFrame(asked.read_all()).rows()}
        right = {(country, number): 0 for country in countries for number in (*range(9), None)}
        right |= {("no", 1): 1, ("it", 2): 1, (None, 3): 1, ("it", 1): 3, ("no", 2): 3}
        del right["no", None]
        assert rows == right


def test_two_tables_of_one_step_in_both_ways() -> None:
    pipeline = people()
    pipeline.flow("newest").write("rewritten", mode="upsert")
    with Trial.made(pipeline) as trial:
        for at, keys in enumerate((range(60), (3, 4), (4,))):
            trial.land({"people": [record(key, at) for key in keys]})
            trial.run(Settings.parse(scheme="tasks(2)"))
            assert trial.verify() == {}
        both = trial.tables()
        assert both["people"] == both["rewritten"]
        assert len(both["people"]) == 60


def test_a_lost_vector_is_got_over_as_the_refusal_says(trial: Trial) -> None:
    batch(trial, [record(key, 1) for key in range(20)])
    for vector in Path(table(trial).table_uri.removeprefix("file://")).glob("*.bin"):
        vector.unlink()
    trial.land({"people": [record(key, 2) for key in range(20)]})
    with pytest.raises(Refused, match=r'a deletion vector cannot be read[^`]*or set updates="rewrite"'):
        trial.run(Settings.parse(scheme="tasks(3)"))
    abandon(Ledger(store_at(trial.root), "people"), "written from state")
    trial.go_on_with(people("rewrite"))
    trial.run(Settings.parse(scheme="tasks(3)"))
    rows = read(trial)
    assert [rows[f"key-{key}"] for key in (0, 19, 20)] == [2000, 2019, 20]
    assert len(rows) == KEYS


def test_readers_do_what_the_page_says(trial: Trial) -> None:
    """docs/how-to/reading-results.md: delta-rs and Polars."""
    batch(trial, [record(1, 1)])
    assert len(read(trial)) == KEYS
    for refusing in (DeltaTable.to_pandas, DeltaTable.to_pyarrow_table, DeltaTable.to_pyarrow_dataset):
        with pytest.raises(DeltaProtocolError, match="deletionVectors"):
            refusing(table(trial))
    optimized(trial)
    batch(trial, [record(1, 2)])
    assert len(read(trial)) == KEYS
    with pytest.raises((pl.exceptions.SchemaFieldNotFoundError, pl.exceptions.ShapeError)):
        pl.scan_delta(table(trial).table_uri).select("k").collect()


@pytest.mark.long
def test_spark_trino_and_duckdb_read_each_version_whoever_moves_its_rows(trial: Trial) -> None:
    """docs/how-to/reading-results.md, by delta-spark, Trino and DuckDB's extension in processes of their own."""
    asked, folder = "SELECT k, n FROM TABLE", table(trial).table_uri.removeprefix("file://").rstrip("/")
    with (
        reader("spark", jars=str(delta_jars())) as spark,
        reader("duckdb", str(packages())) as duckdb,
        trino() as ask_trino,
    ):

        def optimized_by_spark(_: Trial) -> None:
            spark(folder, None, "OPTIMIZE TABLE")

        versions = {table(trial).version(): read(trial)}
        for at, tidy in enumerate((optimized, optimized_by_spark, None), 1):
            batch(trial, [record(at, at), record(9, at), record(50, at, gone=at != 2)])
            versions[table(trial).version()] = read(trial)
            if tidy is not None:
                tidy(trial)
        for version, rows in versions.items():
            for ask in (spark, duckdb, ask_trino):
                assert {key: n for key, n in ask(folder, version, asked)} == rows
        for ask in (spark, duckdb, ask_trino):
            assert {key: n for key, n in ask(folder, None, asked)} == rows


def optimized(trial: Trial) -> None:
    """What delta-rs does for others."""
    assert table(trial).optimize.compact()["numFilesRemoved"]


def compacted(trial: Trial) -> None:
    compact(trial.pipeline, store_at(trial.root), timedelta(0))


@pytest.mark.parametrize("tidy", [optimized, compacted])
def test_rows_are_found_wherever_somebody_moved_them(trial: Trial, tidy: Callable[[Trial], None]) -> None:
    for at in (1, 2):
        batch(trial, [record(at, at), record(9, at)])
    before = read(trial)
    tidy(trial)
    assert read(trial) == before
    batch(trial, [record(9, 3), record(2, 3, gone=True)])
    assert read(trial) == {key: n for key, n in before.items() if key != "key-2"} | {"key-9": 3009}


def test_vectors_that_no_version_has_any_more_go_with_compaction(trial: Trial) -> None:
    folder = Path(table(trial).table_uri.removeprefix("file://"))
    for at in (1, 2, 3):
        batch(trial, [record(at, at)])
    assert len(list(folder.glob("*.bin"))) == 3
    compact(trial.pipeline, store_at(trial.root), timedelta(days=1))
    assert len(list(folder.glob("*.bin"))) == 3
    earlier = QueryBuilder().register("rows", DeltaTable(str(folder), version=2)).execute("SELECT k FROM rows")
    assert pl.DataFrame(earlier.read_all()).height == KEYS
    compacted(trial)
    assert not list(folder.glob("*.bin"))
    assert len(read(trial)) == KEYS
    # Nothing is to be put together with a file that only lost a row.
    batch(trial, [record(9, 4, gone=True)])
    compacted(trial)
    assert len(list(folder.glob("*.bin"))) == 1
    assert len(read(trial)) == KEYS - 1
    batch(trial, [record(9, 5)])
    assert read(trial)["key-9"] == 5009


@pytest.mark.parametrize("seed", share(range(6)))
def test_any_history_gives_the_newest_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of any size by any number of tasks, with keys that go and come back, tidied up at any time, and merged
    early."""
    monkeypatch.setattr(table_parts, "MOST_FILES", 3)
    chance, right = random.Random(seed), Rows()
    with Trial.made(people()) as trial:
        for at in range(12):
            many = chance.choice([1, 2, 5, 20]) if at else 60
            chosen = {chance.randrange(80): chance.random() < 0.3 for _ in range(many)}
            for key, gone in chosen.items():
                right[f"key-{key}"] = 1000 * at + key
                if gone:
                    del right[f"key-{key}"]
            batch(
                trial, [record(key, at, gone=gone) for key, gone in chosen.items()], f"tasks({chance.choice([2, 3])})"
            )
            assert read(trial) == right
            if chance.random() < 0.2:
                chance.choice([compacted, lambda trial: table(trial).optimize.compact()])(trial)
                assert read(trial) == right


def test_what_has_no_rows_to_change_is_refused() -> None:
    flow = Pipeline("p", source="s3://landing/topics").stream("s", key="k", partitions=1)
    with pytest.raises(Refused, match="mode 'append' updates no rows"):
        flow.write("t", updates="beside")
    with pytest.raises(Refused, match="unknown updates 'merge'"):
        flow.latest("seen").write("t", mode="upsert", updates="merge")  # type: ignore[arg-type]
