"""How many flights each aircraft had that were late by so many minutes."""

from __future__ import annotations

from partitioning.authoring.pipeline import Pipeline


def late_flights(minutes: int) -> Pipeline:
    pipeline = Pipeline("late_flights", source="s3://landing/topics")
    flights = pipeline.stream("flights", key="tailnum", partitions=12, null_keys="drop")
    flights.filter(f"dep_delay > {minutes}", name="late").aggregate("count(*) AS n", name="counts").write("late")
    return pipeline
