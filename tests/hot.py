"""A stream in which one key has 40 % of the records, the others Zipf's shares, and pipelines over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from coset.batches.ref import BatchRef
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import How
from partitioning.documents.store import Store
from partitioning.model.plan import Plan
from partitioning.model.schemes import HotKeys
from partitioning.values import replace
from tests.asked_of_duckdb import direct, in_order, published
from tests.landed import land_table
from tests.logs import log_of
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged

PARTITIONS = 8
HOT = "bot"
Build = Callable[[Flow], Flow]


def counted(views: Flow) -> Flow:
    parts = views.filter("v % 10 < 9", name="seen").partial("count(*) AS n, sum(v)::BIGINT AS v", by="k", name="parts")
    return parts.combine("sum(n)::BIGINT AS n, sum(v)::BIGINT AS v", name="totals")


def counted_on(views: Flow) -> Flow:
    """The same, continued from batch to batch."""
    parts = views.partial("count(*) AS n, sum(v)::BIGINT AS v", by="k", name="parts")
    return parts.combine("sum(n)::BIGINT AS n, sum(v)::BIGINT AS v", running=True, name="totals")


def skewed(records: int, seed: int, hot: float = 0.4, others: int = 0) -> pa.Table:
    """So many records, of which `hot` have one key; the others have keys by Zipf's law with exponent 1.1 or, evenly,
    one of so many."""
    made = np.random.default_rng(seed)
    numbers = made.integers(0, others, records) if others else made.zipf(1.1, records) % 1_000_003
    keys = np.char.add("key-", numbers.astype(str))
    keys[made.random(records) < hot] = HOT
    return pa.table({"k": pa.array(keys.tolist()), "v": np.arange(records)})


def table_of(store: Store, name: str) -> pa.Table:
    """A result table."""
    return log_of(store, name).to_pyarrow_table()


class Skewed:
    """A store into which a batch is landed at a time, and the pipeline over it."""

    def __init__(self, store: Store, build: Build, named: str = "skewed", **declared: object) -> None:
        self.store = store
        self.landed: list[pa.Table] = []
        self._source = f"{store.root}/topics-{named}"
        self.pipeline = Pipeline(named, source=self._source)
        views = self.pipeline.stream("views", key="k", partitions=PARTITIONS, **declared)  # type: ignore[arg-type]
        build(views).to_stream().write(named)

    def land(self, table: pa.Table, files: int = 1) -> None:
        land_table(table, "views", self._source, key="k", partitions=PARTITIONS, files=files)
        self.landed.append(table)

    def settings(self, hot_keys: str, *schemes: str) -> Settings:
        return replace(Settings.parse(scheme=schemes or None), hot_keys=HotKeys(hot_keys))

    def planned(self, hot_keys: str = "split", *schemes: str) -> tuple[BatchRef, Plan]:
        ref = next_batch(self.pipeline, self.store.root, self.settings(hot_keys, *schemes))
        return ref, ref.load()[1]

    def run(self, docs: Path | None = None, hot_keys: str = "split", *schemes: str) -> Plan:
        """Plan the next batch, run and publish it; without a folder for its report, Great Expectations is not asked."""
        ref, plan = self.planned(hot_keys, *schemes)
        if docs is None:
            run_and_publish_unjudged(ref)
        else:
            run_and_publish(ref, docs)
        return plan

    def rows(self) -> list[tuple[object, ...]]:
        """The rows of the result table, by batch."""
        return published(self.store, self.pipeline.name)

    def newest(self, columns: str) -> list[tuple[object, ...]]:
        """The newest row of each key."""
        table = table_of(self.store, self.pipeline.name)
        newest = f"SELECT k, {columns} FROM rows QUALIFY row_number() OVER (PARTITION BY k ORDER BY n DESC) = 1"
        return direct(newest, rows=table)

    def direct_of_all(self, sql: str) -> list[tuple[object, ...]]:
        """The answer of DuckDB, over all batches."""
        return direct(sql, views=pa.concat_tables(self.landed))

    def direct(self, sql: str) -> list[tuple[object, ...]]:
        """The answer of DuckDB, for each batch."""
        return in_order([row for batch in self.landed for row in direct(sql, views=batch)])


class Met:
    """Views and clicks, both with the hot key, some keys on one side only, joined in full or otherwise."""

    def __init__(self, store: Store, how: How = "full", hot_keys: HotKeys = HotKeys.OWN_TASK) -> None:
        self.store, self.how, self.hot_keys = store, how, hot_keys
        self._source = f"{store.root}/topics"
        self.pipeline = Pipeline("met", source=self._source)
        views = self.pipeline.stream("views", key="k", partitions=8)
        clicks = self.pipeline.stream("clicks", key="k", partitions=4)
        views.join(clicks, "views.v AS v, clicks.c AS c", how=how, name="joined").write("met")
        self.landed: list[tuple[pa.Table, pa.Table]] = []

    def land(self, seed: int, records: int = 4_000, others: int = 1_000) -> None:
        """So many views; keys but the hot one are even, one of so many, or by Zipf's law."""
        views = skewed(records, seed, others=others)
        bot = pa.table({"k": [HOT], "c": pa.array([-seed], pa.int64())})
        keys = [f"key-{number}" for number in range(others // 2, others // 2 + 1_000)]
        clicks = pa.concat_tables([pa.table({"k": keys, "c": pa.array(range(1_000), pa.int64())}), bot])
        land_table(views, "views", self._source, key="k", partitions=8)
        land_table(clicks, "clicks", self._source, key="k", partitions=4)
        self.landed.append((views, clicks))

    def planned(self, scheme: str | None = None) -> tuple[BatchRef, Plan]:
        settings = Settings.parse(scheme=scheme, base=Settings(hot_keys=self.hot_keys))
        ref = next_batch(self.pipeline, self.store.root, settings)
        return ref, ref.load()[1]

    def run(self, docs: Path | None, scheme: str | None = None) -> Plan:
        ref, plan = self.planned(scheme)
        if docs is None:
            run_and_publish_unjudged(ref)
        else:
            run_and_publish(ref, docs)
        return plan

    def rows(self) -> list[str]:
        table = table_of(self.store, "met")
        return sorted(map(str, zip(*table.select(["k", "v", "c"]).to_pydict().values(), strict=True)))

    def direct(self) -> list[str]:
        """What two dictionaries say."""
        rows: list[tuple[object, object, object]] = []
        for views, clicks in self.landed:
            right = dict(zip(*clicks.to_pydict().values(), strict=True))
            left = list(zip(*views.to_pydict().values(), strict=True))
            rows += [(key, v, right.get(key)) for key, v in left if key in right or self.how != "inner"]
            keys = {key for key, _ in left}
            rows += [(key, None, c) for key, c in right.items() if key not in keys and self.how == "full"]
        return sorted(map(str, rows))
