"""Diff: two plans side by side: what changed, which keys change hands, and whether results stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

import msgspec

from partitioning.diff.moved_keys import Handover, Portion, handovers, moved
from partitioning.diff.table_changes import Results, StateChange, results, state_changes
from partitioning.explain.reason_texts import move_reason
from partitioning.model.graph import StateSpec, Step
from partitioning.model.plan import Exchange, Plan, Stage, TaskMove
from partitioning.model.stage_inputs import ExchangeInput, Input, PlannedStream, ResultInput, StateInput, StreamInput
from partitioning.model.streams import Column
from partitioning.planning.changed_queries import added_tables
from partitioning.sections import Section, many, percent, runs, section, size
from partitioning.values import Value, replace

_ABSENT = ""


class DeclarationChange(Value, frozen=True):
    """One difference, in words. `before` is empty for what is new, `now` for what is gone."""

    what: str
    before: str
    now: str


def changes(before: Plan, now: Plan) -> tuple[DeclarationChange, ...]:
    """All differences between two plans, except offsets, sizes, files and tasks."""
    return (
        *_of_named("stream", _streams(before), _streams(now)),
        *_of_named("exchange", _exchanges(before), _exchanges(now)),
        *_of_named("stage", _stages(before), _stages(now)),
        *_of_named("step", _steps(before), _steps(now)),
        *_of_named("table", _tables(before), _tables(now)),
        *_between("", _whole(before), _whole(now)),
        *_code(before, now),
        *_answers(before, now),
    )


def _of_named(
    noun: str, before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]
) -> Iterator[DeclarationChange]:
    for name in dict.fromkeys([*before, *now]):
        if name not in now:
            yield DeclarationChange(f"{noun} {name}", "there", "removed")
        elif name not in before:
            yield DeclarationChange(f"{noun} {name}", _ABSENT, "added")
        else:
            yield from _between(f"{noun} {name}: ", before[name], now[name])


def _between(prefix: str, before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[DeclarationChange]:
    for field in dict.fromkeys([*before, *now]):
        if before.get(field) != now.get(field):
            yield DeclarationChange(prefix + field, before.get(field, _ABSENT), now.get(field, _ABSENT))


def _streams(plan: Plan) -> dict[str, dict[str, str]]:
    return {stream.name: _fields(stream.declared) | _stream_columns(stream) for stream in plan.streams}


def _stream_columns(stream: PlannedStream) -> dict[str, str]:
    columns = _columns(stream.columns)
    for name in stream.required:
        columns[f"column {name}"] += ", never null"
    return columns | {"columns that files lack": ", ".join(stream.lacking)}


def _exchanges(plan: Plan) -> dict[str, dict[str, str]]:
    return {exchange.name: _exchange(exchange) for exchange in plan.exchanges}


def _exchange(exchange: Exchange) -> dict[str, str]:
    return {
        "moves": exchange.source + _only(exchange.only),
        "to": str(exchange.placement),
        "written by": exchange.stage,
        "wanted by": ", ".join(exchange.wanted_by),
        "unifiers": ", ".join(map(str, exchange.unifiers)),
    }


def _stages(plan: Plan) -> dict[str, dict[str, str]]:
    return {stage.name: _stage(stage) for stage in plan.stages}


def _stage(stage: Stage) -> dict[str, str]:
    return {
        "scheme": str(stage.scheme),
        "cosets": str(stage.cosets),
        "tasks": str(len(stage.tasks)),
        "partitioner": stage.partitioner or _ABSENT,
        "wave": str(stage.wave),
    } | {f"reads {source.name}": _input(source) for source in stage.inputs}


def _input(read: Input) -> str:
    match read:
        case StreamInput():
            return f"stream{_only(read.only)}"
        case ExchangeInput():
            return "exchange"
        case ResultInput():
            return f"result {read.placement}"
        case StateInput():
            return f"state {read.placement}"


def _only(partitions: tuple[int, ...] | None) -> str:
    return _ABSENT if partitions is None else f", partitions {', '.join(runs(partitions))} only"


def _steps(plan: Plan) -> dict[str, dict[str, str]]:
    # Unifiers, and ranges of hot keys, do what another step does.
    return {step.name: _step(step) for stage in plan.stages if not stage.repeats for step in stage.steps}


def _step(step: Step) -> dict[str, str]:
    return (
        {
            "SQL": step.sql,
            "key": f"{step.key} ({step.key_format})" if step.key else _ABSENT,
            "partitions": _text(step.partitions),
            "hash": step.hash,
            "fan in": _text(step.fan_in),
            "function": _text(step.function),
            "is given": " and ".join(step.inputs) if step.on_dataframes else _ABSENT,
            "keeps state": "yes" if step.state else _ABSENT,
        }
        | (_state(step.state) if step.state else {})
        | _columns(step.columns)
    )


def _state(keeps: StateSpec) -> dict[str, str]:
    changed = _fields(keeps.changed) if keeps.changed else {}
    said = {
        "keeps rows of": keeps.sql,
        "keeps key and time of": keeps.times,
        "does not count times of": keeps.apart,
        "keeps the newest of each key": "yes" if keeps.newest else _ABSENT,
        "keeps it by": _text(keeps.placement),
        # Watermarks move with each batch, as offsets do.
        **{what: str(timedelta(microseconds=time)) for what, time in keeps.lengths.items() if time},
        **{f"change of what it keeps: {what}": text for what, text in changed.items()},
    }
    columns = {f"keeps {name}": kind for name, kind in _columns(keeps.columns).items()}
    return {what: text for what, text in said.items() if text} | columns


def _tables(plan: Plan) -> dict[str, dict[str, str]]:
    return {write.declared.table: _fields(write.declared) | _columns(write.columns) for write in plan.writes()}


def _whole(plan: Plan) -> dict[str, str]:
    return {
        "pipeline": plan.pipeline,
        "task groups": str(len(plan.groups)),
        "grouper": plan.grouper,
        "planner": plan.planner,
        "engine": str(plan.planned_for),
    }


def _code(before: Plan, now: Plan) -> Iterator[DeclarationChange]:
    """The functions with other code. A commit alone is no change: it changes with every page of a repository."""
    for path in dict.fromkeys([*before.code, *now.code]):
        if before.code.get(path) != now.code.get(path):
            was, is_now = (plan.code_shown(path) or _ABSENT for plan in (before, now))
            yield DeclarationChange(f"code of {path}", was, is_now)


def _answers(before: Plan, now: Plan) -> Iterator[DeclarationChange]:
    """What the pipeline uses that answers otherwise in another version of DuckDB."""
    if now.planned_for.was == before.planned_for.version:
        for each in now.planned_for.answers or ():
            yield DeclarationChange(f"engine: {each.example or each.name}", each.was, each.now or each.how)


def _fields(declared: Value) -> dict[str, str]:
    values = msgspec.structs.asdict(declared)
    return {name.replace("_", " "): _text(value) for name, value in values.items()}


def _columns(columns: tuple[Column, ...]) -> dict[str, str]:
    return {f"column {column.name}": column.type for column in columns}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return _ABSENT
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {kind}" for name, kind in value.items())
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


class Diff(Value, frozen=True):
    """What differs between two plans. Plans that are not `identical` may differ in offsets only."""

    before: int
    now: int
    identical: bool
    changes: tuple[DeclarationChange, ...]
    handovers: tuple[Handover, ...]
    moves: tuple[TaskMove, ...]
    results: Results
    states: tuple[StateChange, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """The diff in a few sentences."""
        if self.identical:
            return ("No change: both are the same plan.",)
        if not (self.changes or self.handovers or self.moves):
            return ("Nothing changed but the offsets.",)
        return (f"Compared with batch {self.before}.", str(self.results))


def diff(before: Plan, now: Plan) -> Diff:
    """Compare a plan with a later one, or with one that is only planned."""
    return Diff(
        before.batch,
        now.batch,
        before == now,
        changes(before, now),
        handovers(before, now),
        moved(before, now),
        replace(results(before, now), lack=tuple(_lack(before, now))),
        tuple(state_changes(before, now)),
    )


def _lack(before: Plan, now: Plan) -> Iterator[str]:
    """The new tables that have nothing of what the batch before took, or an earlier one."""
    if now.batch > before.batch:
        yield from (each.write.table for each in added_tables(now.graph, before, before.ends, now.held))


def diff_sections(difference: Diff) -> tuple[Section, ...]:
    """The diff as tables: steps that do not simply continue; keys, state and tasks that move; and all changes. Empty
    tables are left out."""
    return (
        *states_section(difference.states),
        *_handovers(difference),
        *moves_section(difference.moves),
        _changes(difference),
    )


def states_section(states: tuple[StateChange, ...]) -> Iterator[Section]:
    """The steps that begin anew, or continue although something before them changed, if there are any."""
    if states:
        rows = [(each.step, each.outcome, "; ".join(each.why), ", ".join(each.tables), each.costs) for each in states]
        columns = ("step", "it", "why", "tables that come from it", "what that means")
        optional = ("tables that come from it", "what that means")
        yield section("State that does not simply go on", columns, rows, optional=optional)


def moves_section(moves: tuple[TaskMove, ...]) -> Iterator[Section]:
    """The tasks that moved to another task group, if any did."""
    if moves:
        rows = [(str(move.task), f"group {move.before}", f"group {move.now}", move_reason(move.why)) for move in moves]
        notes = [f"{many(len(moves), 'task')} moved to another task group."]
        yield section("Task moves", ("task", "before", "now", "why"), rows, notes)


def _handovers(difference: Diff) -> Iterator[Section]:
    if difference.handovers:
        columns = (
            "stage",
            "what",
            "keys in another task",
            "in another group",
            "tasks that take over",
            "stream partitions",
            "records",
            "bytes",
            "why",
        )
        optional = ("stream partitions", "records", "bytes")
        rows = [_handover(handover) for handover in difference.handovers]
        yield section("Keys that change hands", columns, rows, _meaning(difference), optional=optional)


def _meaning(difference: Diff) -> Iterator[str]:
    if any(handover.state and handover.keys for handover in difference.handovers):
        yield "State is read by the new owner of its keys where the old one left it; nothing is rewritten."


def _handover(handover: Handover) -> tuple[str, ...]:
    return (
        handover.stage,
        f"state of {handover.name}" if handover.state else handover.name,
        percent(handover.keys),
        percent(handover.groups),
        _of(handover.tasks, "{:,}".format),
        _of(handover.partitions, "{:,}".format),
        _of(handover.records, "{:,}".format),
        _of(handover.bytes, size),
        handover.why,
    )


def _of(part: Portion | None, write: Callable[[int], str]) -> str:
    return f"{'' if part.exact else '~'}{write(part.some)} of {write(part.all)}" if part else ""


def _changes(difference: Diff) -> Section:
    rows = [(change.what, change.before, change.now) for change in difference.changes]
    return section("Changes", ("what", "before", "now"), rows, difference.sentences)
