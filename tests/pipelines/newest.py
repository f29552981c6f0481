"""The latest click of each key, from an identity on."""

import os

from coset import Pipeline

pipeline = Pipeline("newest", source=os.environ["DELAYS_SOURCE"])
clicks = pipeline.stream("clicks", key="k", partitions=4)
chosen = clicks.filter(f"id >= {os.environ.get('NEWEST_FROM', '0')}", name="chosen")
chosen.aggregate("count(*) AS n", name="counts").write("counts")
is_beside = os.environ.get("NEWEST_UPDATES") == "beside"
chosen.latest("seen", name="newest").write("newest", mode="upsert", updates="beside" if is_beside else "rewrite")
