"""Distinct records of before 0.3.0, when of several expressions the last alone was the identity, and each other one a
column: what is offered is done."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.testing.runs import Trial
from partitioning.authoring import timed_steps
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from tests.asked_of_duckdb import is_its_query
from tests.backfilled import run_again

SELECTS = {"all": "", "some": "a, b", "all, kept": "a, b, t, NULL::BIGINT AS a_1"}


def pipeline(select: str = "", migrate: str = "") -> Pipeline:
    made = Pipeline("shop", source="s3://landing/topics")
    orders = made.stream("orders", key="k", partitions=2)
    flow = orders.distinct("a, b", time="t", within=timedelta(hours=1), name="once")
    (flow.select(select, name="chosen") if select else flow).write("once")
    flow.aggregate("count(*) AS n", name="parts").combine("sum(n)::BIGINT AS n", running=True, name="totals").write(
        "totals", mode="upsert"
    )
    if migrate:
        exec(migrate, {"pipeline": made})
    return made


def land(place: Trial, *values: tuple[int, int, int]) -> None:
    of = [{"k": "k", "a": a, "b": b, "t": datetime.fromisoformat(f"2026-11-01 00:{at:02}:00")} for a, b, at in values]
    place.land({"orders": of})


@pytest.mark.parametrize("way", ["migrate", "backfill"])
@pytest.mark.parametrize("shown", SELECTS)
def test_what_is_offered_is_done(shown: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = "" if shown == "all, kept" else SELECTS[shown]
    with monkeypatch.context() as older:
        older.setattr(timed_steps, "list_items", lambda text: [text])
        place = Trial(pipeline(before), tmp_path)
    land(place, (1, 1, 0), (2, 2, 1), (1, 3, 2))
    place.run()
    land(place, (4, 4, 3), (1, 1, 4))
    place.run()
    land(place, (5, 1, 5), (1, 3, 6))
    place.go_on_with(pipeline(SELECTS[shown]))
    with pytest.raises(Refused) as refused:
        place.run()
    if shown == "all":
        assert 'keep it, as `NULL::BIGINT AS "a_1"`' in str(refused.value)
        return
    line = """pipeline.changed("once", migrate={"@identity": '(a, "@identity")'})"""
    assert line in str(refused.value)
    if way == "migrate":
        place.go_on_with(pipeline(SELECTS[shown], line))
        place.run(Settings(go_on=("totals", "once")))
        # Nothing of the third batch is missing or there twice.
        assert [row["n"] for row in place.tables()["totals"]] == [5]
        return
    store = store_at(place.root)
    backfill = run_again(place.pipeline, store, Asked(0, None, DEFAULTS), tmp_path / "docs")
    actions.swap(store, backfill, actions.review(store, backfill).digest, "")
    place.run()
    assert is_its_query(place, "once")
    assert is_its_query(place, "totals")
