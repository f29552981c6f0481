"""Who is told when a DAG fails, and when that has ended: by callbacks that Airflow calls in real runs of DAGs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from partitioning.documents.stores import store_at
from tests import forked
from tests.clicked import landed
from tests.told import SECRET, Recorder, recording

PIPELINE = """
import os
from coset import Pipeline
pipeline = Pipeline("clicked", source=os.environ["CLICKS_SOURCE"], owner="ana@example.org")
clicks = pipeline.stream("clicks", key="k", partitions=2)
clicks.aggregate("count(*) AS n", name="counts").write("counts")
"""
WRONG = "topics/clicks/partition=7/clicks+7+0000000000.parquet"
FAILED, ENDED = "Coset, clicked failed", "Coset, clicked works again"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in a folder, with a published batch of the pipeline."""
    root = f"file://{tmp_path}/store"
    for name, value in {"COSET_STORE": root, "CLICKS_SOURCE": f"{root}/topics"}.items():
        monkeypatch.setenv(name, value)
    landed(store_at(root), 0)
    published(tmp_path)
    return root


def published(folder: Path) -> None:
    """Run a batch on the command line."""
    (folder / "clicked.py").write_text(PIPELINE)
    done = forked.coset("run", str(folder / "clicked.py"), "--runner", "local", "--docs", str(folder / "docs"))
    assert done.returncode == 0, done.stderr


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as recorder:
        yield recorder


@pytest.fixture
def dag(airflow: Path, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Gives the DAG of the pipeline, parsed from a file."""
    from airflow.dag_processing.dagbag import DagBag

    def parse(arguments: str = "", before: str = "", factory: str = "coset_dag", name: str = "clicked") -> Any:
        folder = tmp_path / "dags"
        folder.mkdir(exist_ok=True)
        (folder / "clicked_dag.py").write_text(
            f'"""Airflow: a DAG of a pipeline of the tests."""\n\n{before}\n'
            f"from coset.airflow import CosetNotifier, {factory}\n{PIPELINE}\n"
            f"dag = {factory}(pipeline{arguments})\n"
        )
        local = {"classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {"path": str(folder)}}
        monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([{"name": "told"} | local]))
        bag = DagBag(dag_folder=str(folder))
        assert bag.import_errors == {}
        return bag.dags[name]

    return parse


def kinds(recorder: Recorder) -> list[str]:
    return [title.partition(":")[0] for title in recorder.titles]


def test_a_dag_that_fails_twice_and_then_finds_nothing_to_do_is_told_by_two_messages(
    dag: Callable[..., Any],
    root: str,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COSET_NOTIFY", recorder.address)
    parsed, store = dag(), store_at(root)
    assert parsed.test().state == "success"
    assert recorder.messages == []
    store.put(WRONG, b"PAR1")
    for _ in range(2):
        assert parsed.test().state == "failed"
    assert kinds(recorder) == [FAILED]
    said = recorder.messages[0]["message"]
    for part in ("partition=7", "  next:  ", "Owner: ana@example.org", "Since: "):
        assert part in said
    store.delete(WRONG)
    assert parsed.test().state == "success"
    assert kinds(recorder) == [FAILED, ENDED]
    assert "2 failures" in recorder.messages[1]["message"]
    shown = capsys.readouterr()
    assert "Incident 0 is open: told by 1 channel of 1" in shown.out
    assert SECRET not in shown.out + shown.err
    assert not any(SECRET.encode() in (store.get(entry.key) or b"") for entry in store.list("clicked/"))


def test_an_incident_ends_when_a_batch_is_published_and_not_before(
    dag: Callable[..., Any], recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_NOTIFY", recorder.address)
    parsed = dag()

    def called(task: str, of: str) -> None:
        (callback,) = getattr(parsed.get_task(task), of)
        callback.notify({"ti": SimpleNamespace(task_id=task)})

    called("check", "on_failure_callback")
    for task in ("plan", "check"):
        called(task, "on_success_callback")
        assert kinds(recorder) == [FAILED]
    called("publish", "on_success_callback")
    assert kinds(recorder) == [FAILED, ENDED]


@pytest.mark.long
def test_airflows_own_notifiers_and_a_connection_hear_each_message_once(
    dag: Callable[..., Any], root: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    heard, called = tmp_path / "heard", tmp_path / "called"
    monkeypatch.setenv("AIRFLOW_CONN_ONCALL", json.dumps({"conn_type": "http", "password": recorder.address}))
    before = (
        "from pathlib import Path\n"
        "from airflow.sdk import BaseNotifier\n\n"
        "def note(path, line):\n"
        "    with Path(path).open('a') as file:\n"
        "        file.write(line + '\\n')\n\n"
        "class Pager(BaseNotifier):\n"
        "    template_fields = ('subject',)\n\n"
        "    def __init__(self, subject):\n"
        "        super().__init__()\n"
        "        self.subject = subject\n\n"
        "    def notify(self, context):\n"
        f"        note({str(heard)!r}, self.subject)\n\n"
        "def called(context):\n"
        f"    note({str(called)!r}, 'called')\n\n"
    )
    subject = "{{ ti.task_id }} | {{ coset.title }}"
    arguments = (
        f", notify=CosetNotifier(conn_id='oncall', also=[Pager({subject!r})]),"
        " default_args={'on_failure_callback': called}"
    )
    parsed, store = dag(arguments, before), store_at(root)
    store.put(WRONG, b"PAR1")
    for _ in range(2):
        parsed.test()
    store.delete(WRONG)
    parsed.test()
    lines = heard.read_text().splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"plan | {FAILED}", f"plan | {ENDED}"]
    assert kinds(recorder) == [FAILED, ENDED]
    assert called.read_text() == "called\n" * 2


def test_a_connection_that_there_is_not_changes_nothing_of_the_run(
    dag: Callable[..., Any], root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store_at(root).put(WRONG, b"PAR1")
    assert dag(", notify=CosetNotifier(conn_id='nowhere')").test().state == "failed"
    assert (
        "Incidents of clicked: nobody could be told: the connection nowhere cannot be read" in capsys.readouterr().out
    )


def test_without_a_notifier_no_task_has_a_callback(dag: Callable[..., Any]) -> None:
    assert all(not task.on_failure_callback for task in dag(", notify=None").tasks)
    assert all(task.on_failure_callback for task in dag().tasks)


@pytest.mark.long
def test_a_backfill_that_fails_has_incidents_of_its_own(
    dag: Callable[..., Any], root: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_NOTIFY", recorder.address)
    backfill = dag(factory="coset_backfill_dag", name="clicked_backfill")
    conf = {"from": 0, "to": 7, "why": "to see", "scheme": None, "groups": 1, "backfill": None, "repaired": False}
    for _ in range(2):
        assert backfill.test(run_conf=conf).state == "failed"
    assert kinds(recorder) == ["Coset, clicked, backfills failed"]
    store = store_at(root)
    assert list(store.list("clicked/incidents/0")) == []
    assert [task.task_id for task in backfill.tasks if _ends(task)] == ["swap"]
    assert [task.task_id for task in dag().tasks if _ends(task)] == ["publish"]


def _ends(task: Any) -> bool:
    return any(task.task_id in callback.tasks for callback in task.on_success_callback)


DEADLINE = """
from datetime import timedelta
from airflow.sdk import DeadlineAlert, DeadlineReference, SyncCallback
from coset.airflow import late

deadline = DeadlineAlert(
    reference=DeadlineReference.DAGRUN_QUEUED_AT,
    interval=timedelta(hours=2),
    callback=SyncCallback(late, {"pipeline": "clicked", "owner": "ana@example.org"}),
)
"""


def test_a_deadline_that_is_missed_is_told_once_as_a_warning_that_the_next_batch_ends(
    dag: Callable[..., Any], root: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import structlog
    from airflow.sdk.execution_time.callback_supervisor import execute_callback
    from airflow.serialization.serialized_objects import DagSerialization

    parsed = dag(", deadline=deadline", DEADLINE)
    (alert,) = parsed.deadline if isinstance(parsed.deadline, list) else [parsed.deadline]
    assert DagSerialization.serialize_dag(parsed)["deadline"]
    monkeypatch.setenv("COSET_NOTIFY", recorder.address)
    # What the scheduler gives to the callback of a run.
    context = {"dag_run": {"dag_run_id": "scheduled__1", "dag_id": "clicked"}, "deadline": {"id": "1"}}
    for _ in range(2):
        done = execute_callback(
            alert.callback.path, {**alert.callback.kwargs, "context": context}, Path(), None, structlog.get_logger()
        )
        assert done == (True, None)
    assert recorder.titles == ["Coset, clicked warning: nothing is published by the deadline"]
    assert "  where: run scheduled__1 of the DAG clicked\n" in recorder.messages[0]["message"]
    assert recorder.messages[0]["type"] == "warning"
    landed(store_at(root), 1)
    published(tmp_path)
    assert kinds(recorder)[1:] == [ENDED]
    assert "It has ended: batch 1 is published." in recorder.messages[1]["message"]


@pytest.mark.long
def test_a_batch_that_spark_runs_and_airflow_publishes_ends_what_was_wrong(
    parsed: Callable[..., Any], recorder: Recorder, store_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_NOTIFY", recorder.address)
    assert parsed("flights_counted").test(run_conf={"scheme": "sideways"}).state == "failed"
    assert parsed("flights_counted").test().state == "success"
    assert [title.partition(":")[0] for title in recorder.titles] == [
        "Coset, flights_counted failed",
        "Coset, flights_counted works again",
    ]
    said = recorder.messages[1]["message"]
    assert said.startswith("It has ended: batch 0 is published.\n")
    assert f"Page: {store_root}/flights_counted/docs/batch-0-attempt-0.html" in said
    assert SECRET not in said
