"""Frames: the driver's part of a task group's steps that are functions on Spark's DataFrames.

The tasks have written the input of such a step to files. Spark's workers read these files into a DataFrame with one
partition for each task. The driver calls the function once for the group. Each returned row goes to the task that owns
its key, and that task's worker writes it. No row passes through the driver.
"""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import errors
from pyspark.errors import PySparkException, PySparkTypeError, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from partitioning.commands import Repeat
from partitioning.errors import CosetError, Finding, Refused
from partitioning.imports import failed, imported, line_in, line_of
from partitioning.kinds import Kind
from partitioning.model.graph import Step
from partitioning.model.leaving import given_to
from partitioning.model.order import Order
from partitioning.model.plan import TaskRef
from partitioning.model.private import without_values
from partitioning.model.receipt import Artefact, TaskReceipt
from partitioning.values import replace
from spark_jobs.finishing import ANSWERS, Answering, Finishing, finishing
from spark_jobs.given import PLACE, ROW, Given, frame_schema, reading
from spark_jobs.row_routing import MARKS, ORDER, RowRouting, routing

if TYPE_CHECKING:  # its imports are installed only where a Spark server is used
    from pyspark.sql.connect.session import SparkSession as RemoteSession

# Opens a Spark session for the steps of one group. Groups do not share a session, or they would share views.
Dataframes = Callable[[], AbstractContextManager["SparkSession | RemoteSession"]]
# Decodes the answers of tasks to receipts. Raises the error of tasks that failed.
Receipts = Callable[[Sequence[bytes]], Iterable[TaskReceipt]]

# Spark raises these for a fault of the function, not for one of Spark itself.
_OF_THE_FUNCTION = (
    errors.AnalysisException,
    errors.ArithmeticException,
    errors.ArrayIndexOutOfBoundsException,
    errors.DateTimeException,
    errors.IllegalArgumentException,
    errors.NumberFormatException,
    errors.PySparkTypeError,
    errors.PySparkValueError,
    errors.PythonException,
    errors.SparkRuntimeException,
)

# A line of Python's own traceback, in the message of an error that a worker raised.
_IN_FILE = re.compile(r'File "([^"\n]+)", line ([0-9]+)')


class Frames:
    """The DataFrame steps of the group `name`, in a session of Spark's."""

    def __init__(
        self, spark: SparkSession | RemoteSession, name: str, memory: str, answering: Answering, receipts_of: Receipts
    ) -> None:
        self._spark = spark
        self._name = name
        self._memory = memory
        self._answering = answering
        self._receipts_of = receipts_of
        # The day of a timestamp must not depend on the machine.
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    def run(self, orders: Sequence[Order], receipts: Sequence[TaskReceipt]) -> tuple[TaskReceipt, ...]:
        """Run the DataFrame steps. Returns the `receipts` of the group's tasks with the artefacts of these steps added.

        Raises Refused if a function fails or its result is not what the step declares, CosetError if Spark lost rows
        or answers, and Spark's own error if Spark itself fails.
        """
        done = {receipt.task: receipt for receipt in receipts}
        stages: dict[str, list[Order]] = {}
        for order in orders:
            stages.setdefault(order.stage, []).append(order)
        for together in stages.values():
            for step in (step for step in together[0].steps if step.on_dataframes):
                for called in _calls(step, together):
                    for more in self._step(step, called, done):
                        done[more.task] = _both(done[more.task], more)
        return tuple(done.values())

    def _step(self, step: Step, orders: Sequence[Order], done: Mapping[TaskRef, TaskReceipt]) -> list[TaskReceipt]:
        given = [_given(name, orders, done) for name in given_to(step)]
        with self._frames(step, given) as frames:
            made = self._made(step, frames, orders[0])
            asked = [
                Finishing(order, step.name, tuple(files[place] for files in given))
                for place, order in enumerate(orders)
            ]
            with self._errors(step, orders[0]):
                answers = self._finished(made, RowRouting.of(step, orders), asked)
        receipts = list(self._receipts_of(answers))
        if {receipt.task for receipt in receipts} != {order.ref for order in orders}:
            what = f"{len(receipts)} of {len(orders)} tasks answered"
            where = f"step {step.name!r}, {self._name}"
            raise CosetError.of(Kind.SPARK_ROWS, what, where, Repeat(), receipts=len(receipts), orders=len(orders))
        return receipts

    @contextmanager
    def _frames(self, step: Step, given: Sequence[Sequence[Given]]) -> Iterator[list[DataFrame]]:
        """A DataFrame of each input's files, persisted and counted before the function gets it."""
        read = [self._read(step, number, files) for number, files in enumerate(given)]
        try:
            for frame, files in zip(read, given, strict=True):
                self._check_counts(frame, files)
            yield [frame.drop(PLACE, ROW) for frame in read]
        finally:
            # The session's end drops the persisted rows anyway.
            with suppress(PySparkException, Py4JError):
                for frame in read:
                    frame.unpersist()

    def _read(self, step: Step, number: int, files: Sequence[Given]) -> DataFrame:
        schema = frame_schema(files[0].schema())
        try:
            columns_of = from_arrow_schema(schema)
        except PySparkTypeError as error:
            what = f"{step.inputs[number]} has a column of a type that Spark does not know: {error}"
            where, then = f"step {step.name!r}, {self._name}", "select it as another type before"
            raise Refused.of(Kind.SQL_TYPE, what, where, then, step=step.name, input=step.inputs[number]) from error
        columns = [pa.array(range(len(files)), pa.int32()), pa.array(map(msgspec.json.encode, files), pa.binary())]
        named = self._spark.createDataFrame(pa.Table.from_arrays(columns, names=[PLACE, "file"]))
        return named.repartitionById(len(files), PLACE).mapInArrow(reading(schema), columns_of).persist()

    def _check_counts(self, frame: DataFrame, files: Sequence[Given]) -> None:
        """Raises CosetError if the DataFrame does not have exactly the rows of each file."""
        counted = frame.selectExpr(f"`{PLACE}`", "1 AS n", f"`{ROW}` AS row").groupBy(PLACE).sum("n", "row").toArrow()
        came = {place: (rows, places) for place, rows, places in zip(*counted.to_pydict().values(), strict=True)}
        for file in files:
            rows = file.file.records
            if came.get(file.place, (0, 0)) != (rows, rows * (rows - 1) // 2):
                read = came.get(file.place, (0, 0))[0]
                what = f"Spark read {read:,} rows, which are not the {rows:,} rows of the file"
                raise CosetError.of(Kind.SPARK_ROWS, what, file.uri, Repeat(), rows=rows)

    def _made(self, step: Step, frames: Sequence[DataFrame], order: Order) -> DataFrame:
        """The function's result, with the columns that the step declares."""
        function = imported(step.function or "", f"step {step.name!r}", tasks=True)
        with self._errors(step, order):
            try:
                with _functions_of(self._spark):
                    made = function(*frames)
            except (PySparkException, Py4JError, CosetError, KeyboardInterrupt):
                raise
            except BaseException as error:
                raise self._refused(failed(error), step, order, line_of(error)) from None if order.private else error
            if not isinstance(made, DataFrame):
                raise self._refused(f"returned {type(made).__name__}, not a DataFrame", step, order)
            there, wanted = made.columns, [column.name for column in step.columns]
            for name in wanted:
                if there.count(name) != 1:
                    times = "no column" if name not in there else "more than one column"
                    raise self._refused(f"returned {times} {name}; it has {', '.join(there) or 'none'}", step, order)
            return made.select(*(f"`{name.replace('`', '``')}`" for name in wanted))

    def _finished(self, made: DataFrame, rows_by: RowRouting, asked: Sequence[Finishing]) -> list[bytes]:
        """Send each returned row to its task. Returns the answers of the workers that check and write the rows."""
        marks = from_arrow_schema(pa.schema(MARKS))
        routed = made.mapInArrow(routing(rows_by), StructType([*_nullable(made.schema), *marks]))
        places = pa.array(range(len(asked)), pa.int32())
        documents = pa.array(map(msgspec.json.encode, asked), pa.binary())
        sent = self._spark.createDataFrame(pa.Table.from_arrays([places, documents], names=[PLACE, ORDER]))
        rows = routed.unionByName(sent, allowMissingColumns=True).repartitionById(len(asked), PLACE)
        answers = rows.mapInArrow(finishing(self._answering, self._memory), from_arrow_schema(ANSWERS)).toArrow()
        return list(answers.sort_by(PLACE)["answer"].to_pylist())

    @contextmanager
    def _errors(self, step: Step, order: Order) -> Iterator[None]:
        """Turn an error of the function into a refusal, and let Spark's own errors pass."""
        try:
            yield
        except _OF_THE_FUNCTION as error:
            line = _line(error, step)
            raise self._refused(f"failed: {_said(error)}", step, order, line) from None if order.private else error

    def _refused(self, what: str, step: Step, order: Order, line: str = "") -> Refused:
        then = ("correct the function, then ", Repeat())
        where = f"{line}step {step.name!r}, {self._name}"
        finding = Finding.of(Kind.FUNCTION, f"the function {step.function} {what}", where, then, function=step.function)
        return Refused(without_values(finding) if order.private else finding)


class _Remote:
    """With this variable `pyspark.sql.functions` works for a Spark server. It is set while a thread needs it."""

    variable = "SPARK_CONNECT_MODE_ENABLED"
    lock = Lock()
    needed = 0


@contextmanager
def _functions_of(spark: SparkSession | RemoteSession) -> Iterator[None]:
    """Make `pyspark.sql.functions` build columns for the session's kind of DataFrames."""
    if not type(spark).__module__.startswith("pyspark.sql.connect."):
        yield
        return
    with _Remote.lock:
        _Remote.needed += 1
        os.environ[_Remote.variable] = "1"
    try:
        yield
    finally:
        with _Remote.lock:
            _Remote.needed -= 1
            if not _Remote.needed:
                del os.environ[_Remote.variable]


def _calls(step: Step, orders: Sequence[Order]) -> Sequence[Sequence[Order]]:
    """The tasks that share a call of the function: all if a row's key tells its task, else each has its own call."""
    return [orders] if RowRouting.of(step, orders).by_key else [[order] for order in orders]


def _given(name: str, orders: Sequence[Order], done: Mapping[TaskRef, TaskReceipt]) -> list[Given]:
    """The file of each task for an input of a step, in the order of their places."""
    return [Given(place, order.store, _file(name, done[order.ref].artefacts)) for place, order in enumerate(orders)]


def _file(name: str, artefacts: Sequence[Artefact]) -> Artefact:
    return next(artefact for artefact in artefacts if artefact.name == name)


def _both(one: TaskReceipt, more: TaskReceipt) -> TaskReceipt:
    return replace(
        one,
        artefacts=(*one.artefacts, *more.artefacts),
        milliseconds=one.milliseconds + more.milliseconds,
        cpu_milliseconds=(one.cpu_milliseconds or 0) + (more.cpu_milliseconds or 0),
        made=(*(one.made or ()), *(more.made or ())),
    )


def _nullable(schema: StructType) -> Iterator[StructField]:
    for field in schema.fields:
        field.nullable = True
        yield field


def _line(error: PySparkException, step: Step) -> str:
    """The last line of the function's own file that an error came through, here or in a worker of Spark's."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(imported(step.function or "", step.name))) or ""
    except (TypeError, Refused):
        return ""
    here = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    there = [int(number) for name, number in _IN_FILE.findall(str(error)) if name == file]
    lines = there or here
    return line_in(file, lines[-1]) if lines else ""


def _said(error: PySparkException) -> str:
    """Spark's message without the query plan and the stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, PythonException):
        raised = [line for line in lines if not line.startswith(("File ", "^", "~"))]
        return raised[-1] if raised else repr(error)
    return lines[0] if lines else repr(error)
