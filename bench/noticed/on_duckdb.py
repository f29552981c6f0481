"""DuckDB: the topics as a whole, and a process for each partition."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import duckdb

from bench.noticed.outcome import Run, landed
from bench.noticed.topics import KEY, PARTITIONS, Rows
from bench.party import CORES

_JOIN = """
    SELECT {key}, order_id, payment_id
    FROM read_parquet('{topics}/orders/{partition}/*.parquet') AS orders
    JOIN read_parquet('{topics}/payments/{partition}/*.parquet') AS payments USING ({key})
"""


@contextmanager
def whole() -> Iterator[Run]:
    """The join of all that has landed."""
    yield landed(partial(_joined, "*"))


@contextmanager
def by_partition() -> Iterator[Run]:
    """Each partition of one topic joined with the same partition of the other, in processes that know no more."""
    partitions = [f"partition={number}" for number in range(PARTITIONS)]
    with multiprocessing.get_context("spawn").Pool(CORES) as pool:

        def join(folder: Path) -> Rows:
            parts = pool.starmap(_joined, [(partition, folder) for partition in partitions])
            return sum(parts, Rows())

        yield landed(join)


def _joined(partition: str, folder: Path) -> Rows:
    with duckdb.connect(config={"threads": "1"}) as connection:
        query = _JOIN.format(topics=folder / "topics", partition=partition, key=KEY)
        return Counter(connection.execute(query).fetchall())
