"""The kernel: runs orders. Arrow in, DuckDB in the middle, Parquet out; nothing passes through the JVM.

Reader → Take → Proof → steps → writers, each in a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import pyarrow as pa

from coset.sources.copies import Copies
from coset.sources.files import Files
from coset.sources.landed_reader import LandedReader
from coset.sources.parts_reader import PartsReader
from coset.sources.reader import Reader
from partitioning.errors import CosetError
from partitioning.model.artefact import Artefact, Role
from partitioning.model.failure import together
from partitioning.model.graph import Mode
from partitioning.model.leaving import given_to
from partitioning.model.order import Order, Ordered, OrderedParts, OrderedStream
from partitioning.model.plan import PlannedWrite
from partitioning.model.receipt import TaskReceipt
from partitioning.model.sources import KafkaSource, LandedSource
from spark_jobs.engine.intake import Inspect, Intake, Proved, read_together
from spark_jobs.engine.occasions import Stopwatch
from spark_jobs.engine.order_steps import Steps
from spark_jobs.engine.tally import Tally
from spark_jobs.engine.task_folder import task_folder
from spark_jobs.engine.writers import Writers
from spark_jobs.sql.database import connect


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """Where orders run: the store as it is seen from there, and the copies that are there."""

    files: Files
    copies: Copies


def run_orders(
    orders: Sequence[Order], *, memory: str = "1GB", inspect: Inspect = Proved, copies: Copies | None = None
) -> list[TaskReceipt]:
    """Run the orders of tasks of one stage: read what each names, take what it says, run its steps, write the results.

    An input of several orders is read once. What does not fit into `memory` is spilled to a temporary folder. `copies`
    is an optional local cache of state files. Files go to folders of this run alone, so orders may be run any number of
    times; a receipt says what one run did.

    Raises Refused, with all findings, if an input is not the planned one or cannot be read, or if an expression fails
    on the data.
    """
    watch, place = Stopwatch(), TaskEnvironment(Files(), copies or Copies(None))
    with task_folder() as temp:
        inputs = [_intakes(orders, number, place, inspect, temp) for number in range(len(orders[0].inputs))]
        passed, cpu = watch.passed / len(orders), watch.cpu / len(orders)
        receipts, errors = list[TaskReceipt](), list[CosetError]()
        for number, order in enumerate(orders):
            watch = Stopwatch(passed, cpu)
            folder = temp / f"order-{number}"
            folder.mkdir()
            try:
                intakes = [each[number] for each in inputs]
                receipts.append(_run(order, intakes, place.files, memory, folder, watch))
            except CosetError as error:
                errors.append(error)
    if errors:
        raise together(errors)
    return receipts


def _intakes(
    orders: Sequence[Order], number: int, place: TaskEnvironment, inspect: Inspect, temp: Path
) -> list[Intake]:
    """What each order reads of its input of that number."""
    ordered = [order.inputs[number] for order in orders]
    everything = ordered[0].of_all(ordered)
    read = reader(orders[0], everything, place)
    intakes = [Intake(order, one, read, inspect) for order, one in zip(orders, ordered, strict=True)]
    if len(orders) > 1 and not read.empty:
        folder = temp / f"input-{number}"
        folder.mkdir()
        read_together(intakes, read, folder)
    return intakes


def _run(
    order: Order, intakes: Sequence[Intake], files: Files, memory: str, temp: Path, watch: Stopwatch
) -> TaskReceipt:
    writers, tally = Writers.of(order, files), Tally()
    with connect(memory, temp) as connection:
        steps = Steps(connection, order, intakes, temp)
        # What is made on DataFrames is not there yet.
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
        apart = steps.apart()
    # SQL may have stopped early, at an empty side of a join for instance; the proof is of all records.
    for intake in intakes:
        intake.drain()
    left.append(writers.keys(_sampled(intakes)))
    return TaskReceipt(
        order.ref,
        tuple(receipt for intake in intakes for receipt in intake.receipts()),
        tuple(artefact for artefact in left if artefact is not None),
        round(watch.passed * 1000),
        tuple(tally.made),
        apart,
        round(watch.cpu * 1000),
    )


def _written(
    write: PlannedWrite, writers: Writers, steps: Steps, tally: Tally, temp: Path
) -> Iterator[Artefact | None]:
    """The files of a result table."""
    if write.declared.mode is Mode.UPSERT:
        with tally.upserted(writers.order, write, steps.upserted(write)) as rows:
            yield from writers.upserted(write, rows, temp)
    else:
        with tally.rows(Role.TABLE, write.declared.table, steps.table(write)) as rows:
            yield writers.table(write, rows)


def reader(order: Order, ordered: Ordered, place: TaskEnvironment) -> Reader:
    """Who reads an input, by its kind."""
    match ordered:
        case OrderedStream():
            return _stream_reader(order, ordered, place)
        case OrderedParts():
            return PartsReader(ordered, order.store, order.pipeline, place.copies)
        case _:
            assert_never(ordered)


def _stream_reader(order: Order, ordered: OrderedStream, place: TaskEnvironment) -> Reader:
    match ordered.declared.origin:
        case LandedSource():
            return LandedReader(ordered, place.files, order.pipeline)
        case KafkaSource() as source:
            from coset.sources.kafka.topic_reader import KafkaReader  # noqa: PLC0415  few streams are read from a broker

            return KafkaReader(ordered, source, order.pipeline)
        case _:
            assert_never(ordered.declared.origin)


def _sampled(intakes: Sequence[Intake]) -> list[tuple[str, int, pa.Table]]:
    return [
        (intake.ordered.name, partition, inspection.keys())
        for intake in intakes
        for partition, inspection in intake.inspections.items()
    ]
