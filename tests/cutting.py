"""Small pipelines whose records must move, and where the planner has them do so."""

from __future__ import annotations

from collections.abc import Mapping

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.model.graph import Graph
from partitioning.model.statistics import Statistics
from partitioning.planning.exchanges.cuts import Cut, cuts

COUNT = "count(*) AS n"


def stream(pipeline: Pipeline, name: str, **more: object) -> Flow:
    return pipeline.stream(name, key="k", partitions=4, **more)  # type: ignore[arg-type]


def rekeyed(flow: Flow, name: str, **more: object) -> Flow:
    """The flow with other keys in the same column, so that it can be merged."""
    return flow.rekey("j", sql="v", name=f"{name}.j").rekey("k", name=name, **more)  # type: ignore[arg-type]


def counted(flow: Flow, name: str) -> None:
    flow.aggregate(COUNT, name=name).write(name)


def exchanges(pipeline: Pipeline, records: Mapping[str, int] | None = None) -> tuple[Graph, tuple[Cut, ...]]:
    return cuts(pipeline.graph, Statistics(0, records) if records else None)


def sources(pipeline: Pipeline, records: Mapping[str, int] | None = None) -> list[str]:
    return [cut.source for cut in exchanges(pipeline, records)[1]]


def merged(pipeline: Pipeline) -> Flow:
    """The merge of KAFKA-7294: a as it is, b with other keys."""
    return stream(pipeline, "a").merge(rekeyed(stream(pipeline, "b"), "kb"), name="m")
