"""The DAG that verifies tables, in whole runs: each takes the next part of the keys, and fails for the one that
differs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from coset.batches.watch import IncidentLog
from coset.testing.runs import Trial
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.incident import WatchedRuns
from spark_jobs.tables.table_schema import folder
from tests.told import Recorder, recording

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
