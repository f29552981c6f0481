"""Views counted by page: what five tasks count is combined by two levels of unifiers before the last one."""

import os

from coset import Pipeline

pipeline = Pipeline("pages_in_levels", source=os.environ["VIEWS_SOURCE"])
parts = pipeline.stream("views", key="k", partitions=5).partial("count(*) AS n", by="page", name="parts")
parts.combine("sum(n)::BIGINT AS n", fan_in=2, name="pages").write("pages")
