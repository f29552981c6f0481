"""The asset of a pipeline: it has one event for each published batch, and other DAGs start on it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from coset.batches.ref import BatchRef
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.model.verdict import Commit, Decision, Judged, TableVersion, Verdict
from tests.clicked import belled, landed
from tests.running import next_batch, run_and_publish

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
