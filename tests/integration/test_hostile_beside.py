"""Random histories of a table with rows beside its data, whoever else works on it: after each step two readers find
exactly the newest row of each key."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder

from coset.batches import steps
from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.tables import logs
from coset.batches.tables.compaction import compact
from coset.batches.tables.log_copy import LogCopy
from coset.testing.runs import Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import UpdateWay
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.model import table_parts
from tests.backfilled import run_again
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
