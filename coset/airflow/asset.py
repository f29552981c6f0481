"""The asset of a pipeline in Airflow. It has an event for each published batch, on which other DAGs can be scheduled.

An event is only a signal: a DAG that it starts reads the tables or the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from partitioning.documents.ledger import Ledger
from partitioning.model.plan import Plan
from partitioning.model.verdict import Commit, Decision, Verdict
from partitioning.texts import environment

if TYPE_CHECKING:
    from airflow.sdk import Context

    from coset.batches.ref import BatchRef
    from partitioning.authoring.pipeline import Pipeline

# The greatest size of an event as JSON. Each run that it starts carries it.
MOST_BYTES = 2000
# How far the clocks of a worker and of Airflow's database may differ.
_CLOCKS = timedelta(days=1)


def published(pipeline: Pipeline | str) -> Asset:
    """The asset that has an event for each published batch of a pipeline: `schedule=[published("tail_activity")]`."""
    name = pipeline if isinstance(pipeline, str) else pipeline.name
    return Asset(name=f"coset.{name}", uri=f"x-coset://{name}")


def ends_of_publishing(pipeline: Pipeline) -> dict[str, list[Any]]:
    """The inlets and outlets of the task that publishes. The inlet shows existing events, so that none is added twice.
    The asset itself as an outlet would add one at each success."""
    asset = published(pipeline)
    return {"inlets": [asset], "outlets": [AssetAlias(asset.name)]}


def announce(batch: BatchRef, context: Context) -> None:
    """Add the event of a batch that is published, if it has none yet. Airflow keeps it if the task succeeds."""
    ledger, plan = batch.load()
    verdict, commit = ledger.verdict(plan.batch), ledger.commit(plan.batch)
    if verdict is None or commit is None or verdict.decision is not Decision.PUBLISH:
        return
    asset, told = published(plan.pipeline), event(ledger, plan, verdict, commit)
    before = context["inlet_events"][asset]
    if verdict.taken is not None:
        decided = datetime.fromtimestamp(verdict.taken.ended / 1000, UTC)
        before = before.after((decided - _CLOCKS).isoformat())
    if not _among(before, told):
        context["outlet_events"][AssetAlias(asset.name)].add(asset, extra=told)


def event(ledger: Ledger, plan: Plan, verdict: Verdict, commit: Commit) -> dict[str, Any]:
    """The content of a batch's event, in at most `MOST_BYTES`. If there are many tables, the last are left out and
    counted."""
    told = {
        "batch": plan.batch,
        "plan": commit.plan,
        "plan_uri": ledger.uri(ledger.key("plans", plan.batch)),
        "verdict": commit.verdict,
        "attempt": verdict.attempt,
        "judged": str(verdict.why),
        "records": plan.records,
        **({"environment": name} if (name := environment()) else {}),
    }
    tables = {each.table: each.version for each in commit.tables}
    left_out = 0
    while len(json.dumps(said := told | {"tables": tables, "tables_left_out": left_out})) > MOST_BYTES and tables:
        tables.popitem()
        left_out += 1
    return said


def _among(events: Iterable[Any], told: dict[str, Any]) -> bool:
    """Whether there is an event of this batch: of the same plan in the same store."""
    identity = ("plan", "plan_uri")
    return any(all(each.extra.get(name) == told[name] for name in identity) for each in events)
