"""Explain: a plan as tables for people, and what changed since the plan before. Pure data; others draw it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from partitioning.authoring.settings import BALANCED_STICKY
from partitioning.commands import Shown
from partitioning.cosets import Assignment
from partitioning.diff.plan_diff import Diff, diff, diff_sections, moves_section, states_section
from partitioning.documents.document import digest
from partitioning.explain.missing import doubles, missing
from partitioning.explain.reason_texts import exchange_reason, stage_reason
from partitioning.explain.surprises import surprises_section
from partitioning.explain.table_query import rows_are
from partitioning.explain.watermarks import MarkedBatch, waiting_section, watermarks_section
from partitioning.model.meaning import meanings
from partitioning.model.plan import Exchange, Plan, PlannedWrite, Stage, TaskGroup, TaskRef
from partitioning.model.reasons import OwnTasks
from partitioning.model.stage_inputs import ExchangeInput, Input, PlannedStream, ResultInput, StateInput, StreamInput
from partitioning.model.statistics import Statistics
from partitioning.model.takes import Task
from partitioning.sections import MOST_ROWS, Section, cut, many, runs, section, size
from partitioning.values import replace


def explain(
    plan: Plan,
    previous: Plan | None = None,
    last: Statistics | None = None,
    shown: Shown = Shown(),  # noqa: B008  it is a value
) -> tuple[Section, ...]:
    """The plan for people: steps that do not simply continue from their state, streams, watermarks, what may surprise,
    exchanges, the tasks of each stage, task groups, result tables, changes.

    `previous` is the plan to compare with, `last` has the figures of the last published batch. Next steps are those of
    where it is `shown`. Long lists are cut and
    say how much they leave out.
    """
    groups, records = plan.group_of, plan.records
    difference, graph = diff(previous, plan) if previous else None, plan.graph
    return (
        *(states_section(difference.states) if difference else ()),
        _streams(plan, records),
        *missing(plan),
        *doubles(plan),
        *watermarks_section(plan.watermarks, graph),
        *waiting_section(graph, MarkedBatch("this batch", plan.watermarks)),
        *surprises_section(plan, last, shown),
        *_exchanges(plan),
        *(_stage(plan, stage, groups) for stage in plan.stages[:MOST_ROWS]),
        *_more_stages(plan),
        _groups(plan, records),
        _results(plan),
        *_functions(plan),
        *_changes(plan, difference),
    )


def assignment_document(assignment: Assignment) -> dict[str, Any]:
    """An assignment as plain data, ready for JSON.

    >>> from partitioning.cosets import assign
    >>> from partitioning.model.schemes import COGROUP
    >>> assignment_document(assign([("views", 2), ("clicks", 3)], COGROUP))
    {'scheme': 'cogroup', 'tasks': [{'task': 0, 'reads': {'views': [0, 1], 'clicks': [0, 1, 2]}, 'filters': {}}]}
    """
    return {
        "scheme": assignment.scheme,
        "tasks": [
            {
                "task": task.task,
                "reads": {stream: list(partitions) for stream, partitions in task.reads.items()},
                "filters": {
                    stream: {"modulus": kept.modulus, "residue": kept.residues[0]}
                    for stream, kept in task.filters.items()
                },
            }
            for task in assignment.tasks
        ],
    }


def _streams(plan: Plan, records: int) -> Section:
    columns = ("stream", "key", "hash", "partitions", "records", "bytes", "records without a key")
    notes = (
        f"Batch {plan.batch} of {plan.pipeline}: {many(records, 'record')} to read.",
        f"Plan {digest(plan)}" + (f", after {plan.parent}." if plan.parent else ", the first of the pipeline."),
        *(f"{one}." for one in plan.forgotten),
        *_in_brokers(plan),
        *(f"{each[:1].upper()}{each[1:]}." for each in columns_to_come(plan)),
    )
    return section("Streams", columns, [_stream(stream) for stream in plan.streams], notes)


def columns_to_come(plan: Plan) -> Iterator[str]:
    """Of each stream the columns that no step and no table can have yet, and when they come."""
    for stream in plan.streams:
        if stream.untyped:
            yield (
                f"null in all records of {stream.name} so far, and so without a type: {cut(stream.untyped)}; steps and "
                "tables have such a column once a record has a value in it, or at once if it is declared, as "
                f"cast={dict.fromkeys(stream.untyped[:1], 'VARCHAR')}"
            )


def _in_brokers(plan: Plan) -> Iterator[str]:
    names = [stream.name for stream in plan.streams if not stream.declared.counted_by_plan]
    if names:
        listed = " and ".join(names)
        yield f"Of {listed} records are offsets, some of which may have none in the topic's log; bytes are an estimate."


def _stream(stream: PlannedStream) -> tuple[str, ...]:
    declared = stream.declared
    return (
        declared.name + (f" ({declared.kind})" if declared.table else ""),
        f"{declared.key} ({declared.key_format})",
        declared.hash,
        str(declared.partitions),
        f"{stream.records:,}",
        size(sum(partition.bytes for partition in stream.partitions)),
        declared.null_keys,
    )


def _exchanges(plan: Plan) -> Iterator[Section]:
    if plan.exchanges:
        columns = (
            "exchange",
            "moves",
            "written by",
            "to",
            "wanted by",
            "records moved",
            "records spared",
            "unifiers",
            "why",
        )
        rows = [_exchange(exchange) for exchange in plan.exchanges]
        yield section("Exchanges", columns, rows, list(_counted(plan)), optional=("unifiers",))


def _counted(plan: Plan) -> Iterator[str]:
    """How the records that move were counted, if any count is known."""
    if all(exchange.moves is None for exchange in plan.exchanges):
        return
    if plan.batch == 0:
        yield "Records are counted by what has arrived."
    else:
        yield "Records of streams are those that have arrived; those of steps are as in the last published batch."


def _exchange(exchange: Exchange) -> tuple[str, ...]:
    return (
        exchange.name,
        exchange.source + _only(exchange.only),
        exchange.stage,
        str(exchange.placement),
        ", ".join(exchange.wanted_by),
        _known(exchange.moves),
        _known(exchange.spares),
        f"{exchange.combine}: {' → '.join(map(str, exchange.unifiers))}" if exchange.unifiers else "",
        exchange_reason(exchange),
    )


def _known(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


def _only(partitions: tuple[int, ...] | None) -> str:
    return "" if partitions is None else f" (partitions {cut(runs(partitions))} only)"


def _stage(plan: Plan, stage: Stage, groups: Mapping[TaskRef, int]) -> Section:
    names = [source.name for source in stage.inputs]
    columns = ("task", "group", "owns", *names, "records", "filter", "left until batch")
    optional = ["owns", "left until batch", *([] if stage.streams else ["records"])]
    rows = [_task(plan, stage, task, groups) for task in stage.tasks[:MOST_ROWS]]
    notes = _stage_notes(plan, stage)
    return section(f"Stage {stage.name}", columns, rows, notes, optional=optional, count=len(stage.tasks))


def _stage_notes(plan: Plan, stage: Stage) -> Iterator[str]:
    count = sum(1 for task in stage.tasks if task.owns) if isinstance(stage.why, OwnTasks) else stage.cosets
    cosets = many(count, "coset" if stage.partitioner else "task")
    yield f"Scheme {stage.scheme}, {cosets}: {stage_reason(stage)}."
    yield "Steps: " + (", ".join(step.name for step in stage.steps) or "none") + "."
    yield from (note for source in stage.inputs if (note := _input(source)))
    if idle := idle_tasks(plan, stage):
        records, tasks = many(_records(plan, stage), "record"), many(len(stage.tasks), "task")
        yield f"For its {records} it has {tasks}: at least {idle:,} of them have nothing to do."
    if stage.wave:
        yield f"Wave {stage.wave}: it starts when wave {stage.wave - 1} has ended."


def idle_tasks(plan: Plan, stage: Stage) -> int:
    """How many tasks of a stage have no record at least; 0 where it is not known how many records it reads."""
    if len(stage.streams) < len(stage.inputs):
        return 0
    return max(0, len(stage.tasks) - _records(plan, stage))


def _records(plan: Plan, stage: Stage) -> int:
    """The records of the streams that a stage reads."""
    return sum(plan.stream(read.name).records_of(read.only) for read in stage.streams)


def _input(source: Input) -> str:
    """The place of a stage's records, if it differs from the stream's declaration."""
    match source:
        case StreamInput():
            usual = source.only is None and source.placement.partitions == source.partitions
            return "" if usual else f"{source.name}{_only(source.only)} is read as placed by {source.placement}."
        case StateInput():
            kept = f"what {source.step} kept up to batch {source.batch}, in {many(len(source.runs), 'run')}"
            return f"{source.name}: {kept}, placed by {source.placement}."
        case ExchangeInput() | ResultInput():
            return f"{source.name}: records of {source.step}, placed by {source.placement}."


def _task(plan: Plan, stage: Stage, task: Task, groups: Mapping[TaskRef, int]) -> tuple[str, ...]:
    read = (planned for stream in stage.streams for planned in plan.stream(stream.name).read_by(task))
    records = sum(planned.records for planned in read)
    return (
        str(task.task),
        str(groups[TaskRef(stage.name, task.task)]),
        cut(runs(task.owns)) if stage.partitioner else "",
        *(_reading(plan, source, task) for source in stage.inputs),
        f"{records:,}" if stage.streams else "",
        "records without a key only" if task.null_keys else _filters(stage, task),
        _left_until(plan, stage, task),
    )


def _reading(plan: Plan, source: Input, task: Task) -> str:
    """The partitions that a task reads of an input, for a stream with the offsets."""
    if not isinstance(source, StreamInput):
        return cut(runs(task.reads.get(source.name, ())))
    read = plan.stream(source.name).read_by(task)
    return cut([f"{planned.partition}@[{planned.start},{planned.end})" for planned in read])


def _filters(stage: Stage, task: Task) -> str:
    names = [source.name for source in stage.inputs if source.name in task.filters]
    return ", ".join(f"{name}: {task.filters[name]}" for name in names)


def _left_until(plan: Plan, stage: Stage, task: Task) -> str:
    """The batch until which a partitioner leaves the task as it is, if that is to come."""
    until = stage.cooling[task.task] if task.task < len(stage.cooling) else 0
    return str(until) if until > plan.batch else ""


def _more_stages(plan: Plan) -> Iterator[Section]:
    if (more := len(plan.stages) - MOST_ROWS) > 0:
        tasks = sum(len(stage.tasks) for stage in plan.stages[MOST_ROWS:])
        yield Section(f"… and {many(more, 'more stage')}", (), (), (f"They have {many(tasks, 'task')}.",))


def _groups(plan: Plan, records: int) -> Section:
    columns = ("group", "tasks", "bytes", "records", "wave", "location")
    waves = any(group.wave for group in plan.groups)
    rows = [
        (
            str(group.group),
            _tasks(group),
            size(group.bytes),
            f"{group.records:,}",
            str(group.wave) if waves else "",
            group.location or "",
        )
        for group in plan.groups
    ]
    notes = []
    if plan.grouper != BALANCED_STICKY:
        notes.append(f"Tasks are grouped by {plan.grouper}.")
    if sum(group.records for group in plan.groups) > records:
        notes.append("Stream partitions that several tasks read are counted for each.")
    return section("Task groups", columns, rows, notes, optional=("wave", "location"))


def _tasks(group: TaskGroup) -> str:
    return cut([f"{stage}/{cut(runs(tasks))}" for stage, tasks in group.numbers.items()])


def _results(plan: Plan) -> Section:
    held = plan.held
    rows = [
        (
            write.declared.table,
            write.declared.step,
            _mode(write),
            f"{held[write.declared.table]:,}" if write.declared.table in held else "",
            ", ".join(f"{column.name} {column.type}" for column in write.columns),
            "yes" if write.declared.lineage else "no",
            str(len(write.declared.expectations)),
        )
        for write in plan.writes()
    ]
    columns = ("table", "step", "mode", "rows it has", "columns", "lineage", "expectations")
    means = meanings(plan.graph)
    means_what = (
        f"{table}: its rows are {rows_are(said)}; `explain --query {table}` prints their query."
        for table, said in means.items()
    )
    notes = (*plan.as_asked.values(), *islice(means_what, MOST_ROWS))
    return section("Result tables", columns, rows, notes, optional=("mode", "rows it has"))


def _functions(plan: Plan) -> Iterator[Section]:
    """The functions of users that the plan calls."""
    if called := plan.functions:
        rows = [(path, ", ".join(by), plan.code_shown(path) or "not noted") for path, by in called.items()]
        yield section("Functions", ("function", "called for", "code of its module"), rows)


def _mode(write: PlannedWrite) -> str:
    mode = write.declared.mode
    if write.beside:
        merged = f", {many(len(write.merged), 'partition')} anew" if write.merged else ""
        again = "" if write.since is None else f", with those that came after batch {write.since}"
        return f"{mode}, new rows beside the old{again}{merged}"
    return "" if mode.only_adds else f"{mode}, all rows anew" if write.anew else mode


def _changes(plan: Plan, difference: Diff | None) -> Iterator[Section]:
    if difference is not None:
        yield from diff_sections(replace(difference, states=()))
        return
    yield from moves_section(plan.moves)
    yield Section("Changes", ("what", "before", "now"), (), ("There is no earlier plan to compare with.",))
