"""Random histories of a table with rows beside its data, whoever else works on it, and its upkeep."""

from __future__ import annotations

import html
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from coset.batches import steps
from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.ref import BatchRef
from coset.batches.sweeping import sweep
from coset.batches.tables import compaction, dead_rows, logs
from coset.batches.tables.compaction import compact
from coset.batches.tables.dead_rows import FileKeys
from coset.batches.tables.live_files import LiveFile
from coset.batches.tables.log_copy import LogCopy
from coset.batches.verifying import verify
from coset.cli import metrics, status
from coset.testing.runs import Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import UpdateWay
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.model import table_parts
from tests.backfilled import Batches, run_again
from tests.histories import Click
from tests.logs import log_of
from tests.running import run_and_publish, run_groups
from tests.there import there

Key = tuple[Any, ...]
# Timestamps of tables are of no zone.
EPOCH = datetime(1960, 1, 1)  # noqa: DTZ001
# What a key is made of: columns in SQL, their types, and values that are easily taken for each other.
TEXT = ["", " ", "a", "A", "a ", "é", "e\u0301", "\x00", "NULL", "null", "1", "01"]
KINDS: dict[str, tuple[dict[str, str], list[list[Any]]]] = {
    "string": ({"k": "VARCHAR"}, [[*TEXT, *map(str, range(30))]]),
    "string, long": ({"k": "VARCHAR"}, [[f"{'x' * 300}{number}" for number in range(30)]]),
    "long": ({"k": "BIGINT"}, [[0, -1, 2**63 - 1, -(2**63), *range(1, 30)]]),
    "int": ({"k": "INTEGER"}, [[*range(-10, 20)]]),
    "double": (
        {"k": "DOUBLE"},
        [[0.0, math.inf, -math.inf, math.nan, 5e-324, 0.1, 0.1 + 2e-17, *map(float, range(1, 20))]],
    ),
    "bytes": ({"k": "BLOB"}, [[bytes([n]) * (n % 3) for n in range(1, 30)]]),
    "of two": ({"k": "VARCHAR", "l": "BIGINT"}, [["a", "b", None, "", "1"], [None, 0, 1, 2, 3, 4]]),
    "of decimals": (
        {"k": "DECIMAL(18, 4)", "l": "DECIMAL(38, 0)"},
        [[Decimal(number).scaleb(-4) for number in range(-5, 5)], [Decimal(10**37), Decimal(0), None]],
    ),
    "of times": (
        {"k": "TIMESTAMP", "l": "DATE", "m": "BOOLEAN"},
        [
            [EPOCH + timedelta(microseconds=n) for n in range(9)],
            [date(1969, 12, 31), date(2020, 1, 1)],
            [True, False, None],
        ],
    ),
    "of numbers": (
        {"k": "UBIGINT", "l": "TINYINT", "m": "HUGEINT"},
        [[0, 2**63 - 1, None], [-128, 0, None], [0, 1, None]],
    ),
}


@dataclass
class History:
    """A pipeline, its table, and what its table has to have."""

    chance: random.Random
    kind: str
    trial: Trial = field(init=False)
    right: dict[str, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    at: int = 0
    updates: UpdateWay = "beside"
    has_more: bool = False
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lineage = self.chance.random() < 0.4

    @property
    def columns(self) -> dict[str, str]:
        return KINDS[self.kind][0]

    def pipeline(self) -> Pipeline:
        pipeline = Pipeline("people", source="s3://landing/topics")
        types = {"id": "VARCHAR", **self.columns, "seen": "BIGINT", "n": "BIGINT", "gone": "BOOLEAN"}
        if self.has_more:
            types["more"] = "VARCHAR"
        stream = pipeline.stream("people", key="id", partitions=4, format="json", columns=types)
        keys = tuple(self.columns)
        newest = stream.rekey(keys if len(keys) > 1 else keys[0], name="by_key", **self.format).latest(
            "seen", name="newest"
        )
        newest.write("people", mode="upsert", deletes="gone", updates=self.updates, lineage=self.lineage)
        return pipeline

    @property
    def format(self) -> dict[str, Any]:
        named = self.kind.partition(",")[0]
        return {"key_format": named} if len(self.columns) == 1 else {}

    def key(self) -> Key:
        return tuple(self.chance.choice(values) for values in KINDS[self.kind][1])

    def land(self) -> None:
        self.at += 1
        many = self.chance.choice([1, 1, 2, 4, 30]) if self.at > 1 else 25
        going = self.chance.choice([0.0, 0.3, 0.3, 1.0]) if self.at > 1 else 0.0
        rows = list[dict[str, Any]]()
        for key in {self.key() for _ in range(many)}:
            gone, late = self.chance.random() < going, self.at > 1 and self.chance.random() < 0.1
            seen = 2 * self.at - (3 if late else 0)
            named = repr(key)
            if seen > self.newest.get(named, -1):
                self.newest[named] = seen
                self.right[named] = 1000 * self.at + len(rows)
                if gone:
                    del self.right[named]
            more = {"more": "m"} if self.has_more else {}
            n = 1000 * self.at + len(rows)
            values = dict(zip(self.columns, key, strict=True))
            rows.append({"id": f"{n}", **values, "seen": seen, "n": n, "gone": gone, **more})
        self.trial.land({"people": rows})

    def settings(self) -> Settings:
        scheme = f"tasks({self.chance.choice([1, 2, 3, 5])})"
        return Settings.parse(scheme=scheme, take_away=["people", "newest"])

    # ---- what happens between looks

    def batch(self) -> None:
        self.land()
        self.said.append(self.trial.run(self.settings(), twice=self.chance.random() < 0.2))

    def all_go(self) -> None:
        self.at += 1
        rows = list[dict[str, Any]]()
        for key in itertools.islice(itertools.product(*KINDS[self.kind][1]), 200):
            self.newest[repr(key)] = 2 * self.at
            rows.append(
                {
                    "id": f"{len(rows)}",
                    **dict(zip(self.columns, key, strict=True)),
                    "seen": 2 * self.at,
                    "n": 0,
                    "gone": True,
                }
            )
        self.right.clear()
        self.trial.land({"people": rows})
        self.said.append(self.trial.run(self.settings()))

    def empty(self) -> None:
        self.said.append(self.trial.run(self.settings()))

    def dies(self) -> None:
        """The process ends between the table's commit and the ledger's, or before either, and somebody goes on."""
        self.land()
        where = self.chance.choice(["commit", "receipt"])
        with pytest.MonkeyPatch.context() as patch:

            def dead(*_: Any, **__: Any) -> None:
                raise KeyboardInterrupt

            patch.setattr(*{"commit": (LogCopy, "push"), "receipt": (Ledger, "put_commit")}[where], dead)
            with suppress(KeyboardInterrupt):
                self.trial.run(self.settings())
        if self.chance.random() < 0.5:
            self.table.optimize.compact()
        self.said.append(f"died at {where}: {self.trial.run(self.settings())}")

    def planned_twice(self) -> None:
        self.land()
        settings = self.settings()
        one, _ = steps.plan(self.trial.pipeline, self.trial.root, settings)
        other, _ = steps.plan(self.trial.pipeline, self.trial.root, self.settings())
        assert one == other
        self.said.append(self.trial.run(settings))

    def optimized(self) -> None:
        self.table.optimize.compact()

    def compacted(self) -> None:
        compact(self.trial.pipeline, self.store, timedelta(days=self.chance.choice([0, 7])))

    def vacuumed(self) -> None:
        self.table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    def other_updates(self) -> None:
        self.updates = "rewrite" if self.updates == "beside" else "beside"
        self.trial.go_on_with(self.pipeline())
        self.batch()

    def a_column_more(self) -> None:
        self.has_more = True
        self.trial.go_on_with(self.pipeline())
        self.batch()

    def backfilled(self) -> None:
        """Batches run again, and are put in place; perhaps that is taken back."""
        if self.has_more:
            return
        first = self.chance.choice([0, max(0, self.at - 2)])
        last = there(Ledger(self.store, "people").standing().published).batch
        backfill = run_again(
            self.trial.pipeline, self.store, Asked(min(first, last), last, self.settings()), Path(self.folder, "docs")
        )
        actions.swap(self.store, backfill, digest(actions.comparison(self.store, backfill)), "")
        self.said.append(f"swap {first} to {last}")
        if self.chance.random() < 0.5:
            self.look("swap")
            actions.undo(self.store, backfill, "")

    @property
    def store(self) -> Store:
        return store_at(self.trial.root)

    @property
    def folder(self) -> str:
        return f"{urlsplit(self.trial.root).path}/tables/people"

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.folder)

    def look(self, what: str) -> None:
        names = [*self.columns, "n"]
        for reader, rows in self.read(names):
            found = {repr(tuple(map(self.plain, row[:-1]))): row[-1] for row in rows}
            assert len(found) == len(rows), (what, reader, "twice")
            wrong = found.items() ^ self.right.items()
            assert not wrong, (what, reader, wrong, self.said)

    def plain(self, value: Any) -> Any:
        """A value of a key; Delta has wide whole numbers as decimals."""
        return int(value) if self.kind == "of numbers" and isinstance(value, Decimal) else value

    def read(self, names: list[str]) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
        asked = QueryBuilder().register("rows", self.table).execute(f"SELECT {', '.join(names)} FROM rows")
        yield "delta-rs", pl.DataFrame(asked.read_all()).rows()
        if not any("_residue=" in path for path in pl.Series(self.table.get_add_actions()["path"]).to_list()):
            yield "polars", pl.scan_delta(self.folder).select(names).collect().rows()


STEPS: list[Callable[[History], None]] = [
    *[History.batch] * 6,
    History.empty,
    History.all_go,
    History.dies,
    History.planned_twice,
    History.optimized,
    History.compacted,
    History.vacuumed,
    History.other_updates,
    History.a_column_more,
    History.backfilled,
]


SEEDS = [pytest.param(seed, marks=[pytest.mark.long] if seed else []) for seed in range(20)]


@pytest.mark.parametrize("seed", SEEDS)
def test_any_hostile_history_leaves_the_newest_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    one = History(chance, list(KINDS)[seed % len(KINDS)])
    monkeypatch.setattr(table_parts, "MOST_FILES", chance.choice([2, 4, 64]))
    monkeypatch.setattr(table_parts, "DEAD_PERCENT", chance.choice([5, 25, 300]))
    monkeypatch.setattr(table_parts, "SMALL", chance.choice([1, 4]))
    monkeypatch.setattr(logs, "CHECKPOINT_EVERY", chance.choice([3, 20]))
    with Trial.made(one.pipeline()) as one.trial:
        one.batch()
        one.look("first")
        for _ in range(12 if seed else 5):
            step = chance.choice(STEPS)
            one.said.append(step.__name__)
            step(one)
            one.look(step.__name__)
        assert set(one.trial.verify().values()) <= {"the pipeline has changed between batches"}


KEYS = 40


def beside(threshold: int) -> Callable[[str, int], Pipeline]:
    def pipeline(source: str, partitions: int) -> Pipeline:
        one = Pipeline("kept", source=source)
        clicks = one.stream("clicks", key="k", partitions=partitions).filter(f"id >= {threshold}", name="chosen")
        clicks.latest("seen", name="newest").write("newest", mode="upsert", updates="beside")
        return one

    return pipeline


class Newest:
    """Batches of the newest click of each key; the first has all keys."""

    def __init__(self, store: Store, docs: Path) -> None:
        self.store, self._docs = store, docs
        self.history = Batches(store, docs, beside)
        self.pipeline = beside(0)(f"{store.root}/topics", 4)
        self.publish(0, *range(KEYS))

    def planned(self, minute: int, *keys: int) -> BatchRef:
        self.history.land([Click(f"key-{key}", 100 * minute + key, minute) for key in keys], [], 4)
        return self.history.plan(Settings.parse(scheme="tasks(2)"), 4)

    def publish(self, minute: int, *keys: int) -> BatchRef:
        ref = self.planned(minute, *keys)
        run_and_publish(ref, self._docs)
        return ref

    @property
    def rows(self) -> dict[str, int]:
        asked = QueryBuilder().register("rows", log_of(self.store, "newest")).execute("SELECT k, id FROM rows")
        return dict(pl.DataFrame(asked.read_all()).iter_rows())

    @property
    def replaced(self) -> set[str]:
        """The files with keys of rows that were replaced."""
        files = {entry.key for entry in self.store.list("tables/newest/data/")}
        return {file for file in files if file.endswith(".replaced.parquet")}


def test_keys_of_rows_that_were_replaced_go_once_their_batch_is_published(store: Store, tmp_path: Path) -> None:
    """Whatever is done with an earlier batch afterwards needs them no more, though verdicts name them."""
    newest = Newest(store, tmp_path)
    newest.publish(1, 1, 2)
    second = newest.replaced
    ref = newest.planned(2, 2, 3)
    run_groups(ref)
    steps.audit(ref)
    steps.check(ref, tmp_path)
    assert second < newest.replaced
    assert second == {file.key for file in sweep(newest.pipeline, store).files if file.key in newest.replaced | second}
    steps.publish(ref, tmp_path)
    sweep(newest.pipeline, store)
    assert newest.replaced == set()
    rows = {f"key-{key}": {1: 101, 2: 202, 3: 203}.get(key, key) for key in range(KEYS)}
    assert newest.rows == rows
    # Its commit is made again, its report is written again, and it is verified.
    commit = store.get("kept/commits/2.json")
    store.delete("kept/commits/2.json")
    steps.publish(ref, tmp_path)
    assert store.get("kept/commits/2.json") == commit
    assert "newest" in steps.report(ref, tmp_path)
    (verified,) = verify(newest.pipeline, store)
    assert verified.difference is not None
    assert verified.difference.same
    # It is run again, swapped in and taken back.
    again = newest.history.backfilled(Asked(0, 2, Settings()), threshold=10)
    actions.swap(store, again, digest(actions.comparison(store, again)), "")
    assert newest.rows == {key: id for key, id in rows.items() if id >= 10}
    actions.undo(store, again, "")
    sweep(newest.pipeline, store, everything=True)
    assert newest.rows == rows
    newest.publish(3, 3, 4)
    assert newest.rows == rows | {"key-3": 303, "key-4": 304}


def test_a_compaction_that_stops_while_a_swap_is_taken_back_keeps_the_dead_rows_of_a_table(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = Newest(store, tmp_path)
    newest.publish(1, 1, 2)
    rows, again = newest.rows, newest.history.backfilled(Asked(0, 1, Settings()), threshold=10)
    actions.swap(store, again, digest(actions.comparison(store, again)), "")
    unneeded = compaction._unneeded_vectors

    def stopped(*given: Any) -> list[str]:
        monkeypatch.setattr(compaction, "_unneeded_vectors", unneeded)
        found = unneeded(*given)
        actions.undo(store, again, "")
        return found

    monkeypatch.setattr(compaction, "_unneeded_vectors", stopped)
    compaction.compact(newest.pipeline, store, timedelta(0))
    assert newest.rows == rows


def test_status_metrics_and_pages_say_how_near_a_table_is_to_being_written_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_parts, "MOST_FILES", 1)
    newest = Newest(store, tmp_path)
    monkeypatch.setattr("coset.cli.pipelines.load", lambda _: newest.pipeline)
    for minute, dead, files, said in [
        (
            1,
            1,
            2,
            "1 of its rows is dead, and a partition has up to 2 files; 1 partition is written again by the next batch",
        ),
        (2, 0, 1, "0 of its rows are dead, and a partition has up to 1 file"),
    ]:
        newest.publish(minute, 1)
        pages = [store.get(f"kept/docs/{name}.html") for name in (f"batch-{minute}-attempt-0", "index")]
        shown = [html.unescape((page or b"").decode()) for page in pages]
        for text in (*shown, str(status.standing("kept", store.root).text)):
            assert f"Table newest: {said}." in text
        printed = metrics.printed("kept", store.root).text
        assert f'coset_table_dead_rows{{pipeline="kept",table="newest"}} {dead}' in printed
        assert f'coset_table_partition_files{{pipeline="kept",table="newest"}} {files}' in printed


def test_where_the_rows_of_keys_lie_is_looked_up_once_a_batch(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest, looked = Newest(store, tmp_path), Counter[str]()
    having = dead_rows._having

    def counted(read: FileKeys, file: LiveFile, keys: pa.Table) -> tuple[pa.Table, int]:
        looked[file.path] += 1
        return having(read, file, keys)

    monkeypatch.setattr(dead_rows, "_having", counted)
    newest.publish(1, *range(8))
    assert set(looked.values()) == {1}
