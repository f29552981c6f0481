"""Checking: a plan as a whole, whoever made it, before it is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product

from partitioning.errors import Finding, refuse
from partitioning.kinds import Kind
from partitioning.model.leaving import parts_of, step_left
from partitioning.model.placement import HashName, each_of, earlier_of, newest_of
from partitioning.model.plan import Exchange, Plan, Stage, TaskRef
from partitioning.model.reasons import BeforeMoving, HotRanges, Unifying
from partitioning.model.stage_inputs import ExchangeInput, Input, ResultInput, StateInput, StreamInput
from partitioning.model.streams import Stream
from partitioning.planning.stages.hot_ranges import hot_findings, left_to_ranges
from partitioning.planning.stages.own_tasks import own_task_findings
from partitioning.planning.stages.record_ranges import range_findings, split_join_findings
from partitioning.planning.task_coverage import coverage_findings, file_findings, listed, unsound


def check_plan(plan: Plan) -> Plan:
    """The plan itself, if each record that it reads reaches one task of each stage, and equal keys reach the same task.

    Raises Refused, with all findings. Refused are: partitions that are missing or out of order; files that do not hold
    what the plan reads of a partition, or belong to another; keys that reach no task, several tasks, or different tasks
    where they must meet; ranges that do not add up to what the plan reads; exchanges without a writer or reader;
    results and state whose placement differs from where they were left; stages that read what does not exist yet; tasks
    in no group, in several, or beside tasks of another wave.
    """
    refuse(_names(plan))
    handed = _Handed(plan)
    findings = list(_streams(plan))
    for stage in plan.stages:
        findings.extend(coverage_findings(stage, handed.left, moving(plan, stage)))
        findings.extend(range_findings(plan, stage))
        findings.extend(hot_findings(plan, stage))
        findings.extend(own_task_findings(stage))
        findings.extend(split_join_findings(plan, stage))
        findings.extend(handed.whole(stage))
        findings.extend(finding for source in stage.inputs for finding in handed.missing(stage, source))
    findings.extend(finding for exchange in plan.exchanges for finding in handed.exchange(exchange))
    findings.extend(_groups(plan))
    refuse(findings)
    return plan


def _names(plan: Plan) -> Iterator[Finding]:
    """Findings for names that are used twice. Without unique names, no other check is possible."""
    where = f"batch {plan.batch}"
    for noun, names in (
        ("stages", [stage.name for stage in plan.stages]),
        ("exchanges", [exchange.name for exchange in plan.exchanges]),
        ("steps", [step.name for step in plan.steps]),
    ):
        if twice := _twice(names):
            what = f"{noun} are there twice: {listed(twice)}"
            yield Finding.of(Kind.PLAN_UNSOUND, what, where, "give steps other names", twice=twice)
    for stage in plan.stages:
        if twice := _twice([source.name for source in stage.inputs]):
            what = f"inputs are there twice: {listed(twice)}"
            yield Finding.of(Kind.PLAN_UNSOUND, what, f"stage {stage.name}", "give steps other names", twice=twice)
    stages = {stage.name for stage in plan.stages}
    for exchange in plan.exchanges:
        if exchange.stage not in stages:
            what = f"there is no stage {exchange.stage} to write it"
            yield unsound(what, f"exchange {exchange.name}", stage=exchange.stage)
    yield from _declarations(plan)


def _declarations(plan: Plan) -> Iterator[Finding]:
    """Stages that contradict the declaration of a stream."""
    streams = {stream.name: stream.declared for stream in plan.streams}
    for stage in plan.stages:
        for read in stage.streams:
            if read.name not in streams:
                yield unsound(f"it reads {read.name}, which is no stream", f"stage {stage.name}", read=read.name)
            elif not _as_declared(read, streams[read.name]):
                what = f"it reads {read.name} differently from its declaration"
                yield unsound(what, f"stage {stage.name}", read=read.name)


def _as_declared(read: StreamInput, declared: Stream) -> bool:
    """Whether it says what the declaration does; records may be said to lie by a divisor of the partition count, and by
    the newest of several hashes or those before."""
    placement = read.placement
    said = (read.partitions, read.null_keys, placement.key, placement.key_format)
    is_so = (declared.partitions, declared.null_keys, declared.key, declared.key_format)
    whole = placement.partitions > 0 and declared.partitions % placement.partitions == 0
    hashes = declared.hash, newest_of(declared.hash), earlier_of(declared.hash)
    return said == is_so and whole and placement.hash in hashes


def _streams(plan: Plan) -> Iterator[Finding]:
    for stream in plan.streams:
        partitions = tuple(stream.partitions)
        if [partition.partition for partition in partitions] != list(range(stream.declared.partitions)):
            what = "the plan does not hold every partition once, in order"
            yield unsound(what, f"stream {stream.name!r}", partitions=[partition.partition for partition in partitions])
        for partition in partitions:
            if not 0 <= partition.start <= partition.end:
                where = f"{stream.name}-{partition.partition}"
                what = f"[{partition.start},{partition.end}) is no range of offsets"
                yield unsound(what, where, start=partition.start, end=partition.end)
            else:
                yield from file_findings(plan, stream, partition)
    read = {stream.name for stage in plan.stages for stream in stage.streams}
    if lost := sorted({stream.name for stream in plan.streams} - read):
        yield unsound(f"streams are in no stage: {listed(lost)}", f"batch {plan.batch}", lost=lost)


class _Handed:
    """What stages hand to each other, and batches to the next: exchanges, results, state."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stages = {stage.name: stage for stage in plan.stages}
        self._exchanges = {exchange.name: exchange for exchange in plan.exchanges}
        self._homes = {step.name: stage for stage in plan.stages for step in stage.steps}
        self._expressions = {step.name: step.expressions for step in plan.steps}
        self._read = {
            source.name for stage in plan.stages for source in stage.inputs if isinstance(source, ExchangeInput)
        }
        self._streams = {stream.name: range(stream.declared.partitions) for stream in plan.streams}
        self._hashes = {stream.name: each_of(stream.declared.hash) for stream in plan.streams}
        results = [source for stage in plan.stages for source in stage.inputs if isinstance(source, ResultInput)]
        self.left = {result.step for result in results if result.placement.key}

    def whole(self, stage: Stage) -> Iterator[Finding]:
        """A stage must read all of a stream once, some partitions perhaps from an exchange, or what it moves of it."""
        works = stage.steps or stage.writes
        written = (exchange for exchange in self._plan.exchanges if exchange.stage == stage.name)
        moves = {} if works else {exchange.source: exchange for exchange in written}
        for stream, parts in self._parts(stage).items():
            wanted = self._streams[stream] if works or stream not in moves else self._moved(moves[stream])
            if isinstance(stage.why, HotRanges):
                wanted = [split.partition for split in stage.why.partitions]
            hashes = self._hashes[stream] if works or stream not in moves else self._lying(stage, stream)
            ranges = product(left_to_ranges(self._plan, stage, stream), hashes)
            if Counter([*parts, *ranges]) != Counter(product(wanted, hashes)):
                what = f"it does not read every partition of {stream} once"
                yield unsound(what, f"stage {stage.name}", stream=stream)

    def _parts(self, stage: Stage) -> dict[str, list[tuple[int, HashName]]]:
        """The partitions of each stream that a stage reads, where they lie and from exchanges, with the hashes of the
        records that it takes."""
        read: dict[str, list[tuple[int, HashName]]] = {}
        for source in stage.inputs:
            if isinstance(source, StreamInput):
                read.setdefault(source.step, []).extend(product(source.numbers, each_of(source.placement.hash)))
            elif isinstance(source, ExchangeInput) and source.step in self._streams and source.name in self._exchanges:
                exchange = self._exchanges[source.name]
                lying = self._lying(self._stages[exchange.stage], source.step)
                read.setdefault(source.step, []).extend(product(self._moved(exchange), lying))
        return read

    def _lying(self, stage: Stage, stream: str) -> Sequence[HashName]:
        """The hashes of the records that a stage takes of a stream."""
        only = (read.placement.hash for read in stage.streams if read.name == stream)
        return each_of(next(only)) if isinstance(stage.why, BeforeMoving) else self._hashes[stream]

    def missing(self, stage: Stage, read: Input) -> Iterator[Finding]:
        """Findings for an input that was not left where the input says, or not before the stage runs."""
        match read:
            case StreamInput():
                return
            case ExchangeInput():
                wrong = self._no_exchange(stage, read)
            case ResultInput():
                wrong = self._no_result(stage, read)
            case StateInput():
                wrong = self._no_state(stage, read)
        if wrong:
            yield unsound(wrong, f"stage {stage.name}", missing=read.name)

    def _no_exchange(self, stage: Stage, read: ExchangeInput) -> str | None:
        exchange = self._exchanges.get(read.name)
        if exchange is None:
            return f"there is no exchange {read.name}"
        holds = exchange.source, exchange.placement, exchange.readers
        if holds != (read.step, read.placement, read.unifiers):
            return f"{read.name} holds other records, or elsewhere, than it reads"
        in_time = self._stages[exchange.stage].wave < stage.wave
        return None if in_time else f"{read.name} is not there before wave {stage.wave}"

    def _no_result(self, stage: Stage, read: ResultInput) -> str | None:
        home = self._homes.get(read.step)
        if home is None or home.wave >= stage.wave:
            return f"{read.step} is not there before wave {stage.wave}"
        if home.by_scheme != read.placement.partitions:
            return f"{read.step} is left in {home.by_scheme} partitions, not {read.placement.partitions}"
        return None

    def _no_state(self, stage: Stage, read: StateInput) -> str | None:
        states = {step.name for step in stage.steps if step.state}
        if read.step in states and read.batch < self._plan.batch:
            return None
        return f"{read.name} is no state that a step of it left in an earlier batch"

    def exchange(self, exchange: Exchange) -> Iterator[Finding]:
        """An exchange must be written by those who have its records, be read, and be combined level by level."""
        where, stage = f"exchange {exchange.name}", self._stages[exchange.stage]
        if exchange.placement.partitions < 1:
            what = f"it has {exchange.placement.partitions} partitions"
            yield unsound(what, where, partitions=exchange.placement.partitions)
        if exchange.name not in self._read:
            yield unsound("no stage reads it", where, readers=0)
        if exchange.source in self._streams:
            read = {number for number, _ in self._parts(stage).get(exchange.source, ())}
            if not set(self._moved(exchange)) <= read:
                what = f"stage {stage.name} does not read all that moves of {exchange.source}"
                yield unsound(what, where, stage=stage.name, source=exchange.source)
        elif not _has_rows(stage, exchange):
            what = f"stage {stage.name} has no {exchange.source} to move"
            yield unsound(what, where, stage=stage.name, source=exchange.source)
        yield from self._levels(exchange, stage, where)

    def _levels(self, exchange: Exchange, stage: Stage, where: str) -> Iterator[Finding]:
        """The unifiers must be ever fewer, and all that is read apart by them must be combined, level by level."""
        if bool(exchange.unifiers) != (exchange.combine is not None):
            what = "it has unifiers and no step to combine by, or a step and no unifiers"
            yield unsound(what, where, unifiers=exchange.unifiers, combine=exchange.combine)
        widths = (parts_of(stage), *exchange.unifiers)
        if any(later >= earlier for earlier, later in pairwise(widths)) or widths[-1] < 1:
            what = f"its unifiers do not narrow what {widths[0]} tasks write: {listed(widths[1:])}"
            yield unsound(what, where, widths=widths)
        for reader in (
            reader for reader in self._plan.stages if exchange.name in (read.name for read in reader.inputs)
        ):
            yield from self._level(exchange, reader)

    def _level(self, exchange: Exchange, reader: Stage) -> Iterator[Finding]:
        """A stage of unifiers has a task for each, numbered as what it reads, and leaves what it combines of that."""
        where, why = f"stage {reader.name}", reader.why
        if not isinstance(why, Unifying):
            if exchange.unifiers:
                what = f"it reads {exchange.name} apart and does not combine it"
                yield unsound(what, where, exchange=exchange.name, combines=False)
            return
        left = [other for other in self._plan.exchanges if other.stage == reader.name]
        wanted = exchange.placement, exchange.unifiers[1:], exchange.combine if exchange.unifiers[1:] else None
        if [(other.placement, other.unifiers, other.combine) for other in left] != [wanted]:
            what = f"it does not leave what it combines of {exchange.name} for the next level"
            yield unsound(what, where, exchange=exchange.name, left=[other.name for other in left])
        if (why.combine, why.unifiers) != (exchange.combine, exchange.readers):
            what = f"it does not belong to the unifiers of {exchange.name}"
            yield unsound(what, where, exchange=exchange.name, unifiers=why.unifiers, combine=why.combine)
        if [step.expressions for step in reader.steps] != [self._expressions.get(why.combine)]:
            yield unsound(f"it does not combine as {why.combine} does", where, combine=why.combine)
        if any(task.reads != {exchange.name: (number,)} for number, task in enumerate(reader.tasks)):
            what = f"its tasks are not numbered as what they read of {exchange.name}"
            yield unsound(what, where, exchange=exchange.name, tasks=len(reader.tasks))

    def _moved(self, exchange: Exchange) -> Sequence[int]:
        """The partitions of a stream that move through an exchange."""
        return self._streams[exchange.source] if exchange.only is None else exchange.only


def _has_rows(stage: Stage, exchange: Exchange) -> bool:
    """Whether a stage has the rows of a step that it leaves in an exchange."""
    if stage.unifies:
        return exchange.source in {read.step for read in stage.inputs}
    return step_left(stage, exchange) in {step.name for step in stage.steps}


def _groups(plan: Plan) -> Iterator[Finding]:
    where = f"batch {plan.batch}"
    waves = {TaskRef(stage.name, task.task): stage.wave for stage in plan.stages for task in stage.tasks}
    grouped = Counter(task for group in plan.groups for task in group.tasks)
    if twice := sorted(task for task, count in grouped.items() if count > 1):
        yield unsound(f"tasks are in two groups: {listed(twice)}", where, twice=twice)
    if differ := sorted(waves.keys() ^ grouped.keys()):
        yield unsound(f"tasks and groups do not agree on {listed(differ)}", where, differ=differ)
    if (of_stages := [stage.wave for stage in plan.stages]) != sorted(of_stages):
        what = "stages are not in the order of their waves"
        yield unsound(what, where, waves=of_stages)
    if (numbers := [group.group for group in plan.groups]) != list(range(len(numbers))):
        yield unsound("groups are not numbered 0, 1, 2 …", where, groups=numbers)
    for group in plan.groups:
        if strange := [task for task in group.tasks if waves.get(task, group.wave) != group.wave]:
            what = f"group {group.group} of wave {group.wave} has tasks of other waves: {listed(strange)}"
            yield unsound(what, where, group=group.group, wave=group.wave, strange=strange)


def moving(plan: Plan, stage: Stage) -> set[str]:
    """The streams of which a stage takes only the records that move."""
    return {read.name for read in stage.streams if read.stays(plan.stream(read.name).declared) is False}


def _twice(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)
