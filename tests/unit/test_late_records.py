"""Windows that set late records aside are planned only where somebody knows whose records they are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.model.stage_inputs import ExchangeInput
from tests.plans import arrived, plan_of

HOUR = timedelta(hours=1)
FOUND = [arrived("clicks", [10] * 4), arrived("views", [10] * 4)]


def _counted(late: str, hash_of_views: str) -> Pipeline:
    pipeline = Pipeline("late", source="s3://landing/topics")
    said: dict[str, Any] = {"key": "k", "partitions": 4, "time": "seen", "bad_records": "set aside"}
    clicks, views = pipeline.stream("clicks", **said), pipeline.stream("views", hash=hash_of_views, **said)
    both = clicks.select("seen").merge(views.select("seen"), name="both")
    both.windows("count(*) AS n", time="seen", every=HOUR, late=late, name="counted").write("counted")
    return pipeline


def test_windows_behind_an_exchange_that_set_late_records_aside_are_refused_until_they_drop_them() -> None:
    with pytest.raises(Refused) as refused:
        plan_of(_counted("set aside", "java"), FOUND)
    (finding,) = refused.value.findings
    assert finding.where == "step 'counted.counted'"
    assert "records of 'views" in finding.what
    assert 'use late="drop" or "correct"' in finding.then
    plan = plan_of(_counted("drop", "java"), FOUND)
    assert any(isinstance(read, ExchangeInput) for stage in plan.stages for read in stage.inputs)


def test_windows_of_flows_that_lie_alike_set_late_records_aside() -> None:
    plan = plan_of(_counted("set aside", "murmur2"), FOUND)
    assert not plan.exchanges
