"""The kernel: runs orders. It reads Arrow, runs SQL in DuckDB and writes Parquet; no record passes through the JVM.

Reader → Take → Proof → steps → writers, each in a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from coset.sources.copies import Copies
from coset.sources.files import Files
from coset.sources.landed_keys import CompositeKeys, LandedKeys, as_landed, landed_columns
from coset.sources.landed_reader import LandedReader
from coset.sources.parts_reader import PartsReader
from coset.sources.reader import Reader
from partitioning.errors import CosetError
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_parts
from partitioning.model.failure import together
from partitioning.model.leaving import LeftPartition, given_to
from partitioning.model.order import Order, Ordered, OrderedParts, OrderedStream, companies
from partitioning.model.plan import PlannedWrite
from partitioning.model.private import without_values
from partitioning.model.receipt import Artefact, Role, TaskReceipt
from partitioning.model.sources import IcebergSource, KafkaSource, LandedSource
from partitioning.model.stage_inputs import PlannedPartition, StateInput
from partitioning.model.task_engine import USUAL, TaskMemory
from partitioning.values import replace
from spark_jobs.engine.failing_records import Failed, failed_before, failing_records, may_be_of_records
from spark_jobs.engine.intake import Inspect, Inspection, Intake, Proved, read_together
from spark_jobs.engine.occasions import Stopwatch
from spark_jobs.engine.older_rows import Versions
from spark_jobs.engine.order_steps import Steps
from spark_jobs.engine.sampled_keys import sample_of
from spark_jobs.engine.set_aside import SET_ASIDE_COLUMNS, rows_of, with_bytes
from spark_jobs.engine.tally import Tally
from spark_jobs.engine.task_database import connect, opened
from spark_jobs.engine.task_folder import task_folder
from spark_jobs.engine.writers import Writers
from spark_jobs.tables.table_schema import keyed


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """What a machine gives the orders that run on it: access to files, a cache of state, and memory."""

    files: Files
    copies: Copies
    memory: TaskMemory = USUAL


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of an order: the receipt of its task, and the keys that the task sampled."""

    receipt: TaskReceipt
    sample: pa.Table


def run_orders(
    orders: Sequence[Order], *, memory: str = "1GB", inspect: Inspect = Proved, copies: Copies | None = None
) -> list[Ran]:
    """Run the orders of tasks: read their inputs, take records, run the steps, write the results.

    Orders that share an input read it once; others run one after the other. Data beyond `memory` is spilled to a
    temporary folder. `copies` is an optional local cache of state files. Each run writes to folders of its own, so
    orders may be run any number of times. A receipt describes one run. Records on which a step fails are set aside, if
    their stream says so.

    Raises Refused with all findings if an input cannot be read or is not the planned one, or if an expression fails on
    the data.
    """
    environment = TaskEnvironment(Files(), copies or Copies(None), TaskMemory.of(memory))
    ran, errors = dict[int, Ran](), list[CosetError]()
    # The first database that a process opens is the only one: inputs ask it which columns SQL names.
    opened(memory)
    for numbers in companies([(order.stage, order.task) for order in orders]):
        together_read = [orders[number] for number in numbers]
        try:
            with _nothing_private(together_read):
                done = _run_all(together_read, memory, inspect, environment)
        except CosetError as error:
            errors.append(error)
        else:
            ran.update(zip(numbers, done, strict=True))
    if errors:
        raise together(errors)
    return [ran[number] for number in range(len(orders))]


def _run_all(orders: Sequence[Order], memory: str, inspect: Inspect, environment: TaskEnvironment) -> list[Ran]:
    """Run the orders, and once more without records on which a step fails, if these may be set aside; or, if memory is
    too small for all keys of a task at once, with those of some after the others."""
    failed = failed_before(orders[0])
    while True:
        try:
            try:
                return _run_once(orders, memory, _without(failed, inspect), environment)
            except _Failing as failing:
                found = failed
                for order in failing.orders:
                    found = failing_records(order, partial(_trial, environment), memory, found)
                if found == failed:
                    raise failing.error from None
                failed = found
        except CosetError as error:
            if environment.memory.short or all(finding.kind is not Kind.MEMORY for finding in error.findings):
                raise
            environment = replaced(environment, memory=replace(environment.memory, short=True))


class _Failing(Exception):
    """Raised if orders failed, perhaps because of single records."""

    def __init__(self, orders: Sequence[Order], error: CosetError) -> None:
        super().__init__()
        self.orders = orders
        self.error = error


def _without(failed: Failed, inspect: Inspect) -> Inspect:
    """Inspect records as `inspect` does; those that failed cannot be used."""

    def inspected(order: Order, ordered: Ordered, planned: PlannedPartition | LeftPartition) -> Inspection:
        records = failed.get((ordered.name, planned.partition))
        return Proved(order, ordered, planned, records) if records else inspect(order, ordered, planned)

    return inspected


def _trial(
    environment: TaskEnvironment, connection: duckdb.DuckDBPyConnection, order: Order, temp: Path, failed: Failed
) -> Steps:
    """The steps of an order that is only tried."""
    numbers, inspect = range(len(order.inputs)), _without(failed, Proved)
    intakes = [intake for number in numbers for intake in _intakes([order], number, environment, inspect, temp)]
    return Steps(connection, order, intakes, temp, environment.memory)


def _run_once(orders: Sequence[Order], memory: str, inspect: Inspect, environment: TaskEnvironment) -> list[Ran]:
    watch, failing = Stopwatch(), list[Order]()
    with task_folder() as temp:
        inputs = [_intakes(orders, number, environment, inspect, temp) for number in range(len(orders[0].inputs))]
        elapsed, cpu = watch.elapsed / len(orders), watch.cpu / len(orders)
        ran, errors = list[Ran](), list[CosetError]()
        for number, order in enumerate(orders):
            watch = Stopwatch(elapsed, cpu)
            folder = temp / f"order-{number}"
            folder.mkdir()
            try:
                intakes = [each[number] for each in inputs]
                ran.append(_run(order, intakes, environment, memory, folder, watch))
            except CosetError as error:
                errors.append(error)
                if may_be_of_records(order, error):
                    failing.append(order)
    if failing and len(failing) == len(errors):
        raise _Failing(failing, together(errors))
    if errors:
        raise together(errors)
    return ran


@contextmanager
def _nothing_private(orders: Sequence[Order]) -> Iterator[None]:
    """Errors of tasks that read private columns quote none of their values, nor do those that they come from."""
    try:
        yield
    except CosetError as error:
        if not orders[0].private:
            raise
        raise type(error)(*map(without_values, error.findings)) from None


def _intakes(
    orders: Sequence[Order], number: int, environment: TaskEnvironment, inspect: Inspect, temp: Path
) -> list[Intake]:
    """The intake of each order for the input with this number."""
    ordered = [order.inputs[number] for order in orders]
    everything = ordered[0].of_all(ordered)
    read = reader(orders[0], everything, environment)
    intakes = [Intake(order, one, read, inspect) for order, one in zip(orders, ordered, strict=True)]
    if len(orders) > 1 and not read.empty:
        folder = temp / f"input-{number}"
        folder.mkdir()
        read_together(intakes, read, folder)
    return intakes


def _run(
    order: Order, intakes: Sequence[Intake], environment: TaskEnvironment, memory: str, temp: Path, watch: Stopwatch
) -> Ran:
    writers, tally = Writers.of(order, environment.files, environment.memory), Tally()
    with connect(memory) as connection:
        steps = Steps(connection, order, intakes, temp, environment.memory)
        # Steps on DataFrames run after this.
        later = {step.name for step in order.steps if step.on_dataframes}
        left = [
            artefact
            for write in order.writes
            if write.declared.step not in later
            for artefact in _written(write, writers, steps, tally, temp)
        ]
        for leaving in order.leaves:
            if leaving.step not in later:
                with tally.rows(leaving.role, leaving.name, steps.left(leaving)) as rows:
                    left.append(writers.left(leaving, rows, temp))
        for step in order.steps:
            for number, name in enumerate(given_to(step)):
                with tally.rows(Role.GIVEN, name, steps.given(step, number)) as rows:
                    left.append(writers.given(name, rows))
        apart, closed, shortage = steps.apart(), steps.closed(), steps.shortage
    # SQL may stop early, at an empty side of a join for instance. The proof needs all records.
    for intake in intakes:
        intake.drain()
    left.append(writers.set_aside(_set_aside(order, intakes, environment)))
    receipt = TaskReceipt(
        order.ref,
        tuple(receipt for intake in intakes for receipt in intake.receipts()),
        tuple(artefact for artefact in left if artefact is not None),
        round(watch.elapsed * 1000),
        tuple(tally.made),
        apart,
        round(watch.cpu * 1000),
        tuple(steps.migrated),
        closed=closed,
        shortage=shortage,
    )
    return Ran(receipt, sample_of(order, _sampled(intakes)))


def _written(
    write: PlannedWrite, writers: Writers, steps: Steps, tally: Tally, temp: Path
) -> Iterator[Artefact | None]:
    """Write the files of a result table."""
    if write.declared.mode.by_key:
        gone, keys = tally.gone(writers.order, write, steps.replaced(write))
        yield writers.replaced(write, keys)
        replaced = keyed(write, keys) if write.beside else None
        with tally.upserted(writers.order, write, steps.upserted(write), gone, replaced) as rows:
            yield from writers.upserted(write, rows, temp)
    else:
        with tally.rows(Role.TABLE, write.declared.table, steps.table(write)) as rows:
            yield writers.table(write, rows)


def reader(order: Order, ordered: Ordered, environment: TaskEnvironment) -> Reader:
    """The reader of an input, by its kind."""
    match ordered:
        case OrderedStream():
            return stream_reader(order.pipeline, ordered, environment)
        case OrderedParts():
            read_as = Versions(ordered.read, order.pipeline) if isinstance(ordered.read, StateInput) else None
            return PartsReader(ordered, order.store, order.pipeline, environment.copies, read_as, environment.memory)


def stream_reader(
    pipeline: str, ordered: OrderedStream, environment: TaskEnvironment, *, shown: bool = False
) -> Reader:
    """The reader of a stream, by its source. Rows that are only `shown` may have text that is not UTF-8."""
    written = as_landed(ordered)
    match ordered.declared.origin:
        case LandedSource() | IcebergSource():
            columns = landed_columns(ordered.declared, written.columns)
            landed = replace(written, columns=columns)
            read: Reader = LandedReader(landed, environment.files, pipeline, environment.memory, shown=shown)
            if ordered.declared.key_bytes:
                read = LandedKeys(read, written)
        case KafkaSource() as source:
            from coset.sources.kafka.topic_reader import KafkaReader  # noqa: PLC0415  few streams are read from a broker

            read = KafkaReader(written, source, pipeline, environment.memory)
    return CompositeKeys(read, ordered.declared) if key_parts(ordered.declared.key) else read


def _set_aside(order: Order, intakes: Sequence[Intake], environment: TaskEnvironment) -> pa.Table:
    """The records that the task set aside."""
    tables = [SET_ASIDE_COLUMNS.empty_table()]
    for intake in intakes:
        if isinstance(intake.ordered, OrderedStream):
            found = [each for inspection in intake.inspections.values() for each in inspection.set_aside()]
            known = with_bytes(intake.ordered, found, lambda one: stream_reader(order.pipeline, one, environment))
            tables.append(rows_of(order, intake.ordered.name, known))
    return pa.concat_tables(tables)


def _sampled(intakes: Sequence[Intake]) -> list[tuple[str, int, pa.Table]]:
    return [
        (intake.ordered.name, partition, inspection.keys())
        for intake in intakes
        for partition, inspection in intake.inspections.items()
    ]
