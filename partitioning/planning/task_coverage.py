"""Coverage: whether each record that a stage reads reaches one of its tasks, and equal keys the same one; and whether
the files of a partition hold what the batch reads of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.gaps import Explained
from partitioning.model.offsets import Span, StreamPartition
from partitioning.model.plan import Plan, Stage
from partitioning.model.sources import IcebergSource, KafkaSource, LandedSource, named_file
from partitioning.model.stage_inputs import Input, PlannedPartition, PlannedStream, StreamInput
from partitioning.model.streams import InputFile, Layout, NullKeys
from partitioning.model.takes import Residues, Task, taken
from partitioning.planning.exchanges.derived_placements import gathers
from partitioning.values import replace

_SHOWN = 8


def coverage_findings(stage: Stage, left: Collection[str], moving: Collection[str] = ()) -> Iterator[Finding]:
    """Findings for the tasks of a stage, those that share a hot key as one. `left` are the steps whose rows other
    stages read by key. Of streams that are `moving`, records without a key are those of others."""
    where = f"stage {stage.name}"
    if (numbers := [task.task for task in stage.tasks]) != list(range(len(numbers))):
        yield unsound("tasks are not numbered 0, 1, 2 …", where, numbers=numbers)
    stage = replace(stage, tasks=stage.undivided)
    keyed = [task for task in stage.tasks if not task.null_keys]
    together = [step.name for step in stage.steps if step.keyed]
    yield from _owned(keyed, stage, together, where)
    yield from _own_task(stage, moving, where)
    keeps = bool(together) or any(step.name in left for step in stage.steps)
    for read in stage.inputs:
        yield from _Reach(stage, read).findings(keyed, keeps=keeps)
        yield from _keyless(stage, read, where, times=int(read.name not in moving))
    if keeps:
        yield from _keyless_apart(stage, where)


def unsound(what: str, where: str, **values: object) -> Finding:
    """A finding of the check of a plan."""
    return Finding.of(Kind.PLAN_UNSOUND, what, where, "correct the partitioner that made this plan", **values)


def listed(values: Iterable[object]) -> str:
    """The first few of them."""
    texts = [str(value) for value in values]
    rest = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + rest


def _owned(tasks: Sequence[Task], stage: Stage, together: Sequence[str], where: str) -> Iterator[Finding]:
    """Each residue is one task's, or none is any task's, where keys need not be kept together."""
    owners = Counter(residue for task in tasks for residue in task.owns)
    if stage.cosets < 1:
        yield unsound(f"it has {stage.cosets} cosets", where, cosets=stage.cosets)
    elif not owners:
        if together:
            yield unsound(f"no task owns keys, but {listed(together)} needs them together", where, together=together)
        if len(tasks) != stage.cosets:
            what = f"{len(tasks)} tasks take records, but there are {stage.cosets} cosets"
            yield unsound(what, where, tasks=len(tasks), cosets=stage.cosets)
    else:
        wrong = [residue for residue in range(stage.cosets) if owners[residue] != 1]
        wrong += sorted(residue for residue in owners if not 0 <= residue < stage.cosets)
        if wrong:
            what = f"keys with h(key) mod {stage.cosets} = {listed(wrong)} are not exactly one task's"
            yield unsound(what, where, cosets=stage.cosets)


def _own_task(stage: Stage, moving: Collection[str], where: str) -> Iterator[Finding]:
    """Records without a key have one task of their own if a stream wants it and not all records are in one task."""
    own = {read.name for read in stage.streams if read.null_keys == NullKeys.OWN_TASK}.difference(moving)
    planned = {
        read.name: tuple(read.numbers) if isinstance(read, StreamInput) else (0,)
        for read in stage.inputs
        if own and (read.name in own if isinstance(read, StreamInput) else read.placement.key)
    }
    if any(gathers(step) for step in stage.steps):
        planned = {}
    own_tasks = [(dict(task.reads), dict(task.keyless)) for task in stage.tasks if task.null_keys]
    if own_tasks != ([(planned, planned)] if planned else []):
        yield unsound("records without a key do not have one task of their own, as declared", where, own=sorted(own))


def _keyless(stage: Stage, read: Input, where: str, *, times: int) -> Iterator[Finding]:
    """So many of the tasks that read a partition, or a range of it, account for its records without a key: one or
    none."""
    accounts = Counter(
        (partition, span)
        for task in stage.tasks
        for span in (task.span,)
        for partition in task.keyless.get(read.name, ())
        if partition in task.reads.get(read.name, ())
    )
    spans: dict[int, list[Span | None]] = {}
    for task in stage.tasks:
        if task.span is not None:
            for partition in task.reads.get(read.name, ()):
                spans.setdefault(partition, []).append(task.span)
    # Where records lie by key, those without one lie in partition 0, for each of its unifiers.
    holding = read.numbers[:: max(1, read.placement.partitions)] if _is_by_key(read) else read.numbers
    wrong = [
        number for number in holding if any(accounts[number, span] != times for span in spans.get(number, (None,)))
    ]
    if wrong:
        what = f"records without a key in {read.name} {listed(wrong)} are not exactly one task's"
        yield unsound(what, where, keyless=read.name)


def _keyless_apart(stage: Stage, where: str) -> Iterator[Finding]:
    """Findings for records without a key that were moved or left: where keys must meet, they are one group as well."""
    names = [read.name for read in stage.inputs if _is_by_key(read)]
    tasks = [task.task for task in stage.tasks if any(0 in task.keyless.get(name, ()) for name in names)]
    if len(tasks) > 1:
        yield unsound(f"records without a key are not one task's, but those of {listed(tasks)}", where, tasks=tasks)


def _is_by_key(read: Input) -> bool:
    """Whether it was moved or left by key, and so has its records without a key in partition 0."""
    return not isinstance(read, StreamInput) and bool(read.placement.key)


class _Reach:
    """How much of each partition of an input, or range of it, reaches tasks, counted in cosets of the stage."""

    def __init__(self, stage: Stage, read: Input) -> None:
        self._stage = stage
        self._input = read
        self._keyed = bool(read.placement.key)
        # Partition p holds the cosets that are ≡ p modulo `_step`: `_held` of them.
        self._step = read.placement.shared(stage.cosets) if self._keyed else stage.cosets
        self._held = stage.cosets // self._step if self._step else 0
        self._reached: dict[int, Counter[Span | None]] = {number: Counter() for number in read.numbers}

    def findings(self, tasks: Sequence[Task], *, keeps: bool) -> Iterator[Finding]:
        """Every coset of a partition must reach one task: its owner, where the stage `keeps` keys together."""
        where = f"stage {self._stage.name}"
        for task in tasks:
            if wrong := self._count(task, keeps=keeps and self._keyed):
                yield unsound(f"task {task.task} {wrong}", where, task=task.task, read=self._input.name)
        for partition, reached in self._reached.items():
            if any(count != self._held for count in reached.values() or [0]):
                readers = listed(task.task for task in tasks if partition in task.reads.get(self._input.name, ()))
                what = f"its records do not reach exactly one task each (tasks that read it: {readers or 'none'})"
                yield unsound(
                    what, f"{self._input.name}-{partition}, {where}", read=self._input.name, partition=partition
                )

    def _count(self, task: Task, *, keeps: bool) -> str | None:
        """Count what a task takes; what is wrong with that."""
        name, wrong = self._input.name, None
        kept = task.filters.get(name)
        right = kept is None or kept == Residues(self._stage.cosets, task.owns)
        residues = taken(task, name, self._stage.cosets, self._step) if right and self._step else {}
        owned = Counter(residue % self._step for residue in task.owns) if keeps else Counter()
        for partition in task.reads.get(name, ()):
            place = partition % self._step if self._step else 0
            takes = len(residues.get(place, ()))
            if keeps and takes != owned[place]:
                wrong = f"takes keys of {name} that belong to other tasks"
            if partition in self._reached:
                self._reached[partition][task.span] += takes
            else:
                wrong = f"reads {name}-{partition}, which is not there to be read"
        return wrong


_FOLDER = re.compile(r"/partition=(?P<folder>[0-9]+)/[^/]*$")


def file_findings(plan: Plan, stream: PlannedStream, planned: PlannedPartition) -> Iterator[Finding]:
    """Findings for the files of a partition: files that are missing, hold an offset twice, hold nothing of the range,
    are out of order, are planned twice, or belong to another partition, stream or topic."""
    where = str(StreamPartition(stream.name, planned.partition))
    disorder = list(_disorder(planned))
    # Files that overlap do not show what is missing.
    wrongs = [*disorder, *([] if disorder else _lacks(plan, stream, planned))]
    wrongs += [wrong for file in planned.files if (wrong := _of_another(stream, planned, file))]
    for number, wrong in enumerate(wrongs):
        yield unsound(wrong, where, number=number)


def _disorder(planned: PlannedPartition) -> Iterator[str]:
    start, end, files = planned.start, planned.end, planned.files
    for file in files:
        # An empty file shows that the records before it are gone.
        if not (max(file.start, start) < min(file.end, end) or start < file.start == file.end):
            yield f"{file.path} holds [{file.start},{file.end}), nothing of what is planned, [{start},{end})"
    for one, other in pairwise(files):
        if one == other:
            yield f"{one.path} is planned twice"
        elif other.start < one.end:
            yield f"{other.path} begins at {other.start}, before the end of {one.path}, {one.end}"


def _lacks(plan: Plan, stream: PlannedStream, planned: PlannedPartition) -> Iterator[str]:
    gaps = plan.gaps.get(StreamPartition(stream.name, planned.partition), ())
    lack = sum(gap.missing for gap in gaps)
    if hole := next((gap for gap in gaps if gap.explained is Explained.NOBODY), None):
        where = "is in no file" if hole.file is None else f"lacks {hole.missing} offsets in {hole.file}"
        yield f"{hole.offsets} {where}, and nothing says why"
    elif lack != planned.missing:
        yield f"{planned.missing} offsets are said to be missing, but its files lack {lack}"


def _of_another(stream: PlannedStream, planned: PlannedPartition, file: InputFile) -> str | None:
    """What is wrong if a file says that it belongs to another partition, stream or topic."""
    number = planned.partition
    match stream.declared.origin:
        case KafkaSource() as source:
            mine = source.uri(stream.name, number)
            if file.path != mine:
                return f"{file.path} is not its log, {mine}"
            return (
                None if file.etag == stream.topic else f"{mine} is of the topic {file.etag}, planned is {stream.topic}"
            )
        case LandedSource():
            return _landed_of_another(stream, planned, file)
        case IcebergSource() as source:
            mine = source.uri(stream.name)
            return None if file.snapshot else f"{file.path} is of no snapshot of {mine}"


def _landed_of_another(stream: PlannedStream, planned: PlannedPartition, file: InputFile) -> str | None:
    number = planned.partition
    folder = _FOLDER.search(file.path) if stream.declared.layout is Layout.PARTITION else None
    if folder and int(folder["folder"]) != number:
        return f"{file.path} lies in the folder of partition {folder['folder']}"
    name = named_file(file.path)
    if not name:
        return None
    # Earlier offsets are another file's, or were read.
    of_others = [double.start for double in planned.doubles if (double.path, double.end) == (file.path, file.start)]
    starts = [file.start, *of_others, *([file.first] if file.first < file.start <= planned.start else [])]
    if (name["stream"], int(name["partition"])) != (stream.name, number) or file.first not in starts:
        return f"{file.path} is, by its name, not the file of {stream.name}-{number} from {file.start} on"
    return None
