"""A pipeline that keeps running totals by key."""

from __future__ import annotations

from collections.abc import Callable

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from tests.histories import total


def totals(source: str, partitions: int, build: Callable[[Flow], Flow] = total) -> Pipeline:
    pipeline = Pipeline("kept", source=source)
    clicks = pipeline.stream("clicks", key="k", partitions=partitions, null_keys="own task")
    build(clicks).to_stream().write("totals")
    return pipeline
