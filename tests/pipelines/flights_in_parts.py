"""Flights by aircraft, counted in two steps: in one wave where a partition is one task's, in two where it is dealt."""

import os

from coset import Pipeline

pipeline = Pipeline("flights_in_parts", source=os.environ["FLIGHTS_SOURCE"])
flights = pipeline.stream("flights", key="tailnum", partitions=12, null_keys="drop")
parts = flights.partial("count(*) AS flights", by="tailnum", name="parts")
parts.combine("sum(flights)::BIGINT AS flights", name="counted").write("flights_in_parts")
