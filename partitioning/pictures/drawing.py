"""Drawing: what a picture of a plan shows, as boxes and arrows; SVG and Mermaid are two ways to write it down.

The hues are those of Okabe and Ito, which people of any colour vision tell apart; what they mean is said in words too.

Lettering: how wide text is at most in a picture, and how it is broken or shortened to fit its box. Widths are those
of DejaVu Sans, which is wider than the other fonts that a viewer may put in its place.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from partitioning.model.plan import Exchange, Plan, Stage, TaskGroup, TaskRef
from partitioning.model.stage_inputs import ExchangeInput, ResultInput, StateInput, StreamInput
from partitioning.model.takes import Task
from partitioning.sections import many, runs, size
from partitioning.texts import visible
from partitioning.values import Value

SIZE = 12
LINE = 17
_BOLD = 1.12
_MOST_LINES_OF_A_BOX = 2
# Width in em: the characters that are about this wide. Other ASCII characters are at most 0.64.
_WIDTHS = {
    0.36: "ijlI'|.,:; ",
    0.45: "ftr()[]-/\\!",
    0.7: "ABCEFKLPSTVXYZ_$*",
    0.84: "DGHNOQRUw+<=>~#&^×≡→·",
    1.02: "mMW@%…",
}
_BREAK = re.compile(r"(?<=[ ,+._/])(?=[^ ])")


class _Widths(dict[str, float]):
    """The width of each letter, looked at when it is first asked for."""

    def __missing__(self, letter: str) -> float:
        em = 0.64 if letter.isascii() else 1.02 if unicodedata.east_asian_width(letter) in "WF" else 0.84
        self[letter] = em
        return em


_EM = _Widths((letter, em) for em, letters in _WIDTHS.items() for letter in letters)


class Line(Value, frozen=True):
    """A line of text to write; `full` is what it was shortened from, empty if it was not."""

    text: str
    bold: bool = False
    full: str = ""

    @property
    def width(self) -> int:
        """How wide it is at most, in pixels."""
        return width(self.text, bold=self.bold)


def width(text: str, *, bold: bool = False) -> int:
    """How wide a text is at most, in pixels at 12 pixels a letter.

    >>> width("flights"), width("flights", bold=True), width("航班")
    (43, 48, 25)
    """
    return ceil(sum(map(_EM.__getitem__, text)) * SIZE * (_BOLD if bold else 1))


def fitted(text: str, most: int, *, bold: bool = False) -> tuple[Line, ...]:
    """The text in at most two lines of at most `most` pixels, broken after punctuation, else shortened.

    >>> [line.text for line in fitted("orders+by_member.exchange", 120)]
    ['orders+by_', 'member.exchange']
    >>> [line.text for line in fitted("a_rather_long_name_of_a_stage", 120)]
    ['a_rather_long_', 'name_of_a_stage']
    >>> fitted("incomprehensibilities", 80)
    (Line(text='incompre…', bold=False, full='incomprehensibilities'),)
    """
    lines = [""]
    for word in _BREAK.split(visible(text)):
        if lines[-1] and width((lines[-1] + word).rstrip(), bold=bold) > most:
            lines.append("")
        lines[-1] += word
    if len(lines) > _MOST_LINES_OF_A_BOX:
        lines = [*lines[: _MOST_LINES_OF_A_BOX - 1], "".join(lines[_MOST_LINES_OF_A_BOX - 1 :])]
    short = [_shortened(line.strip(), most, bold) for line in lines]
    full = text if any(line.strip() != kept for line, kept in zip(lines, short, strict=True)) else ""
    return tuple(Line(line, bold, full) for line in short)


def _shortened(text: str, most: int, bold: bool) -> str:
    if width(text, bold=bold) <= most:
        return text
    while text and width(text + "…", bold=bold) > most:
        text = text[:-1]
    return text.rstrip() + "…"


class Colours(Value, frozen=True):
    """`kinds` has fill and line by kind of box; task groups take the fills of `groups` in turn."""

    ground: str
    text: str
    arrow: str
    kinds: Mapping[str, tuple[str, str]]
    groups: tuple[str, ...]


LIGHT = Colours(
    "#ffffff",
    "#1f2328",
    "#57606a",
    {
        "stream": ("#ddf0fb", "#0072b2"),
        "step": ("#f3f4f6", "#6b7280"),
        "table": ("#dcf3ea", "#00795a"),
        "stage": ("#fafbfc", "#57606a"),
        "exchange": ("#fde9cf", "#b25000"),
        "state": ("#e5e3f8", "#5b4fc0"),
        "result": ("#e5e3f8", "#5b4fc0"),
        "task": ("#f3f4f6", "#6b7280"),
        "group": ("#f3f4f6", "#6b7280"),
        "groups": ("#fafbfc", "#57606a"),
    },
    ("#cfe8f7", "#fbe3bd", "#c9ecdf", "#f3d9e8", "#f9f3b5", "#d5dcf5", "#f7d3c2", "#e3e5e8"),
)
DARK = Colours(
    "#0d1117",
    "#e6edf3",
    "#8b949e",
    {
        "stream": ("#0b2e45", "#56b4e9"),
        "step": ("#21262d", "#8b949e"),
        "table": ("#06352a", "#2fc79d"),
        "stage": ("#161b22", "#8b949e"),
        "exchange": ("#43290a", "#f0a24a"),
        "state": ("#252150", "#a49bf0"),
        "result": ("#252150", "#a49bf0"),
        "task": ("#21262d", "#8b949e"),
        "group": ("#21262d", "#8b949e"),
        "groups": ("#161b22", "#8b949e"),
    },
    ("#123f5c", "#543a0c", "#0b4a39", "#54273f", "#4a450d", "#2b3566", "#5a2c16", "#3a4048"),
)


# Up to this many tasks of a stage, stages and groups are drawn singly; of more tasks, the first and the last.
MOST_TASKS = 12
FIRST_TASKS = 2
MOST_STAGES = 12
MOST_GROUPS = 12
_MOST_NUMBERS = 4
_MOST_LINES = 4


class Box(Value, frozen=True):
    """A box: `lines` of text, the first its title, and the boxes it holds. `name` tells the boxes of a part apart.

    `kind` is stream, step, table, stage, task, exchange, state, result, group or groups; `group` is the
    task group of a task. Stages of a later `wave` stand lower.
    """

    name: str
    kind: str
    lines: tuple[str, ...]
    holds: tuple[Box, ...] = ()
    group: int | None = None
    wave: int = 0


class BoxGroup(Value, frozen=True):
    """Boxes under a title, in an order in which all arrows, each from a box to a box by name, go forwards."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[tuple[str, str], ...]


class Drawing(Value, frozen=True):
    """A picture of a plan: the logical graph, below it the physical plan, then the task groups."""

    title: str
    parts: tuple[BoxGroup, ...]


def drawing(plan: Plan) -> Drawing:
    """The boxes and arrows of a plan. Long runs of tasks, stages and groups are drawn as one box with their count."""
    stages = sorted(plan.stages, key=lambda stage: stage.wave)[:MOST_STAGES]
    title = f"{plan.pipeline}, batch {plan.batch}: {many(plan.records, 'record')}"
    return Drawing(title, (_pipeline(plan, stages), _physical(plan, stages), _groups(plan)))


class _Sketch:
    """A part as it comes together: each box and arrow once, no arrow to what is not drawn."""

    def __init__(self) -> None:
        self._boxes: dict[str, Box] = {}
        self._arrows: dict[tuple[str, str], None] = {}

    def add(self, box: Box, *sources: str) -> None:
        """A box with arrows from its sources."""
        self._boxes[box.name] = box
        self._arrows.update({(source, box.name): None for source in sources})

    def tables(self, stage: Stage, source: str = "") -> None:
        """The result tables of a stage, each with an arrow from `source` or from the step that it holds."""
        for write in stage.writes:
            table = write.declared.table
            self.add(
                Box(f"table {table}", "table", (table, "result table"), wave=stage.wave), source or write.declared.step
            )

    def part(self, title: str) -> BoxGroup:
        """All that was added."""
        drawn = (arrow for arrow in self._arrows if set(arrow) <= set(self._boxes))
        return BoxGroup(title, tuple(self._boxes.values()), tuple(drawn))


def _pipeline(plan: Plan, stages: Sequence[Stage]) -> BoxGroup:
    """Streams, steps and result tables."""
    sketch = _Sketch()
    read = {stream.name for stage in stages for stream in stage.streams}
    for declared in (stream.declared for stream in plan.streams if stream.name in read):
        lines = (declared.name, f"{declared.kind}, {many(declared.partitions, 'partition')}", f"key {declared.key}")
        sketch.add(Box(declared.name, "stream", lines))
    # Unifiers, and ranges of hot keys, do what another step does.
    for step in (step for stage in stages if not stage.repeats for step in stage.steps):
        op = f"{step.op}, keeps state" if step.state else step.op
        sketch.add(Box(step.name, "step", (step.name, op)), *step.inputs)
    for stage in stages:
        sketch.tables(stage)
    return sketch.part("Pipeline")


def _physical(plan: Plan, stages: Sequence[Stage]) -> BoxGroup:
    """What is read, moved, run and written, and by which tasks."""
    groups = plan.group_of
    exchanges = {exchange.name: exchange for exchange in plan.exchanges}
    writers = {step.name: f"stage {stage.name}" for stage in stages for step in stage.steps}
    sketch = _Sketch()
    for stage in stages:
        sources = []
        for read in stage.inputs:
            if isinstance(read, ExchangeInput):
                sources.append(_exchange(exchanges[read.name], stage, sketch))
                continue
            box = _source(plan, stage, read)
            written = isinstance(read, ResultInput) and read.step in writers
            sketch.add(box, *([writers[read.step]] if written else []))
            sources.append(box.name)
        name = f"stage {stage.name}"
        sketch.add(Box(name, "stage", _heading(plan, stage), tuple(_tasks(stage, groups)), wave=stage.wave), *sources)
        sketch.tables(stage, name)
    more = len(plan.stages) - len(stages)
    return sketch.part(f"Plan of batch {plan.batch}" + (f", {many(more, 'more stage')} not drawn" if more else ""))


def _source(plan: Plan, stage: Stage, read: StreamInput | ResultInput | StateInput) -> Box:
    """A stream, a result or state that a stage reads."""
    match read:
        case StreamInput():
            records = plan.stream(read.name).records
            return Box(read.name, "stream", (read.name, str(read.placement), many(records, "record")))
        case ResultInput():
            lines = (f"result of {read.step}", str(read.placement))
            return Box(f"{read.name} for {stage.name}", "result", lines, wave=stage.wave)
        case StateInput():
            state = (f"state of {read.step}", f"of batch {read.batch}", str(read.placement))
            return Box(f"{read.name} for {stage.name}", "state", state, wave=stage.wave)


def _exchange(exchange: Exchange, stage: Stage, sketch: _Sketch) -> str:
    """Draw an exchange; the name of its box."""
    only = f"partitions {_numbers(exchange.only)} only" if exchange.only is not None else ""
    moves = f"moves {many(exchange.moves, 'record')}" if exchange.moves is not None else ""
    spares = f"spares {many(exchange.spares, 'record')}" if exchange.spares is not None else ""
    unifiers = f"{many(exchange.readers, 'unifier')} for each partition" if exchange.unifiers else ""
    lines = (exchange.name, str(exchange.placement), *filter(None, (only, unifiers, moves, spares)))
    sketch.add(Box(exchange.name, "exchange", lines, wave=stage.wave), f"stage {exchange.stage}")
    return exchange.name


def _heading(plan: Plan, stage: Stage) -> tuple[str, ...]:
    count = many(len(stage.tasks), "task")
    wave = f", wave {stage.wave}" if any(other.wave for other in plan.stages) else ""
    shared = (f"{many(stage.cosets, 'coset')} assigned by {stage.partitioner}",) if stage.partitioner else ()
    steps = ", ".join(step.name for step in stage.steps) or "no steps"
    return (f"Stage {stage.name}", f"{stage.scheme}: {count}{wave}", *shared, steps)


def _tasks(stage: Stage, groups: Mapping[TaskRef, int]) -> Iterator[Box]:
    """The tasks of a stage; of many the first ones, those between drawn together, and the last."""
    first, between, last = stage.tasks, stage.tasks[:0], stage.tasks[:0]
    if len(stage.tasks) > MOST_TASKS:
        first, between, last = stage.tasks[:FIRST_TASKS], stage.tasks[FIRST_TASKS:-1], stage.tasks[-1:]
    for task in first:
        yield _task(stage, task, groups)
    if between:
        numbers = sorted({groups[TaskRef(stage.name, task.task)] for task in between})
        noun = "group" if len(numbers) == 1 else "groups"
        lines = (
            f"tasks {between[0].task}-{between[-1].task}",
            f"{noun} {_numbers(numbers)}",
            *_read_by(stage, between),
        )
        yield Box("between", "task", lines)
    for task in last:
        yield _task(stage, task, groups)


def _task(stage: Stage, task: Task, groups: Mapping[TaskRef, int]) -> Box:
    group = groups[TaskRef(stage.name, task.task)]
    owns = (f"owns {_numbers(task.owns)}",) if stage.partitioner else ()
    offsets = "" if task.span is None else f"@{task.span}"
    reads = _few([f"{name} {_numbers(numbers)}{offsets}" for name, numbers in task.reads.items() if numbers], "input")
    keys = ("records without a key",) if task.null_keys else ()
    lines = (f"task {task.task}", f"group {group}", *owns, *reads, *keys)
    return Box(f"task {task.task}", "task", lines, group=group)


def _read_by(stage: Stage, tasks: Sequence[Task]) -> Iterator[str]:
    """How many partitions of each input the tasks read, each of them."""
    for read in stage.inputs:
        counts = [len(task.reads.get(read.name, ())) for task in tasks]
        many_each = many(max(counts), "partition")
        yield f"{read.name}: {many_each if min(counts) == max(counts) else f'{min(counts)} to {many_each}'} each"


def _groups(plan: Plan) -> BoxGroup:
    shown = plan.groups if len(plan.groups) <= MOST_GROUPS else plan.groups[: MOST_GROUPS - 1]
    boxes = [_group(plan, group) for group in shown]
    if len(plan.groups) > len(shown):
        boxes.append(Box("more", "group", (f"… and {many(len(plan.groups) - len(shown), 'more group')}",)))
    heading = (many(len(plan.groups), "task group"), f"grouped by {plan.grouper}")
    return BoxGroup("Task groups", (Box("groups", "groups", heading, tuple(boxes)),), ())


def _group(plan: Plan, group: TaskGroup) -> Box:
    wave = f", wave {group.wave}" if any(other.wave for other in plan.groups) else ""
    lines = (
        f"group {group.group}{wave}",
        f"{size(group.bytes)}, {many(group.records, 'record')}",
        *_few([f"{stage}/{_numbers(tasks)}" for stage, tasks in group.numbers.items()], "stage"),
        *([f"at {group.location}"] if group.location else []),
    )
    return Box(f"group {group.group}", "group", lines, group=group.group)


def _few(lines: Sequence[str], noun: str) -> list[str]:
    """The first lines, and how many more there are."""
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], *([f"… and {many(more, f'more {noun}')}"] if more > 0 else [])]


def _numbers(numbers: Sequence[int]) -> str:
    """Ascending numbers, drawn together and cut."""
    words = runs(numbers)
    return ", ".join(words if len(words) <= _MOST_NUMBERS else [*words[: _MOST_NUMBERS - 1], "…", words[-1]])
