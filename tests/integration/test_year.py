"""A year of a topic in 24 batches: landed files and the broker itself give the rows of a direct query, each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Producer

from coset.batches import steps
from demo.kafka_server import KafkaServer
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.offsets import OffsetRange
from spark_jobs.tables.table_schema import RESIDUE
from tests.examples import few
from tests.judged import IN_PLACE, refusal
from tests.logs import log_of
from tests.registry import Registry
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged, run_groups
from tests.year import FOREIGN, IDLE, Year, customers

BATCHES = 24
# In which records lie where their keys do not belong, and in which records expired unread.
MISPLACED, LOST = 16, 18


class Reading:
    """A pipeline that reads the topic from one of the two places, into tables of a store of its own."""

    def __init__(self, store: Store, name: str, source: str, **declared: Any) -> None:
        self.store = store_at(f"{store.root}/{name}")
        self._source = source
        self._declared = declared

    def pipeline(self, year: Year, *, misplaced: bool = False) -> Pipeline:
        made = Pipeline("year", source=self._source)
        hash = "opaque" if misplaced else "murmur2"
        orders = made.stream(year.topic, key="customer", partitions=year.partitions, hash=hash, **self._declared)
        if misplaced:
            orders = orders.repartition(name="placed")
        columns = ", ".join(["amount::BIGINT AS amount", "_timestamp AS ordered", *year.columns])
        plain = orders.select(columns, name="plain")
        plain.write("log")
        plain.latest("ordered", name="newest").write("current", mode="upsert", deletes="amount IS NULL")
        counted = plain.filter("amount IS NOT NULL").aggregate("count(*) AS orders, sum(amount)::BIGINT AS amount")
        totals = "sum(orders)::BIGINT AS orders, sum(amount)::BIGINT AS amount"
        counted.combine(totals, running=True, name="totals").write("totals", mode="upsert")
        return made

    def publish(self, pipeline: Pipeline, settings: Settings, docs: Path | None) -> None:
        """A batch; it is judged if there is a folder for the pages."""
        ref = next_batch(pipeline, self.store.root, settings)
        if docs is None:
            run_and_publish_unjudged(ref)
        else:
            run_and_publish(ref, docs)

    def refuses_misplaced(self, year: Year, docs: Path) -> None:
        """The batch is refused because of where its keys lie; the same records are moved to where they belong."""
        ref = next_batch(self.pipeline(year), self.store.root)
        run_groups(ref)
        assert IN_PLACE in refusal(ref, docs).failed
        again = self.pipeline(year, misplaced=True)
        _, replanned, _ = steps.replan(again, self.store.root, DEFAULTS, "an hour of another producer")
        assert replanned is not None
        run_and_publish(replanned, docs)

    def held(self, table: str) -> list[tuple[object, ...]]:
        """The rows of a table, but for where they lie."""
        there = log_of(self.store, table).to_pyarrow_table()
        names = [name for name in there.column_names if name != RESIDUE]
        with duckdb.connect() as connection:
            connection.register("there", there.select(names))
            return connection.execute("FROM there ORDER BY ALL").fetchall()

    def refuses_lost(self, year: Year) -> None:
        with pytest.raises(Refused, match="is lost"):
            steps.plan(self.pipeline(year), self.store.root)


class Events:
    """What happens before each batch, beside the orders of the day."""

    def __init__(self, year: Year) -> None:
        self.year = year
        self.everybody = customers(8, IDLE)
        self._late: Producer | None = None

    def happen(self, batch: int) -> None:
        self.year.order(self.everybody[batch : batch + 25])
        event = {
            2: self._a_column,
            4: self._transactions,
            5: self._a_late_commit,
            6: lambda: self._growth(4),
            7: lambda: self.year.remove(self.everybody[5:9]),
            9: self._a_wider_column,
            10: lambda: self.year.compact(self.everybody[:3]),
            12: self._another_column,
            13: lambda: self._growth(8),
            15: self._retention,
            MISPLACED: lambda: self.year.order(self.everybody, partitioner=FOREIGN),
            20: lambda: self.year.remove(self.everybody[:4]),
        }.get(batch)
        if event is not None:
            event()

    def lose(self) -> OffsetRange:
        """Let retention remove a range of a partition that nobody has read."""
        start = self.year.read_up_to(0)
        for _ in range(10):
            self.year.order(self.everybody)
        self.year.retain(0, start + 30)
        return OffsetRange.parse(f"{self.year.topic}-0@[{start},{start + 30})")

    def _a_column(self) -> None:
        self.year.field("channel", "string")
        self.year.order(self.everybody[:10])

    def _another_column(self) -> None:
        self.year.field("coupon", "string")
        self.year.order(self.everybody[10:20])

    def _a_wider_column(self) -> None:
        self.year.field("amount", "long")
        self.year.order(self.everybody[:5], amount=1 << 40)

    def _transactions(self) -> None:
        self.year.transaction(self.everybody[:3]).commit_transaction(30)
        self.year.transaction(self.everybody[:3]).abort_transaction(30)
        self._late = self.year.transaction(self.everybody[:2])
        self.year.order(self.everybody[:20])

    def _a_late_commit(self) -> None:
        assert self._late is not None
        self._late.commit_transaction(30)

    def _growth(self, partitions: int) -> None:
        self.year.grow(partitions)
        self.year.order(self.everybody)

    def _retention(self) -> None:
        for partition in range(self.year.partitions):
            self.year.retain(partition, self.year.read_up_to(partition))


@pytest.mark.parametrize("batches", few([3, BATCHES]))
def test_a_year_of_a_topic(batches: int, kafka: KafkaServer, store: Store, registry: Registry, tmp_path: Path) -> None:
    year = Year(kafka, registry, store)
    events = Events(year)
    readings = [
        Reading(store, "landed", year.source, offsets="sparse(20)"),
        Reading(store, "broker", kafka.source, format="avro"),
    ]
    for batch in range(batches):
        events.happen(batch)
        losses = (events.lose(),) if batch == LOST else ()
        year.land()
        for reading in readings:
            if batch == MISPLACED:
                reading.refuses_misplaced(year, tmp_path)
                continue
            if batch == LOST:
                reading.refuses_lost(year)
            reading.publish(reading.pipeline(year), Settings(accept_loss=losses), None if batch % 6 else tmp_path)
        for table, expected in year.expected().items():
            for reading in readings:
                assert reading.held(table) == expected, (batch, table)
