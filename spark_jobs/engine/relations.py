"""Relations: what has a name in the SQL of one order, and the rows that are read of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from partitioning.commands import Repeat, Replan, Then
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.graph import quote
from partitioning.model.order import Order
from partitioning.model.streams import Column
from spark_jobs.engine.intake import Intake

# DuckDB's own size of a row group.
RESULT_ROWS = 122_880


class Relations:
    """The relations of one order in a database. What goes wrong in one of the `intakes` is raised as it was."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, order: Order, intakes: Sequence[Intake] = ()) -> None:
        self._connection = connection
        self._order = order
        self._intakes = intakes

    def rows(self, step: str, columns: Sequence[Column], where: str) -> pa.RecordBatchReader:
        """The rows of a stream or step with these columns, to be read before any others are asked for."""
        listed = ", ".join(quote(column.name) for column in columns)
        return self.query(f"SELECT {listed} FROM {quote(step)}", where)

    def query(self, sql: str, where: str) -> pa.RecordBatchReader:
        """The rows of a query, to be read before any others are asked for."""
        with self.errors(where):
            rows = self._connection.execute(sql).to_arrow_reader(RESULT_ROWS)
        return pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows, where))

    def relate(self, name: str, rows: pa.Table, columns: Sequence[Column], where: str) -> None:
        """Give rows that a function made a name in SQL."""
        raw = f"{name}@made"
        self._connection.register(raw, rows)
        with self.errors(where):
            listed = cast((column.name, column.type) for column in columns)
            self._connection.execute(f"CREATE TEMP VIEW {quote(name)} AS SELECT {listed} FROM {quote(raw)}")

    @contextmanager
    def errors(self, where: str) -> Iterator[None]:
        """Raise what went wrong in an intake as it was; explain what went wrong in DuckDB."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for intake in self._intakes:
                if intake.error is not None:
                    raise intake.error from None
            kind = Kind.SQL
            then: Then = ("correct the expression or the data, then ", Replan(self._order.pipeline))
            if isinstance(error, duckdb.OutOfMemoryException):
                kind, then = Kind.MEMORY, ("give the task more memory with --memory, and ", Repeat())
            what = f"SQL failed: {' '.join(str(error).split())}"
            raise Refused(Finding(kind, what, f"{where}, {self._order}", then, about(asked=where))) from error

    def _batches(self, rows: pa.RecordBatchReader, where: str) -> Iterator[pa.RecordBatch]:
        while True:
            with self.errors(where):
                batch = next(rows, None)
            if batch is None:
                return
            yield batch


def cast(columns: Iterable[tuple[str, str]]) -> str:
    """A SELECT's list of columns, each of its DuckDB type."""
    return ", ".join(f"CAST({quote(name)} AS {kind}) AS {quote(name)}" for name, kind in columns)
