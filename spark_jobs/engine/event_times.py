"""Event times: the latest time of the records that a task takes of a stream partition, for the stream's watermark."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from coset.sources.databases import connect_to_ask
from partitioning.authoring.state_sql import microseconds_of, time_that_counts
from partitioning.model.graph import quote
from partitioning.model.leaving import DAY_END
from partitioning.model.order import Order, Ordered, OrderedStream
from partitioning.model.streams import Column
from partitioning.model.watermarks import EventTime
from spark_jobs.sql.expressions import columns_named, parse


class EventTimes:
    """The latest event time of the records noted so far, in microseconds. A record whose time cannot be worked out has
    none here; the step that goes by it says so."""

    def __init__(self, columns: tuple[Column, ...], event: EventTime, day_end: int | None) -> None:
        self.latest: int | None = None
        named = _columns_of(event.sql)
        self._columns = tuple(column for column in columns if column.name.lower() in named)
        counts = time_that_counts("@at", event.ahead)
        typed = (f"{quote(column.name)}::{column.type} AS {quote(column.name)}" for column in self._columns)
        listed = ", ".join(typed) or "1"
        times = f'SELECT TRY({microseconds_of(event.sql)}) AS "@at" FROM (SELECT {listed} FROM "@records")'
        self._sql = f"SELECT max({counts}) FROM ({times})"
        self._day_end = day_end

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return tuple(column.name for column in self._columns)

    def note(self, records: pa.RecordBatch) -> None:
        """Add the records that the task takes of a batch."""
        if not len(records):
            return
        with connect_to_ask() as connection:
            if self._day_end is not None:
                connection.execute(f"SET VARIABLE {quote(DAY_END)} = {self._day_end}::BIGINT")
            connection.register("@records", pa.Table.from_batches([records.select(self.columns)]))
            ((latest,),) = connection.execute(self._sql).fetchall()
        if latest is not None:
            self.latest = latest if self.latest is None else max(self.latest, latest)


def event_times(order: Order, ordered: Ordered) -> EventTimes | None:
    """What notes the times of an input; None if it is no stream that says them."""
    if not isinstance(ordered, OrderedStream) or not isinstance(ordered.declared.time, EventTime):
        return None
    return EventTimes(ordered.columns, ordered.declared.time, order.day_end if isinstance(order.day_end, int) else None)


@lru_cache(maxsize=64)
def _columns_of(sql: str) -> frozenset[str]:
    """The names in an expression, in small letters."""
    with connect_to_ask() as connection:
        return frozenset(part.lower() for parts in columns_named(parse(connection, sql)) for part in parts)
