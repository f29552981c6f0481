"""The DAGs that run batches again and verify tables, in whole runs: a form, batches, approval, swap and undo."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.request import backfill, backfills, comparison_of
from coset.batches.backfills.swaps import swaps
from coset.batches.interpreter import run_batch
from coset.batches.runners.local import Local
from coset.batches.watch import IncidentLog
from coset.sources.s3 import storage_options
from coset.testing.runs import Trial
from dags.pipelines.tail_activity import pipeline as tail_activity
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.backfill import SwapKind
from partitioning.model.incident import WatchedRuns
from spark_jobs.tables.table_schema import folder
from tests.backfilled import Batches
from tests.pipelines.late_flights import late_flights
from tests.running import next_batch
from tests.told import Recorder, recording

FORM = {
    "from": 0,
    "to": 0,
    "scheme": None,
    "groups": 2,
    "why": "a hot topic",
    "repaired": False,
    "backfill": None,
    "begin_anew": None,
    "go_on": None,
}
RAN = dict.fromkeys([("preview", -1), ("plan", -1), ("run", 0), ("run", 1)], "success")
PROVED = dict.fromkeys([("check", -1), ("then", -1)], "success")


@pytest.fixture
def parsed(airflow, store_root, tmp_path, monkeypatch):
    """Gives the DAGs of a file."""
    from airflow.dag_processing.dagbag import DagBag

    def parse(text):
        (tmp_path / "parsed.py").write_text(f'"""Airflow: DAGs of a test."""\n\n{text}\n')
        local = {"classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {"path": str(tmp_path)}}
        monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([{"name": "parsed"} | local]))
        return DagBag(dag_folder=str(tmp_path)).dags

    return parse


def publish(pipeline, root, docs, limit=None):
    ref = next_batch(pipeline, root, Settings(groups=1, limit=limit))
    with Local(processes=1) as runner:
        run_batch(ref, runner, docs, lambda _: nullcontext([]))


def seen(root, table, *columns):
    delta = DeltaTable(f"{root}/tables/{table}", storage_options=storage_options())
    return sorted(tuple(row.values()) for row in delta.to_pyarrow_table(columns=[*columns]).to_pylist())


def states(run):
    return {(task.task_id, task.map_index): task.state for task in run.get_task_instances()}


def page(run, store):
    """Where the tab of a run leads."""
    from coset.airflow.page_routes import batch_of_run, page_of_run

    return page_of_run(store, batch_of_run(run.dag_id, run.run_id, "tail_activity", store.root))


def triggered(dag_id):
    """The forms of the runs that were started by runs."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.types import DagRunType

    return [run.conf for run in DagRun.find(dag_id=dag_id) if run.run_type == DagRunType.OPERATOR_TRIGGERED]


@pytest.mark.long
def test_batches_are_run_again_in_runs_of_their_own_and_swapped_if_they_are_the_same(
    airflow, store_root, tmp_path, capsys
):
    from airflow.dag_processing.dagbag import DagBag

    for _ in range(2):
        publish(tail_activity, store_root, tmp_path, limit=1000)
    before, dag = (
        seen(store_root, "tail_activity", "_batch", "tailnum", "flights", "dep_delay"),
        DagBag().dags["tail_activity_backfill"],
    )
    form = FORM | {"to": 1, "scheme": "tasks(6)"}
    skipped = {("groups_of_wave_1", -1): "success", ("run_wave_1", -1): "skipped"}

    first = dag.test(run_conf=form)
    assert states(first) == RAN | PROVED | skipped | {("next_batch", -1): "success"} | dict.fromkeys(
        [("compare", -1), ("approve", -1), ("swap", -1)], "skipped"
    )
    (following,) = triggered(dag.dag_id)
    assert following == form | {"backfill": 0}
    assert list(swaps(store_at(store_root), "tail_activity")) == []

    second = dag.test(run_conf=following)
    assert states(second) == RAN | PROVED | skipped | dict.fromkeys([("compare", -1), ("swap", -1)], "success") | {
        ("next_batch", -1): "skipped",
        ("approve", -1): "skipped",
    }
    store = store_at(store_root)
    (request,) = backfills(store, "tail_activity")
    assert (request.batches, request.who, request.why) == ((0, 1), "dag_test", "a hot topic")
    assert [(swap.turn, swap.why) for swap in swaps(store, "tail_activity")] == [(SwapKind.SWAP, "a hot topic")]
    plans = [Ledger(store, request.name).plan(batch) for batch in request.batches]
    assert [len(plan.stages[0].tasks) for plan in plans if plan] == [6, 6]
    assert seen(store_root, "tail_activity", "_batch", "tailnum", "flights", "dep_delay") == before

    assert [page(run, store) for run in (first, second)] == ["backfills/0/batch-0-attempt-0.html", "backfill-0.html"]
    assert store.head(f"{request.name}/docs/batch-0-attempt-0.html") is not None
    assert store.head("tail_activity/docs/backfill-0.html") is not None

    # Cleared, and so run again: what is done is found done.
    again = actions.review(store, backfill(store, "tail_activity", 0))
    assert not again.needs_approval
    swap: Any = dag.get_task("swap")
    swap.python_callable(0, again.digest, again.decided, None)
    assert "is in place: tail_activity at version 3" in capsys.readouterr().out
    assert len(list(swaps(store, "tail_activity"))) == 1


@contextmanager
def answering(dag_id: str, chosen: str) -> Iterator[Future[str]]:
    """Whoever is asked in a run of the DAG meanwhile answers so; gives what was shown."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(_answer, dag_id, chosen)


def _answer(dag_id: str, chosen: str) -> str:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState
    from sqlalchemy import select

    asked = select(TaskInstance).where(
        TaskInstance.dag_id == dag_id, TaskInstance.state == TaskInstanceState.AWAITING_INPUT
    )
    for _ in range(240):
        with create_session() as session:
            waiting = session.scalars(asked).first()
            if waiting is not None:
                try:
                    return _answered(waiting, chosen, session)
                except BaseException:
                    # The run waits for an answer for ever.
                    waiting.state = TaskInstanceState.FAILED
                    session.commit()
                    raise
        time.sleep(0.5)
    raise AssertionError("nobody was asked")


def _answered(waiting: Any, chosen: str, session: Any) -> str:
    """Answer as the page does."""
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
    from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
    from airflow.models.hitl import HITLDetail

    ann, payload = SimpleAuthManagerUser(username="ann", role="admin"), UpdateHITLDetailPayload(chosen_options=[chosen])
    body = str(session.get(HITLDetail, waiting.id).body)
    update_hitl_detail(waiting.dag_id, waiting.run_id, waiting.task_id, payload, ann, session)
    return body


@pytest.mark.long
def test_other_rows_are_shown_and_swapped_only_if_somebody_approves_them(parsed, store_root, tmp_path):
    publish(late_flights(60), store_root, tmp_path / "docs")
    before, store = seen(store_root, "late", "tailnum", "n"), store_at(store_root)
    dags = parsed(
        "from coset.airflow import coset_backfill_dag, coset_undo_dag\n"
        "from tests.pipelines.late_flights import late_flights\n\n"
        "backfill, undo = coset_backfill_dag(late_flights(120)), coset_undo_dag(late_flights(120))"
    )
    dag = dags["late_flights_backfill"]

    with answering(dag.dag_id, "Reject") as answer:
        rejected = dag.test(run_conf=FORM)
    found = comparison_of(store, backfill(store, "late_flights", 0))
    assert found is not None
    shown = answer.result()
    assert "The pipeline was changed: late: SQL of late." in shown
    assert f"different: {found.tables[0].keys:,} keys of late (batch 0)" in shown
    assert "a hot topic" in shown
    assert digest(found) in shown
    assert all(f"| {row} " in shown for _, row, _ in found.tables[0].first_columns)
    assert {name: state for (name, _), state in states(rejected).items() if name in {"approve", "swap"}} == {
        "approve": "success",
        "swap": "skipped",
    }
    assert (list(swaps(store, "late_flights")), seen(store_root, "late", "tailnum", "n")) == ([], before)

    with answering(dag.dag_id, "Approve"):
        approved = dag.test(run_conf=FORM | {"backfill": 0})
    assert approved.state == "success"
    (swap,) = swaps(store, "late_flights")
    assert (swap.approved, swap.who, swap.why) == (digest(found), "ann", "a hot topic")
    rows = seen(store_root, "late", "tailnum", "n")
    assert 0 < sum(row[1] for row in rows) < sum(row[1] for row in before)

    undone = dags["late_flights_undo"].test(run_conf={"backfill": 0, "why": "they were wanted"})
    assert undone.state == "success"
    assert [(swap.turn, swap.why) for swap in swaps(store, "late_flights")][1] == (SwapKind.UNDO, "they were wanted")
    assert seen(store_root, "late", "tailnum", "n") == before


@pytest.mark.long
def test_nobody_is_asked_to_approve_what_would_be_refused(parsed, store_root, tmp_path, capsys, monkeypatch):
    from airflow.sdk.exceptions import AirflowFailException

    history = Batches(store_at(store_root), tmp_path)
    for number in range(2):
        history.batch(number)
    history.backfilled(Asked(0, 0, Settings(), "a hot topic"), threshold=5)
    monkeypatch.setenv("COSET_DOCS", str(tmp_path / "docs"))
    dags = parsed(
        "from coset.airflow import coset_backfill_dag\n"
        "from tests.backfilled import counted\n\n"
        f"backfill = coset_backfill_dag(counted(5)('{store_root}/topics', 4))"
    )
    compare = dags["kept_backfill"].get_task("compare")
    assert {task.task_id for task in compare.downstream_list} == {"approve", "swap"}
    with pytest.raises(
        AirflowFailException, match="it changes the state of newest, on which later batches, up to 1, depend"
    ):
        compare.python_callable(0)
    page = capsys.readouterr().out
    assert "It cannot be put in place" in page
    assert "run them too: `coset backfill kept --from 0 --cascade --store " in page
    assert "It cannot be put in place" in (tmp_path / "docs" / "kept" / "backfill-0.html").read_text()


def test_only_other_rows_wait_for_approval(parsed, store_root, tmp_path):
    from airflow.sdk.execution_time.context import set_current_context

    history = Batches(store_at(store_root), tmp_path)
    history.batch(0)
    dags = parsed(
        "from coset.airflow import coset_backfill_dag\n"
        "from tests.backfilled import counted\n\n"
        f"backfill = coset_backfill_dag(counted(5)('{store_root}/topics', 4))"
    )
    compare = dags["kept_backfill"].get_task("compare").python_callable
    ti: Any = SimpleNamespace(xcom_push=lambda key, value: None)
    with set_current_context({"ti": ti}):
        for number, (threshold, then) in enumerate([(0, "swap"), (5, "approve")]):
            history.backfilled(Asked(0, 0, Settings(), "a hot topic"), threshold=threshold)
            assert compare(number) == then


@pytest.mark.parametrize(
    "bad", [{"from": -1}, {"to": "x"}, {"why": ""}, {"groups": 0}, {"scheme": 4}, {"backfill": -1}]
)
def test_a_form_out_of_bounds_is_refused(airflow, bad):
    from airflow.sdk.exceptions import ParamValidationError

    from dags.tail_activity_backfill import backfill as dag

    ((name, value),) = bad.items()
    with pytest.raises(ParamValidationError):
        dag.params[name] = value


def test_a_form_has_to_say_which_batches_and_why(airflow):
    from airflow.sdk.exceptions import ParamValidationError

    from dags.tail_activity_backfill import backfill, undo

    for dag, form in ((backfill, {"from": 1, "to": 1, "why": "again"}), (undo, {"backfill": 0, "why": "wrong"})):
        for missing in form:
            params = copy.deepcopy(dag.params)
            params.update({name: value for name, value in form.items() if name != missing})
            with pytest.raises(ParamValidationError, match=missing):
                params.validate()


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"to": 2}, "batches 0 to 2 were requested, but only batch 0 is published"),
        ({"from": 1, "to": 0}, "batches 1 to 0 were requested"),
        ({"scheme": "sideways"}, "sideways"),
    ],
)
def test_what_cannot_be_run_again_is_refused_without_a_retry_and_nothing_is_stored(
    form, told, airflow, store_root, tmp_path
):
    from airflow.sdk.exceptions import AirflowFailException

    from dags.tail_activity_backfill import backfill as dag

    publish(tail_activity, store_root, tmp_path, limit=100)
    stored = [entry.key for entry in store_at(store_root).list("")]
    preview: Any = dag.get_task("preview")
    with pytest.raises(AirflowFailException, match=told):
        preview.python_callable(params=FORM | form)
    assert [entry.key for entry in store_at(store_root).list("")] == stored


def test_limits_are_those_of_airflow(parsed):
    dags = parsed(
        "from dags.pipelines.tail_activity import pipeline\n"
        "from coset.airflow import coset_backfill_dag\n"
        "from coset.airflow import coset_dag\n\n"
        "live = coset_dag(pipeline)\n"
        "backfill = coset_backfill_dag(pipeline, groups_at_once=3, window='00:00-23:59')"
    )
    live, backfill = dags["tail_activity"], dags["tail_activity_backfill"]
    groups = [task for task in backfill.tasks if task.task_id.startswith("run")]
    assert {task.max_active_tis_per_dag for task in groups} == {3}
    assert [task.task_id for task in backfill.get_task("in_hours").downstream_list] == ["plan"]
    assert max(weights(backfill)) < min(weights(live))


def weights(dag):
    """By which the scheduler chooses among tasks that wait for the same slots, the greatest first."""
    from airflow.serialization.serialized_objects import DagSerialization

    scheduled = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    instances: list[Any] = [SimpleNamespace(task=task) for task in scheduled.tasks]
    return [instance.task.weight_rule.get_weight(instance) for instance in instances]


@pytest.mark.parametrize(("begins_in", "opened"), [(2, False), (-1, True)])
def test_outside_of_its_hours_a_backfill_waits(parsed, capsys, begins_in, opened):
    from datetime import UTC, datetime, timedelta

    begins = datetime.now(UTC) + timedelta(hours=begins_in)
    window = f"{begins:%H:%M}-{begins + timedelta(hours=2):%H:%M}"
    dags = parsed(
        "from dags.pipelines.tail_activity import pipeline\n"
        "from coset.airflow import coset_backfill_dag\n\n"
        f"backfill = coset_backfill_dag(pipeline, window={window!r})"
    )
    sensor = dags["tail_activity_backfill"].get_task("in_hours")
    assert (sensor.mode, sensor.poke({})) == ("reschedule", opened)
    assert (f"Outside of {window} UTC: it continues at" in capsys.readouterr().out) is not opened


PARTS = 3
DAG_FILE = f'''
"""Airflow: the DAG that verifies a pipeline of the tests."""

from coset.airflow import coset_verify_dag
from tests.pipelines.newest import pipeline

dag = coset_verify_dag(pipeline, parts={PARTS})
'''


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    with recording() as recorder:
        monkeypatch.setenv("COSET_NOTIFY", recorder.address)
        yield recorder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A store with a published batch of the newest click of each of twenty keys."""
    monkeypatch.setenv("DELAYS_SOURCE", f"file://{tmp_path}/landing")
    from tests.pipelines.newest import pipeline

    place = Trial(pipeline, tmp_path)
    monkeypatch.setenv("COSET_STORE", place.root)
    place.land({"clicks": [{"k": f"k{number}", "id": number, "seen": number} for number in range(20)]})
    place.run()
    return place


@pytest.fixture
def ran(airflow: Path, place: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs the DAG, and gives the run's state."""
    from airflow.dag_processing.dagbag import DagBag

    (dags := tmp_path / "dags").mkdir()
    (dags / "newest_verify.py").write_text(DAG_FILE.lstrip())
    local = {"classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {"path": str(dags)}}
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([{"name": "verify"} | local]))
    bag = DagBag(dag_folder=str(dags))
    assert bag.import_errors == {}
    dag = bag.dags["newest_verify"]

    def run(conf: dict[str, Any] | None = None) -> str:
        return str(dag.test(run_conf=conf).state)

    return run


def test_it_fails_for_the_part_in_which_somebody_changed_a_row_and_tells_it_until_that_part_is_equal(
    place: Trial, ran: Callable[..., str], recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    store = store_at(place.root)
    DeltaTable(folder(store, "newest")).update({"id": "-1"}, predicate="k = 'k7'")
    states = [ran() for _ in range(PARTS)]
    assert sorted(states) == ["failed", *["success"] * (PARTS - 1)]
    said = capsys.readouterr()
    wrong = f"{states.index('failed') + 1}/{PARTS}"
    assert f"of 1 key of part {wrong} other rows are published than the query gives" in said.out + said.err
    assert "Table counts is not verified: its rows are of a batch" in said.out
    # Whatever the other parts are, it is told once, and not as ended.
    assert [title.partition(":")[0] for title in recorder.titles] == ["Coset, newest, verifications failed"]
    assert "other rows are published" in recorder.messages[0]["message"]
    ledger = Ledger(store, "newest")
    assert [str(each) for each in ledger.verifications("newest").differing] == [wrong]
    DeltaTable(folder(store, "newest")).update({"id": "7"}, predicate="k = 'k7'")
    assert ran({"sample": wrong}) == "success"
    assert recorder.titles[1:] == [recorder.titles[0].replace("failed", "works again")]
    assert IncidentLog(store, "newest", WatchedRuns.VERIFICATIONS).latest().open == ()
    assert str(ledger.verifications("newest").samples(0)) == f"verified to batch 0: {PARTS} of {PARTS} samples"


@pytest.mark.parametrize("parts", [0, -1, 1_000_000])
def test_parts_that_there_cannot_be_are_refused_when_the_file_is_parsed(
    airflow: Path, place: Trial, parts: int
) -> None:
    from coset.airflow import coset_verify_dag

    with pytest.raises(Refused, match=f"'next/{parts}' is no part of the keys"):
        coset_verify_dag(place.pipeline, parts=parts)
