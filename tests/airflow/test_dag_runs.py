"""Whole DAG runs on a real S3 server and real Spark, as `airflow dags test` makes them."""

from __future__ import annotations

import multiprocessing
import uuid
from datetime import timedelta

import pytest
from deltalake import DeltaTable

from demo.landing import raw
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import S3Store
from sources.s3 import storage_options

LABELS = {"group 0: flights+planes/0 flights+planes/1 (1.9 MB)", "group 1: flights+planes/2 flights+planes/3 (1.9 MB)"}
FLIGHTS_OF_PART_0 = "FROM flights WHERE month <= 4 AND tailnum IS NOT NULL"


@pytest.fixture(scope="module")
def first(airflow, landing):
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
    assert set(states(run).values()) == {"success"}
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


def test_each_task_group_is_a_mapped_spark_job_with_its_label(first):
    run, _ = first
    jobs = [each for each in run.get_task_instances() if each.task_id == "run"]
    assert {job.rendered_map_index for job in jobs} == LABELS
    assert {job.operator for job in jobs} == {"SparkGroupOperator"}


def test_xcom_carries_the_plans_address_and_digest_and_no_plan(first):
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    run, root = first
    with create_session() as session:
        stored = session.execute(select(XComModel.key, XComModel.value).where(XComModel.run_id == run.run_id)).all()
    values = dict(stored)
    uri = f"{root}/tail_activity/plans/0.json.gz"
    assert set(values) == {"batch", "return_value"}
    assert values["batch"] == {"plan_uri": uri, "digest": values["batch"]["digest"]}
    assert [each["application_args"] for each in values["return_value"]] == [
        ["--plan", uri, "--digest", values["batch"]["digest"], "--group", group] for group in ("0", "1")
    ]


def test_a_run_without_new_records_is_skipped_and_says_so(first, monkeypatch, capsys):
    _, root = first
    monkeypatch.setenv("COSET_STORE", root)
    run = run_dag()
    assert run.state == "success"
    assert set(states(run).values()) == {"skipped"}
    assert "Nothing to do: no new records since batch 0" in capsys.readouterr().out
    assert published(root).version() == 1


def test_an_unknown_scheme_is_refused_without_a_retry_and_before_planning(airflow, store_root):
    run = run_dag({"scheme": "sideways"})
    assert run.state == "failed"
    (plan,) = [each for each in run.get_task_instances() if each.task_id == "plan"]
    assert (plan.state, plan.try_number, plan.max_tries) == ("failed", 1, 2)
    assert list(S3Store(store_root).list("")) == []


def test_a_group_whose_plan_was_replaced_fails_without_a_retry(airflow, first):
    from airflow.sdk.exceptions import AirflowFailException

    from plugins.spark_group import SparkGroupOperator, arguments

    _, root = first
    plan = f"{root}/tail_activity/plans/0.json.gz"
    job = SparkGroupOperator(task_id="run", **arguments(plan, "sha256:0", 0, "group 0"), retries=2)
    with pytest.raises(AirflowFailException, match="meant was sha256:0"):
        job.execute({})


def test_a_missing_spark_connection_is_an_error_and_not_yarn(airflow):
    from airflow.sdk.exceptions import AirflowNotFoundException

    from plugins.spark_group import SparkGroupOperator

    with pytest.raises(AirflowNotFoundException, match="nowhere"):
        SparkGroupOperator(task_id="run", conn_id="nowhere", retry_delay=timedelta(0)).execute({})


def steps(root, docs):
    """All steps of a batch, as a process of its own makes them; gives what the publication said."""
    from pathlib import Path

    from batches import steps as batch
    from batches.runners.spark_submit import submit
    from dags.pipelines.tail_activity import pipeline

    ref, _ = batch.plan(pipeline, root, Settings(groups=1))
    for group in batch.group_labels(ref):
        submit(ref.plan_uri, ref.digest, group, "local[1]")
    batch.audit(ref)
    batch.check(ref, Path(docs))
    return batch.publish(ref)


def test_two_runs_at_once_publish_one_plan_in_one_delta_version(store_root, tmp_path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        said = pool.starmap(steps, [(store_root, str(tmp_path / docs)) for docs in ("one", "two")])
    assert said == ["Batch 0 is published: tail_activity at version 1"] * 2
    assert published(store_root).version() == 1
    ledger = Ledger(S3Store(store_root), "tail_activity")
    assert (ledger.plan(0) is not None, ledger.plan(1)) == (True, None)
    total = sum(published(store_root).to_pyarrow_table()["flights"].to_pylist())
    assert total == raw().execute(f"SELECT count(*) {FLIGHTS_OF_PART_0}").fetchone()[0]
