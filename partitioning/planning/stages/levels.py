"""Levels: the stages that combine in between, if a partition has too many parts to combine at once.

Each level of unifiers is a stage of ordinary tasks, one for each unifier. Its tasks read the parts that neighbouring
writers left for them, combine these, and leave the results for the next level, the last one for the step itself. That
reads them as it would have read the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from partitioning.cosets import stage_tasks
from partitioning.model.graph import Op, Step
from partitioning.model.plan import Exchange, Stage
from partitioning.model.reasons import Unifying
from partitioning.model.schemes import MAX
from partitioning.model.stage_inputs import ExchangeInput, Input, ResultInput
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
