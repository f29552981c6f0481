"""The operator that runs a task group: where its connection says, and what happens when that is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from types import SimpleNamespace

import psutil
import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.errors import Refused
from partitioning.kinds import Kind
from spark_jobs.engine.location import ENVIRONMENT
from tests.held import held_batch, met, waits
from tests.small import until
from tests.there import there
from tests.yarn import yarn

RECONNECTS = "group 0: reconnects to the job that was left on the Spark server\n"


@pytest.fixture(scope="module", autouse=True)
def _airflow(airflow, server):
    """Airflow's home and the connections."""


def planned(expression="count(*) AS planes"):
    """A batch of a small pipeline, planned in a store of its own."""
    from coset.batches import steps

    pipeline = Pipeline("models", source="s3://landing/topics")
    pipeline.stream("planes", key="tailnum", partitions=8).aggregate(expression).write("models")
    ref, _ = steps.plan(pipeline, f"s3://coset/{uuid.uuid4().hex}", Settings(groups=2))
    return ref


def operator(ref, connection="spark_default", location=None, **change):
    from coset.airflow.task_group import TaskGroupOperator

    batch, where = asdict(ref) | change, {"location": location, "conn_id": connection}
    return TaskGroupOperator(batch=batch, group=0, task_id="run", name="group 0", retries=2, **where)


def context(tries=1):
    """What a task knows of itself, in so many tries."""
    own = {"dag_id": "models", "run_id": "scheduled", "task_id": "run", "map_index": 0}
    return {"ti": SimpleNamespace(**own, try_number=tries)}


def killed_in_the_middle(ref, connection, gate):
    """Execute a task in a process of its own and kill it at the gate. Gives the processes below that one."""
    code = f"""
from coset.batches.ref import BatchRef; from tests.airflow.test_task_group import context, operator
operator(BatchRef{(ref.plan_uri, ref.digest)}, {connection!r}).execute(context())"""
    with subprocess.Popen([sys.executable, "-c", code]) as task:
        assert until(lambda: met(gate))
        family = psutil.Process(task.pid).children(recursive=True)
        task.kill()
    return family


def told(raised):
    """What is made an incident of, if a task raises this."""
    from coset.airflow.notifier import _error

    return _error(raised)


def location(ref):
    """Where the group ran, by what is stored."""
    ran = there(receipt(ref))
    return ran.location


def receipt(ref):
    ledger, plan = ref.load()
    return ledger.receipt(plan.batch, 0, 0)


@pytest.mark.parametrize("connection", ["spark_default", "spark_master"])
def test_a_group_runs_where_its_connection_says(connection, capsys, caplog):
    ref, secret = planned(), os.environ["AWS_SECRET_ACCESS_KEY"]
    operator(ref, connection, "sea").execute(context())
    assert receipt(ref) is not None
    assert location(ref) == "sea"
    said = capsys.readouterr()
    assert "group 0: done in " in said.out
    # Airflow cuts long lines: then it would not know its secret again.
    assert not [text for text in (*said, caplog.text) if secret[:8] in text or secret[-8:] in text]


def both_groups(ref, connection):
    """Runs them in one task; the groups by what their receipts say."""
    from coset.airflow.task_group import TaskGroupOperator

    shared = {"task_id": "run", "name": "both", "batch": asdict(ref), "group": 0, "more": [1], "conn_id": connection}
    TaskGroupOperator(**shared).execute(context())
    ledger, plan = ref.load()
    return {number: receipt.group for number, receipt in ledger.receipts(plan.batch, 0, (0, 1)).items()}


@pytest.mark.parametrize("connection", ["spark_default", "spark_master"])
def test_groups_that_share_a_task_run_one_after_the_other(connection):
    assert both_groups(planned(), connection) == {0: 0, 1: 1}


def test_of_groups_that_share_a_task_those_that_have_run_are_not_run_again(capsys):
    ref = planned()
    ledger, plan = ref.load()
    both_groups(ref, "spark_default")
    ledger.store.delete(ledger.key("receipts", plan.batch, "attempt-0", "group-1"))
    capsys.readouterr()
    assert both_groups(ref, "spark_default") == {0: 0, 1: 1}
    assert "group 0 of batch 0 of models: nothing to do, attempt 0 has run" in capsys.readouterr().out


@pytest.mark.long
def test_a_group_whose_server_is_gone_is_submitted_and_says_so(capsys):
    ref = planned()
    operator(ref, "spark_gone", "sea").execute(context())
    assert receipt(ref) is not None
    assert location(ref) == ENVIRONMENT.location()
    said = capsys.readouterr().out
    assert (
        "the Spark server sc://127.0.0.1:1 cannot be reached; submitted instead: group 0 of batch 0 of models" in said
    )


def test_what_a_place_and_its_connection_say_reaches_the_application():
    from airflow.sdk.exceptions import AirflowException

    from coset.airflow.places import Place, placed
    from coset.airflow.task_group import TaskGroupOperator

    ref = planned()
    places = {"sea": Place("spark_master", {"spark.driver.memory": "much"})}
    arguments = placed(ref.load()[1].groups[0], places)
    task = TaskGroupOperator(task_id="run", name="group 0", batch=asdict(ref), group=0, **arguments)
    with pytest.raises(AirflowException, match="Cannot execute") as caught:
        task.execute(context())
    said = str(caught.value).replace("', '", " ")
    assert "--conf spark.driver.memory=much" in said
    assert "--conf spark.driver.cores=2" in said, "as the connection says"
    assert receipt(ref) is None
    assert told(caught.value) is caught.value


@pytest.mark.parametrize("connection", ["spark_default", "spark_master"])
def test_a_group_whose_plan_was_replaced_fails_without_a_retry(connection):
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="expected was sha256:0"):
        operator(planned(), connection, digest="sha256:0").execute(context())


@pytest.mark.parametrize("connection", ["spark_default", "spark_master"])
def test_a_group_that_is_refused_fails_without_a_retry_and_is_told_by_its_findings(connection):
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="Could not convert string") as caught:
        operator(planned("sum(CAST(model AS INTEGER)) AS sums"), connection).execute(context())
    found = told(caught.value)
    assert isinstance(found, Refused)
    assert {finding.kind for finding in found.findings} == {Kind.SQL}


def test_a_server_that_does_not_accept_the_token_is_told_without_a_retry():
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="does not accept the token"):
        operator(planned(), "spark_stranger").execute(context())


def test_a_store_that_is_away_is_tried_again(monkeypatch):
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    ref = planned()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(AirflowException, match="cannot be reached") as caught:
        operator(ref).execute(context())
    assert not isinstance(caught.value, AirflowFailException)


def test_a_missing_connection_is_an_error_and_not_yarn():
    from airflow.sdk.exceptions import AirflowNotFoundException

    with pytest.raises(AirflowNotFoundException, match="nowhere"):
        operator(planned(), "nowhere").execute(context())


@pytest.mark.parametrize("connection", ["spark_default", "spark_master"])
def test_a_task_that_is_killed_ends_what_it_started_and_may_be_tried_again(connection, tmp_path):
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    ref = held_batch(gate := tmp_path / "gate").ref
    task = operator(ref, connection)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(task.execute, context())
        assert until(lambda: met(gate))
        task.on_kill()
        with pytest.raises(AirflowException) as caught:
            running.result(timeout=10)
    assert not isinstance(caught.value, AirflowFailException)
    assert receipt(ref) is None


@pytest.mark.long
def test_an_application_ends_with_the_task_that_submitted_it(tmp_path):
    left = killed_in_the_middle(held_batch(gate := tmp_path / "gate").ref, "spark_master", gate)
    assert psutil.wait_procs(left, timeout=10)[1] == []


def test_a_retry_reconnects_to_the_job_that_a_killed_task_left_on_the_server(capsys, tmp_path):
    ref = held_batch(gate := tmp_path / "gate").ref
    killed_in_the_middle(ref, "spark_default", gate)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(operator(ref).execute, context(tries=2))
        assert until(lambda: RECONNECTS in capsys.readouterr().out)
        gate.unlink()
        running.result(timeout=60)
    ledger = ref.load()[0]
    ran = there(receipt(ref))
    stored = {entry.key for entry in ledger.store.list("") if "/attempt-0-" in entry.key}
    assert stored == {file.path for task in ran.tasks for file in task.artefacts}, "no task wrote twice"


def test_a_retry_that_finds_no_job_says_that_it_begins_anew(capsys):
    ref = planned()
    operator(ref).execute(context(tries=2))
    assert "group 0: begins anew, as no job was left on the Spark server\n" in capsys.readouterr().out
    assert receipt(ref) is not None


@pytest.mark.long
def test_a_retry_that_is_cleared_ends_the_job_to_which_it_reconnected(capsys, tmp_path):
    from airflow.sdk.exceptions import AirflowException

    ref = held_batch(gate := tmp_path / "gate").ref
    killed_in_the_middle(ref, "spark_default", gate)
    task = operator(ref)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(task.execute, context(tries=2))
        assert until(lambda: RECONNECTS in capsys.readouterr().out)
        task.on_kill()
        with pytest.raises(AirflowException, match="the Spark job was ended"):
            running.result(timeout=20)
    assert until(lambda: not waits(gate), within=20)
    assert receipt(ref) is None


def test_a_connection_that_submits_in_deploy_mode_cluster_is_refused(monkeypatch):
    from airflow.sdk.exceptions import AirflowFailException

    connection = {"conn_type": "spark", "host": "spark://there:7077", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_ELSEWHERE", json.dumps(connection))
    with pytest.raises(AirflowFailException, match="the connection spark_elsewhere") as caught:
        operator(planned(), "spark_elsewhere").execute(context())
    assert "spark.submit.deployMode in its conf; elsewhere use a Spark server, such as sc://host" in str(caught.value)


@pytest.mark.long
def test_a_group_is_submitted_to_kubernetes_without_a_provider_for_it(monkeypatch):
    from airflow.sdk.exceptions import AirflowException

    conf = {"spark.kubernetes.container.image": "registry.example.org/shop:1"}
    connection = {"conn_type": "spark", "host": "k8s://https://127.0.0.1", "port": 1, "extra": {"conf": conf}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_KUBERNETES", json.dumps(connection))
    # Else Spark's client asks for minutes.
    monkeypatch.setenv("KUBERNETES_REQUEST_RETRY_BACKOFFLIMIT", "0")
    with pytest.raises(AirflowException, match=r"Spark cannot start: .*Connection refused") as caught:
        operator(planned(), "spark_kubernetes").execute(context())
    assert "master k8s://https://127.0.0.1:1" in str(caught.value)


@pytest.mark.long
def test_a_connection_to_yarn_may_have_the_driver_there(tmp_path, monkeypatch, s3, capsys):
    ref = planned()
    with yarn(tmp_path) as hadoop:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop.configuration))
        connection = {"conn_type": "spark", "host": "yarn", "extra": {"conf": hadoop.driver_there(s3.environment)}}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_YARN", json.dumps(connection))
        operator(ref, "spark_yarn").execute(context())
        assert receipt(ref) is not None
        operator(ref, "spark_yarn").execute(context(tries=2))
        assert "nothing to do, attempt 0 has run" in capsys.readouterr().out
        (application,) = hadoop.applications()
    assert application["finalStatus"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("connection", "address"),
    [
        ({"conn_type": "spark", "host": "local[*]"}, None),
        ({"conn_type": "spark", "host": "spark://m", "port": 7077}, None),
        ({"conn_type": "spark", "host": "sc://here:15002"}, "sc://here:15002"),
        ({"conn_type": "spark_connect", "host": "here", "port": 15002}, "sc://here:15002"),
        ({"conn_type": "spark_connect", "host": "sc://here"}, "sc://here"),
        (
            {"conn_type": "spark_connect", "host": "here", "port": 443, "extra": '{"use_ssl": true}'},
            "sc://here:443/;use_ssl=true",
        ),
    ],
)
def test_a_connection_is_to_a_server_or_to_a_master(connection, address):
    from airflow.sdk import Connection

    from coset.airflow.task_group import server_of

    assert server_of(Connection(conn_id="spark", **connection)) == address
