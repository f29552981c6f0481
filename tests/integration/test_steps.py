"""The steps of a batch as the DAG and the command line share them; task groups run here without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from coset.batches import publication, steps
from coset.batches.ref import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.errors import Refused
from tests.landed import land_table
from tests.logs import log_of
from tests.running import next_batch, run_groups

KEYS = [f"N{number}" for number in range(40)]


def landed(store: Store, *expect: dict[str, object]) -> Pipeline:
    """Forty keys in four partitions, one of them landed twice, and records without a key."""
    source = f"{store.root}/topics"
    table = pa.table({"tailnum": pa.array([*KEYS, "N7", None, None], pa.string()), "delay": list(range(43))})
    land_table(table, "flights", source, key="tailnum", partitions=4)
    pipeline = Pipeline("delays", source=source)
    flights = pipeline.stream("flights", key="tailnum", partitions=4, null_keys="drop")
    flights.aggregate("count(*) AS flights, max(delay) AS delay", name="tails").write("delays", expect=expect)
    return pipeline


def planned(store: Store, pipeline: Pipeline, groups: int = 2) -> BatchRef:
    return next_batch(pipeline, store.root, Settings(groups=groups))


def test_an_audit_counts_records_and_not_what_steps_kept(store: Store, tmp_path: Path) -> None:
    pipeline = Pipeline("seen", source=f"{store.root}/topics")
    flights = pipeline.stream("flights", key="tailnum", partitions=4)
    flights.latest("delay", name="newest").rekey("to").aggregate("count(*) AS n").write("delays", mode="upsert")
    for _ in range(2):
        table = pa.table({"tailnum": KEYS, "delay": list(range(40)), "to": ["FRA", "LIS"] * 20})
        land_table(table, "flights", f"{store.root}/topics", key="tailnum", partitions=4)
        ref = planned(store, pipeline)
        run_groups(ref)
        assert "is audited: 40 records planned, 40 taken, 0 dropped" in steps.audit(ref)
        steps.check(ref, tmp_path)
        steps.publish(ref)


def test_a_batch_is_published_and_every_step_may_be_run_again(store: Store, tmp_path: Path) -> None:
    pipeline = landed(store)
    ref = planned(store, pipeline)
    run_groups(ref)
    assert "43 records planned, 41 taken, 2 dropped" in steps.audit(ref)
    assert steps.check(ref, tmp_path).startswith("Batch 0 is decided: publish, attempt 0")
    assert steps.publish(ref) == "Batch 0 is published: delays at version 1"

    assert steps.audit(ref) == steps.check(ref, tmp_path)
    assert steps.publish(ref) == "Batch 0 is published: delays at version 1"
    assert steps.plan(pipeline, store.root) == (
        None,
        "Nothing to do: no new records since batch 0 (all 43 landed records are committed)",
    )
    rows = log_of(store, "delays").to_pyarrow_table()
    assert {row["tailnum"]: (row["flights"], row["delay"]) for row in rows.to_pylist()} == {
        key: (2, 40) if key == "N7" else (1, number) for number, key in enumerate(KEYS)
    }


def test_a_plan_taken_up_again_is_the_same_batch(store: Store) -> None:
    pipeline = landed(store)
    assert planned(store, pipeline) == planned(store, pipeline, groups=4)


def test_an_unknown_scheme_is_refused_before_anything_is_looked_at() -> None:
    pipeline = Pipeline("delays", source="s3://nowhere")
    with pytest.raises(Refused, match="unknown scheme 'sideways'"):
        steps.plan(pipeline, "s3://nowhere", Settings.parse(scheme="sideways"))


def test_a_failed_check_publishes_nothing_and_the_next_run_makes_another_attempt(store: Store, tmp_path: Path) -> None:
    kwargs = {"column": "flights", "max_value": 1}
    ref = planned(store, landed(store, {"type": "expect_column_values_to_be_between", "kwargs": kwargs}))
    ledger, _ = ref.load()
    run_groups(ref)
    steps.audit(ref)
    with pytest.raises(Refused, match="'N7'") as refusal:
        steps.check(ref, tmp_path)
    assert len(refusal.value.findings) == 1
    assert (ledger.verdict(0), ledger.attempt(0)) == (None, 1)
    stored = store.get("delays/audits/0/attempt-0/judgement.json")
    assert stored is not None
    assert json.loads(stored)["success"] is False
    with pytest.raises(Refused, match="not decided"):
        steps.publish(ref)
    assert publication.transaction_version(store, "delays", "delays") is None
    shown = steps.report(ref, tmp_path).splitlines()
    failed = next(number for number, line in enumerate(shown) if line.startswith("- Attempt 0 failed: "))
    offender, step = shown[failed + 1], shown[failed + 2]
    assert offender.startswith("  - ")
    assert "at offset" in offender
    assert step.startswith("  - Next: `coset ")
    page = (tmp_path / "delays/batch-0-attempt-0.html").read_text()
    assert "<h3>Column flights</h3>" in page
    assert "&lt;h3" not in page

    with pytest.raises(Refused, match="has no receipt"):
        steps.audit(ref)
    run_groups(ref)
    assert "attempt 1" in steps.audit(ref)


def test_a_check_that_runs_before_its_audit_is_refused_and_leaves_the_attempt_open(
    store: Store, tmp_path: Path
) -> None:
    ref = planned(store, landed(store))
    run_groups(ref)
    with pytest.raises(Refused, match="audit table is missing"):
        steps.check(ref, tmp_path)
    assert ref.load()[0].attempt(0) == 0


def test_the_report_says_what_was_read_decided_and_published(store: Store, tmp_path: Path) -> None:
    ref = planned(store, landed(store))
    assert "The batch is not decided yet" in steps.report(ref, tmp_path)
    run_groups(ref)
    steps.audit(ref)
    steps.check(ref, tmp_path)
    steps.publish(ref, tmp_path)
    text = steps.report(ref, tmp_path)
    (row,) = [line for line in text.splitlines() if line.startswith("| flights | flights")]
    assert [cell.strip() for cell in row.split("|")[3:-1]] == ["43", "41", "2", "0", "40"]
    assert "Batch 0 is published: delays at version 1" in text
    assert ref.plan_uri in text
    docs = tmp_path / "delays" / "index.html"
    assert docs.is_file()
    assert str(docs) in text


def test_an_abandoned_batch_is_reported_and_not_published(store: Store, tmp_path: Path) -> None:
    ref = planned(store, landed(store))
    ledger, _ = ref.load()
    publication.abandon(ledger, "landed twice")
    assert steps.check(ref, tmp_path).startswith("Batch 0 is decided: abandon, attempt 0 (landed twice), 20")
    with pytest.raises(Refused, match="abandon"):
        steps.publish(ref)
    assert "Nothing is published yet" in steps.report(ref, tmp_path)


def test_a_reference_to_another_plan_is_refused(store: Store) -> None:
    ref = planned(store, landed(store))
    for wrong, said in {
        BatchRef(ref.plan_uri, "sha256:0"): "expected was sha256:0",
        BatchRef(ref.plan_uri.replace("0.json", "1.json"), ref.digest): "no such plan",
        BatchRef(ref.plan_uri.replace("0.json", "zero.json"), ref.digest): "no plan's URI",
        BatchRef(f"{store.root}/delays/verdicts/0.json", ref.digest): "no plan's URI",
    }.items():
        with pytest.raises(Refused, match=said):
            wrong.load()


def test_a_group_is_labelled_by_its_tasks_and_bytes_within_what_airflow_keeps(store: Store) -> None:
    ref = next_batch(landed(store), store.root, Settings.parse(groups=1, scheme="tasks(80)"))
    (text,) = steps.group_labels(ref).values()
    assert text.startswith("group 0: flights/0 1 2 3 ")
    assert text.endswith(" … (0.1 MB)")
    assert len(text) <= 250
