"""A pipeline of small batches: rows that are appended, and running totals that are upserted."""

from __future__ import annotations

from partitioning.authoring.pipeline import Pipeline

PARTITIONS = 4

pipeline = Pipeline("small", source="s3://landing/topics")

views = pipeline.stream("views", key="member", partitions=PARTITIONS)
counted = views.aggregate("count(*) AS views", name="in_batch")
counted.write("by_batch")
counted.combine("sum(views)::BIGINT AS views", running=True, name="totals").write("totals", mode="upsert")
