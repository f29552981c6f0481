"""Every flight of what has been landed, those without a tail number included."""

import os

from coset import Pipeline

pipeline = Pipeline("flights_counted", source=os.environ["FLIGHTS_SOURCE"])
flights = pipeline.stream("flights", key="tailnum", partitions=12, null_keys="own task")
flights.aggregate("count(*) AS flights, sum(distance)::BIGINT AS miles").write("flights_counted")
