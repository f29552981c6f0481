"""Flights by the day and the airport from which they left, moved twice; where they lie is said by the environment."""

import os

from coset import Pipeline

pipeline = Pipeline("flights_by_route", source=os.environ["FLIGHTS_SOURCE"])
flights = pipeline.stream("flights", key="tailnum", partitions=12, null_keys="own task")
by_origin = flights.rekey("origin", name="by_origin").aggregate("count(*) AS flights", by="dest", name="routes")
by_origin.rekey("dest", name="by_dest").aggregate(
    "sum(flights)::BIGINT AS flights, count(*) AS origins", name="airports"
).write("airports")
