"""Finishing: a Spark worker checks and writes the rows of one task that a function on DataFrames returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa

from coset.sources.file_columns import arrow_schema
from coset.sources.files import Files
from coset.sources.plain_arrays import columns_not_utf8
from partitioning.commands import Repeat
from partitioning.errors import CosetError, Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.failure import Done
from partitioning.model.graph import Step, quote
from partitioning.model.order import Order
from partitioning.model.private import without_values
from partitioning.model.receipt import Artefact, Role, TaskReceipt
from partitioning.model.task_engine import TaskMemory
from partitioning.values import Value
from spark_jobs.engine.arrays import mask
from spark_jobs.engine.functions import returned_no_text, returned_strange_key, wrong_types
from spark_jobs.engine.occasions import Stopwatch
from spark_jobs.engine.relations import Relations
from spark_jobs.engine.tally import Tally
from spark_jobs.engine.task_database import connect
from spark_jobs.engine.task_folder import task_folder
from spark_jobs.engine.writers import Writers
from spark_jobs.given import PLACE, Given, keys_given
from spark_jobs.row_routing import COUNT, MARKS, ORDER

ANSWERS = pa.schema([(PLACE, pa.int32()), ("answer", pa.binary())])
# The table with the keys of the function's input rows.
_KEYS = "@keys"


class Finishing(Value, frozen=True):
    """The rest of one task: check the rows that `step` returned for the `given` files, and write them."""

    order: Order
    step: str
    given: tuple[Given, ...]


# Encodes the answer of what it calls, which it calls again after a failure of the store.
Answering = Callable[[Callable[[], Done]], bytes]


def finishing(answering: Answering, memory: str) -> partial[Iterator[pa.RecordBatch]]:
    """The function for Spark's `mapInArrow`. Its input is the rows of one task with `MARKS`, and the task's order."""
    return partial(_finished, answering, memory)


def _finished(answering: Answering, memory: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with task_folder() as temp:
        made = _Made(temp / "made.arrow")
        made.read(batches)
        # Spark may make partitions without a task.
        if made.order is None:
            return
        asked = msgspec.json.decode(made.order, type=Finishing)
        answer = answering(lambda: Done((finish(asked, made, memory, temp),)))
        yield pa.RecordBatch.from_pylist([{PLACE: made.place, "answer": answer}], ANSWERS)


class _Made:
    """The returned rows of one task, spilled to a file."""

    def __init__(self, file: Path) -> None:
        self.place = 0
        self.order: bytes | None = None
        self.sent = 0
        self.came = 0
        self._file = file

    def read(self, batches: Iterator[pa.RecordBatch]) -> None:
        writer, places = None, set[int]()
        with pa.OSFile(str(self._file), "wb") as sink:
            for batch in batches:
                places.update(batch.column(PLACE).unique().to_pylist())
                self._note(batch)
                rows = batch.filter(_are_rows(batch))
                rows = rows.select([field.name for field in batch.schema][: -len(MARKS)])
                writer = writer or pa.ipc.new_file(sink, rows.schema)
                writer.write_batch(rows)
                self.came += len(rows)
            if writer is not None:
                writer.close()
        if len(places) > 1:
            raise RuntimeError(f"Spark gave one task the rows of {sorted(places)}")
        self.place = next(iter(places), 0)

    def _note(self, batch: pa.RecordBatch) -> None:
        self.sent += sum(count for count in batch.column(COUNT).drop_null().to_pylist())
        for order in batch.column(ORDER).drop_null().to_pylist():
            self.order = order

    def table(self) -> pa.Table:
        return pa.ipc.open_file(pa.memory_map(str(self._file))).read_all()


def finish(asked: Finishing, made: _Made, memory: str, temp: Path) -> TaskReceipt:
    """Check and leave what was made for one task; its receipt says what it left.

    Raises Refused if rows are missing, are not of the declared types, or have keys that the task was not given.
    """
    watch, order = Stopwatch(), asked.order
    step = next(step for step in order.steps if step.name == asked.step)
    if made.came != made.sent:
        what = f"Spark lost or doubled rows: {made.sent:,} were sent, {made.came:,} came"
        raise CosetError.of(
            Kind.SPARK_ROWS, what, f"step {step.name!r}, {order}", Repeat(), sent=made.sent, came=made.came
        )
    writers, tally = Writers.of(order, Files(), TaskMemory.of(memory)), Tally()
    left: list[Artefact | None] = []
    with connect(memory) as connection:
        relations, where = Relations(connection, order, TaskMemory.of(memory)), f"step {step.name!r}"
        relations.relate(step.name, _typed(made.table(), step, order), step.columns, where)
        if step.key and not step.rekeys:
            _check_known(asked, step, connection, relations)
        for write in order.writes:
            if write.declared.step == step.name:
                rows = relations.rows(step.name, write.columns, f"table {write.declared.table!r}")
                with tally.rows(Role.TABLE, write.declared.table, rows) as counted:
                    left.append(writers.table(write, counted))
        for leaving in order.leaves:
            if leaving.step == step.name:
                rows = relations.rows(step.name, leaving.columns, leaving.name)
                with tally.rows(leaving.role, leaving.name, rows) as counted:
                    left.append(writers.left(leaving, counted, temp))
    artefacts = tuple(artefact for artefact in left if artefact is not None)
    made_of_it, cpu = tuple(tally.made), round(watch.cpu * 1000)
    return TaskReceipt(order.ref, (), artefacts, round(watch.elapsed * 1000), made_of_it, cpu_milliseconds=cpu)


def _are_rows(batch: pa.RecordBatch) -> pa.Array:
    """Which rows the function returned. The others hold a count or an order."""
    counts, orders = (batch.column(name).is_null().to_numpy(zero_copy_only=False) for name in (COUNT, ORDER))
    return mask(counts & orders)


def _typed(rows: pa.Table, step: Step, order: Order) -> pa.Table:
    schema = arrow_schema(step.columns)
    try:
        typed = rows.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _refused(wrong_types(step, error), step, order) from None if order.private else error
    for name in columns_not_utf8(typed):
        raise _refused(returned_no_text(step, name), step, order)
    return typed


def _check_known(asked: Finishing, step: Step, connection: duckdb.DuckDBPyConnection, relations: Relations) -> None:
    """Raises Refused if the function returned a key that is not in the task's input."""
    kind = next(column.type for column in step.columns if column.name == step.key)
    connection.execute(f"CREATE TEMP TABLE {quote(_KEYS)} (key {kind})")
    for given, key in zip(asked.given, (asked.order.keys[name] for name in step.inputs), strict=True):
        for keys in keys_given(given, key):
            connection.register("@some", pa.table({"key": keys}))
            connection.execute(f'INSERT INTO {quote(_KEYS)} SELECT key FROM "@some"')
    known = f"SELECT 1 FROM {quote(_KEYS)} AS given WHERE given.key IS NOT DISTINCT FROM made.{quote(step.key)}"
    sql = f"SELECT {quote(step.key)} FROM {quote(step.name)} AS made WHERE NOT EXISTS ({known}) LIMIT 1"
    strange = relations.query(sql, f"step {step.name!r}").read_all()
    if len(strange):
        key = strange[0][0].as_py()
        raise _refused(returned_strange_key(step, key), step, asked.order)


def _refused(what: str, step: Step, order: Order) -> Refused:
    then = ("correct the function, then ", Repeat())
    where = f"step {step.name!r}, {order}"
    finding = Finding.of(Kind.FUNCTION, what, where, then, step=step.name, function=step.function)
    return Refused(without_values(finding) if order.private else finding)
