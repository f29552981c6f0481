"""Whole DAG runs on real S3 and Spark servers, wave after wave, and the events of assets."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from coset.batches.attempt import Attempt
from coset.batches.ref import BatchRef
from coset.reports.overview import rows_of
from coset.reports.timeliness import Timeliness, timeliness
from coset.sources.s3 import storage_options
from demo.landing import raw
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.model.verdict import Commit, Decision, Judged, TableVersion, Verdict
from spark_jobs.engine.occasions import now as milliseconds
from tests.clicked import belled, landed
from tests.forked import at_once
from tests.hot import PARTITIONS, skewed
from tests.kafka import TAILS, create, produce, views
from tests.landed import land_table
from tests.running import next_batch, run_and_publish
from tests.there import there

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


def test_each_task_group_is_a_mapped_spark_job_and_a_wave_without_groups_is_skipped(first) -> None:
    # Joined records may have to move, by the pipeline alone; by the plan they need not.
    run, _ = first
    assert states(run) == dict.fromkeys(
        [(name, -1) for name in ("plan", "groups_of_wave_1", "check", "publish")] + [("run", 0), ("run", 1)], "success"
    ) | {("run_wave_1", -1): "skipped"}
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


PIPELINE = """
import os
from tests.clicked import belled
pipeline = belled(os.environ["CLICKS_SOURCE"])
"""
DAGS = f'''"""Airflow: a DAG of a pipeline of the tests, and one that starts on it."""

from airflow.sdk import DAG, task
from coset import Settings
from coset.airflow import coset_dag, published
{PIPELINE}
dag = coset_dag(pipeline, settings=Settings(groups=1))
with DAG("after_belled", schedule=[published("belled")], catchup=False) as after:

    @task
    def hear() -> None: ...

    hear()
'''


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in a folder, to which clicks have come."""
    root = f"file://{tmp_path}/store"
    for name, value in {"COSET_STORE": root, "CLICKS_SOURCE": f"{root}/topics"}.items():
        monkeypatch.setenv(name, value)
    landed(store_at(root), 0)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    return root


@pytest.fixture
def dag(airflow: Path, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The DAG of the pipeline. Airflow knows it, and the one that starts on it."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models import DagModel
    from airflow.utils.session import create_session

    (folder := tmp_path / "dags").mkdir()
    (folder / "belled_dags.py").write_text(DAGS)
    local = {"classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {"path": str(folder)}}
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([{"name": "belled"} | local]))
    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(dag_folder=str(folder), bundle_path=folder, bundle_name="belled")
    assert bag.import_errors == {}
    sync_bag_to_db(bag, "belled", None)
    with create_session() as session:
        for model in session.query(DagModel).filter(DagModel.dag_id.in_(("belled", "after_belled"))):
            model.is_paused = False
    return bag.dags["belled"]


def events(root: str) -> list[dict[str, Any]]:
    """Those of batches in a store."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).order_by(AssetEvent.id).all()
        assert all(each.partition_key is None for each in found)
        told = [each.extra for each in found if each.asset.name == "coset.belled"]
        return [each for each in told if each["plan_uri"].startswith(root)]


def waiting() -> list[str]:
    """The DAGs that are to be started by an event."""
    from airflow.models.asset import AssetDagRunQueue
    from airflow.utils.session import create_session

    with create_session() as session:
        return [each.target_dag_id for each in session.query(AssetDagRunQueue).all()]


def published_again(folder: Path, ref: BatchRef) -> Any:
    """A run of the task that publishes, for a batch that was published before."""
    from airflow.dag_processing.dagbag import DagBag

    again = folder / "dags" / "again_dag.py"
    again.write_text(
        '"""Airflow: a DAG that publishes once more."""\n'
        "from airflow.sdk import DAG\n"
        "from coset.airflow.batch_dag import batch_tasks\n"
        f"from coset.batches.interpreter import PUBLISH, STEPS\n{PIPELINE}\n"
        "with DAG('belled_again') as dag:\n"
        f"    planned = {{'batch': {asdict(ref)!r}}}\n"
        "    list(batch_tasks([step for step in STEPS if step.name == PUBLISH], pipeline, planned, {}, 0))\n"
    )
    return DagBag(dag_folder=str(again)).dags["belled_again"].test()


@pytest.mark.long
def test_an_event_of_many_tables_is_as_short_as_airflow_is_to_carry(airflow: Path, s3: object) -> None:
    from coset.airflow.asset import MOST_BYTES, event
    from tests.small import small_batch

    batch = small_batch()
    ledger, plan = batch.ref.load()
    verdict = Verdict("sha256:1", 0, Decision.PUBLISH, 0, Judged(9, 2, 3, 1, 12, 12), ())
    tables = tuple(TableVersion(f"a_table_with_a_long_name_{number:03}", number) for number in range(200))
    told = event(ledger, plan, verdict, Commit("sha256:1", 0, "sha256:2", tables))
    assert MOST_BYTES - 50 < len(json.dumps(told)) <= MOST_BYTES
    assert len(told["tables"]) + told["tables_left_out"] == 200
    assert told["tables"]["a_table_with_a_long_name_000"] == 0


def test_a_batch_has_one_event_however_often_the_task_that_publishes_it_runs(
    dag: Any, root: str, tmp_path: Path
) -> None:
    ref = next_batch(belled(f"{root}/topics"), root)
    run_and_publish(ref, None)
    assert events(root) == []
    for _ in range(2):
        assert published_again(tmp_path, ref).state == "success"
        assert [(each["batch"], each["plan"]) for each in events(root)] == [(0, ref.digest)]
    assert waiting() == ["after_belled"]


@pytest.mark.long
def test_each_published_batch_has_one_event_however_often_it_is_published(dag: Any, root: str, tmp_path: Path) -> None:
    ledger = Ledger(store_at(root), "belled")
    assert dag.test().state == "success"
    (first,) = events(root)
    plan, verdict = ledger.plan(0), ledger.verdict(0)
    assert plan is not None
    assert verdict is not None
    ref = BatchRef.of(ledger.store, plan)
    assert first == {
        "batch": 0,
        "plan": ref.digest,
        "plan_uri": ref.plan_uri,
        "verdict": ledger.commit(0).verdict,  # type: ignore[union-attr]
        "attempt": 0,
        "judged": str(verdict.why),
        "records": 10,
        "tables": {"counts": 1},
        "tables_left_out": 0,
    }
    assert waiting() == ["after_belled"]
    # Nothing to do.
    assert dag.test().state == "success"
    assert events(root) == [first]
    # The task is cleared and runs again, which no run of its own plans.
    assert published_again(tmp_path, ref).state == "success"
    assert events(root) == [first]
    landed(store_at(root), 1)
    assert dag.test().state == "success"
    assert [each["batch"] for each in events(root)] == [0, 1]


STEPS = ("plan", "groups_of_wave_1", "check", "publish")
# `dag.test()` leaves a run's form in the DAG: the second run has to say all that the first one said.
ONE_WAVE = {"groups": 2, "scheme": None, "limit": 3000}
TWO_WAVES = {"groups": 2, "scheme": "parts=records(3000)", "limit": None}


def states_of_waves(run):
    return {(task.task_id, task.map_index): task.state for task in run.get_task_instances()}


def tries(run):
    return {(task.task_id, task.map_index): task.try_number for task in run.get_task_instances()}


def published_batches(root, table, *columns):
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
            assert ready or run.state != DagRunState.RUNNING, states_of_waves(run)
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
    ran = {task: state for (task, _), state in states_of_waves(run).items() if task.startswith("run")}
    assert ran == dict.fromkeys(("run", "run_wave_1", "run_wave_2"), "success") | {"run_wave_3": "skipped"}
    query = "SELECT dest, count(*), count(DISTINCT origin) FROM flights WHERE month <= 4 GROUP BY 1 ORDER BY 1"
    assert (
        sorted(published_batches(store_root, "airports", "dest", "flights", "origins"))
        == raw().execute(query).fetchall()
    )


@pytest.mark.long
def test_more_groups_than_airflow_maps_a_task_to_share_its_copies(parsed, store_root, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    run = parsed("flights_by_route").test(run_conf={"groups": 5})
    assert run.state == "success"
    copies = Counter(task for task, index in states_of_waves(run) if index >= 0)
    assert copies["run"] == 2
    ledger = Ledger(store_at(store_root), "flights_by_route")
    plan = there(ledger.plan(0))
    first = [group.group for group in plan.groups if group.wave == 0]
    assert len(first) == 5
    assert len(ledger.receipts(0, 0, [group.group for group in plan.groups])) == len(plan.groups)
    query = "SELECT dest, count(*), count(DISTINCT origin) FROM flights WHERE month <= 4 GROUP BY 1 ORDER BY 1"
    assert (
        sorted(published_batches(store_root, "airports", "dest", "flights", "origins"))
        == raw().execute(query).fetchall()
    )


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
    rows = sorted(published_batches(store_root, "hot_views", "k", "n", "v"))
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
    assert states_of_waves(first) == done | {("run_wave_1", -1): "skipped"}

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
    assert {task: state for task, state in states_of_waves(second).items() if state != "success"} == {
        ("run_wave_1", 1): "failed"
    } | dict.fromkeys([(name, -1) for name in STEPS[2:]], "upstream_failed")
    before = tries(second)

    third = clear(dag, second, ("run_wave_1", 1))
    assert third.state == "success"
    assert begun == {0: 1, 1: 1, 2: 1, 3: 2}
    assert set(states_of_waves(third).values()) == {"success"}
    again = {task for task, count in tries(third).items() if count > before[task]}
    assert again == {("run_wave_1", 1), *((name, -1) for name in STEPS[2:])}

    ledger = Ledger(store_at(store_root), "flights_in_parts")
    for batch, groups in ((0, "land sea"), (1, "land sea land sea")):
        plan = there(ledger.plan(batch))
        ran = ledger.receipts(batch, 0, range(len(plan.groups)))
        assert {number: receipt.location for number, receipt in ran.items()} == dict(enumerate(groups.split()))
    counts = Counter[str]()
    for tailnum, flights in published_batches(store_root, "flights_in_parts", "tailnum", "flights"):
        counts[tailnum] += flights
    query = "SELECT tailnum, count(*) FROM flights WHERE month <= 4 AND tailnum IS NOT NULL GROUP BY 1"
    assert counts == dict(raw().execute(query).fetchall())
