"""Steps: an order's steps on what its inputs give, in their order, and the rows of its result tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from partitioning.commands import Replan
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.artefact import Role
from partitioning.model.graph import Mode, Op, Step, quote, state_of
from partitioning.model.leaving import DAY_END, Leaving
from partitioning.model.order import Order
from partitioning.model.plan import PlannedWrite, StateInput
from partitioning.model.receipt import Apart
from spark_jobs.engine.functions import FunctionStep
from spark_jobs.engine.intake import Intake
from spark_jobs.engine.relations import Relations, cast
from spark_jobs.engine.states import KeptByKey, TaskState, task_state
from spark_jobs.sql.database import create_views

# Of how many records whose time does not count a task tells key and time.
_APART_TOLD = 5


class Steps(Relations):
    """The SQL of one order: a relation for each input and step, a query for all that is written.

    What Python steps make waits in the folder `temp`.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, order: Order, intakes: Sequence[Intake], temp: Path
    ) -> None:
        super().__init__(connection, order, intakes)
        if isinstance(order.day_end, int):
            connection.execute(f"SET VARIABLE {quote(DAY_END)} = {order.day_end}::BIGINT")
        scans = _scans(order)
        relations: dict[str, list[Intake]] = {}
        for intake in intakes:
            relations.setdefault(intake.ordered.relation, []).append(intake)
        kept = {state_of(step.name): relations.pop(state_of(step.name), []) for step in order.steps if step.state}
        for name, parts in relations.items():
            with self.errors(f"stream or step {name!r}"):
                self._relation(name, parts, scans[name])
        self._states: dict[str, TaskState] = {}
        self._upserted = {write.declared.step for write in order.writes if write.declared.mode is Mode.UPSERT}
        for number, step in enumerate(order.steps):
            if step.on_dataframes:
                continue
            if step.state:
                self._open(step, kept[state_of(step.name)])
            if step.function:
                self._made(step, temp / f"step-{number}.arrow")
            elif step.keeps_its_rows:
                self._goes_on(step)
            else:
                with self.errors(f"step {step.name!r}"):
                    create_views(connection, [step])

    def table(self, write: PlannedWrite) -> pa.RecordBatchReader:
        """The rows of a result table, to be read before any others are asked for."""
        return self.rows(write.declared.step, write.columns, f"table {write.declared.table!r}")

    def upserted(self, write: PlannedWrite) -> pa.RecordBatchReader:
        """All rows that an upserted table has of this task's keys, as `KeptByKey.all` gives them.

        Raises Refused if a row has no key, or a key has several.
        """
        step, key = write.declared.step, quote(write.declared.key)
        wrong = f"SELECT {key}, count(*) FROM {quote(step)} GROUP BY 1 HAVING {key} IS NULL OR count(*) > 1 LIMIT 1"
        for name, count in zip(*(column.to_pylist() for column in self.query(wrong, step).read_all()), strict=True):
            what = "a row has no key" if name is None else f"the key {name!r} has {count:,} rows"
            then = "filter such rows out before" if name is None else "combine them before, or take the latest"
            where = f"table {write.declared.table!r}, {self._order}"
            raise Refused(
                Finding(
                    Kind.RECORD,
                    f"{what}: it has one row for each key",
                    where,
                    (f"{then}, then ", Replan(self._order.pipeline)),
                    about(table=write.declared.table, key=name),
                )
            )
        state = self._states[step]
        assert isinstance(state, KeptByKey)
        return self.query(state.all(), f"table {write.declared.table!r}")

    def given(self, step: Step, number: int) -> pa.RecordBatchReader:
        """The rows of an input of a step on DataFrames, to be read before any others are asked for."""
        return self.query(f"SELECT * FROM {quote(step.inputs[number])}", f"what step {step.name!r} is given")

    def left(self, leaving: Leaving) -> pa.RecordBatchReader:
        """The rows that are left for later tasks, to be read before any others are asked for."""
        if leaving.role is Role.STATE:
            return self.query(self._states[leaving.step].left(), leaving.name)
        return self.rows(leaving.step, leaving.columns, leaving.name)

    def apart(self) -> tuple[Apart, ...]:
        """The records whose times do not count, of each step that goes by times."""
        found = []
        for step in self._order.steps:
            if step.state and step.state.apart:
                first = f"SELECT key::VARCHAR, time::VARCHAR FROM ({step.state.apart}) ORDER BY ALL LIMIT {_APART_TOLD}"
                counted = self.query(f"SELECT count(*) FROM ({step.state.apart})", f"step {step.name!r}").read_all()
                if records := counted[0][0].as_py():
                    rows = self.query(first, f"step {step.name!r}").read_all()
                    texts = zip(*(column.to_pylist() for column in rows), strict=True)
                    found.append(Apart(step.name, records, tuple((str(key), time) for key, time in texts)))
        return tuple(found)

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
        whole = step.name in self._upserted or step.op is Op.TABLE
        kept = task_state(self._connection, step, self._order.batch, read, known, whole=whole)
        with self.errors(f"state of step {step.name!r}"):
            kept.open()
        self._states[step.name] = kept

    def _goes_on(self, step: Step) -> None:
        """Run a step that keeps its rows, and reads these as more of its input if it makes one of several."""
        (name,) = map(quote, step.inputs)
        if step.op is Op.TABLE:
            self._table_of(step)
            return
        both = f"SELECT * FROM temp.{name} UNION ALL BY NAME SELECT * FROM {quote(state_of(step.name))}"
        sql = step.sql if step.op is Op.UPSERT else f"WITH {name} AS ({both}) {step.sql}"
        with self.errors(f"step {step.name!r}"):
            self._connection.execute(f"CREATE TEMP TABLE {quote(step.name)} AS {sql}")

    def _table_of(self, step: Step) -> None:
        """Keep the rows of this batch's keys, and give the step's name to those of all keys."""
        state = self._states[step.name]
        assert isinstance(state, KeptByKey)
        with self.errors(f"step {step.name!r}"):
            self._connection.execute(f"CREATE TEMP TABLE {state.rows} AS {step.sql}")
            self._connection.execute(f"CREATE TEMP VIEW {quote(step.name)} AS {state.rows_of_all()}")

    def _made(self, step: Step, file: Path) -> None:
        """Give what a Python step makes its name in SQL, and what it keeps too."""
        function, where = FunctionStep(self._order, step), f"step {step.name!r}"
        rows = self.query(step.sql, where)
        if step.state:
            given = rows.read_all()
            kept = self.query(f"SELECT * FROM {quote(state_of(step.name))}", where).read_all()
            made, keeps = function.apply_keeping(given, kept)
            self.relate(f"{step.name}.state@made", keeps, step.state.columns, where)
        else:
            made = function.apply(rows, file)
        self.relate(step.name, made, step.columns, where)

    def _scanned(self, intake: Intake) -> str:
        """The query that reads an input."""
        columns = intake.columns.items()
        if intake.empty:
            nulls = ", ".join(f"NULL::{kind} AS {quote(column)}" for column, kind in columns)
            return f"SELECT {nulls} WHERE false"
        # No stream has this name: `@` is in none.
        raw = f"{intake.ordered.name}@read"
        self._connection.register(raw, intake)
        return f"SELECT {cast(columns)} FROM {quote(raw)}"


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
            scans[name] += 2 if step.state and step.state.apart else 0
    return scans
