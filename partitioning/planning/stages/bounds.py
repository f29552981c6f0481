"""Bounds: how large the plans of a pipeline can be, for what is laid out before there is one: Airflow's DAG."""

from __future__ import annotations

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.cosets import MOST_RANGES
from partitioning.model.graph import Op
from partitioning.model.leaving import unifier_levels
from partitioning.model.placement import OPAQUE
from partitioning.model.schemes import HotKeys, SchemeKind
from partitioning.planning.exchanges.derived_placements import derive_placements, places, target
from partitioning.planning.stages.hot_ranges import MOST_TASKS
from partitioning.planning.stages.own_tasks import MOST_KEYS
from partitioning.planning.stages.scheme_choice import chosen_schemes
from partitioning.planning.stages.stage_cosets import MOST_OF_COMMON


def most_waves(pipeline: Pipeline, settings: Settings = DEFAULTS) -> int:
    """The most waves that a batch of a pipeline can have, wherever its exchanges are put.

    Each step that may find records elsewhere than it needs them has an exchange before it. Steps after a step on
    Spark's DataFrames wait for it. A stream whose partition count has changed may have to move before all others. A
    combine with a fan-in may have as many levels of unifiers before it as `most_tasks` need. Hot keys that are split
    are read in a wave before their stage.

    >>> pipeline = Pipeline("p", source="s3://landing/topics")
    >>> views = pipeline.stream("views", key="id", partitions=4)
    >>> most_waves(pipeline)
    2
    >>> parts = views.rekey("user").partial("count(*) AS n", by="page")
    >>> _ = parts.combine("sum(n) AS n", name="totals")
    >>> most_waves(pipeline), most_waves(pipeline, Settings(fan_in={"totals": 8}))
    (3, 4)
    """
    graph = pipeline.graph
    placed = derive_placements(graph)
    crossed = {stream.name: 0 for stream in graph.streams}
    dataframes = {step.name for step in graph.steps if step.on_dataframes}
    unifying = 0
    in_ranges = any(scheme.most_records is not None for scheme in chosen_schemes(pipeline, settings))
    for step in graph.steps:
        lying = {origin.key_hash for name in step.inputs for origin in placed[name].origins if origin.since is None}
        dirty = any(origin.since for name in step.inputs for origin in placed[name].origins)
        # If a partial step takes ranges, rows with equal keys may lie anywhere.
        spread = in_ranges and step.op is Op.COMBINE
        moves = spread or step.op is Op.REPARTITION or (places(step) and (dirty or lying != {target(step, placed)}))
        crossed[step.name] = max(crossed[name] + (moves or name in dataframes) for name in step.inputs)
        if moves and step.op is Op.COMBINE:
            unifying += len(unifier_levels(most_tasks(pipeline, settings), settings.fan_in.get(step.name, step.fan_in)))
    splits = settings.hot_keys is HotKeys.SPLIT and any(step.op is Op.COMBINE for step in graph.steps)
    changing = any(not stream.table and stream.hash != OPAQUE for stream in graph.streams)
    return 1 + max(crossed.values(), default=0) + changing + unifying + splits


def most_tasks(pipeline: Pipeline, settings: Settings = DEFAULTS) -> int:
    """More tasks than any stage has under the schemes that are named, unless a partitioner makes more.

    A stage has as many as the largest number that is named, times a factor, or one for each partition that it reads;
    and a few more for hot keys.
    """
    schemes = chosen_schemes(pipeline, settings)
    moved = [step.partitions or 0 for step in pipeline.steps if step.op is Op.REPARTITION]
    asked = [scheme.number or 0 for scheme in schemes if scheme.kind is SchemeKind.TASKS]
    ranges = [MOST_RANGES for scheme in schemes if scheme.most_records is not None]
    largest = max([sum(stream.partitions for stream in pipeline.streams), *moved, *asked, *ranges], default=1)
    factor = max((scheme.factor for scheme in schemes), default=1)
    of_hot_keys = {HotKeys.LEAVE: 0, HotKeys.OWN_TASK: MOST_KEYS, HotKeys.SPLIT: MOST_KEYS * MOST_TASKS}
    return MOST_OF_COMMON * factor * largest * max(1, len(moved)) + of_hot_keys[settings.hot_keys]
