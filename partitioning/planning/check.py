"""Checking: a plan as a whole, whoever made it, before it is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from partitioning.errors import Finding, Refused
from partitioning.model.plan import EXCHANGE, RESULT, STATE, STREAM, Exchange, Input, Plan, Stage, TaskRef
from partitioning.planning.reach import NEXT, listed, numbers, uncovered


def check(plan: Plan) -> Plan:
    """The plan itself, if each record it reads reaches one task of each stage, and equal keys reach the same one.

    Raises Refused with all findings: partitions that are missing or out of order; keys of a partition that reach
    no task or several, or do not meet where they have to; exchanges that nobody writes or reads; results and
    state that lie elsewhere than where they were left; stages that read what is not there yet; tasks that are in
    no group, in several, or beside those of another wave.
    """
    if findings := list(_names(plan)):
        raise Refused(*findings)
    handed = _Handed(plan)
    findings.extend(_streams(plan))
    for stage in plan.stages:
        findings.extend(uncovered(plan, stage, handed.left))
        findings.extend(handed.whole(stage))
        findings.extend(finding for each in stage.inputs for finding in handed.there(stage, each))
    findings.extend(finding for exchange in plan.exchanges for finding in handed.exchange(exchange))
    findings.extend(_groups(plan))
    if findings:
        raise Refused(*findings)
    return plan


def _names(plan: Plan) -> Iterator[Finding]:
    """What has the name of something else, without which nothing further can be said."""
    where = f"batch {plan.batch}"
    for noun, names in (
        ("stages", [stage.name for stage in plan.stages]),
        ("exchanges", [exchange.name for exchange in plan.exchanges]),
        ("steps", [step.name for stage in plan.stages for step in stage.steps]),
    ):
        if twice := _twice(names):
            yield Finding(f"{noun} are there twice: {listed(twice)}", where, "give steps other names")
    for stage in plan.stages:
        if twice := _twice([each.name for each in stage.inputs]):
            yield Finding(f"inputs are there twice: {listed(twice)}", f"stage {stage.name}", "give steps other names")
    streams, stages = {each.name for each in plan.streams}, {stage.name for stage in plan.stages}
    for stage in plan.stages:
        for each in stage.inputs:
            if each.kind == STREAM and each.step not in streams:
                yield Finding(f"it reads {each.step}, which is no stream", f"stage {stage.name}", NEXT)
    for exchange in plan.exchanges:
        if exchange.stage not in stages:
            yield Finding(f"there is no stage {exchange.stage} to write it", f"exchange {exchange.name}", NEXT)


def _streams(plan: Plan) -> Iterator[Finding]:
    for stream in plan.streams:
        if [each.partition for each in stream.partitions] != list(range(stream.declared.partitions)):
            yield Finding("the plan does not hold every partition once, in order", f"stream {stream.name!r}", NEXT)
        for each in stream.partitions:
            if not 0 <= each.start <= each.end:
                where = f"{stream.name}-{each.partition}"
                yield Finding(f"[{each.start},{each.end}) is no range of offsets", where, NEXT)
    read = {name for stage in plan.stages for name in stage.streams}
    if lost := sorted({each.name for each in plan.streams} - read):
        yield Finding(f"streams are in no stage: {listed(lost)}", f"batch {plan.batch}", NEXT)


class _Handed:
    """What stages hand to each other, and batches to the next: exchanges, results, state."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stages = {stage.name: stage for stage in plan.stages}
        self._exchanges = {exchange.name: exchange for exchange in plan.exchanges}
        self._homes = {step.name: stage for stage in plan.stages for step in stage.steps}
        self._read = {each.name for stage in plan.stages for each in stage.inputs if each.kind == EXCHANGE}
        self._streams = {each.name: range(each.declared.partitions) for each in plan.streams}
        results = [each for stage in plan.stages for each in stage.inputs if each.kind == RESULT]
        self.left = {each.step for each in results if each.placement.key}

    def whole(self, stage: Stage) -> Iterator[Finding]:
        """A stage must read all of a stream once, some partitions perhaps from an exchange, or what it moves of it."""
        works = stage.steps or stage.writes
        moves = {} if works else {each.source: each for each in self._plan.exchanges if each.stage == stage.name}
        for stream, found in self._parts(stage).items():
            wanted = self._streams[stream] if works or stream not in moves else self._moved(moves[stream])
            if sorted(found) != list(wanted):
                yield Finding(f"it does not read every partition of {stream} once", f"stage {stage.name}", NEXT)

    def _parts(self, stage: Stage) -> dict[str, list[int]]:
        """The partitions of each stream that a stage reads, where they lie and from exchanges."""
        read: dict[str, list[int]] = {}
        for each in stage.inputs:
            if each.kind == STREAM:
                read.setdefault(each.step, []).extend(numbers(self._plan, each))
            elif each.kind == EXCHANGE and each.step in self._streams and each.name in self._exchanges:
                read.setdefault(each.step, []).extend(self._moved(self._exchanges[each.name]))
        return read

    def there(self, stage: Stage, each: Input) -> Iterator[Finding]:
        """What an input holds must have been left where the input says, before the stage runs."""
        where = f"stage {stage.name}"
        if each.kind == EXCHANGE:
            exchange = self._exchanges.get(each.name)
            if exchange is None:
                yield Finding(f"there is no exchange {each.name}", where, NEXT)
            elif (exchange.source, exchange.placement) != (each.step, each.placement):
                yield Finding(f"{each.name} holds other records, or elsewhere, than it reads", where, NEXT)
            elif self._stages[exchange.stage].wave >= stage.wave:
                yield Finding(f"{each.name} is not there before wave {stage.wave}", where, NEXT)
        elif each.kind == RESULT:
            home = self._homes.get(each.step)
            if home is None or home.wave >= stage.wave:
                yield Finding(f"{each.step} is not there before wave {stage.wave}", where, NEXT)
            elif home.cosets != each.placement.partitions:
                what = f"{each.step} is left in {home.cosets} partitions, not {each.placement.partitions}"
                yield Finding(what, where, NEXT)
        elif each.kind == STATE:
            states = {step.name for step in stage.steps if step.state}
            if each.step not in states or each.batch is None or each.batch >= self._plan.batch:
                yield Finding(f"{each.name} is no state that a step of it left in an earlier batch", where, NEXT)

    def exchange(self, exchange: Exchange) -> Iterator[Finding]:
        """An exchange must be written by those who have its records, be read, and be combined by ever fewer."""
        where, stage = f"exchange {exchange.name}", self._stages[exchange.stage]
        if exchange.placement.partitions < 1:
            yield Finding(f"it has {exchange.placement.partitions} partitions", where, NEXT)
        if exchange.name not in self._read:
            yield Finding("no stage reads it", where, NEXT)
        if exchange.source in self._streams:
            if not set(self._moved(exchange)) <= set(self._parts(stage).get(exchange.source, ())):
                yield Finding(f"stage {stage.name} does not read all that moves of {exchange.source}", where, NEXT)
        elif exchange.source not in {step.name for step in stage.steps}:
            yield Finding(f"stage {stage.name} has no {exchange.source} to move", where, NEXT)
        if bool(exchange.unifiers) != (exchange.combine is not None):
            yield Finding("it has unifiers and no step to combine by, or a step and no unifiers", where, NEXT)
        widths = (len(stage.tasks), *exchange.unifiers)
        if any(later >= earlier for earlier, later in pairwise(widths)) or widths[-1] < 1:
            yield Finding(f"its unifiers do not narrow what {widths[0]} tasks write: {listed(widths[1:])}", where, NEXT)

    def _moved(self, exchange: Exchange) -> Sequence[int]:
        """The partitions of a stream that move through an exchange."""
        return self._streams[exchange.source] if exchange.only is None else exchange.only


def _groups(plan: Plan) -> Iterator[Finding]:
    where = f"batch {plan.batch}"
    waves = {TaskRef(stage.name, task.task): stage.wave for stage in plan.stages for task in stage.tasks}
    grouped = Counter(task for group in plan.groups for task in group.tasks)
    if twice := sorted(task for task, count in grouped.items() if count > 1):
        yield Finding(f"tasks are in two groups: {listed(twice)}", where, NEXT)
    if differ := sorted(waves.keys() ^ grouped.keys()):
        yield Finding(f"tasks and groups do not agree on {listed(differ)}", where, NEXT)
    if [stage.wave for stage in plan.stages] != sorted(stage.wave for stage in plan.stages):
        yield Finding("stages are not in the order of their waves", where, NEXT)
    if [group.group for group in plan.groups] != list(range(len(plan.groups))):
        yield Finding("groups are not numbered 0, 1, 2 …", where, NEXT)
    for group in plan.groups:
        if strange := [task for task in group.tasks if waves.get(task, group.wave) != group.wave]:
            what = f"group {group.group} of wave {group.wave} has tasks of other waves: {listed(strange)}"
            yield Finding(what, where, NEXT)


def _twice(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)
