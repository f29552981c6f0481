"""Where a task group ran is stored beside its receipt, and no batch fails over it."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from batches.runners.spark_submit import submit
from demo.s3_server import S3Server
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.locations import read
from partitioning.documents.store import S3Store
from partitioning.errors import Refused
from partitioning.model.plan import Plan
from partitioning.planning.planner import plan_batch
from sources.landed import discover
from spark_jobs.sql.check import check
from tests.landed import land_table


def planned(s3: S3Server) -> tuple[Ledger, Plan]:
    """A batch of four tasks in two groups, its plan stored."""
    root = f"s3://test/{uuid.uuid4().hex}"
    land_table(pa.table({"k": [f"key-{n % 50}" for n in range(200)]}), "views", f"{root}/topics", key="k", partitions=4)
    pipeline = Pipeline("counts", source=f"{root}/topics")
    pipeline.stream("views", key="k", partitions=4).aggregate("count(*) AS n").write("counts")
    found = discover(pipeline.streams)
    plan = plan_batch(pipeline, found, check(pipeline, found))
    assert plan is not None
    ledger = Ledger(S3Store(root), "counts")
    return ledger, ledger.put_plan(plan)


def run(ledger: Ledger, plan: Plan, group: int) -> str:
    return submit(ledger.uri(ledger.key("plans", plan.batch)), digest(plan), group, "local[1]")


def test_where_a_group_ran_is_read_back(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_LOCATION", "rack-7")
    ledger, plan = planned(s3)
    assert run(ledger, plan, 1).endswith("attempt 0, at rack-7")
    known = read(ledger.store, plan)
    assert known is not None
    assert (known.groups, known.tasks) == ({1: "rack-7"}, dict.fromkeys(plan.groups[1].tasks, "rack-7"))


def test_a_location_that_cannot_be_stored_does_not_fail_the_group(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_LOCATION", "rack-7")
    ledger, plan = planned(s3)
    ledger.store.put("counts/locality/0/group-0.json", b"something else")
    assert "; that it ran at rack-7 could not be stored: the document is no JSON" in run(ledger, plan, 0)
    assert ledger.receipt(plan.batch, 0, 0) is not None


def test_what_is_no_location_is_refused_before_anything_runs(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_LOCATION", "rack\n7")
    ledger, plan = planned(s3)
    with pytest.raises(Refused, match="is no location"):
        run(ledger, plan, 0)
    assert ledger.receipt(plan.batch, 0, 0) is None
