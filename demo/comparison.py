"""The demo's results beside those of DuckDB on the package's raw data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import duckdb
from deltalake import DeltaTable

from coset.batches.attempt import Attempt
from coset.sources.s3 import storage_options
from demo.landing import raw
from partitioning.documents.ledger import Ledger
from partitioning.model.plan import Plan
from spark_jobs.tables.table_schema import folder

_SHOWN = 6

# One row per aircraft: the batches of the published table added up, and the raw records counted.
_OURS = """
    SELECT tailnum, manufacturer, sum(flights)::BIGINT AS flights, sum(departed)::BIGINT AS departed,
        sum(dep_delay)::BIGINT AS dep_delay, sum(distance)::BIGINT AS distance, max(longest)::BIGINT AS longest
    FROM published GROUP BY ALL
"""
_THEIRS = """
    SELECT tailnum, manufacturer, count(*) AS flights, count(dep_delay) AS departed,
        sum(dep_delay)::BIGINT AS dep_delay, sum(distance)::BIGINT AS distance, max(air_time)::BIGINT AS longest
    FROM flights LEFT JOIN planes USING (tailnum) WHERE tailnum IS NOT NULL GROUP BY ALL
"""
_BY_MANUFACTURER = """
    SELECT coalesce(manufacturer, 'unknown') AS manufacturer,
        count(*) AS aircraft, sum(flights)::BIGINT AS flights, sum(dep_delay)::BIGINT AS dep_delay
    FROM {rows} GROUP BY ALL ORDER BY flights DESC, manufacturer
"""
_DIFFERENT = "SELECT count(*) FROM ((FROM ours EXCEPT ALL FROM theirs) UNION ALL (FROM theirs EXCEPT ALL FROM ours))"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A table to show, and how many aircraft have any figure that differs."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    aircraft: int
    different: int
    equal: bool


@contextmanager
def side_by_side(ledger: Ledger, table: str, ours: str, theirs: str) -> Iterator[tuple[duckdb.DuckDBPyConnection, int]]:
    """A database of the raw data with the tables `ours` and `theirs`, and how many rows only one of the two has.

    `ours` is a query on the `published` table, `theirs` the same question on the raw data.
    """
    published = DeltaTable(folder(ledger.store, table), storage_options=storage_options())
    with raw() as database:
        database.register("published", published.to_pyarrow_dataset())
        database.execute(f"CREATE TABLE ours AS {ours}; CREATE TABLE theirs AS {theirs}")
        yield database, database.execute(_DIFFERENT).fetchall()[0][0]


def compare(ledger: Ledger, table: str) -> Comparison:
    """Compare what was published in all batches with the raw data: every figure of every aircraft.

    `rows` has the manufacturers with the most flights, all others in one row, the flights without a
    tail number (as the receipts counted them), and the sum.
    """
    with side_by_side(ledger, table, _OURS, _THEIRS) as (database, different):
        aircraft = database.execute("SELECT count(*) FROM theirs").fetchall()[0][0]
        ours, theirs = (
            {row[0]: row[1:] for row in database.execute(_BY_MANUFACTURER.format(rows=side)).fetchall()}
            for side in ("ours", "theirs")
        )
        without_key = database.execute("SELECT count(*) FROM flights WHERE tailnum IS NULL").fetchall()[0][0]
    names = list(theirs | ours)
    shown: list[tuple[Any, ...]] = [
        (name, ours.get(name, (0, 0, 0)), theirs.get(name, (0, 0, 0))) for name in names[:_SHOWN]
    ]
    rest = ([side[name] for name in names[_SHOWN:] if name in side] for side in (ours, theirs))
    shown.append((f"… and {len(names) - _SHOWN} more", *map(_sum, rest)))
    shown.append(("no tail number: dropped", (0, dropped(ledger), 0), (0, without_key, 0)))
    shown.append(("all", _sum([row[1] for row in shown]), _sum([row[2] for row in shown])))
    rows = tuple(
        (name, *chain.from_iterable(zip(mine, other, strict=True)), mine == other) for name, mine, other in shown
    )
    columns = ("manufacturer", *(f"{what}, {who}" for what in _FIGURES for who in ("Coset", "DuckDB")), "equal")
    return Comparison(columns, rows, aircraft, different, not different and all(row[-1] for row in rows))


_FIGURES = ("aircraft", "flights", "minutes late")


def dropped(ledger: Ledger) -> int:
    """How many records the published batches dropped without a key, by their receipts."""
    plan, count = ledger.standing().published, 0
    while plan is not None:
        count += _dropped_in(ledger, plan)
        plan = ledger.plan(plan.batch - 1) if plan.batch else None
    return count


def _dropped_in(ledger: Ledger, plan: Plan) -> int:
    attempt = Attempt.published(ledger, plan)
    return sum(each.dropped for task in (attempt.tasks if attempt else ()) for each in task.partitions)


def _sum(rows: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*rows, strict=True)) if rows else (0, 0, 0)
