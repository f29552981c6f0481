"""The intake of a task while SQL reads it: each record once, and no error is lost."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, get_ident

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from coset.sources.copies import Copies
from coset.sources.files import Files
from coset.sources.reader import Batch, ahead
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from spark_jobs.engine.intake import Inspect, Intake, Proved
from spark_jobs.engine.kernel import TaskEnvironment, reader, run_orders
from spark_jobs.engine.task_database import connect
from tests.activity import VIEWS, activity, land, order_for, plan_for


@pytest.fixture
def source(store: Store) -> str:
    return f"{store.root}/topics"


def intake_of_views(plan: Plan, store: Store, inspect: Inspect = Proved) -> Intake:
    """The views of the one task there is."""
    order = order_for(plan, store, "views+clicks")
    views = next(each for each in order.inputs if each.read.name == "views")
    return Intake(order, views, reader(order, views, TaskEnvironment(Files(), Copies(None))), inspect)


def test_sql_reads_each_record_once_in_the_thread_of_its_task(store: Store, source: str) -> None:
    land(source)
    seen = set[int]()

    class Seen(Proved):
        def rows(self, batch: Batch) -> np.ndarray | None:
            seen.add(get_ident())
            return super().rows(batch)

    intake = intake_of_views(plan_for(activity(source), "tasks(1)"), store, Seen)
    with connect() as connection:
        connection.register("views", intake.stream())
        assert connection.sql("SELECT count(*) FROM views").fetchall() == [(VIEWS.num_rows,)]
        assert seen == {get_ident()}
        with pytest.raises(duckdb.InvalidInputException, match="already been consumed"):
            connection.sql("SELECT count(*) FROM views").fetchall()
    intake.drain()
    assert sum(receipt.taken for receipt in intake.receipts()) == VIEWS.num_rows


def test_a_batch_is_read_while_the_one_before_is_worked_on() -> None:
    reading = Event()

    def batches() -> Iterator[Batch]:
        for number in range(3):
            if number:
                reading.set()
            yield Batch(0, number, number + 1, "", pa.record_batch({"offset": [number]}))

    read = ahead(batches(), 1_000_000)
    first = next(read)
    assert reading.wait(60)
    assert [batch.first for batch in (first, *read)] == [0, 1, 2]


def test_few_records_are_read_by_who_asks_for_them() -> None:
    threads = set[int]()

    def batches() -> Iterator[Batch]:
        for number in range(3):
            threads.add(get_ident())
            yield Batch(0, number, number + 1, "", pa.record_batch({"offset": [number]}))

    assert [batch.first for batch in ahead(batches(), 3)] == [0, 1, 2]
    assert threads == {get_ident()}


def test_an_error_while_sql_reads_is_raised_when_the_rest_is_drained(store: Store, source: str) -> None:
    land(source)

    class Failing(Proved):
        def rows(self, batch: Batch) -> np.ndarray | None:
            raise Refused(Finding(Kind.RECORD, "it is broken", batch.where, "land it again"))

    intake = intake_of_views(plan_for(activity(source), "tasks(1)"), store, Failing)
    with connect() as connection:
        connection.register("views", intake.stream())
        with pytest.raises(duckdb.Error, match="it is broken"):
            connection.sql("SELECT count(*) FROM views").fetchall()
    with pytest.raises(Refused, match="it is broken"):
        intake.drain()


def test_who_interrupts_a_task_while_sql_reads_ends_it(store: Store, source: str) -> None:
    land(source)

    class Interrupted(Proved):
        def rows(self, batch: Batch) -> np.ndarray | None:
            raise KeyboardInterrupt

    order = order_for(plan_for(activity(source), "tasks(1)"), store, "views+clicks")
    with pytest.raises(KeyboardInterrupt):
        run_orders([order], inspect=Interrupted)
