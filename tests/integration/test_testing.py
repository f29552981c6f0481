"""What users test their pipelines with: rows in, tables and verdicts out; and what depends on how records are dealt."""

from __future__ import annotations

import re
import time

import pytest

from coset import Pipeline, Refused, Settings
from coset.testing import assert_same_everywhere, run
from coset.testing.runs import Rows
from partitioning.authoring.declared import Declared
from tests import functions

ORDERS = [{"customer": f"c{number % 5}", "amount": number} for number in range(20)]


def spent(*, running: bool = False, expect: int | None = None) -> Pipeline:
    """The sum of each customer's orders: of each batch, or of all."""
    pipeline = Pipeline("spent", source="s3://nowhere/topics")
    orders = pipeline.stream("orders", key="customer", partitions=4)
    if running:
        parts = orders.partial("sum(amount)::BIGINT AS spent", by="customer", name="parts")
        totals = parts.combine("sum(spent)::BIGINT AS spent", running=True, name="totals")
    else:
        totals = orders.aggregate("sum(amount)::BIGINT AS spent", name="totals")
    least = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "spent", "min_value": expect}}
    totals.write("spent", mode="upsert" if running else "append", expect=() if expect is None else (least,))
    return pipeline


def test_rows_go_in_and_tables_and_verdicts_come_out() -> None:
    published = run(spent(), {"orders": ORDERS}, {"orders": [{"customer": "c1", "amount": 5}]})
    assert published["spent"] == [
        {"customer": "c0", "spent": 30},
        {"customer": "c1", "spent": 34},
        {"customer": "c1", "spent": 5},
        {"customer": "c2", "spent": 38},
        {"customer": "c3", "spent": 42},
        {"customer": "c4", "spent": 46},
    ]
    first, second = published.verdicts
    assert re.fullmatch(r"Batch 0: 20 records in 4 stream partitions, 5 keys compared, all \d+ expectations met", first)
    assert second.startswith("Batch 1: 1 record in ")


def test_state_goes_on_from_batch_to_batch() -> None:
    published = run(spent(running=True), {"orders": ORDERS[:7]}, {"orders": ORDERS[7:]}, settings=Settings(groups=1))
    assert [row["spent"] for row in published["spent"]] == [30, 34, 38, 42, 46]


def test_an_expectation_that_is_not_met_is_refused_and_so_is_a_stream_that_there_is_not() -> None:
    with pytest.raises(Refused, match="spent values must be greater than or equal to 35"):
        run(spent(expect=35), {"orders": ORDERS})
    assert len(run(spent(expect=30), {"orders": ORDERS})["spent"]) == 5
    with pytest.raises(Refused, match="the pipeline has no stream 'order'"):
        run(spent(), {"order": ORDERS})
    with pytest.raises(Refused, match="it has no column 'customer', the key of stream 'orders'"):
        run(spent(), {"orders": [{"amount": 3}]})


def test_a_warning_is_told_and_published() -> None:
    pipeline = spent()
    least = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "spent", "min_value": 35}}
    pipeline.flow("totals").write("again", expect=({**least, "severity": "warning"},))
    published = run(pipeline, {"orders": ORDERS})
    assert [row["spent"] for row in published["again"]] == [30, 34, 38, 42, 46]
    assert re.search(r"\d+ of \d+ expectations met", published.verdicts[0])
    pipeline.flow("totals").write("more", expect=({**least, "severity": "fatal"},))
    with pytest.raises(Refused, match='with "severity": "warning" if it is only to be told'):
        run(pipeline, {"orders": ORDERS})


def test_tombstones_late_columns_and_declared_types_are_as_in_topics() -> None:
    pipeline = Pipeline("models", source="kafka://broker:9092")
    declared = {"seats": "SMALLINT", "gone": "BOOLEAN"}
    how = Declared(format="json", columns=declared)
    planes = pipeline.table("planes", key="tail", partitions=3, deletes="gone", kept=True, **how)
    planes.select("seats", name="models").write("models", mode="replace")
    first: Rows = [{"tail": "N1", "seats": 7}, {"tail": "N2", "seats": 9}]
    second: Rows = [{"tail": "N1", "gone": True}, {"tail": "N3"}]
    assert run(pipeline, {"planes": first}, {"planes": second})["models"] == [
        {"tail": "N2", "seats": 9},
        {"tail": "N3", "seats": None},
    ]


def test_a_run_takes_well_under_a_second_once_all_is_imported() -> None:
    run(spent(), {"orders": ORDERS})
    began = time.process_time()
    run(spent(), {"orders": ORDERS})
    # Of the processor, so that a busy machine does not matter; ten times what it takes.
    assert time.process_time() - began < 5


@pytest.mark.parametrize("running", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_pipeline_gives_the_same_under_any_scheme(running: bool) -> None:
    tried = assert_same_everywhere(spent(running=running), {"orders": ORDERS}, batches=running)
    assert {"scheme cogroup", "scheme elastic(2)", "scheme tasks(7)", "3 task groups", "a second attempt"} <= set(tried)
    assert ("8 batches" in tried) == running
    # Its keys meet, so there cannot be a task for each partition of each stream.
    assert ("4 batches with 2 and 5 tasks in turn" in tried) == running


def test_a_sum_for_each_batch_depends_on_batches_and_the_fewest_records_show_it() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_same_everywhere(spent(), {"orders": ORDERS[1:7]}, batches=True)
    lines = str(caught.value).splitlines()
    assert lines[0] == "spent gives other rows with 2 batches than in one batch by default:"
    assert len([line for line in lines if line.startswith("  orders: ")]) == 2
    assert len([line for line in lines if "only with 2 batches" in line]) == 2


def test_a_function_that_counts_what_its_task_has_depends_on_tasks() -> None:
    pipeline = Pipeline("counted", source="s3://nowhere/topics")
    orders = pipeline.stream("orders", key="customer", partitions=4)
    orders.process(functions.of_the_task, {"customer": "VARCHAR", "n": "BIGINT"}, name="counts").write("counts")
    with pytest.raises(AssertionError) as caught:
        assert_same_everywhere(pipeline, {"orders": ORDERS[:5]})
    assert "counted gives other rows with scheme " in str(caught.value)
    assert str(caught.value).count("  orders: ") == 2


def test_floats_may_differ_in_their_last_digits() -> None:
    pipeline = Pipeline("means", source="s3://nowhere/topics")
    orders = pipeline.stream("orders", key="customer", partitions=4)
    parts = orders.partial("sum(amount) AS spent", by="customer", name="parts")
    parts.combine("sum(spent) AS spent", name="totals").write("means")
    rows = [{"customer": f"c{n % 3}", "amount": 0.1 * n} for n in range(30)]
    assert_same_everywhere(pipeline, {"orders": rows})
