"""A pipeline whose tasks take very long, for tests that do not let them."""

import os

from coset import Pipeline

pipeline = Pipeline("slow", source=os.environ["SLOW_SOURCE"])
views = pipeline.stream("views", key="k", partitions=4)
views.aggregate("sum(levenshtein(repeat(k, 2000), repeat(k, 2000 + v % 3))) AS work").write("slow")
