"""Levels: the stages that combine in between, if a partition has too many parts to combine at once. Bounds: how large
plans can be, for DAGs.

Each level of unifiers is a stage of ordinary tasks, one for each unifier. Its tasks read the parts that neighbouring
writers left for them, combine these, and leave the results for the next level, the last one for the step itself. That
reads them as it would have read the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.cosets import MOST_RANGES, stage_tasks
from partitioning.model.graph import Op, Step
from partitioning.model.leaving import unifier_levels
from partitioning.model.placement import OPAQUE
from partitioning.model.plan import Exchange, Stage
from partitioning.model.reasons import Unifying
from partitioning.model.schemes import MAX, HotKeys, SchemeKind
from partitioning.model.stage_inputs import ExchangeInput, Input, ResultInput
from partitioning.planning.exchanges.derived_placements import derive_placements, places, target
from partitioning.planning.stages.draft import chosen_schemes
from partitioning.planning.stages.hot_ranges import MOST_TASKS
from partitioning.planning.stages.own_tasks import MOST_KEYS
from partitioning.planning.stages.stage_cosets import MOST_OF_COMMON
from partitioning.values import replace


def with_levels(
    stages: Sequence[Stage], exchanges: Sequence[Exchange]
) -> tuple[tuple[Stage, ...], tuple[Exchange, ...]]:
    """Put the levels of each exchange that has `unifiers` between those who write it and the step that combines.

    The stages are in wave order again. Each level reads an exchange of its own, `<name>.1` and so on; the step still
    reads that of the name.
    """
    waves = _waves(stages, exchanges)
    steps = {step.name: step for stage in stages for step in stage.steps}
    taken = {name.lower() for name in (*steps, *(read.step for stage in stages for read in stage.inputs))}
    leveled = [replace(stage, wave=waves[stage.name]) for stage in stages]
    put: list[Exchange] = []
    for exchange in exchanges:
        put.extend(_chain(exchange))
        if exchange.combine is not None:
            leveled.extend(_levels(exchange, steps[exchange.combine], waves[exchange.stage], taken))
    return tuple(sorted(leveled, key=lambda stage: stage.wave)), tuple(put)


def _chain(exchange: Exchange) -> Iterator[Exchange]:
    """The exchange that each level reads, then the one that the step reads."""
    stage, last = exchange.stage, len(exchange.unifiers)
    for level in range(last + 1):
        name, left = _read(exchange, level), exchange.unifiers[level:]
        combine = exchange.combine if left else None
        moving = replace(exchange, name=name, stage=stage, combine=combine, unifiers=left)
        # How much the levels reduce is unknown.
        yield moving if level == 0 else replace(moving, moves=None, spares=None)
        stage = name


def _levels(exchange: Exchange, combine: Step, wave: int, taken: set[str]) -> Iterator[Stage]:
    """The levels of an exchange that is written in a wave: each in one of its own, named after what it reads."""
    for level, unifiers in enumerate(exchange.unifiers):
        read = ExchangeInput(_read(exchange, level), exchange.source, exchange.placement, unifiers=unifiers)
        cosets = len(read.numbers)
        # It combines the rows of a key in its own parts, as a partial step does.
        name = _free(f"{combine.name}.{level + 1}", taken)
        step = replace(combine, name=name, op=Op.PARTIAL, keyed=False, state=False, fan_in=None)
        yield Stage(
            read.name,
            (read,),
            (step,),
            (),
            MAX,
            cosets,
            Unifying(combine.name, level + 1, len(exchange.unifiers), unifiers),
            given=False,
            tasks=stage_tasks((read,), cosets, None, gathered=False),
            wave=wave + level + 1,
        )


def _read(exchange: Exchange, level: int) -> str:
    """The exchange that is read after this many levels."""
    return exchange.name if level == len(exchange.unifiers) else f"{exchange.name}.{level + 1}"


def _waves(stages: Sequence[Stage], exchanges: Sequence[Exchange]) -> Mapping[str, int]:
    """The wave of each stage once the levels are between."""
    homes = {step.name: stage.name for stage in stages for step in stage.steps}
    written = {exchange.name: exchange for exchange in exchanges}
    waves: dict[str, int] = {}

    def there(read: Input) -> int:
        """The first wave that finds what an input reads."""
        match read:
            case ExchangeInput(name=name) if name in written:
                return waves[written[name].stage] + len(written[name].unifiers) + 1
            case ResultInput(step=step):
                return waves[homes[step]] + 1
            case _:
                return 0

    for stage in stages:
        waves[stage.name] = max(stage.wave, *map(there, stage.inputs))
    return waves


def _free(name: str, taken: set[str]) -> str:
    while name.lower() in taken:
        name += ".1"
    taken.add(name.lower())
    return name


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
