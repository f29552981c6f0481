"""Clicks counted over all batches, and the latest of each key."""

import os

from coset import Pipeline

pipeline = Pipeline("kept", source=os.environ["DELAYS_SOURCE"])
clicks = pipeline.stream("clicks", key="k", partitions=4, null_keys="own task")
counted = clicks.aggregate("count(*) AS n, max(id) AS last")
counted.combine("sum(n)::BIGINT AS n, max(last) AS last", running=True, name="totals").to_stream().write("totals")
clicks.latest("seen", name="newest").to_stream().write("newest")
