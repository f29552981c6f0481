"""Each click, without those of an identity that ends in a digit, and how many there are of each key."""

import os

from coset import Pipeline

pipeline = Pipeline("soaked", source=f"{os.environ['COSET_STORE']}/topics")
clicks = pipeline.stream("clicks", key="k", partitions=4)
without = os.environ.get("SOAKED_WITHOUT", "-1")
clicks.filter(f"id % 10 <> {without}", name="chosen").select("id").write("clicked", lineage=True)
counts = clicks.aggregate("count(*) AS n", name="counts")
counts.combine("sum(n)::BIGINT AS n", running=True, name="totals").write("totals", mode="upsert")
