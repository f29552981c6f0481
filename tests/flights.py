"""Some of the package's flights, for tests of what does not depend on how many there are."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from demo.landing import STREAMS, read
from tests.landed import land_table

ROWS = 500


def some_flights() -> pa.Table:
    """Flights of the whole year, a few of them without a tail number."""
    year = read("flights")
    flights = year.take(pa.array(range(0, year.num_rows, year.num_rows // ROWS))).slice(0, ROWS)
    assert flights["tailnum"].null_count
    return flights


def land_some(source: str) -> None:
    """Land them as the demo lands all of them."""
    key, partitions = STREAMS["flights"]
    land_table(some_flights(), "flights", source, key=key, partitions=partitions)


def queried(query: str) -> list[tuple[str | None, int, int]]:
    """What a query says of them; their table is `flights`."""
    with duckdb.connect() as connection:
        connection.register("flights", some_flights())
        return connection.execute(query).fetchall()
