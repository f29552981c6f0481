"""Small pipelines of one key, cut into stages, with the exchanges that a test gives."""

from __future__ import annotations

from typing import Any

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.model.placement import MURMUR2, HashName, KeyFormat
from partitioning.model.plan import Stage
from partitioning.model.reasons import Unplaced
from partitioning.planning.exchanges.cuts import Cut
from partitioning.planning.stages.stages import Stages, cut
from tests.plans import COLUMNS


def stages(pipeline: Pipeline, scheme: str | None = None) -> tuple[Stage, ...]:
    return made(pipeline, settings=Settings.parse(scheme=scheme)).stages


def made(pipeline: Pipeline, *cuts: Cut, settings: Settings = DEFAULTS) -> Stages:
    results = {write.table: COLUMNS for write in pipeline.writes}
    return cut(pipeline, results, cuts=cuts, settings=settings)


def move(source: str, *readers: str, key: str = "j", partitions: int | None = None, **more: str) -> Cut:
    """A cut that moves `source` by `key` for its readers."""
    hash = HashName(more.get("hash", MURMUR2))
    return Cut(source, key, KeyFormat.STRING, hash, partitions, readers, rekeyed(source), readers=readers)


def rekeyed(step: str) -> Unplaced:
    """The reason of an exchange behind a step that gave its records other keys."""
    return Unplaced((step,), (), None, ())


def names(stage: Stage) -> list[str]:
    """The streams that a stage reads."""
    return [read.name for read in stage.streams]


def pipeline_of(**chosen: Any) -> Pipeline:
    return Pipeline("p", source="s3://landing/topics", **chosen)


def stream(pipeline: Pipeline, name: str, partitions: int, **more: Any) -> Flow:
    return pipeline.stream(name, key="k", partitions=partitions, **more)


def enriched(**chosen: Any) -> Pipeline:
    """Views, re-keyed by user, that meet active users."""
    pipeline = pipeline_of(**chosen)
    views, users = stream(pipeline, "views", 6), stream(pipeline, "users", 4)
    users.filter("active", name="active").join(views.rekey("j", name="by_user"), "1 AS one", name="seen").write("seen")
    return pipeline


def total(fan_in: int | None = None) -> Pipeline:
    pipeline = pipeline_of(scheme="tasks(9)")
    partial = stream(pipeline, "a", 3).partial("count(*) AS n", name="p")
    partial.combine("sum(n) AS n", fan_in=fan_in, name="c").write("t")
    return pipeline
