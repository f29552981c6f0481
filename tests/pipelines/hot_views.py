"""A pipeline for tests whose stream has a hot key: the views of each key, counted in parts."""

import os

from coset import Pipeline
from tests.hot import PARTITIONS, counted

pipeline = Pipeline("hot_views", source=os.environ["VIEWS_SOURCE"])
counted(pipeline.stream("views", key="k", partitions=PARTITIONS)).to_stream().write("hot_views")
