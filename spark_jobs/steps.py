"""Steps: an order's steps on what its inputs give, in their order, and the rows of its result tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from partitioning.errors import Finding, Refused, plan_anew
from partitioning.model.graph import Step, quote
from partitioning.model.leaving import Leaving
from partitioning.model.order import Order
from partitioning.model.plan import PlannedWrite
from partitioning.model.streams import Column
from spark_jobs.functions import FunctionStep
from spark_jobs.intake import Intake
from spark_jobs.sql.database import create_views

# DuckDB's own size of a row group.
_RESULT_ROWS = 122_880


class Steps:
    """The SQL of one order: a relation for each input and step, a query for all that is written.

    What Python steps make waits in the folder `temp`.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, order: Order, intakes: Sequence[Intake], temp: Path
    ) -> None:
        self._connection = connection
        self._order = order
        self._intakes = intakes
        scans = _scans(order)
        relations: dict[str, list[Intake]] = {}
        for intake in intakes:
            relations.setdefault(intake.ordered.relation, []).append(intake)
        for name, parts in relations.items():
            with self._errors(f"stream or step {name!r}"):
                self._relation(name, parts, scans[name])
        for number, step in enumerate(order.steps):
            if step.function:
                self._made(step, temp / f"step-{number}.arrow")
            else:
                create_views(connection, [step])

    def table(self, write: PlannedWrite) -> pa.RecordBatchReader:
        """The rows of a result table, to be read before any others are asked for."""
        return self._rows(write.declared.step, write.columns, f"table {write.declared.table!r}")

    def left(self, leaving: Leaving) -> pa.RecordBatchReader:
        """The rows that are left for later tasks, to be read before any others are asked for."""
        return self._rows(leaving.step, leaving.columns, leaving.name)

    def _rows(self, step: str, columns: Sequence[Column], where: str) -> pa.RecordBatchReader:
        listed = ", ".join(quote(column.name) for column in columns)
        return self._query(f"SELECT {listed} FROM {quote(step)}", where)

    def _query(self, sql: str, where: str) -> pa.RecordBatchReader:
        with self._errors(where):
            rows = self._connection.execute(sql).to_arrow_reader(_RESULT_ROWS)
        return pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows, where))

    def _batches(self, rows: pa.RecordBatchReader, where: str) -> Iterator[pa.RecordBatch]:
        while True:
            with self._errors(where):
                batch = next(rows, None)
            if batch is None:
                return
            yield batch

    def _relation(self, name: str, intakes: Sequence[Intake], scans: int) -> None:
        """Give inputs their name in SQL: read as they come if one query needs them once, else kept in DuckDB.

        They are several if some partitions of a stream have moved.
        """
        ordered = intakes[0].ordered
        query = " UNION ALL BY NAME ".join(self._scanned(intake) for intake in intakes)
        if ordered.table:
            key = quote(ordered.placement.key)
            newest = f"row_number() OVER (PARTITION BY {key} ORDER BY {quote(ordered.offset)} DESC) = 1"
            query = f"SELECT * FROM ({query}) QUALIFY {key} IS NULL OR {newest}"
        kept = ordered.table or scans > 1
        self._connection.execute(f"CREATE TEMP {'TABLE' if kept else 'VIEW'} {quote(name)} AS {query}")

    def _made(self, step: Step, file: Path) -> None:
        """Give what a Python step makes its name in SQL."""
        made = FunctionStep(self._order, step).apply(self._query(step.sql, f"step {step.name!r}"), file)
        raw = f"{step.name}@made"
        self._connection.register(raw, made)
        with self._errors(f"step {step.name!r}"):
            cast = _cast((column.name, column.type) for column in step.columns)
            self._connection.execute(f"CREATE TEMP VIEW {quote(step.name)} AS SELECT {cast} FROM {quote(raw)}")

    def _scanned(self, intake: Intake) -> str:
        """The query that reads an input."""
        columns = intake.columns.items()
        if intake.empty:
            nulls = ", ".join(f"NULL::{kind} AS {quote(column)}" for column, kind in columns)
            return f"SELECT {nulls} WHERE false"
        # No stream has this name: `@` is in none.
        raw = f"{intake.ordered.name}@read"
        self._connection.register(raw, intake)
        return f"SELECT {_cast(columns)} FROM {quote(raw)}"

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
    """How often each input and step is read when all is written that is to be."""
    scans = Counter([*(write.declared.step for write in order.writes), *(leaving.step for leaving in order.leaves)])
    for step in reversed(order.steps):
        for name in step.inputs:
            # What a function made is kept.
            scans[name] += 1 if step.function else scans[step.name]
    return scans


def _cast(columns: Iterable[tuple[str, str]]) -> str:
    """A SELECT's list of columns, each of its DuckDB type."""
    return ", ".join(f"CAST({quote(name)} AS {kind}) AS {quote(name)}" for name, kind in columns)
