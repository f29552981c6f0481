"""Steps: an order's steps on what its inputs give, in their order, and the rows of its result tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from partitioning.errors import Finding, Refused, plan_anew
from partitioning.model.graph import quote
from partitioning.model.order import Order
from partitioning.model.plan import PlannedWrite
from spark_jobs.intake import Intake
from spark_jobs.sql.database import create_views

# DuckDB's own size of a row group.
_RESULT_ROWS = 122_880


class Steps:
    """The SQL of one order: a relation for each input, a view for each step, a query for each table."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, order: Order, intakes: Sequence[Intake]) -> None:
        self._connection = connection
        self._order = order
        self._intakes = intakes
        scans = _scans(order)
        for intake in intakes:
            name = intake.ordered.read.name
            with self._errors(f"stream {name!r}"):
                self._relation(intake, scans[name])
        create_views(connection, order.steps)

    def results(self) -> Iterator[tuple[PlannedWrite, pa.RecordBatchReader]]:
        """Each result table and its rows, one after the other."""
        for write in self._order.writes:
            columns = ", ".join(quote(column.name) for column in write.columns)
            where = f"table {write.declared.table!r}"
            with self._errors(where):
                query = self._connection.execute(f"SELECT {columns} FROM {quote(write.declared.step)}")
                rows = query.to_arrow_reader(_RESULT_ROWS)
            yield write, pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows, where))

    def _batches(self, rows: pa.RecordBatchReader, where: str) -> Iterator[pa.RecordBatch]:
        while True:
            with self._errors(where):
                batch = next(rows, None)
            if batch is None:
                return
            yield batch

    def _relation(self, intake: Intake, scans: int) -> None:
        """Give an input its name in SQL: read as it comes if one query needs it once, else kept in DuckDB."""
        declared = intake.ordered.declared
        name = quote(declared.name)
        if intake.empty:
            columns = ", ".join(f"{quote(column)} {kind}" for column, kind in intake.columns.items())
            self._connection.execute(f"CREATE TEMP TABLE {name} ({columns})")
            return
        # No stream has this name: `@` is in none.
        raw = f"{declared.name}@read"
        self._connection.register(raw, intake)
        columns = ", ".join(
            f"CAST({quote(column)} AS {kind}) AS {quote(column)}" for column, kind in intake.columns.items()
        )
        query = f"SELECT {columns} FROM {quote(raw)}"
        if declared.table:
            key = quote(declared.key)
            newest = f"row_number() OVER (PARTITION BY {key} ORDER BY {quote(declared.offset)} DESC) = 1"
            query += f" QUALIFY {key} IS NULL OR {newest}"
        kept = declared.table or scans > 1
        self._connection.execute(f"CREATE TEMP {'TABLE' if kept else 'VIEW'} {name} AS {query}")

    @contextmanager
    def _errors(self, where: str) -> Iterator[None]:
        """Raise what went wrong in an intake as it was; explain what went wrong in DuckDB."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for intake in self._intakes:
                if intake.error is not None:
                    raise intake.error from None
            then = f"correct the expression or the data, then {plan_anew(self._order.pipeline)}"
            if isinstance(error, duckdb.OutOfMemoryException):
                then = "give the task more memory with --memory"
            what = f"SQL failed: {' '.join(str(error).split())}"
            raise Refused(Finding(what, f"{where}, {self._order}", then)) from error


def _scans(order: Order) -> Counter[str]:
    """How often each input and step is read when all result tables are written."""
    scans = Counter(write.declared.step for write in order.writes)
    for step in reversed(order.steps):
        for name in step.inputs:
            scans[name] += scans[step.name]
    return scans
