"""What each customer has spent, of an Iceberg table."""

import os

from coset import Pipeline
from partitioning.model.placement import KeyFormat

pipeline = Pipeline("spent", source="iceberg://lake.shop")
key_format = KeyFormat(os.environ.get("SPENT_KEYS", "string"))
partitions = int(os.environ.get("SPENT_BUCKETS", "8"))
orders = pipeline.stream("orders", key="customer", key_format=key_format, partitions=partitions)
each = orders.aggregate("count(*) AS n, sum(amount)::BIGINT AS spent", name="each")
totals = each.combine("sum(n)::BIGINT AS n, sum(spent)::BIGINT AS spent", running=True, name="totals")
totals.write("spent", mode="upsert")
