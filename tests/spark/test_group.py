"""A task group as spark-submit runs it: receipts, reruns, and errors that reach whoever submitted."""

from __future__ import annotations

import importlib.metadata
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from batches.runners.spark_submit import environment, java_from_pypi, submit
from demo.s3_server import S3Server
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import S3Store
from partitioning.errors import Conflict, CosetError, Finding, OutcomeUnknown, Refused
from partitioning.model.plan import Plan
from partitioning.model.verdict import ABANDON, Verdict
from partitioning.planning.planner import plan_batch
from sources.landed import discover
from spark_jobs import errors
from spark_jobs.sql.check import check
from tests.landed import land_table

ROWS = 500


@dataclass(frozen=True)
class Batch:
    ledger: Ledger
    plan: Plan

    @property
    def uri(self) -> str:
        return self.ledger.uri(self.ledger.key("plans", self.plan.batch))

    def submit(self, group: int) -> str:
        return submit(self.uri, digest(self.plan), group, "local[2]")


def _batch(expression: str) -> Batch:
    root = f"s3://test/{uuid.uuid4().hex}"
    table = pa.table({"k": [f"key-{n % 50}" for n in range(ROWS)], "v": range(ROWS)})
    land_table(table, "views", f"{root}/topics", key="k", partitions=4)
    pipeline = Pipeline("sums", source=f"{root}/topics")
    pipeline.stream("views", key="k", partitions=4).aggregate(expression).write("sums")
    found = discover(pipeline.streams)
    plan = plan_batch(pipeline, found, check(pipeline, found))
    assert plan is not None
    ledger = Ledger(S3Store(root), "sums")
    return Batch(ledger, ledger.put_plan(plan))


@pytest.fixture(scope="module")
def good(s3: S3Server) -> Batch:
    return _batch("sum(v) AS v")


def test_each_group_leaves_the_receipt_of_its_tasks(good: Batch) -> None:
    said = [good.submit(group.group) for group in good.plan.groups]
    receipts = [good.ledger.receipt(0, 0, group.group) for group in good.plan.groups]
    assert [tuple(task.task for task in receipt.tasks) for receipt in receipts if receipt] == [
        group.tasks for group in good.plan.groups
    ]
    read = [
        partition.read for receipt in receipts if receipt for task in receipt.tasks for partition in task.partitions
    ]
    assert sum(read) == ROWS
    assert all("attempt 0" in sentence for sentence in said)


def test_a_group_that_has_run_is_not_run_again(good: Batch) -> None:
    good.submit(0)
    before = good.ledger.receipt(0, 0, 0)
    assert "nothing to do" in good.submit(0)
    assert good.ledger.receipt(0, 0, 0) == before


def test_after_a_failed_check_a_group_runs_as_a_new_attempt(s3: S3Server) -> None:
    batch = _batch("max(v) AS v")
    batch.ledger.close_attempt(0, 0, b"{}")
    batch.submit(1)
    receipt = batch.ledger.receipt(0, 1, 1)
    assert receipt is not None
    assert all("/attempt-1-" in file.path for task in receipt.tasks for file in task.files)


def test_a_batch_that_is_decided_is_not_run(s3: S3Server) -> None:
    batch = _batch("min(v) AS v")
    batch.ledger.put_verdict(Verdict(digest(batch.plan), 0, ABANDON, 0, "no longer wanted", ()))
    assert "decided (abandon)" in batch.submit(0)
    assert batch.ledger.receipt(0, 0, 0) is None


def test_findings_of_all_tasks_reach_who_submitted(s3: S3Server) -> None:
    batch = _batch("sum(CAST(k AS INTEGER)) AS v")
    with pytest.raises(Refused) as caught:
        batch.submit(0)
    assert len(caught.value.findings) == len(batch.plan.groups[0].tasks) == 2
    for finding, task in zip(caught.value.findings, batch.plan.groups[0].tasks, strict=True):
        assert "Could not convert string 'key-" in finding.what
        assert finding.where == f"table 'sums', task {task} of batch 0"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"plan_uri": "/plans/7.json.gz"}, "no such plan"),
        ({"digest": "sha256:0"}, "the plan is sha256:"),
        ({"group": 9}, "no task group 9"),
    ],
)
def test_a_plan_that_is_not_the_one_meant_is_refused(good: Batch, change: dict[str, object], what: str) -> None:
    meant: dict[str, object] = {"plan_uri": good.uri, "digest": digest(good.plan), "group": 0, "master": "local[1]"}
    if "plan_uri" in change:
        change = {"plan_uri": good.uri.replace("/plans/0.json.gz", str(change["plan_uri"]))}
    with pytest.raises(Refused, match=what):
        submit(**(meant | change))  # type: ignore[arg-type]


def test_spark_that_cannot_start_is_told_with_what_it_said(good: Batch) -> None:
    with pytest.raises(CosetError, match="exit code 1") as caught:
        submit(good.uri, digest(good.plan), 0, "nonsense")
    assert type(caught.value) is CosetError


@pytest.mark.parametrize("kind", [CosetError, Refused, Conflict, OutcomeUnknown])
def test_errors_keep_kind_and_findings_on_their_way(kind: type[CosetError]) -> None:
    error = kind(Finding("one\nand more", "here", "do this"), Finding("two", "there", "do that"))
    for back in (
        errors.from_json(errors.to_json(error)),
        errors.from_text(f"WARN something\n{errors.to_text(error)}\nand so on\n", kind.exit_code),
    ):
        assert type(back) is kind
        assert back.findings == error.findings
    assert errors.from_text("a stack trace", 1) is None


def test_a_machine_without_java_gets_the_one_from_pypi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment().items() >= java_from_pypi().items()
    monkeypatch.setenv("JAVA_HOME", "/the/users/own")
    assert "JAVA_HOME" not in environment()


def test_a_group_runs_on_the_java_from_pypi(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in java_from_pypi().items():
        monkeypatch.setenv(name, value)
    assert "tasks read" in _batch("count(*) AS n").submit(0)


def test_spark_and_its_client_are_of_one_version_and_the_jars_are_there() -> None:
    # pyspark-client unpacks over pyspark's own folder.
    assert pyspark.__version__ == importlib.metadata.version("pyspark-client") == importlib.metadata.version("pyspark")
    assert len(os.listdir(Path(pyspark.__file__).parent / "jars")) > 100
