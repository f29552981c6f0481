"""Steps: an order's steps on what its inputs give, in their order, and the rows of its result tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from partitioning.errors import Finding, Refused, plan_anew
from partitioning.model.artefact import Role
from partitioning.model.graph import Step, quote, state_of
from partitioning.model.leaving import Leaving
from partitioning.model.order import Order
from partitioning.model.plan import PlannedWrite, StateInput
from partitioning.model.streams import Column
from spark_jobs.functions import FunctionStep
from spark_jobs.intake import Intake
from spark_jobs.sql.database import create_views
from spark_jobs.states import Kept, kept_by

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
        kept = {state_of(step.name): relations.pop(state_of(step.name), []) for step in order.steps if step.state}
        for name, parts in relations.items():
            with self._errors(f"stream or step {name!r}"):
                self._relation(name, parts, scans[name])
        self._states: dict[str, Kept] = {}
        for number, step in enumerate(order.steps):
            if step.state:
                self._open(step, kept[state_of(step.name)])
            if step.function:
                self._made(step, temp / f"step-{number}.arrow")
            elif step.state and not step.state.sql:
                self._goes_on(step)
            else:
                create_views(connection, [step])

    def table(self, write: PlannedWrite) -> pa.RecordBatchReader:
        """The rows of a result table, to be read before any others are asked for."""
        return self._rows(write.declared.step, write.columns, f"table {write.declared.table!r}")

    def left(self, leaving: Leaving) -> pa.RecordBatchReader:
        """The rows that are left for later tasks, to be read before any others are asked for."""
        if leaving.role is Role.STATE:
            return self._query(self._states[leaving.step].left(), leaving.name)
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

    def _open(self, step: Step, intakes: Sequence[Intake]) -> None:
        """Read what a step kept, if it kept anything."""
        read = intakes[0].ordered.read if intakes else None
        assert read is None or isinstance(read, StateInput)
        known = self._scanned(intakes[0]) if intakes and not intakes[0].empty else None
        kept = kept_by(self._connection, step, self._order.batch, read, known)
        with self._errors(f"state of step {step.name!r}"):
            kept.open()
        self._states[step.name] = kept

    def _goes_on(self, step: Step) -> None:
        """Run a step that reads what it kept as more of its input."""
        (name,) = map(quote, step.inputs)
        both = f"SELECT * FROM temp.{name} UNION ALL BY NAME SELECT * FROM {quote(state_of(step.name))}"
        with self._errors(f"step {step.name!r}"):
            sql = f"WITH {name} AS ({both}) {step.sql}"
            self._connection.execute(f"CREATE TEMP TABLE {quote(step.name)} AS {sql}")

    def _made(self, step: Step, file: Path) -> None:
        """Give what a Python step makes its name in SQL, and what it keeps too."""
        function, where = FunctionStep(self._order, step), f"step {step.name!r}"
        rows = self._query(step.sql, where)
        if step.state:
            given = rows.read_all()
            kept = self._query(f"SELECT * FROM {quote(state_of(step.name))}", where).read_all()
            made, keeps = function.apply_keeping(given, kept)
            self._relate(f"{step.name}.state@made", keeps, step.state.columns, where)
        else:
            made = function.apply(rows, file)
        self._relate(step.name, made, step.columns, where)

    def _relate(self, name: str, rows: pa.Table, columns: Sequence[Column], where: str) -> None:
        """Give rows that a function made a name in SQL."""
        raw = f"{name}@made"
        self._connection.register(raw, rows)
        with self._errors(where):
            cast = _cast((column.name, column.type) for column in columns)
            self._connection.execute(f"CREATE TEMP VIEW {quote(name)} AS SELECT {cast} FROM {quote(raw)}")

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
    left = (leaving.step for leaving in order.leaves if leaving.role is not Role.STATE)
    scans = Counter([*(write.declared.step for write in order.writes), *left])
    for step in reversed(order.steps):
        # What a function made, or what takes the place of what was kept, is held in a table; which keys there are, and
        # what is kept for a time, is asked for besides.
        held = step.function or (step.state and not step.state.sql)
        for name in step.inputs:
            scans[name] += (1 if held else scans[step.name]) + (1 if step.state else 0)
    return scans


def _cast(columns: Iterable[tuple[str, str]]) -> str:
    """A SELECT's list of columns, each of its DuckDB type."""
    return ", ".join(f"CAST({quote(name)} AS {kind}) AS {quote(name)}" for name, kind in columns)
