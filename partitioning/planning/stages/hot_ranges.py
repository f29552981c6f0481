"""Hot ranges: the stream partitions that hold hot keys, each read by several tasks, and combined where its keys
belong. Split partitions: which are read in ranges, and how large these are.

A stage whose steps first combine what each task has of a key (`partial`, then `combine`) does not need the records of a
hot key together. So a stage of its own reads ranges of the partition that holds the key, and repeats the steps up to
the partial one. Its rows move to the tasks that own their keys; these combine them with their own. The stage itself
reads the other partitions. All that follows, its state for instance, is as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction

from partitioning.cosets import assign_ranges, how_many, stage_tasks
from partitioning.errors import Finding
from partitioning.model.graph import Graph, Op, Step
from partitioning.model.leaving import in_ranges
from partitioning.model.placement import OPAQUE, each_of
from partitioning.model.plan import Exchange, Plan, Stage
from partitioning.model.reasons import HotRanges, SplitPartition
from partitioning.model.schemes import records
from partitioning.model.stage_inputs import ExchangeInput, PlannedPartition, StreamInput
from partitioning.model.statistics import HeavyShare, Statistics
from partitioning.model.streams import NullKeys
from partitioning.planning.exchanges.versions import reading_from
from partitioning.planning.stages.draft import StageDraft
from partitioning.planning.task_coverage import listed, unsound
from partitioning.values import Value, replace

# A partition with fewer records is never split: its tasks would cost more than they save.
LEAST = 1_000
# A partition is split if its heaviest task has this many times what a task without split partitions has, and one key
# at least this share of that. If it was split in the last batch, it stays so down to the second figures.
HEAVIER = Fraction(5, 4), Fraction(11, 10)
SHARE = Fraction(1, 2), Fraction(1, 4)
# No partition is split into more tasks, and no range is less than this part of a mean task.
MOST_TASKS = 64
PART = Fraction(1, 4)


def split_partitions(
    held: Mapping[int, int], keys: Mapping[int, Fraction], tasks: int, beside: int = 0, before: Collection[int] = ()
) -> tuple[int, tuple[int, ...]]:
    """The most records of a range, and the partitions to split, ascending; none if no task is that heavy.

    `held` has the records of each partition of a stream, `keys` those of the heaviest key of some. A stage of so many
    `tasks` reads them, and `beside` records of other streams. Partitions in `before` were split in the last batch.

    A key has 40 of 100 thousand records, spread over 8 partitions and tasks:

    >>> split_partitions({0: 47_500} | dict.fromkeys(range(1, 8), 7_500), {0: Fraction(40_000)}, 8)
    (7500, (0,))

    What a task without hot keys has is the measure, so partitions are looked at again while one more is hot.
    """
    if tasks < 2:
        return 0, ()
    # If several tasks share a partition, one of them has the key.
    readers = max(Fraction(1), Fraction(tasks, len(held)))
    whole = Fraction(beside, tasks)
    loads = {
        number: whole + keys.get(number, Fraction()) + (count - keys.get(number, Fraction())) / readers
        for number, count in held.items()
    }
    split = set[int]()
    while True:
        rest = sum(count for number, count in held.items() if number not in split)
        light = whole + Fraction(rest, max(1, tasks - len(split)))
        more = {
            number
            for number in keys.keys() - split
            if held[number] >= LEAST
            and loads[number] >= HEAVIER[number in before] * light
            and keys[number] >= SHARE[number in before] * light
        }
        if not more:
            break
        split |= more
    bounds = [PART * Fraction(sum(held.values()) + beside, tasks)]
    bounds += [Fraction(held[number], MOST_TASKS) if number in split else load for number, load in loads.items()]
    most = max(bounds)
    return -(-most.numerator // most.denominator), tuple(sorted(split))


# Steps that work on each record alone.
_ALONE = {Op.FILTER, Op.SELECT}


class Unsplit(Value, frozen=True):
    """Why the records of a stream may not be split by offsets in a stage: the `step` that keeps them together."""

    step: str
    why: str


class Split(Value, frozen=True):
    """A stage that reads what is left to it, the stages that read ranges for it, and the exchanges between them."""

    draft: StageDraft
    stages: tuple[Stage, ...]
    exchanges: tuple[Exchange, ...]


class _Chain(Value, frozen=True):
    """The steps from a stream to the partial steps, which are named: each record passes them by itself."""

    steps: tuple[Step, ...]
    partials: tuple[str, ...]


def split_by_ranges(
    draft: StageDraft,
    graph: Graph,
    moved: Collection[str],
    planned: Mapping[str, Sequence[PlannedPartition]],
    statistics: Statistics | None,
    published: Plan | None,
) -> Split | None:
    """The stage, with the partitions that hold hot keys left to stages that read ranges of them; None without any.

    The rows of `moved` streams and steps pass through exchanges. `statistics` are those of the last batch, `planned` is
    what this one reads of each stream.
    """
    if statistics is None or not statistics.heavy:
        return None
    stages: list[Stage] = []
    exchanges: list[Exchange] = []
    inputs = list(draft.inputs)
    for place, read in enumerate(draft.inputs):
        if not isinstance(read, StreamInput) or draft.count.gathered or not draft.count.keeps_keys:
            continue
        chain = splittable(draft.name, draft.steps, read, graph, moved)
        if isinstance(chain, Unsplit) or not _are_placed(draft, chain):
            continue
        why = _hot(draft, read, planned, statistics.heavy, _split_before(published, draft.name, read.name))
        if why is None:
            continue
        partitions = [split.partition for split in why.partitions]
        inputs[place] = replace(read, only=tuple(sorted(set(read.numbers) - set(partitions))))
        stage = _stage(read, chain, why, partitions, planned)
        stages.append(stage)
        for partial in chain.partials:
            placement = draft.left(partial)
            name = f"{in_ranges(partial)}.exchange"
            combines = tuple(step.name for step in draft.steps if partial in step.inputs)
            exchanges.append(Exchange(name, partial, stage.name, placement, combines, why))
            inputs.append(ExchangeInput(name, partial, placement))
    return Split(replace(draft, inputs=tuple(inputs)), tuple(stages), tuple(exchanges)) if stages else None


def splittable(
    stage: str, of_stage: Sequence[Step], read: StreamInput, graph: Graph, moved: Collection[str]
) -> _Chain | Unsplit:
    """The steps that ranges of a stream pass before a stage combines them, or what keeps its records together.

    The rows of `moved` streams and steps pass through exchanges.
    """
    if whole := _read_whole(read, graph):
        return whole
    here = {step.name for step in of_stage}
    taken = {*(step.name for step in graph.steps), *(stream.name for stream in graph.streams)}
    steps: list[Step] = []
    reached = [read.name]
    for name in reached:
        if why := _given_away(name, graph, moved):
            return Unsplit(name, why)
        readers = [step for step in graph.steps if name in step.inputs]
        # Other stages read the stream for themselves.
        for step in readers if name != read.name else [step for step in readers if step.name in here]:
            if wrong := _together(step, here, graph, moved) or _unnamed(step, taken):
                return wrong
            steps.append(step)
            if step.op is not Op.PARTIAL:
                reached.append(step.name)
    order = {step.name: place for place, step in enumerate(graph.steps)}
    partials = tuple(step.name for step in steps if step.op is Op.PARTIAL)
    if not partials:
        return Unsplit(stage, "combines nothing of it")
    return _Chain(tuple(sorted(steps, key=lambda step: order[step.name])), partials)


def _read_whole(read: StreamInput, graph: Graph) -> Unsplit | None:
    """Why a stage needs the partitions of a stream as they are."""
    stream = next(stream for stream in graph.streams if stream.name == read.name)
    if stream.table:
        return Unsplit(read.name, "is a table, of whose keys only the latest record counts")
    if read.null_keys is NullKeys.OWN_TASK:
        return Unsplit(read.name, "gives records without a key a task of their own")
    if read.only is not None or read.placement.partitions != read.partitions:
        return Unsplit(read.name, "has another number of partitions than in its last batch")
    if stream.hash == OPAQUE or len(each_of(stream.hash)) > 1:
        return Unsplit(read.name, f"has the placement {stream.hash}")
    return None


def _given_away(name: str, graph: Graph, moved: Collection[str]) -> str:
    """Why the stage needs all rows of a stream or step; empty if only its own steps read them."""
    if name in moved:
        return "moves to other tasks"
    table = next((write.table for write in graph.writes if write.step == name), None)
    return f"is written to table {table}" if table else ""


def _together(step: Step, here: Collection[str], graph: Graph, moved: Collection[str]) -> Unsplit | None:
    """Why a step cannot work on a part of the records; None if it looks at each alone, or is combined afterwards."""
    if step.name not in here:
        return Unsplit(step.name, "reads it in a later wave")
    if step.op in _ALONE and not step.function:
        return None
    if step.op is not Op.PARTIAL or not step.key or step.rekeys:
        return Unsplit(step.name, "needs all records of a key together")
    if why := _given_away(step.name, graph, moved):
        return Unsplit(step.name, why)
    for reader in (reader for reader in graph.steps if step.name in reader.inputs):
        if reader.op is not Op.COMBINE or reader.name not in here:
            return Unsplit(reader.name, "does not combine it where its keys belong")
    return None


def _unnamed(step: Step, taken: Collection[str]) -> Unsplit | None:
    """Whether the name that the step would have where it is repeated is another's."""
    name = in_ranges(step.name)
    return Unsplit(step.name, f"cannot be repeated, as there is a step {name} already") if name in taken else None


def _are_placed(draft: StageDraft, chain: _Chain) -> bool:
    """Whether it is known where the keys of the partial rows belong."""
    return all(draft.left(partial).key for partial in chain.partials)


def _split_before(published: Plan | None, stage: str, stream: str) -> Collection[int]:
    """The partitions of the stream that were split for the stage in the last published batch."""
    return [
        split.partition
        for before in (published.stages if published else ())
        if isinstance(before.why, HotRanges) and before.why.stage == stage
        for split in before.why.partitions
        if before.inputs[0].name == stream
    ]


def _hot(
    draft: StageDraft,
    read: StreamInput,
    planned: Mapping[str, Sequence[PlannedPartition]],
    heavy: Sequence[HeavyShare],
    before: Collection[int],
) -> HotRanges | None:
    """The partitions of a stream to split, and the most records of a range; None if no task is that heavy."""
    held = {number: planned[read.name][number].records for number in read.numbers}
    beside = sum(
        planned[other.name][number].records
        for other in draft.inputs
        if isinstance(other, StreamInput) and other.name != read.name
        for number in other.numbers
    )
    heaviest: dict[int, HeavyShare] = {}
    for share in heavy:
        if share.input == read.name and share.partition in held:
            heaviest.setdefault(share.partition, share)
    # What the key has of the records that this batch reads, if its share stays.
    keys = {number: Fraction(share.records * held[number], share.of) for number, share in heaviest.items()}
    tasks = draft.cosets if draft.owners is None else len(draft.owners)
    most, split = split_partitions(held, keys, tasks, beside, before)
    if not split:
        return None
    total = sum(held.values()) + beside
    named = [
        SplitPartition(number, how_many(0, held[number], most), heaviest[number].key, round(100 * keys[number] / total))
        for number in split
    ]
    return HotRanges(draft.name, most, tuple(named))


def _stage(
    read: StreamInput,
    chain: _Chain,
    why: HotRanges,
    partitions: Sequence[int],
    planned: Mapping[str, Sequence[PlannedPartition]],
) -> Stage:
    """The stage that reads ranges of these partitions and repeats the steps up to the partial ones."""
    repeated = {step.name for step in chain.steps}
    inputs = (replace(read, only=tuple(partitions)),)
    tasks = assign_ranges(stage_tasks(inputs, len(partitions), None, gathered=False), planned, why.records)
    steps = tuple(
        reading_from(
            step, in_ranges(step.name), [in_ranges(name) if name in repeated else name for name in step.inputs]
        )
        for step in chain.steps
    )
    return Stage(
        f"{read.name}.hot" if why.stage == read.name else f"{why.stage}.{read.name}.hot",
        inputs,
        steps,
        (),
        records(why.records),
        len(tasks),
        why,
        given=False,
        tasks=tasks,
    )


def left_to_ranges(plan: Plan, stage: Stage, stream: str) -> Iterator[int]:
    """The partitions of a stream that other stages read in ranges, and combine, for this one."""
    for other in plan.stages:
        if isinstance(other.why, HotRanges) and other.why.stage == stage.name:
            yield from (number for read in other.streams if read.name == stream for number in read.numbers)


def hot_findings(plan: Plan, stage: Stage) -> Iterator[Finding]:
    """Findings for a stage that reads ranges for another: its rows must be those of the other's partial steps, and go
    to that stage alone, once."""
    if not isinstance(why := stage.why, HotRanges):
        return
    where = f"stage {stage.name}"
    other = next((other for other in plan.stages if other.name == why.stage), None)
    if other is None or len(stage.inputs) != 1 or not stage.streams:
        yield unsound(f"it reads ranges for {why.stage}, which is no stage, or of more than one stream", where)
        return
    steps = {step.name: step for step in other.steps}
    for step in stage.steps:
        source = next((each for name, each in steps.items() if in_ranges(name) == step.name), None)
        if source is None or (source.op, source.expressions) != (step.op, step.expressions):
            yield unsound(f"its step {step.name} does not do what a step of {why.stage} does", where, step=step.name)
    partials = {name for name, step in steps.items() if in_ranges(name) in _partials(stage.steps)}
    left = [exchange for exchange in plan.exchanges if exchange.stage == stage.name]
    if sorted(exchange.source for exchange in left) != sorted(partials):
        said = listed(exchange.source for exchange in left)
        yield unsound(f"it leaves {said or 'nothing'} and should leave {listed(sorted(partials))}", where, left=said)
    for exchange in left:
        readers = [each.name for each in plan.stages for read in each.inputs if read.name == exchange.name]
        if readers != [other.name]:
            what = f"{exchange.name} is read by {listed(readers) or 'none'} and not by {other.name} alone"
            yield unsound(what, where, exchange=exchange.name)
        combined = [step.op for step in other.steps if exchange.source in step.inputs]
        if not combined or any(op is not Op.COMBINE for op in combined):
            yield unsound(f"the rows of {exchange.source} are not combined", where, exchange=exchange.name)
    if any(task.filters or task.owns for task in stage.tasks):
        yield unsound("its tasks leave records of their ranges to others", where, tasks=len(stage.tasks))


def _partials(steps: Sequence[Step]) -> set[str]:
    return {step.name for step in steps if step.op is Op.PARTIAL}
