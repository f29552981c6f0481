"""The intake of a task while SQL reads it: each record once, and no error is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pyarrow as pa
import pytest

from coset.sources.copies import Copies
from coset.sources.files import Files
from coset.sources.reader import Batch
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from spark_jobs.engine.intake import Inspect, Intake, Proved
from spark_jobs.engine.kernel import TaskEnvironment, reader
from tests.activity import VIEWS, activity, land, order_for, plan_for


@pytest.fixture
def source(store: Store) -> str:
    return f"{store.root}/topics"


def intake_of_views(plan: Plan, store: Store, inspect: Inspect = Proved) -> Intake:
    """The views of the one task there is."""
    order = order_for(plan, store, "views+clicks")
    views = next(each for each in order.inputs if each.read.name == "views")
    return Intake(order, views, reader(order, views, TaskEnvironment(Files(), Copies(None))), inspect)


def test_what_sql_is_still_reading_when_the_rest_is_drained_is_read_once(store: Store, source: str) -> None:
    land(source)
    reading, go_on = Event(), Event()

    class Slow(Proved):
        def records(self, batch: Batch) -> pa.RecordBatch:
            reading.set()
            assert go_on.wait(60)
            return super().records(batch)

    intake = intake_of_views(plan_for(activity(source), "tasks(1)"), store, Slow)
    with ThreadPoolExecutor(2) as threads:
        ahead = threads.submit(pa.RecordBatchReader.from_stream(intake).read_next_batch)
        assert reading.wait(60)
        drained = threads.submit(intake.drain)
        go_on.set()
        drained.result()
        assert ahead.result().num_rows > 0
    assert sum(receipt.taken for receipt in intake.receipts()) == VIEWS.num_rows


def test_an_error_while_sql_reads_ahead_is_raised_when_the_rest_is_drained(store: Store, source: str) -> None:
    land(source)

    class Failing(Proved):
        def records(self, batch: Batch) -> pa.RecordBatch:
            raise Refused(Finding(Kind.RECORD, "it is broken", batch.where, "land it again"))

    intake = intake_of_views(plan_for(activity(source), "tasks(1)"), store, Failing)
    with pytest.raises(pa.ArrowException, match="it is broken"):
        pa.RecordBatchReader.from_stream(intake).read_next_batch()
    with pytest.raises(Refused, match="it is broken"):
        intake.drain()
