"""Steps: runs an order's steps on its inputs, and gives the rows of its output.

In a migration rows that a step kept become rows of now, all of them, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from partitioning.authoring.change_sql import net, taken_back
from partitioning.authoring.state_sql import EARLIEST, THIS_BATCH, kept_since, passed_by
from partitioning.commands import Replan
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import Op, Step, quote, state_of, waiting
from partitioning.model.leaving import BATCH, DAY_END, GONE, Leaving, state_columns
from partitioning.model.order import Order, Ordered, OrderedStream
from partitioning.model.plan import PlannedWrite
from partitioning.model.private import MASK
from partitioning.model.receipt import MODULUS, Apart, Closed, Keyed, Migrated, Role
from partitioning.model.stage_inputs import StateInput
from partitioning.model.streams import DELETED
from partitioning.model.task_engine import TaskMemory
from partitioning.values import replace
from spark_jobs.engine.closing import closed
from spark_jobs.engine.functions import FunctionStep
from spark_jobs.engine.intake import Intake
from spark_jobs.engine.relations import Relations, cast
from spark_jobs.engine.states import KeptByKey, KeptLives, TaskState, needed_of, rows_of_now, task_state
from spark_jobs.engine.table_rows import left_of_each
from spark_jobs.sql.database import create_views
from spark_jobs.sql.kept_versions import projection

# How many records with a time that does not count a receipt lists.
_APART_TOLD = 5


class Steps(Relations):
    """The SQL of one order: a relation for each input and step, and a query for each output.

    Results of Python steps are spilled to the folder `temp`.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        order: Order,
        intakes: Sequence[Intake],
        temp: Path,
        memory: TaskMemory,
    ) -> None:
        super().__init__(connection, order, memory, intakes)
        for name, number in _variables(order):
            connection.execute(f"SET VARIABLE {quote(name)} = {'NULL' if number is None else number}::BIGINT")
        self._by_name = {step.name: step for step in order.steps}
        scans = _scans(order)
        relations: dict[str, list[Intake]] = {}
        for intake in intakes:
            relations.setdefault(_named(intake.ordered, order), []).append(intake)
        kept = {state_of(step.name): relations.pop(state_of(step.name), []) for step in order.steps if step.state}
        # Of Iceberg tables that are read as such: whether they are read from their first row on.
        self._counted: dict[str, bool] = {}
        for name, parts in relations.items():
            with self.errors(f"stream or step {name!r}"):
                self._relation(name, parts, scans[name])
        self._states: dict[str, TaskState] = {}
        self.migrated: list[Migrated] = []
        # Of a table beside whose rows new ones are written, only the rows of this batch's keys are needed.
        by_key = (write for write in order.writes if write.declared.mode.by_key)
        self._whole = {write.declared.step for write in by_key if write.merged or not write.beside}
        for number, step in enumerate(order.steps):
            if not step.on_dataframes:
                if step.state:
                    self._open(step, kept[state_of(step.name)])
                self._do(step, temp / f"step-{number}.arrow")

    def _do(self, step: Step, file: Path) -> None:
        """Give the result of a step its name in SQL; that of a function is spilled to the file."""
        if step.function:
            self._made(step, file)
        elif step.keeps_its_rows:
            self._goes_on(step)
        elif step.op is Op.CHANGES and (kept := self._by_name.get(step.inputs[0])) and kept.keeps_its_rows:
            self._changes_of(step, self._states[kept.name])
        elif waiting(step, self._by_name):
            # It is counted as well as read.
            self._keyed(step)
        elif self._memory.short and step.op is not Op.RECENT and (step.keyed or step.op is Op.PARTIAL):
            self._keyed(_with_others(step, self._order))
        else:
            with self.errors(f"step {step.name!r}"):
                create_views(self.connection, [_with_others(step, self._order)])

    def _keyed(self, step: Step) -> None:
        """Store the rows of a step that brings rows of a key together. The relations that it reads are stored."""
        keys, others = self._order.keys, [read.name for read in self._order.inputs if read.relation == step.name]
        read = {name: keys[name] for name in (*step.inputs, *others)}
        if step.op is Op.PARTIAL and step.key:
            read[step.inputs[0]] = (*key_parts(step.key), step.key)[0]
        if step.state:
            read[state_of(step.name)] = step.state.placement.key if step.state.placement else ""
        read = {name: key for name, key in read.items() if quote(name) in step.sql}
        self.create_by_keys(step.name, step.sql, read, f"step {step.name!r}")

    def table(self, write: PlannedWrite) -> pa.RecordBatchReader:
        """The rows of a result table. Read them before asking for others."""
        return self.rows(write.declared.step, write.columns, f"table {write.declared.table!r}")

    def upserted(self, write: PlannedWrite) -> pa.RecordBatchReader:
        """All rows of an upserted table with this task's keys, as `KeptByKey.all` gives them.

        Raises Refused if a row has no key, or if a key has several rows.
        """
        step, key = write.declared.step, quote(write.declared.key)
        wrong = f"SELECT {key}, count(*) FROM {quote(step)} GROUP BY 1 HAVING {key} IS NULL OR count(*) > 1 LIMIT 1"
        for name, count in zip(*(column.to_pylist() for column in self.query(wrong, step).read_all()), strict=True):
            what = "a row has no key" if name is None else f"the key {name!r} has {count:,} rows"
            then = "filter such rows out first" if name is None else "combine them first, or take the latest"
            table, advice = write.declared.table, (f"{then}, then ", Replan(self._order.pipeline))
            what = f"{what}: an upserted table has one row for each key"
            raise Refused.of(Kind.RECORD, what, f"table {table!r}, {self._order}", advice, table=table, key=name)
        return self.query(self._kept_by_key(step).all(write.since), f"table {write.declared.table!r}")

    def replaced(self, write: PlannedWrite) -> pa.RecordBatchReader:
        """The rows of an upserted table that go. Read them before asking for others."""
        kept = self._kept_by_key(write.declared.step)
        return self.query(kept.replaced(write.since), f"table {write.declared.table!r}")

    def _kept_by_key(self, step: str) -> KeptByKey:
        state = self._states[step]
        assert isinstance(state, KeptByKey)
        return state

    def given(self, step: Step, number: int) -> pa.RecordBatchReader:
        """The rows of an input of a step on DataFrames. Read them before asking for others."""
        return self.query(f"SELECT * FROM {quote(step.inputs[number])}", f"input of step {step.name!r}")

    def left(self, leaving: Leaving) -> pa.RecordBatchReader:
        """The output rows for later tasks. Read them before asking for others."""
        if leaving.role is Role.STATE:
            return self.query(self._state_left(self._by_name[leaving.step]), leaving.name)
        return self.rows(leaving.step, leaving.columns, leaving.name)

    def _state_left(self, step: Step) -> str:
        """The query for the state to write, which is stored if memory is too small for all keys at once."""
        assert step.state
        sql, name = self._states[step.name].left(), f"{state_of(step.name)}@left"
        if not self._memory.short:
            return sql
        key = step.state.placement.key if step.state.placement else ""
        own = dict.fromkeys((state_of(step.name), needed_of(step), step.name), key)
        inputs = {read: self._order.keys.get(read, "") for read in step.inputs}
        read = {each: of for each, of in (own | inputs).items() if quote(each) in sql}
        self.create_by_keys(name, sql, read, f"state of step {step.name!r}")
        return f"FROM {quote(name)}"

    def apart(self) -> tuple[Apart, ...]:
        """The records whose event times do not count, for each step that uses event time."""
        found = []
        for step in self._order.steps:
            if step.state and step.state.apart:
                first = f"SELECT key::VARCHAR, time::VARCHAR FROM ({step.state.apart}) ORDER BY ALL LIMIT {_APART_TOLD}"
                counted = self.query(f"SELECT count(*) FROM ({step.state.apart})", f"step {step.name!r}").read_all()
                if records := counted[0][0].as_py():
                    rows = self.query(first, f"step {step.name!r}").read_all()
                    texts = zip(*(column.to_pylist() for column in rows), strict=True)
                    shown = tuple((MASK, MASK) if self._order.private else (str(key), time) for key, time in texts)
                    found.append(Apart(step.name, records, shown))
        return tuple(found)

    def closed(self) -> tuple[Closed, ...]:
        """The closed records of joins that give records alone, of windows, and of expiring keys."""
        giving = (step for step in self._order.steps if waiting(step, self._by_name))
        # Of a key that expires, the step's own input may be a stream, or come from another stage.
        sides = ((step, [self._by_name[name] for name in step.inputs if name in self._by_name]) for step in giving)
        return tuple(one for step, before in sides for one in closed(self, step, before))

    def _relation(self, name: str, intakes: Sequence[Intake], scans: int) -> None:
        """Give inputs their name in SQL. They are streamed if one query reads them once, else stored in DuckDB.

        A stream has several inputs if some of its partitions come through an exchange.
        """
        ordered = intakes[0].ordered
        query = " UNION ALL BY NAME ".join(self._scanned(intake) for intake in intakes)
        if ordered.table:
            key = quote(ordered.placement.key)
            newest = f"row_number() OVER (PARTITION BY {key} ORDER BY {quote(ordered.offset)} DESC) = 1"
            if isinstance(ordered, OrderedStream) and ordered.ids:
                read = (intake.ordered for intake in intakes if isinstance(intake.ordered, OrderedStream))
                self._counted[name] = not any(planned.start for each in read for planned in each.partitions)
            else:
                if self._memory.short:
                    self.create(f"{name}@all", query, f"stream {name!r}")
                    query = f"FROM {quote(f'{name}@all')}"
                query = f"SELECT * FROM ({query}) QUALIFY {key} IS NULL OR {newest}"
                if self._memory.short:
                    self.create_by_keys(name, query, {f"{name}@all": ordered.placement.key}, f"stream {name!r}")
                    self.drop(f"{name}@all")
                    return
        kept = ordered.table or scans > 1 or self._memory.short
        self.connection.execute(f"CREATE TEMP {'TABLE' if kept else 'VIEW'} {quote(name)} AS {query}")

    def _open(self, step: Step, intakes: Sequence[Intake]) -> None:
        """Read a step's state, if it has any."""
        read = intakes[0].ordered.read if intakes else None
        assert read is None or isinstance(read, StateInput)
        known = self._scanned(intakes[0]) if intakes and not intakes[0].empty else None
        narrow = intakes[0].narrow if known else None
        if read and read.migration:
            narrow = None
            read, known, figures = migrated(self, self._order, step, read, known)
            self.migrated.append(figures)
        whole = step.name in self._whole or step.op is Op.TABLE
        kept = task_state(self, step, self._order.batch, self._order.day_end, read, known, whole=whole)
        if isinstance(kept, KeptByKey):
            lives = (self._states.get(name) for name in step.inputs)
            kept.but = [state.unseen for state in lives if isinstance(state, KeptLives)]
            kept.narrow = narrow
        with self.errors(f"state of step {step.name!r}"):
            kept.open()
        self._states[step.name] = kept

    def _goes_on(self, step: Step) -> None:
        """Run a step whose state is its own rows. A step that combines reads its earlier rows as more of its input."""
        if step.op is Op.TABLE:
            self._table_of(step)
            return
        if step.op is not Op.UPSERT:
            name = quote(step.inputs[0])
            both = f"SELECT * FROM {name} UNION ALL BY NAME SELECT * FROM {quote(state_of(step.name))}"
            step = replace(step, sql=f"WITH {name} AS ({both}) {step.sql}")
        self._keyed(step)

    def _changes_of(self, step: Step, state: TaskState) -> None:
        """Store what a step makes of the newest rows of another: of those that there are now, less those that were."""
        assert isinstance(state, KeptByKey)
        now, was = (f"WITH {quote(step.inputs[0])} AS ({rows}) SELECT * FROM ({step.sql})" for rows in state.both)
        read = dict.fromkeys((state.made, state_of(state.step.name)), state.step.key)
        net_changes = net(f"({now}) UNION ALL ({taken_back(was)})")
        self.create_by_keys(step.name, net_changes, read, f"step {step.name!r}")

    def _table_of(self, step: Step) -> None:
        """Store the rows of this batch's keys, and give the step's name to the rows of all keys."""
        state, name = self._states[step.name], step.inputs[0]
        assert isinstance(state, KeptByKey)
        with self.errors(f"step {step.name!r}"):
            if name in self._counted:
                self._leave_one_row(step, state)
            self.connection.execute(f"CREATE TEMP TABLE {state.rows} AS {step.sql}")
            if name in self._counted:
                state.leave_equal(name)
            self.connection.execute(f"CREATE TEMP VIEW {quote(step.name)} AS {state.rows_of_all()}")

    def _leave_one_row(self, step: Step, state: KeptByKey) -> None:
        """Leave what became of each key of an Iceberg table. Where that is read from its first row on, keys that were
        kept and do not come are gone. Raises Refused if a key has several rows: one of them may go, and no state knows
        the others."""
        name, key = step.inputs[0], quote(step.key)
        streams = (each.ordered.declared for each in self._intakes if isinstance(each.ordered, OrderedStream))
        offset = quote(next(stream.offset for stream in streams if stream.name == name))
        kept = f"(SELECT * FROM {quote(state_of(step.name))} WHERE {not self._counted[name]})"
        if found := left_of_each(self.connection, name, key, offset, kept):
            shown, count = MASK if self._order.private else found[0], found[1]
            what = f"the key {shown!r} has {count:,} rows in the Iceberg table, and a table has one for each key"
            leave = "leave one of them there, or declare the table by pipeline.stream(…), then "
            then = (leave, Replan(self._order.pipeline))
            raise Refused.of(Kind.RECORD, what, f"stream {name!r}, {self._order}", then, key=shown)
        if self._counted[name]:
            state.begin_anew(name, f"true AS {quote(DELETED)}")

    def _made(self, step: Step, file: Path) -> None:
        """Run a Python step, and give its result and its state their names in SQL."""
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
        # No stream can have a name with `@`.
        raw = f"{intake.ordered.name}@read"
        self.connection.register(raw, intake.stream())
        return f"SELECT {cast(columns)} FROM {quote(raw)}"


def _named(read: Ordered, order: Order) -> str:
    """The name of an input in SQL. What other tasks made of a step of the order is called as it was left."""
    return read.name if read.relation in {step.name for step in order.steps} else read.relation


def _with_others(step: Step, order: Order) -> Step:
    """The step, whose rows are also those that other tasks made: of hot keys, which they read in ranges."""
    others = [f"SELECT * FROM {quote(read.name)}" for read in order.inputs if read.relation == step.name]
    return replace(step, sql=" UNION ALL BY NAME ".join([step.sql, *others]))


def _variables(order: Order) -> Iterator[tuple[str, int | None]]:
    """The SQL variables with the batch, and the times by which steps go."""
    yield THIS_BATCH, order.batch
    if isinstance(order.day_end, int):
        yield DAY_END, order.day_end
    for step in order.steps:
        if step.state:
            passed = step.state.watermark
            if passed:
                yield from zip(passed_by(step.name), (passed.before, passed.now), strict=True)
            if passed and passed.now is not None:
                yield kept_since(step.name), passed.now - step.state.microseconds
            elif passed or not isinstance(order.day_end, int):
                yield kept_since(step.name), EARLIEST


def _scans(order: Order) -> Counter[str]:
    """How often the queries of all outputs read each input and step."""
    left = (leaving.step for leaving in order.leaves if leaving.role is not Role.STATE)
    steps = {step.name: step for step in order.steps}
    scans = Counter([*(write.declared.step for write in order.writes), *left])
    for step in reversed(order.steps):
        # The result of a function, and state by key, are tables, so their input is read once. Steps with state read it
        # once more: for its keys, or for the rows to keep for a time.
        held = step.function or (step.state and not step.state.sql) or waiting(step, steps)
        for name in step.inputs:
            scans[name] += (1 if held else scans[step.name]) + (1 if step.state else 0)
            scans[name] += 2 if step.state and step.state.apart else 0
    for read in order.inputs:
        if (name := _named(read, order)) != read.relation:
            scans[name] = scans[read.relation]
    return scans


_NONE = Keyed(0, f"{0:016x}")


def migrated(
    relations: Relations, order: Order, step: Step, read: StateInput, known: str | None
) -> tuple[StateInput, str | None, Migrated]:
    """The input as if all its rows were of now, the query for these rows, and the figures of old rows and new.

    `known` is the query for the rows of all runs, if there are any.
    """
    assert step.state
    assert read.migration
    raw, old, new = (f"{step.name}.state@{word}" for word in ("raw", "old", "new"))
    where, now = f"migration of step {step.name!r}", state_columns(step.state)
    as_now = replace(read, columns=now)
    if known is None:
        return as_now, None, Migrated(step.name, _NONE, _NONE)
    # DuckDB may scan the input of a window twice, and an intake can be read only once.
    relations.create(raw, known, where)
    relations.create(old, rows_of_now(step.state, read, quote(raw), order.day_end), where)
    relations.drop(raw)
    if read.migration.function:
        others = ", ".join(quote(column.name) for column in read.columns if column not in (BATCH, GONE))
        kept = relations.query(f"SELECT {others} FROM {quote(old)}", where).read_all()
        made = FunctionStep(order, replace(step, function=read.migration.function)).apply_once(kept)
        relations.relate(f"{new}@rows", made, step.state.columns, where)
        key = quote(read.placement.key) if read.placement.key else "0"
        batches = f"SELECT {key} AS key, max({quote(BATCH.name)}) AS batch FROM {quote(old)} GROUP BY 1"
        # A row of a strange key counts as kept, so that the figures have it.
        marks = f"coalesce(batch, {read.batch})::BIGINT AS {quote(BATCH.name)}, false AS {quote(GONE.name)}"
        rows = f"{quote(f'{new}@rows')} AS made LEFT JOIN ({batches}) AS batches"
        relations.create(new, f"SELECT made.*, {marks} FROM {rows} ON {key} IS NOT DISTINCT FROM batches.key", where)
    else:
        relations.create(new, f"SELECT {projection(read.changes, now)} FROM {quote(old)}", where)
    before, after = (_keyed(relations, name, read.placement.key, where) for name in (old, new))
    relations.drop(old)
    return as_now, f"SELECT * FROM {quote(new)}", Migrated(step.name, before, after)


def _keyed(relations: Relations, relation: str, key: str, where: str) -> Keyed:
    """How many rows there are, and the digest of their keys, which does not depend on their order."""
    text = f"{quote(key)}::VARCHAR" if key else "NULL::VARCHAR"
    digest = f"coalesce(sum((hash({text}) % {MODULUS})::HUGEINT) % {MODULUS}, 0)::BIGINT"
    counted = relations.query(f"SELECT count(*), {digest} FROM {quote(relation)}", where).read_all()
    return Keyed(counted[0][0].as_py(), f"{counted[1][0].as_py():016x}")
