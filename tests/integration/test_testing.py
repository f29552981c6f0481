"""What users test and run pipelines with from Python: rows in, tables and verdicts out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import coset
from coset import Pipeline, Refused, Settings
from coset.batches.tables.logs import opened_there
from coset.testing import Trial, assert_same_everywhere, run
from coset.testing.runs import Landed, Rows
from coset.testing.strategies import records
from partitioning.authoring.declared import Declared
from partitioning.documents.stores import store_at
from tests import functions
from tests.commands import coset as coset_command
from tests.landed import land_file

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


def test_a_run_leaves_the_tables_and_the_catalogue_of_its_environment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_TABLES", f"file://{tmp_path}")
    monkeypatch.setenv("COSET_ICEBERG", "nowhere.shop")
    pipeline = Pipeline("alone", source="s3://nowhere/topics")
    pipeline.stream("orders", key="k", partitions=1).write("seen")
    assert run(pipeline, {"orders": [{"k": "a"}]})["seen"] == [{"k": "a"}]
    assert not [*tmp_path.iterdir()]
    assert os.environ["COSET_ICEBERG"] == "nowhere.shop"


def test_distinct_goes_by_all_of_several_expressions() -> None:
    pipeline, noon = Pipeline("twice", source="s3://nowhere/topics"), datetime.fromisoformat("2026-11-01 12:00")
    orders = pipeline.stream("orders", key="k", partitions=1)
    orders.distinct("a, b", time="t", within=timedelta(hours=1), name="once").write("once")
    first, second = (
        [{"k": "k", "a": a, "b": b, "t": noon} for a, b in of] for of in ([(1, 1), (2, 1)], [(2, 1), (2, 2)])
    )
    found = run(pipeline, {"orders": first}, {"orders": second})["once"]
    assert [(row["a"], row["b"]) for row in found] == [(1, 1), (2, 1), (2, 2)]
    with pytest.raises(Refused, match="are several expressions, and a key is made by one"):
        orders.rekey("z", sql="upper(k), a")


def test_state_goes_on_from_batch_to_batch() -> None:
    published = run(spent(running=True), {"orders": ORDERS[:7]}, {"orders": ORDERS[7:]}, settings=Settings(groups=1))
    assert [row["spent"] for row in published["spent"]] == [30, 34, 38, 42, 46]


def adding_one() -> Pipeline:
    """A sum to which each batch adds one: not what its query says."""
    pipeline = Pipeline("more", source="s3://nowhere/topics")
    orders = pipeline.stream("orders", key="customer", partitions=4).select("amount::DOUBLE AS spent", name="amounts")
    columns = {"customer": "VARCHAR", "spent": "DOUBLE"}
    orders.process(functions.adding_one, columns, state=columns, name="more").latest("spent").write(
        "more", mode="upsert"
    )
    return pipeline


def test_a_table_that_is_not_its_query_fails_with_its_key_and_both_rows() -> None:
    of_floats = [{"customer": f"c{number % 5}", "amount": float(number)} for number in range(20)]
    first, second = {"orders": of_floats}, {"orders": [{"customer": "c1", "amount": 0.5}]}
    assert run(adding_one(), first).unverified == {}
    with pytest.raises(AssertionError) as caught:
        run(adding_one(), first, second)
    assert str(caught.value).splitlines() == [
        "Table more is not its query: the rows of 1 key differ; it has 5 rows, its query 5",
        "  key c1, published: {'customer': 'c1', 'spent': 36.5}",
        "  key c1, right: {'customer': 'c1', 'spent': 35.5}",
    ]
    with Trial.made(adding_one()) as trial:
        for batch in (first, second):
            trial.land(batch)
            trial.run()
        with pytest.raises(AssertionError, match="Table more is not its query"):
            trial.verify()


HIDDEN = {
    "abs(sum(n) + 1)::DOUBLE AS n": ("sum(n) AS n", "abs(n + 1) AS n"),
    "coalesce(sum(n), 0) + 1 AS n": ("sum(n) AS n", "coalesce(n, 0) + 1 AS n"),
    "coalesce(max(n), 0) AS n": ("max(n) AS n", "coalesce(n, 0) AS n"),
    "round(sum(n) / 3, 1) AS n": ("sum(n) AS n", "round(n / 3, 1) AS n"),
    "least(sum(n), 10) AS n": ("sum(n) AS n", "least(n, 10) AS n"),
}


def test_a_table_is_its_query_where_files_have_nan() -> None:
    """Statistics of Parquet leave it out, and DuckDB goes by them."""
    pipeline, nan = Pipeline("it", source="s3://nowhere/topics"), float("nan")
    numbers = pipeline.stream("numbers", key="k", partitions=1)
    tables = {"more": "v > 5", "one": "v = 1", "other": "v <> 1", "nested": "s.v > 5"}
    for table, passes in tables.items():
        numbers.filter(passes, name=f"{table}_passes").write(table)
    found = run(pipeline, {"numbers": [{"k": key, "v": v, "s": {"v": v}} for key, v in (("a", 1.0), ("b", nan))]})
    kept = {table: [row["k"] for row in found[table]] for table in tables}
    assert kept == {"more": ["b"], "one": ["a"], "other": ["b"], "nested": ["b"]}


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_a_combine_hides_in_functions_is_refused_and_right_where_the_refusal_puts_it(hidden: str) -> None:
    def made(columns: str, behind: str) -> Pipeline:
        pipeline = Pipeline("p", source="s3://nowhere/topics")
        orders = pipeline.stream("orders", key="customer", partitions=2)
        each = (
            orders.aggregate("max(amount)::DOUBLE AS n") if "max" in columns else orders.select("amount::DOUBLE AS n")
        )
        each.combine(columns, running=True, name="total").select(behind).write("spent", mode="upsert")
        return pipeline

    batches: list[list[tuple[str, float | None]]] = [
        [("a", None), ("b", -3.25)],
        [("a", -2.5), ("b", 9.75)],
        [("a", 1.25), ("b", 20.5), ("a", -4.0)],
    ]
    landed = [{"orders": [{"customer": name, "amount": amount} for name, amount in each]} for each in batches]
    with pytest.raises(Refused, match=r"combine n by an aggregate alone, as sum.* a select behind it"):
        run(made(hidden, "n"), *landed)
    # Each table is held against its query over all records.
    assert run(made(*HIDDEN[hidden]), *landed).unverified == {}


def test_a_function_is_verified_on_all_records_and_may_depend_on_tasks() -> None:
    pipeline = Pipeline("counted", source="s3://nowhere/topics")
    orders = pipeline.stream("orders", key="customer", partitions=1)
    orders.process(functions.of_the_task, {"customer": "VARCHAR", "n": "BIGINT"}, name="counts").write("counts")
    assert run(pipeline, {"orders": ORDERS[:2]}).unverified == {}
    with pytest.raises(AssertionError) as caught:
        run(pipeline, {"orders": ORDERS[:1]}, {"orders": ORDERS[1:2]})
    said = "  key c0, published: {'customer': 'c0', 'n': 1}\n  key c0, right: {'customer': 'c0', 'n': 2}"
    assert said in str(caught.value)
    pipeline = Pipeline("counted", source="s3://nowhere/topics")
    orders = pipeline.stream("orders", key="customer", partitions=4)
    orders.process(functions.of_the_task, {"customer": "VARCHAR", "n": "BIGINT"}, name="counts").write("counts")
    with pytest.raises(AssertionError) as caught:
        assert_same_everywhere(pipeline, {"orders": ORDERS[:3]})
    assert "counted gives other rows with scheme " in str(caught.value)
    assert str(caught.value).count("  orders: ") == 2


def test_tables_that_have_no_such_query_are_named() -> None:
    assert run(spent(), {"orders": ORDERS}).unverified == {
        "spent": "its rows are of a batch: in step totals, it has a row for each batch in which a key comes"
    }
    orders, was = {"orders": ORDERS}, spent(running=True)
    assert run(spent(running=True), orders, orders, before=was).unverified == {}
    changed = run(spent(running=True, expect=0), orders, orders, before=was)
    assert changed.unverified == {"spent": "the pipeline has changed between batches"}


def test_pytest_lists_tables_that_were_not_verified_unless_a_test_asked_for_them(tmp_path: Path) -> None:
    lines = """
from coset import Pipeline
from coset.testing import run

def counted(table):
    shop = Pipeline("shop", source="s3://landing/topics")
    shop.stream("orders", key="customer", partitions=4).aggregate("count(*) AS n", name="counts").write(table)
    return run(shop, {"orders": [{"customer": "ann"}]})

def test_one():
    assert counted("silent")["silent"]

def test_other():
    assert counted("known").unverified.keys() == {"known"}
"""
    file = tmp_path / "test_counts.py"
    file.write_text(lines)
    asked = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(file)]
    said = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "silent: its rows are of a batch: in step counts, it has a row for each batch in which a key comes" in said
    assert "known" not in said


@pytest.mark.parametrize("of", ["distinct", "windows"])
def test_a_table_of_which_a_record_came_too_late_is_named(of: str) -> None:
    pipeline = Pipeline("late", source="s3://nowhere/topics")
    orders = pipeline.stream("orders", key="customer", partitions=1, time="make_timestamp_ms(seen)")
    hour = timedelta(hours=1)
    if of == "distinct":
        orders.distinct("amount", time="make_timestamp_ms(seen)", within=hour, name="timed").write("timed")
        why = "of records that are alike step timed keeps the first to come"
        why += ", which may not be the earliest, and forgets it by time"
    else:
        orders.windows("count(*) AS n", time="make_timestamp_ms(seen)", every=hour, name="timed").write("timed")
        why = "1 record came too late for its rows, and count in its query"
    batches = [{"orders": [{"customer": "a", "amount": 1, "seen": 3_600_000 * at}]} for at in (0, 9, 19, 0)]
    assert run(pipeline, *batches[:3]).unverified == {}
    assert run(pipeline, *batches).unverified == {"timed": why}


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


@pytest.mark.long
def test_a_sum_for_each_batch_depends_on_batches_and_the_fewest_records_show_it() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_same_everywhere(spent(), {"orders": [*ORDERS[1:3], ORDERS[6]]}, batches=True)
    lines = str(caught.value).splitlines()
    assert lines[0] == "spent gives other rows with 2 batches than in one batch by default:"
    assert len([line for line in lines if line.startswith("  orders: ")]) == 2
    assert len([line for line in lines if "only with 2 batches" in line]) == 2


@pytest.mark.long
def test_floats_may_differ_in_their_last_digits() -> None:
    pipeline = Pipeline("means", source="s3://nowhere/topics")
    orders = pipeline.stream("orders", key="customer", partitions=4)
    parts = orders.partial("sum(amount) AS spent", by="customer", name="parts")
    parts.combine("sum(spent) AS spent", name="totals").write("means")
    rows = [{"customer": f"c{n % 3}", "amount": 0.1 * n} for n in range(30)]
    assert_same_everywhere(pipeline, {"orders": rows})


def late() -> tuple[Pipeline, Landed]:
    """Orders by what a table says of their customers, and rows with which that changes."""
    pipeline = Pipeline("late", source="s3://nowhere/topics")
    orders = pipeline.stream("orders", key="customer", partitions=2)
    customers = pipeline.table("customers", key="customer", partitions=2)
    orders.filter("true", name="all").write("all")
    orders.join(customers, "orders.amount, customers.country", how="left", name="by_country").write("late")
    changing = [{"customer": "c1", "country": country} for country in ("NL", "BE")]
    return pipeline, {"orders": ORDERS[1:12:5], "customers": changing}


@pytest.mark.long
def test_a_join_with_a_table_that_changes_is_named() -> None:
    pipeline, rows = late()
    with pytest.raises(AssertionError) as caught:
        assert_same_everywhere(pipeline, rows, batches=True)
    then = "if that is meant, give depends_on_batches=('late',)"
    assert f"table late comes from by_country, which joins: {then}" in str(caught.value)


def test_batches_may_depend_only_on_tables_that_there_are() -> None:
    pipeline, rows = late()
    with pytest.raises(Refused, match="the pipeline writes no table 'later'"):
        assert_same_everywhere(pipeline, rows, batches=True, depends_on_batches=("later",))


@pytest.mark.long
def test_what_is_not_promised_of_batches_is_not_compared_over_them() -> None:
    pipeline, rows = late()
    assert "2 batches" in assert_same_everywhere(pipeline, rows, batches=True, depends_on_batches=("late",))


@settings(max_examples=15, deadline=None, database=None)
@given(data=st.data())
def test_records_are_made_by_what_streams_declare(data: st.DataObject) -> None:
    pipeline = Pipeline("made", source="kafka://broker:9092")
    columns = {"seats": "SMALLINT", "born": "DATE", "at": "TIMESTAMP", "price": "DECIMAL(5, 2)", "gone": "BOOLEAN"}
    planes = pipeline.table("planes", key="tail", partitions=3, **Declared(format="json", columns=columns))
    keyed_by = Declared(key_format="long", null_keys="drop", source="s3://nowhere/topics")
    orders = pipeline.stream("orders", key="customer", partitions=2, **keyed_by)
    with pytest.raises(Refused, match="stream 'orders' declares no columns"):
        records(pipeline)
    with pytest.raises(Refused, match="no values are made of type INTERVAL"):
        records(pipeline, {"orders": {"took": "INTERVAL"}})
    rows = data.draw(records(pipeline, {"orders": {"amount": "BIGINT", "note": "VARCHAR"}}))
    assert all(1 <= len(rows[stream]) <= 12 for stream in ("planes", "orders"))
    assert {row["tail"] for row in rows["planes"]} <= {f"key-{number}" for number in range(4)}
    assert all(set(row) == {"tail", *columns} for row in rows["planes"])
    del planes, orders


def test_records_that_are_made_can_be_run_and_seen_batch_by_batch() -> None:
    rows = {"orders": list[dict[str, object]]()}

    @settings(max_examples=1, deadline=None, database=None, phases=[Phase.generate])
    @given(records(spent(), {"orders": {"amount": "INTEGER"}}))
    def kept(made: Landed) -> None:
        rows["orders"] = [dict(row) for row in made["orders"]]

    kept()
    with Trial.made(spent()) as trial:
        for count in (1, 2):
            trial.land(rows)
            assert trial.run().startswith(f"Batch {count - 1}: ")
            assert len(trial.tables()["spent"]) == count * len({row["customer"] for row in rows["orders"]})
        assert store_at(trial.root).get("spent/commits/1.json") is not None


def commented(comment: str = "", **comments: str) -> Pipeline:
    pipeline = Pipeline("spent", source="s3://nowhere/topics")
    orders = pipeline.stream("orders", key="customer", partitions=2)
    orders.to_stream().write("spent", mode="upsert", comment=comment, comments=comments)
    return pipeline


def test_what_a_pipeline_says_of_a_table_and_its_columns_is_in_the_tables_log() -> None:
    said = []
    with Trial.made(commented("What they spent", amount="in euro")) as trial:
        streams = trial.pipeline.streams
        for batch, pipeline in enumerate((trial.pipeline, commented("Orders", customer="who"), commented())):
            trial.pipeline = pipeline.with_streams(lambda _: streams[0])
            trial.land({"orders": [{"customer": "ann", "amount": batch}]})
            trial.run()
            with opened_there(store_at(trial.root), "spent") as table:
                fields = {field.name: field.metadata.get("comment") for field in table.schema().fields}
                said.append((table.metadata().description, fields["customer"], fields["amount"]))
    # What is no longer said stays.
    assert said == [("What they spent", None, "in euro"), *[("Orders", "who", "in euro")] * 2]
    with pytest.raises(Refused, match="there is no column 'amuont' to say 'in euro' of"):
        run(commented(amuont="in euro"), {"orders": ORDERS[:1]})


# No guard of `__main__`: nothing runs this file twice.
SCRIPT = """
import coset
from coset import Pipeline, Settings

pipeline = Pipeline("spent", source="{topics}")
orders = pipeline.stream("orders", key="customer", partitions=2)
orders.aggregate("count(*) AS n").combine("sum(n)::BIGINT AS n", running=True).write("spent", mode="upsert")
print(coset.plan(pipeline, "store"))
print(coset.run(pipeline, "store", docs="pages").tables)
print(coset.run(pipeline, "store"), coset.plan(pipeline, "store"))
"""

MISPLACED = """
from coset import Pipeline, Settings

pipeline = Pipeline("misplaced", source="{topics}")
pipeline.stream("orders", key="customer", partitions=2).write("spent")
"""


def landed(folder: Path) -> str:
    topics = f"file://{folder}/topics"
    land_file(pa.table({"customer": ["ann", "ann"]}), "orders", topics, 0, 0)
    return topics


def test_a_script_publishes_what_has_landed_and_is_told_that_nothing_is_new(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(topics=landed(tmp_path)))
    ran = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("PlannedBatch(batch=0, records=2)\n{'spent': 1}\nNone None\n", "")
    assert (tmp_path / "pages" / "spent" / "index.html").exists()


def test_an_open_batch_keeps_its_plan(tmp_path: Path) -> None:
    def pipeline(condition: str) -> Pipeline:
        made = Pipeline("spent", source=landed(tmp_path))
        made.stream("orders", key="customer", partitions=2).filter(condition, name="some").write("spent")
        return made

    planned = coset.plan(pipeline("customer <> 'bob'"), tmp_path / "store")
    assert planned is not None
    assert "Batch 0 of spent: 2 records to read." in planned.page
    with pytest.raises(coset.Refused, match="unknown runner 'spork'"):
        coset.run(pipeline("true"), tmp_path / "store", runner="spork")  # type: ignore[arg-type]
    published = coset.run(pipeline("false"), tmp_path / "store")
    assert published is not None
    assert (published.batch, published.records, published.tables) == (0, 2, {"spent": 1})
    assert DeltaTable(tmp_path / "store" / "tables" / "spent").count() == 2


def test_an_error_says_what_its_commands_need_and_they_work_so(tmp_path: Path) -> None:
    folder = tmp_path / "with blanks"
    topics = landed(folder)
    land_file(pa.table({"customer": ["ann"]}), "orders", topics, 1, 0)
    (folder / "misplaced.py").write_text(MISPLACED.format(topics=topics))
    (folder / "script.py").write_text("import coset\nfrom misplaced import pipeline\ncoset.run(pipeline, 'store')\n")
    ran = subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert "key 'ann', orders-1 at offset 0, belongs in partition 0" in ran.stderr
    runs = "those that run tasks --runner local"
    needed = f"--store 'file://{folder}/store', {runs}, and '{folder}/misplaced.py' for misplaced"
    assert ran.stderr.splitlines()[-1] == f"commands need {needed}"
    done = coset_command("report", str(folder / "misplaced.py"), "--batch", "0", "--store", f"file://{folder}/store")
    assert "misplaced, batch 0: ✗ failed" in done.stdout


def test_a_pipeline_that_no_file_has_needs_one_for_commands(tmp_path: Path) -> None:
    topics = landed(tmp_path)
    land_file(pa.table({"customer": ["ann"]}), "orders", topics, 1, 0)
    made = Pipeline("spent", source=topics)
    made.stream("orders", key="customer", partitions=2).write("spent")
    with pytest.raises(coset.Refused) as refused:
        coset.run(made, tmp_path / "store")
    runs = "those that run tasks --runner local"
    needed = f"--store file://{tmp_path}/store, {runs}, and the pipeline in a file of its own"
    assert refused.value.__notes__ == [f"commands need {needed}"]


def test_an_empty_store_is_not_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = Pipeline("spent", source=landed(tmp_path))
    made.stream("orders", key="customer", partitions=2).write("spent")
    for asked in (coset.plan, coset.run):
        with pytest.raises(coset.Refused, match="no store is named"):
            asked(made, "")
    assert [each.name for each in tmp_path.iterdir()] == ["topics"]


@pytest.mark.parametrize(
    ("pipeline", "settings", "what"),
    [
        ("spent.py", Settings(), "'spent.py' is no pipeline"),
        (Pipeline("spent"), {"scheme": "tasks(8)"}, "{'scheme': 'tasks(8)'} are no settings"),
        (Pipeline("spent"), Settings(scheme="tasks(8)"), "are no settings"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_pipeline_and_no_settings_is_refused(
    pipeline: Any, settings: Any, what: str, tmp_path: Path
) -> None:
    for does in (coset.plan, coset.run):
        with pytest.raises(coset.Refused, match=re.escape(what)):
            does(pipeline, tmp_path / "store", settings)
    assert not (tmp_path / "store").exists()
