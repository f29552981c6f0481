"""Waves and places in whole DAG runs: what is cleared runs again alone, and one DAG runs batches of any waves."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial

import duckdb
import pytest
from deltalake import DeltaTable

from coset.sources.s3 import storage_options
from demo.landing import raw
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from tests.hot import PARTITIONS, skewed
from tests.landed import land_table
from tests.there import there

STEPS = ("plan", "groups_of_wave_1", "check", "publish")
# `dag.test()` leaves a run's form in the DAG: the second run has to say all that the first one said.
ONE_WAVE = {"groups": 2, "scheme": None, "limit": 3000}
TWO_WAVES = {"groups": 2, "scheme": "parts=records(3000)", "limit": None}


def states(run):
    return {(task.task_id, task.map_index): task.state for task in run.get_task_instances()}


def tries(run):
    return {(task.task_id, task.map_index): task.try_number for task in run.get_task_instances()}


def published(root, table, *columns):
    rows = DeltaTable(f"{root}/tables/{table}", storage_options=storage_options()).to_pyarrow_table(columns=[*columns])
    return list(zip(*rows.to_pydict().values(), strict=True))


def clear(dag, run, only):
    """Clear one mapped copy of a task and what is behind it, as the page does with Downstream, and run what is ready,
    as the scheduler does."""
    from airflow.models.dagrun import DagRun
    from airflow.sdk.definitions.dag import _run_task
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState, TaskInstanceState

    scheduled = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    task_id, _ = only
    behind = dag.get_task(task_id).get_flat_relative_ids(upstream=False)
    with create_session() as session:
        cleared = [only, *behind]
        scheduled.clear(run_id=run.run_id, task_ids=cleared, dag_run_state=DagRunState.RUNNING, session=session)
        session.commit()
        (run,) = DagRun.find(dag_id=dag.dag_id, run_id=run.run_id, session=session)
        run.dag = scheduled
        while run.state == DagRunState.RUNNING:
            ready, _ = run.update_state(session=session)
            assert ready or run.state != DagRunState.RUNNING, states(run)
            for task in ready:
                task.state = TaskInstanceState.SCHEDULED
                task.try_number += 1
            session.commit()
            for task in ready:
                _run_task(ti=task, task=dag.task_dict[task.task_id])
            session.expire_all()
        return run


@pytest.mark.long
def test_waves_run_one_after_the_other(parsed, store_root):
    run = parsed("flights_by_route").test(run_conf={"groups": 1})
    assert run.state == "success"
    ran = {task: state for (task, _), state in states(run).items() if task.startswith("run")}
    assert ran == dict.fromkeys(("run", "run_wave_1", "run_wave_2"), "success") | {"run_wave_3": "skipped"}
    query = "SELECT dest, count(*), count(DISTINCT origin) FROM flights WHERE month <= 4 GROUP BY 1 ORDER BY 1"
    assert sorted(published(store_root, "airports", "dest", "flights", "origins")) == raw().execute(query).fetchall()


@pytest.mark.long
def test_more_groups_than_airflow_maps_a_task_to_share_its_copies(parsed, store_root, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    run = parsed("flights_by_route").test(run_conf={"groups": 5})
    assert run.state == "success"
    copies = Counter(task for task, index in states(run) if index >= 0)
    assert copies["run"] == 2
    ledger = Ledger(store_at(store_root), "flights_by_route")
    plan = there(ledger.plan(0))
    first = [group.group for group in plan.groups if group.wave == 0]
    assert len(first) == 5
    assert len(ledger.receipts(0, 0, [group.group for group in plan.groups])) == len(plan.groups)
    query = "SELECT dest, count(*), count(DISTINCT origin) FROM flights WHERE month <= 4 GROUP BY 1 ORDER BY 1"
    assert sorted(published(store_root, "airports", "dest", "flights", "origins")) == raw().execute(query).fetchall()


@pytest.mark.long
def test_a_key_that_was_hot_is_split_in_the_next_run(parsed, store_root, monkeypatch):
    source, landed = f"{store_root}/topics", [skewed(20_000, seed) for seed in (1, 2)]
    monkeypatch.setenv("VIEWS_SOURCE", source)
    dag = None
    for batch, table in enumerate(landed):
        land_table(table, "views", source, key="k", partitions=PARTITIONS)
        dag = dag or parsed("hot_views", ', settings=Settings.read("hot_keys = \'split\'", "settings.toml")')
        assert dag.test().state == "success"
        plan = there(Ledger(store_at(store_root), "hot_views").plan(batch))
        split = [("views.hot", 0)] if batch else []
        assert [(stage.name, stage.wave) for stage in plan.stages] == [*split, ("views", len(split))]
    rows = sorted(published(store_root, "hot_views", "k", "n", "v"))
    query = "SELECT k, count(*), sum(v)::BIGINT FROM views WHERE v % 10 < 9 GROUP BY k"
    assert rows == sorted(row for views in landed for row in duckdb.execute(query).fetchall())


@pytest.fixture
def coast(server, monkeypatch):
    """Two places with a Spark of their own, as far as Airflow knows; `coast(token)` says what is sent to the sea."""

    def connect(name, token):
        connection = {"conn_type": "spark", "host": server.address, "password": token}
        monkeypatch.setenv(f"AIRFLOW_CONN_SPARK_{name}", json.dumps(connection))

    connect("LAND", server.token)
    connect("SEA", server.token)
    return partial(connect, "SEA")


@pytest.mark.long
def test_one_dag_runs_a_batch_of_one_wave_then_one_of_two_and_a_later_group_that_failed_alone(
    parsed, coast, server, store_root, monkeypatch
):
    from coset.airflow.task_group import TaskGroupOperator

    places = ', places={"land": Place("spark_land"), "sea": Place("spark_sea")}'
    dag = parsed("flights_in_parts", places)
    first = dag.test(run_conf=ONE_WAVE)
    assert first.state == "success"
    done = dict.fromkeys([*((name, -1) for name in STEPS), ("run", 0), ("run", 1)], "success")
    assert states(first) == done | {("run_wave_1", -1): "skipped"}

    # While group 3 runs for the first time, the server at its place accepts nobody.
    begun, execute = Counter[int](), TaskGroupOperator.execute

    def counted(self, context):
        (group,) = self.groups
        begun[group] += 1
        refused = (group, begun[group]) == (3, 1)
        coast("wrong" if refused else server.token)
        return execute(self, context)

    monkeypatch.setattr(TaskGroupOperator, "execute", counted)
    second = dag.test(run_conf=TWO_WAVES)
    assert second.state == "failed"
    assert begun == {0: 1, 1: 1, 2: 1, 3: 1}
    assert {task: state for task, state in states(second).items() if state != "success"} == {
        ("run_wave_1", 1): "failed"
    } | dict.fromkeys([(name, -1) for name in STEPS[2:]], "upstream_failed")
    before = tries(second)

    third = clear(dag, second, ("run_wave_1", 1))
    assert third.state == "success"
    assert begun == {0: 1, 1: 1, 2: 1, 3: 2}
    assert set(states(third).values()) == {"success"}
    again = {task for task, count in tries(third).items() if count > before[task]}
    assert again == {("run_wave_1", 1), *((name, -1) for name in STEPS[2:])}

    ledger = Ledger(store_at(store_root), "flights_in_parts")
    for batch, groups in ((0, "land sea"), (1, "land sea land sea")):
        plan = there(ledger.plan(batch))
        ran = ledger.receipts(batch, 0, range(len(plan.groups)))
        assert {number: receipt.location for number, receipt in ran.items()} == dict(enumerate(groups.split()))
    counts = Counter[str]()
    for tailnum, flights in published(store_root, "flights_in_parts", "tailnum", "flights"):
        counts[tailnum] += flights
    query = "SELECT tailnum, count(*) FROM flights WHERE month <= 4 AND tailnum IS NOT NULL GROUP BY 1"
    assert counts == dict(raw().execute(query).fetchall())
