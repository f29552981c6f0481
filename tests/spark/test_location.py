"""Where a task group ran is in its receipt."""

from __future__ import annotations

import pytest

from coset.batches.runners.local import Local
from demo.s3_server import S3Server
from partitioning.documents.receipts import locations
from partitioning.errors import Refused
from tests.small import SmallBatch, small_batch


def run(batch: SmallBatch, group: int) -> str:
    with Local(processes=1) as runner:
        return runner.group(batch.ref, group)


def test_where_a_group_ran_is_read_back(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_LOCATION", "rack-7")
    batch = small_batch()
    assert run(batch, 1).endswith("attempt 0, at rack-7")
    ran = batch.ledger.receipts(0, 0, range(2)).values()
    known = locations(batch.ledger.store, batch.plan, ran)
    assert known is not None
    assert (known.groups, known.tasks) == ({1: "rack-7"}, dict.fromkeys(batch.plan.groups[1].tasks, "rack-7"))


def test_what_is_no_location_is_refused_before_anything_runs(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_LOCATION", "rack\n7")
    batch = small_batch()
    with pytest.raises(Refused, match="is no location"):
        run(batch, 0)
    assert batch.ledger.receipt(0, 0, 0) is None
