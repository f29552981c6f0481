"""Frames: the steps of a task group that are functions on Spark's own DataFrames, run in its driver.

The tasks have left what such a step is given. Spark reads it in its workers, a partition of a DataFrame for each task;
the function is called once for the group; its rows go to the tasks that have their keys, which leave them as any
others. No row passes through the driver.
"""

from __future__ import annotations

import os
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
from partitioning.errors import CosetError, Finding, Refused, about
from partitioning.imports import failed, imported
from partitioning.kinds import Kind
from partitioning.model.artefact import Artefact
from partitioning.model.graph import Step
from partitioning.model.leaving import given_to
from partitioning.model.order import Order
from partitioning.model.plan import TaskRef
from partitioning.model.receipt import TaskReceipt
from partitioning.values import replace
from spark_jobs.finishing import ANSWERS, Answering, Finishing, finishing
from spark_jobs.given import PLACE, ROW, Given, frame_schema, reading
from spark_jobs.row_routing import MARKS, ORDER, Placing, dealing

if TYPE_CHECKING:  # what it imports is only there where a server is used
    from pyspark.sql.connect.session import SparkSession as RemoteSession

# Opens Spark for the steps of one group: a session of its own, so that groups do not see each other's views.
Dataframes = Callable[[], AbstractContextManager["SparkSession | RemoteSession"]]
# Makes receipts of the answers of tasks. Raises what these failed with.
Receipts = Callable[[Sequence[bytes]], Iterable[TaskReceipt]]

# What Spark raises for what it was asked to do, and not for what happened to it.
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
        # What is grouped by a day must not depend on where it runs.
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    def run(self, orders: Sequence[Order], receipts: Sequence[TaskReceipt]) -> tuple[TaskReceipt, ...]:
        """The receipts of the group's tasks, with what their steps on DataFrames left as well.

        Raises Refused if a function fails, or gives something else than it was declared to; CosetError if Spark lost
        something; and what Spark raises if it fails itself.
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
                answers = self._finished(made, Placing.of(step, orders), asked)
        receipts = list(self._receipts_of(answers))
        if {receipt.task for receipt in receipts} != {order.ref for order in orders}:
            what = f"{len(receipts)} of {len(orders)} tasks answered"
            raise CosetError(
                Finding(
                    Kind.SPARK_ROWS,
                    what,
                    f"step {step.name!r}, {self._name}",
                    Repeat(),
                    about(receipts=len(receipts), orders=len(orders)),
                )
            )
        return receipts

    @contextmanager
    def _frames(self, step: Step, given: Sequence[Sequence[Given]]) -> Iterator[list[DataFrame]]:
        """What each input's files hold: read once, and counted before anybody sees it."""
        read = [self._read(step, number, files) for number, files in enumerate(given)]
        try:
            for frame, files in zip(read, given, strict=True):
                self._check_counts(frame, files)
            yield [frame.drop(PLACE, ROW) for frame in read]
        finally:
            # It ends with the session in any case.
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
            raise Refused(
                Finding(Kind.SQL_TYPE, what, where, then, about(step=step.name, input=step.inputs[number]))
            ) from error
        columns = [pa.array(range(len(files)), pa.int32()), pa.array(map(msgspec.json.encode, files), pa.binary())]
        named = self._spark.createDataFrame(pa.Table.from_arrays(columns, names=[PLACE, "file"]))
        return named.repartitionById(len(files), PLACE).mapInArrow(reading(schema), columns_of).persist()

    def _check_counts(self, frame: DataFrame, files: Sequence[Given]) -> None:
        """Raises CosetError if Spark does not have just the rows that each task left."""
        counted = frame.selectExpr(f"`{PLACE}`", "1 AS n", f"`{ROW}` AS row").groupBy(PLACE).sum("n", "row").toArrow()
        came = {place: (rows, places) for place, rows, places in zip(*counted.to_pydict().values(), strict=True)}
        for file in files:
            rows = file.file.records
            if came.get(file.place, (0, 0)) != (rows, rows * (rows - 1) // 2):
                what = (
                    f"Spark read {came.get(file.place, (0, 0))[0]:,} rows, or others than the {rows:,} that were left"
                )
                raise CosetError(Finding(Kind.SPARK_ROWS, what, file.uri, Repeat(), about(rows=rows)))

    def _made(self, step: Step, frames: Sequence[DataFrame], order: Order) -> DataFrame:
        """What the function makes, in the columns that it was declared to give."""
        function = imported(step.function or "", f"step {step.name!r}", tasks=True)
        with self._errors(step, order):
            try:
                with _functions_of(self._spark):
                    made = function(*frames)
            except (PySparkException, Py4JError, CosetError, KeyboardInterrupt):
                raise
            except BaseException as error:
                raise self._refused(failed(error), step, order) from error
            if not isinstance(made, DataFrame):
                raise self._refused(f"gave no DataFrame but {type(made).__name__}", step, order)
            there, wanted = made.columns, [column.name for column in step.columns]
            for name in wanted:
                if there.count(name) != 1:
                    times = "no column" if name not in there else "more than one column"
                    raise self._refused(f"gave {times} {name}: {', '.join(there) or 'none'}", step, order)
            return made.select(*(f"`{name.replace('`', '``')}`" for name in wanted))

    def _finished(self, made: DataFrame, placing: Placing, asked: Sequence[Finishing]) -> list[bytes]:
        """The answers of the tasks, which check and leave what was made."""
        marks = from_arrow_schema(pa.schema(MARKS))
        dealt = made.mapInArrow(dealing(placing), StructType([*_nullable(made.schema), *marks]))
        places = pa.array(range(len(asked)), pa.int32())
        documents = pa.array(map(msgspec.json.encode, asked), pa.binary())
        sent = self._spark.createDataFrame(pa.Table.from_arrays([places, documents], names=[PLACE, ORDER]))
        rows = dealt.unionByName(sent, allowMissingColumns=True).repartitionById(len(asked), PLACE)
        answers = rows.mapInArrow(finishing(self._answering, self._memory), from_arrow_schema(ANSWERS)).toArrow()
        return list(answers.sort_by(PLACE)["answer"].to_pylist())

    @contextmanager
    def _errors(self, step: Step, order: Order) -> Iterator[None]:
        """Tell what a function did wrong from what happened to Spark."""
        try:
            yield
        except _OF_THE_FUNCTION as error:
            raise self._refused(f"failed: {_said(error)}", step, order) from error

    def _refused(self, what: str, step: Step, order: Order) -> Refused:
        then = ("correct the function, then ", Repeat())
        return Refused(
            Finding(
                Kind.FUNCTION,
                f"the function {step.function} {what}",
                f"step {step.name!r}, {self._name}",
                then,
                about(function=step.function),
            )
        )


class _Remote:
    """By this variable `pyspark.sql.functions` are those of a Spark server; it is there while some thread needs it."""

    variable = "SPARK_CONNECT_MODE_ENABLED"
    lock = Lock()
    needed = 0


@contextmanager
def _functions_of(spark: SparkSession | RemoteSession) -> Iterator[None]:
    """Have Spark's functions make columns for the session's DataFrames."""
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
    """The tasks for which a function is called at once: all, if it can be told afterwards whose its rows are."""
    return [orders] if Placing.of(step, orders).tells else [[order] for order in orders]


def _given(name: str, orders: Sequence[Order], done: Mapping[TaskRef, TaskReceipt]) -> list[Given]:
    """The files that tasks left for an input of a step, by their places."""
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


def _said(error: PySparkException) -> str:
    """What Spark says, without the plan or the trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, PythonException):
        raised = [line for line in lines if not line.startswith(("File ", "^", "~"))]
        return raised[-1] if raised else repr(error)
    return lines[0] if lines else repr(error)
