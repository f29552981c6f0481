"""A small pipeline for tests that reads a topic from its broker: the views of each tail."""

import os

from coset import Pipeline

pipeline = Pipeline("views", source=os.environ["VIEWS_SOURCE"])
views = pipeline.stream("views", key="tail", partitions=2, format="json", columns={"n": "BIGINT"})
views.aggregate("count(*) AS views, sum(n)::BIGINT AS n").write("views")
