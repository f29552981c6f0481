"""Coset's pipelines that answer the queries."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_never

from bench.workload import WITHIN_SECONDS, Query, Workload
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline

_COUNTED = "count(*) AS {}, sum(amount)::BIGINT AS {}"
_RECORDS = _COUNTED.format("records", "amount")
_SUMMED = "sum(records)::BIGINT AS records, sum(amount)::BIGINT AS amount"


def pipeline_for(workload: Workload, source: str) -> Pipeline:
    """The pipeline that answers the query."""
    bench = Pipeline("bench", source=source)
    # Each stream has to lead to a table.
    topics = workload.topics[:1] if workload.query is Query.HOT else workload.topics
    flows = [bench.stream(topic.name, key=topic.key, partitions=topic.partitions) for topic in topics]
    answers = _asked(workload.query, flows[0], flows[-1], workload.party == "coset-moving")
    if workload.query.changes:
        answers.write("answers", mode="upsert")
    else:
        answers.to_stream().write("answers")
    return bench


def _asked(query: Query, left: Flow, right: Flow, moving_all: bool) -> Flow:
    match query:
        case Query.COUNTED | Query.ELASTIC | Query.BY_RECORDS:
            viewed = left.aggregate(_COUNTED.format("views", "viewed"))
            clicked = right.aggregate(_COUNTED.format("clicks", "clicked"))
            return viewed.join(clicked, "views.views, views.viewed, clicks.clicks, clicks.clicked", how="full")
        case Query.IN_TIME:
            columns, within = "views.amount + clicks.amount AS amount", timedelta(seconds=WITHIN_SECONDS)
            pairs = left.join_within(right, columns, times=("time", "time"), within=within, name="met")
            return pairs.aggregate("count(*) AS pairs, sum(amount)::BIGINT AS paired")
        case Query.MERGED:
            moved = right.rekey("key", name="by_key").select("amount", name="right")
            both = left.select("amount", name="left").merge(moved, name="both")
            return (both.repartition(8, name="moved") if moving_all else both).aggregate(_RECORDS)
        case Query.HOT | Query.BY_SHARE:
            return left.partial(_RECORDS, by="key", name="parts").combine(_SUMMED, name="totals")
        case Query.HOT_JOINED:
            return left.join(right, "events.event, events.amount * profiles.rate AS worth")
        case Query.BATCHES | Query.RESCALED:
            return left.aggregate(_RECORDS, name="in_batch").combine(_SUMMED, running=True, name="totals")
        case Query.CHANGING:
            teams = left.latest("seen", name="newest").rekey("team", name="by_team")
            return teams.aggregate("count(*) AS members, sum(amount::BIGINT)::BIGINT AS amount", name="teams")
        case Query.CHANGING_JOINED:
            totals = right.aggregate(_RECORDS, name="in_batch").combine(_SUMMED, running=True, name="totals")
            newest = left.latest("seen", name="newest")
            joined = newest.join(totals, "newest.team, newest.amount * totals.amount AS worth", name="joined")
            return joined.rekey("team", name="by_team").aggregate(
                "count(*) AS members, sum(worth::BIGINT)::BIGINT AS worth", name="teams"
            )
        case _:
            assert_never(query)
