"""A small pipeline for tests: the delays of flights, by aircraft, a minute too much."""

import os

from coset import Pipeline

pipeline = Pipeline("delays", source=os.environ["DELAYS_SOURCE"])
flights = pipeline.stream("flights", key="tailnum", partitions=4)
planes = pipeline.table("planes", key="tailnum", partitions=2)
totals = flights.aggregate("(sum(delay) + 1)::BIGINT AS delay", name="totals")
totals.join(planes, "totals.delay, planes.seats", how="left", name="delays").write("delays")
