"""Whole DAG runs on a real S3 server and a real Spark server, as `airflow dags test` makes them."""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from functools import partial

import pytest
from deltalake import DeltaTable

from coset.batches.attempt import Attempt
from coset.reports.overview import rows_of
from coset.reports.timeliness import Timeliness, timeliness
from coset.sources.s3 import storage_options
from demo.landing import raw
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from spark_jobs.engine.occasions import now as milliseconds
from tests.forked import at_once
from tests.kafka import TAILS, create, produce, views
from tests.running import next_batch

LABELS = {"group 0: flights+planes/0 1 (1.9 MB)", "group 1: flights+planes/2 3 (1.9 MB)"}
LINK = "dags/tail_activity/runs/{}/plugin/coset_run"
FLIGHTS_OF_PART_0 = "FROM flights WHERE month <= 4 AND tailnum IS NOT NULL"


@pytest.fixture(scope="module")
def first(airflow, landing, server):
    """A DAG run that took the first arrival, and the root of its store."""
    root = f"s3://coset/{uuid.uuid4().hex}"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COSET_STORE", root)
        yield run_dag(), root


def run_dag(conf=None):
    from airflow.dag_processing.dagbag import DagBag

    dag = DagBag().dags["tail_activity"]
    return dag.test(run_conf=conf)


def states(run):
    return {(each.task_id, each.map_index): each.state for each in run.get_task_instances()}


def published(root, table="tail_activity"):
    return DeltaTable(f"{root}/tables/{table}", storage_options=storage_options())


def test_every_flight_that_arrived_is_published_exactly_once(first):
    run, root = first
    assert run.state == "success"
    rows = published(root).to_pyarrow_table()
    found = {row["tailnum"]: (row["flights"], row["dep_delay"], row["distance"]) for row in rows.to_pylist()}
    expected = {
        tailnum: tuple(figures)
        for tailnum, *figures in raw()
        .execute(f"SELECT tailnum, count(*), sum(dep_delay), sum(distance) {FLIGHTS_OF_PART_0} GROUP BY ALL")
        .fetchall()
    }
    assert found == expected
    assert len(rows) == len(expected)


def test_what_ran_and_who_decided_name_the_run_of_airflow(first):
    run, root = first
    ledger = Ledger(store_at(root), "tail_activity")
    plan, verdict = ledger.plan(0), ledger.verdict(0)
    assert plan is not None
    assert verdict is not None
    receipts = Attempt(ledger, plan, verdict.attempt).receipts.values()
    occasions = [each for each in (*(receipt.ran for receipt in receipts), verdict.taken) if each is not None]
    assert len(occasions) == 3
    assert {each.run for each in occasions} == {run.run_id}
    assert all(each.host and each.user and each.began <= each.ended for each in occasions)


def test_a_wave_that_the_plan_has_no_groups_for_is_skipped(first):
    # Joined records may have to move, by the pipeline alone; by the plan they need not.
    run, _ = first
    assert states(run) == dict.fromkeys(
        [(name, -1) for name in ("plan", "groups_of_wave_1", "check", "publish")] + [("run", 0), ("run", 1)], "success"
    ) | {("run_wave_1", -1): "skipped"}


def test_each_task_group_is_a_mapped_spark_job_with_its_label(first):
    run, _ = first
    jobs = [each for each in run.get_task_instances() if each.task_id == "run"]
    assert {job.rendered_map_index for job in jobs} == LABELS
    assert {job.operator for job in jobs} == {"TaskGroupOperator"}


def test_xcom_carries_the_plans_address_and_digest_and_no_plan(first):
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    run, root = first
    with create_session() as session:
        left = select(XComModel.task_id, XComModel.key, XComModel.value).where(XComModel.run_id == run.run_id)
        values = {(task, key): value for task, key, value in session.execute(left)}
    uri = f"{root}/tail_activity/plans/0.json.gz"
    ref = {"plan_uri": uri, "digest": values["plan", "batch"]["digest"]}
    assert values == {
        ("plan", "batch"): ref,
        ("plan", "return_value"): [
            {"batch": ref, "group": number, "name": label} for number, label in enumerate(sorted(LABELS))
        ],
        ("groups_of_wave_1", "return_value"): [],
    } | {(task, "_link_PageLink"): LINK.format(run.run_id) for task in ("check", "publish")}


def test_the_tab_of_a_run_leads_to_the_page_of_the_attempt_that_it_checked(first):
    from coset.airflow.page_routes import batch_of_run, page_of_run

    run, root = first
    batch = batch_of_run(run.dag_id, run.run_id, "tail_activity", root)
    assert batch is not None
    assert (batch.batch, batch.backfill, batch.compared) == (0, None, False)
    store = store_at(root)
    assert page_of_run(store, batch) == "batch-0-attempt-0.html"
    assert store.head(f"{batch.folder}/{page_of_run(store, batch)}") is not None
    assert batch_of_run(run.dag_id, "another", "tail_activity", root) is None
    assert batch_of_run(run.dag_id, run.run_id, "tail_activity", "s3://another") is None


def test_a_run_without_new_records_is_skipped_and_says_so(first, monkeypatch, capsys):
    _, root = first
    monkeypatch.setenv("COSET_STORE", root)
    run = run_dag()
    assert run.state == "success"
    assert set(states(run).values()) == {"skipped"}
    assert "Nothing to do: no new records since batch 0" in capsys.readouterr().out
    assert published(root).version() == 1
    # It is on time, and due with the next run by its timetable.
    (known,) = rows_of(store_at(root), ["tail_activity"])
    now = milliseconds()
    assert known["published"] < known["schedule"]["current"] <= now
    assert known["schedule"]["next"] - now <= 3_600_000
    assert timeliness(known, now) == Timeliness(late=False, due=known["schedule"]["next"])


def test_an_unknown_scheme_is_refused_without_a_retry_and_before_planning(airflow, store_root):
    run = run_dag({"scheme": "sideways"})
    assert run.state == "failed"
    (plan,) = [each for each in run.get_task_instances() if each.task_id == "plan"]
    assert (plan.state, plan.try_number, plan.max_tries) == ("failed", 1, 2)
    assert list(store_at(store_root).list("")) == []


@pytest.mark.long
def test_a_topic_is_read_from_its_broker_by_each_run_from_where_the_last_one_ended(
    kafka, parsed, store_root, monkeypatch
):
    monkeypatch.setenv("VIEWS_SOURCE", kafka.source)
    create(kafka, "views", 2)
    produce(kafka, "views", views(TAILS))
    dag = parsed("views")
    assert dag.test().state == "success"
    produce(kafka, "views", views(TAILS[:3], first=100))
    assert dag.test().state == "success"
    found = [
        (row["tail"], row["views"], row["n"]) for row in published(store_root, "views").to_pyarrow_table().to_pylist()
    ]
    first, second = ([(tail, 1, value["n"]) for tail, value in some] for some in (views(TAILS), views(TAILS[:3], 100)))
    assert sorted(found) == sorted([*first, *second])
    plans = [Ledger(store_at(store_root), "views").plan(number) for number in (0, 1)]
    assert [plan and plan.records for plan in plans] == [40, 3]


def publishing(root, docs, number):
    return partial(publish, root, docs / str(number))


def publish(root, docs):
    """Run a batch as a process of its own; gives what the publication said."""
    from coset.batches import steps
    from coset.batches.interpreter import run_batch
    from coset.batches.runners.local import Local
    from dags.pipelines.tail_activity import pipeline

    ref = next_batch(pipeline, root, Settings(groups=1))
    with Local(processes=1) as runner:
        run_batch(ref, runner, docs, lambda _: nullcontext([]))
    return steps.publish(ref)


@pytest.mark.long
def test_two_runs_at_once_publish_one_plan_in_one_delta_version(store_root, tmp_path):
    said = at_once(2, partial(publishing, store_root, tmp_path))
    assert said == ["Batch 0 is published: tail_activity at version 1"] * 2
    assert published(store_root).version() == 1
    ledger = Ledger(store_at(store_root), "tail_activity")
    assert (ledger.plan(0) is not None, ledger.plan(1)) == (True, None)
    total = sum(published(store_root).to_pyarrow_table()["flights"].to_pylist())
    assert [(total,)] == raw().execute(f"SELECT count(*) {FLIGHTS_OF_PART_0}").fetchall()
