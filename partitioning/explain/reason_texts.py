"""Reasons in words: sentences made of the codes and figures that plans hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from partitioning.model import reasons
from partitioning.model.placement import OPAQUE, KeyHash, Placement
from partitioning.model.plan import Exchange, Stage
from partitioning.model.schemes import MAX
from partitioning.model.stage_inputs import ExchangeInput
from partitioning.sections import many


def exchange_reason(exchange: Exchange) -> str:
    """Why records move: since when they are unplaced, who wants them placed, what stays or moves along, and how many
    of how many records move, if that is known."""
    because = exchange_because(exchange.why, exchange.wanted_by, exchange.placement)
    return because + moved(exchange.moves, exchange.spares)


def exchange_because(why: reasons.ExchangeReason, wanted_by: Sequence[str], target: Placement) -> str:
    """Why an exchange is there, without numbers of records."""
    match why:
        case reasons.Unplaced():
            parts = [_cause(why, wanted_by, target)]
            if why.along:
                parts.append(_along(why.along))
            if why.of_part:
                parts.append("the others stay where they are")
            elif why.staying:
                verb = _verb(why.staying, "stays where it is", "stay where they are")
                parts.append(f"{listed(why.staying)} {verb}")
            return "; ".join(parts)
        case reasons.AskedFor():
            into = "" if why.partitions is None else f", into {many(why.partitions, 'partition')}"
            return f"{listed(wanted_by)} asks for it{into}"
        case reasons.HotRanges():
            return f"{why.stage} combines what the tasks of its hot keys left, wanted by {listed(wanted_by)}"
        case reasons.CountChanged():
            return f"{why.change}: records of {why.change.listed} lie there by either count"


def moved(moves: int | None, spares: int | None) -> str:
    """How many of the records that could move do move; empty if that is unknown.

    >>> moved(100, 900), moved(100, 0), moved(None, None)
    ('; 100 of 1,000 records move', '; 100 records move', '')
    """
    if moves is None:
        return ""
    if spares:
        return f"; {moves:,} of {many(moves + spares, 'record')} move"
    return f"; {many(moves, 'record')} {'moves' if moves == 1 else 'move'}"


def stage_reason(stage: Stage) -> str:
    """How the number of a stage's tasks came about, what they leave out, and what changed partition counts do."""
    parts = [_task_count(stage)]
    if stage.partitioner is not None and stage.keeps_keys:
        parts.append(f"assigned to {sum(1 for task in stage.tasks if task.owns)} tasks by {stage.partitioner}")
    if not isinstance(stage.why, reasons.AllTogether | reasons.BeforeMoving | reasons.Unifying | reasons.HotRanges):
        filtered = [source.name for source in stage.inputs if any(source.name in task.filters for task in stage.tasks)]
        whole = "each offset in one task" if isinstance(stage.why, reasons.InRanges) else "whole partitions"
        reading = f"{listed(filtered)} filtered by h(key) mod {stage.cosets}"
        parts.append(reading if filtered else f"{whole}, no filter")
        parts += _choice(stage)
    return "; ".join([*parts, *_changes(stage)])


def move_reason(reason: reasons.MoveReason) -> str:
    """Why a task runs in another group than before.

    >>> move_reason(reasons.GroupLeft(1, reasons.AtLocation("H", 2)))
    'group 1 left, and group 2 is at its location H'
    """
    match reason:
        case reasons.OtherWave():
            return "its stage was in another wave"
        case reasons.GroupLeft():
            return f"group {reason.group} left{_last_location(reason.last)}"
        case reasons.GroupElsewhere():
            return f"group {reason.group} is at {reason.location} now{_last_location(reason.last)}"
        case reasons.GroupJoined():
            return f"group {reason.group} joined"
        case reasons.HeldTooMuch() | reasons.HeldTooLittle():
            return f"group {reason.group} would hold {reason.held:,} {reason.bounds.unit}, {_balanced(reason.bounds)}"
        case reasons.MakesRoom():
            return f"it makes room: {_balanced(reason.bounds)}"
        case reasons.PutBy():
            return f"{reason.grouper} put it there"
        case reasons.Said():
            return reason.words
        case reasons.GroupCount():
            return f"{reason.before} task groups → {reason.now}"


def listed(names: Iterable[str]) -> str:
    """Names in a sentence, each once.

    >>> listed(["a", "b", "a", "c"])
    'a, b and c'
    """
    once = list(dict.fromkeys(names))
    return " and ".join([", ".join(once[:-1]), once[-1]]) if len(once) > 1 else "".join(once)


def _cause(why: reasons.Unplaced, wanted_by: Sequence[str], target: Placement) -> str:
    if not target.key:
        return f"gathered into one task for {listed(wanted_by)}"
    causes = [f"dirty since {listed(why.dirty)}"] if why.dirty else []
    by = KeyHash(target.key_format, target.hash)
    causes += [_otherwise(placed, by, some=why.of_part) for placed in why.otherwise]
    return f"{' and '.join(causes)}, wanted by {listed(wanted_by)}"


def _otherwise(placed: reasons.PlacedOtherwise, target: KeyHash, *, some: bool) -> str:
    if placed.key_hash.hash == OPAQUE:
        return f"{placed.stream} is {OPAQUE} and others cannot be moved to it"
    which = f"some records of {placed.stream} lie" if some else f"{placed.stream} lies"
    return f"{which} by {placed.key_hash}, not by {target}"


def _along(along: reasons.MovesAlong) -> str:
    names = listed(along.names)
    text = f"{names} {_verb(along.names, 'moves', 'move')} too"
    if along.left is None or along.without is None:
        return text
    return f"{text}, as {along.left:,} are left after {along.after} and {along.without:,} would move without {names}"


def _verb(names: Sequence[str], singular: str, plural: str) -> str:
    return singular if len(names) == 1 else plural


def _balanced(bounds: reasons.Bounds) -> str:
    return f"{bounds.least:,} to {bounds.most:,} are balanced (mean {bounds.mean:,})"


def _last_location(last: reasons.LastLocation) -> str:
    match last:
        case reasons.AtLocation():
            return f", and group {last.group} is at its location {last.location}"
        case reasons.LocationFull():
            return f", and the groups at its location {last.location} are full"
        case reasons.LocationGone():
            return f", and its location {last.location} has no group now"
        case reasons.LocationUnknown():
            return ""


def _task_count(stage: Stage) -> str:
    match why := stage.why:
        case reasons.OnePerPartition():
            return f"one task per stream partition, {stage.cosets} in all"
        case reasons.InRanges(partitions, records):
            most = many(records, "record")
            return f"{many(partitions, 'stream partition')} in tasks of at most {most}, {stage.cosets} in all"
        case reasons.BeforeMoving():
            return "one task per stream partition"
        case reasons.AllTogether(steps):
            return f"one task, as {' and '.join(steps)} {_verb(steps, 'needs', 'need')} all records together"
        case reasons.AsAsked() | reasons.GcdOf():
            return _by_scheme(stage, why)
        case reasons.Dealt(partitions, cosets):
            return f"{many(cosets, 'task')} for {partitions:,} partitions, as no step needs keys together"
        case reasons.Unifying():
            level = f"level {why.level} of {why.levels} before {why.combine}"
            return f"{level}: {many(why.unifiers, 'unifier')} for each partition"
        case reasons.HotRanges(stage_name, records, partitions):
            most = many(records, "record")
            return f"ranges of at most {most} for {stage_name}: {listed(map(_split, partitions))}"
        case reasons.OwnTasks(of, keys, together):
            whole = [f"{together} keeps the records of a key in one task"] if together else []
            return "; ".join([_by_scheme(stage, of), *map(_own, keys, why.numbers), *whole])


def _by_scheme(stage: Stage, why: reasons.AsAsked | reasons.GcdOf) -> str:
    if isinstance(why, reasons.AsAsked):
        return f"{why.cosets} as asked"
    feeding = "the most cosets of a stage that feeds it (without elastic)"
    source = f"gcd({', '.join(map(str, why.counts))})" if why.counts else feeding
    factor = "" if stage.scheme.number is None else f"{stage.scheme.number} × "
    only = why.cosets == 1 and max(why.counts, default=1) > 1
    hint = ": ONE task is all there is, choose elastic(F) or tasks(L) for more" if only else ""
    return f"{factor}{source} = {why.cosets}{hint}"


def _split(split: reasons.SplitPartition) -> str:
    return f"partition {split.partition} in {split.tasks}, as {split.key!r} has {split.percent} % of the records"


def _own(own: reasons.OwnTask, numbers: range) -> str:
    because = f"as it has {own.percent} % of the records"
    if len(numbers) == 1:
        return f"{own.key!r} has task {numbers[0]} for itself, {because}"
    each = f"each a range of {own.ranged} and a copy of the other sides"
    return f"{own.key!r} has tasks {numbers[0]} to {numbers[-1]} for itself, {each}, {because}"


def _choice(stage: Stage) -> Iterator[str]:
    """Who chose the scheme, unless the number of tasks says so."""
    if not stage.given:
        yield "default where none meet" if stage.scheme == MAX else "default where keys must meet"
    elif not isinstance(stage.why.of if isinstance(stage.why, reasons.OwnTasks) else stage.why, reasons.AsAsked):
        yield "as given"


def _changes(stage: Stage) -> Iterator[str]:
    moving = {source.step: source for source in stage.inputs if isinstance(source, ExchangeInput)}
    placed = {stream.name: stream.placement for stream in stage.streams}
    for change in stage.changes:
        if isinstance(stage.why, reasons.BeforeMoving):
            yield f"{change}, and {change.listed} have records of both counts"
        elif change.stream in moving:
            yield f"{change}, so {change.listed} move once, by {moving[change.stream].name}"
        else:
            yield f"{change}, which is read as {placed[change.stream].partitions}, so nothing moves"
