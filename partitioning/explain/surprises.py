"""Surprises: what a plan does as it is declared, and people do not expect; each with what to do about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from partitioning.commands import BackfillAsking, Shown, Then, backfill_of
from partitioning.model.composite_key import key_columns
from partitioning.model.graph import Op, Step, waiting
from partitioning.model.meaning import RowKind, meanings
from partitioning.model.plan import Plan
from partitioning.model.reasons import OwnTasks
from partitioning.model.stage_inputs import ExchangeInput
from partitioning.model.statistics import Statistics
from partitioning.model.task_engine import Differs, OtherAnswer
from partitioning.model.watermarks import EventTime
from partitioning.sections import Section, many, percent
from partitioning.values import Value

# A key with this share of a stream's records is nearly the only one; of fewer records nothing can be said.
_NEARLY_ALL, _ENOUGH = Fraction(9, 10), 1_000
_AGGREGATES = {Op.AGGREGATE, Op.COGROUP, Op.COMBINE}
# DuckDB's functions of the order of records. Of some it decides only between records that are equal otherwise.
_OF_ORDER = re.compile(
    r"\b(list|array_agg|string_agg|group_concat|listagg|first|last|any_value|arbitrary|mode"
    r"|arg_?(?:max|min)(?:_nulls?(?:_last)?)?|(?:max|min)_by|approx_quantile|approx_top_k|reservoir_quantile)\s*\(",
    re.IGNORECASE,
)
_SAYS_ORDER = re.compile(r"\bORDER\s+BY\b|,\s*\([^()]*,[^()]*\)\s*\)$", re.IGNORECASE)


class JoinsATable(Value, frozen=True, tag="joins a table", tag_field="surprise"):
    """The step joins the records of a batch with what these tables hold when the batch is planned."""

    step: str
    tables: tuple[str, ...]


class JoinsInABatch(Value, frozen=True, tag="joins in a batch", tag_field="surprise"):
    """The step joins records of these streams only if one batch brings both."""

    step: str
    streams: tuple[str, ...]


class OnlyGrows(Value, frozen=True, tag="only grows", tag_field="surprise"):
    """The step keeps a row for each key it ever saw: so many by now, None before its first batch."""

    step: str
    op: Op
    rows: int | None


class OrderedByItsKey(Value, frozen=True, tag="ordered by its key", tag_field="surprise"):
    """The step gives the latest record of each key by this column, which is of the key: all are equal in it."""

    step: str
    column: str


class OneKey(Value, frozen=True, tag="one key", tag_field="surprise"):
    """This share of a stream's records has one key, as the last batch counted; or they lie in one `partition` only."""

    stream: str
    column: str
    share: Fraction
    key: str = ""
    partition: int | None = None


class NeverLate(Value, frozen=True, tag="never late", tag_field="surprise"):
    """The step gives what is over, once, and these streams say that no record comes later than later ones."""

    step: str
    streams: tuple[str, ...]


class OrderMatters(Value, frozen=True, tag="order matters", tag_field="surprise"):
    """The step calls these functions, whose result depends on the order of records, on records that were moved."""

    step: str
    functions: tuple[str, ...]


class OtherEngine(Value, frozen=True, tag="other engine", tag_field="surprise"):
    """DuckDB is another version than the one before, and something that steps use answers otherwise; or nobody knows,
    where there is no `answer`. The backfill compares the rows of before with what they would be now."""

    was: str
    now: str
    compare: BackfillAsking
    steps: tuple[str, ...] = ()
    answer: OtherAnswer | None = None


class NotItsQuery(Value, frozen=True, tag="not its query", tag_field="surprise"):
    """The rows of a table that has come in several batches are not those of its query, because of a step."""

    table: str
    step: str
    why: str
    instead: str


Surprise = (
    NotItsQuery
    | OtherEngine
    | JoinsATable
    | JoinsInABatch
    | OnlyGrows
    | OrderedByItsKey
    | OneKey
    | NeverLate
    | OrderMatters
)


def surprises(plan: Plan, last: Statistics | None = None) -> tuple[Surprise, ...]:
    """What may surprise, by the plan and by what was counted in the `last` published batch."""
    steps = {step.name: step for stage in plan.stages if not stage.repeats for step in stage.steps}
    kept = {read.step: read.records for read in plan.states}
    tables = {stream.name for stream in plan.streams if stream.declared.table}
    joins = [found for step in steps.values() if step.op is Op.JOIN if (found := joined_by_batch(step, steps, tables))]
    growing = (step for step in steps.values() if _grows(step))
    grown = (OnlyGrows(_as_written(step.name, steps), step.op, kept.get(step.name)) for step in growing)
    return (
        *_not_queries(plan),
        *_other_engine(plan, steps),
        *joins,
        *_order_matters(plan, steps),
        *_never_late(plan, steps),
        *_ordered_by_keys(steps),
        *grown,
        *_one_key(plan, last),
    )


def surprises_section(plan: Plan, last: Statistics | None, shown: Shown = Shown()) -> Iterator[Section]:  # noqa: B008
    """The surprises for people, if there are any, with next steps as they are `shown` there."""
    if rows := tuple((where, what, shown.says(then)) for where, what, then in map(_row, surprises(plan, last))):
        yield Section("What may surprise", ("where", "what", "what to do"), rows, ())


def _not_queries(plan: Plan) -> Iterator[NotItsQuery]:
    graph = plan.graph
    steps = {step.name: step for step in graph.steps}
    for table, means in meanings(graph).items():
        if means.rows is RowKind.PARTLY:
            yield NotItsQuery(table, _as_written(means.step, steps), means.why, means.instead)


def _other_engine(plan: Plan, steps: Mapping[str, Step]) -> Iterator[OtherEngine]:
    """What this version of DuckDB answers otherwise than the one before, but for what no step could call before."""
    engine, backfill = plan.planned_for, backfill_of(plan.pipeline)
    compare = BackfillAsking(backfill[0] if backfill else plan.pipeline, 0, cascade=True)
    if engine.was and engine.answers is None:
        yield OtherEngine(engine.was, engine.version, compare)
    for answer in (each for each in engine.answers or () if each.how not in {Differs.ACCEPTED, Differs.CRASHED}):
        users = tuple(dict.fromkeys(_as_written(name, steps) for name in answer.used_by))
        yield OtherEngine(engine.was, engine.version, compare, users, answer)


def joined_by_batch(step: Step, steps: Mapping[str, Step], tables: set[str]) -> JoinsATable | JoinsInABatch | None:
    """How a join depends on when batches run. One of records that are kept for a time does not, nor one of tables."""
    sides = [_origin(name, steps, tables) for name in step.inputs]
    whole = tuple(dict.fromkeys(name for names, of_table in sides if of_table for name in names))
    streams = [names for names, of_table in sides if not of_table]
    if any(steps[name].op in {Op.RECENT, Op.ROWS} for name in step.inputs if name in steps) or not streams:
        return None
    if len(set(streams)) > 1:
        return JoinsInABatch(
            _as_written(step.name, steps), tuple(dict.fromkeys(name for names in streams for name in names))
        )
    return JoinsATable(_as_written(step.name, steps), whole) if whole else None


def _order_matters(plan: Plan, steps: Mapping[str, Step]) -> Iterator[OrderMatters]:
    """The steps that aggregate moved records by functions of their order. That order depends on the tasks."""
    moved = (stage for stage in plan.stages if any(isinstance(read, ExchangeInput) for read in stage.inputs))
    for step in (step for stage in moved if not stage.repeats for step in stage.steps):
        if step.op in _AGGREGATES and (called := tuple(dict.fromkeys(_unordered(step.expressions)))):
            yield OrderMatters(_as_written(step.name, steps), called)


def _unordered(expressions: Iterable[str]) -> Iterator[str]:
    """The functions of the order of records that are called without an ORDER BY, and not by several values.

    >>> list(_unordered(["list(a ORDER BY b), FIRST(max(c)) AS d", "list_value(a), arg_max(a, b), max_by(a, (b, a))"]))
    ['first', 'arg_max']
    """
    for text in expressions:
        for call in _OF_ORDER.finditer(text):
            depth, end = 1, call.end()
            while depth and end < len(text):
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            if not _SAYS_ORDER.search(text, call.end(), end):
                yield call[1].lower()


def _never_late(plan: Plan, steps: Mapping[str, Step]) -> Iterator[NeverLate]:
    """The waiting steps of streams without `late=`."""
    times = {stream.name: stream.declared.time for stream in plan.streams}
    for step in steps.values():
        if waiting(step, steps):
            names, _ = _origin(step.name, steps, set())
            found = [(name, times.get(name)) for name in names]
            if strict := tuple(name for name, time in found if isinstance(time, EventTime) and not time.late):
                yield NeverLate(_as_written(step.name, steps), strict)


def _ordered_by_keys(steps: Mapping[str, Step]) -> Iterator[OrderedByItsKey]:
    for step in (step for step in steps.values() if step.op is Op.LATEST):
        columns = {name.lower(): name for name in key_columns(step.key)}
        if column := columns.get(step.expressions[0].strip().strip('"').lower()):
            yield OrderedByItsKey(_as_written(step.name, steps), column)


def _as_written(name: str, steps: Mapping[str, Step]) -> str:
    """The step that the pipeline declares, if this is one of those of which windows and joins in time consist: its
    name begins with theirs, and they come from it."""
    dots = (place for place, letter in enumerate(name) if letter == ".")
    outer = (name[:dot] for dot in dots)
    return next((each for each in outer if each in steps and _comes_from(each, name, steps)), name)


def _comes_from(name: str, origin: str, steps: Mapping[str, Step]) -> bool:
    return name == origin or any(
        _comes_from(each, origin, steps) for each in (steps[name].inputs if name in steps else ())
    )


def _origin(name: str, steps: Mapping[str, Step], tables: set[str]) -> tuple[tuple[str, ...], bool]:
    """The streams that a flow comes from, and whether it is all of a table, and not what one batch brings."""
    if name not in steps:
        return (name,), name in tables
    step = steps[name]
    before = [_origin(each, steps, tables) for each in step.inputs]
    names = tuple(dict.fromkeys(each for found, _ in before for each in found))
    return names, step.op is Op.TABLE or all(of_table for _, of_table in before)


def _grows(step: Step) -> bool:
    """Whether it keeps a row for each key for ever."""
    newest = step.state is not False and step.state.newest
    for_ever = step.keeps_its_rows and step.state is not False and not step.state.of_lives
    return newest or (step.op in {Op.COMBINE, Op.LATEST} and for_ever)


def _one_key(plan: Plan, last: Statistics | None) -> Iterator[OneKey]:
    whys = [stage.why for stage in plan.stages]
    shared = {(own.ranged, own.key) for why in whys if isinstance(why, OwnTasks) for own in why.keys}
    for stream in plan.streams:
        column, count = stream.declared.key, last.records.get(stream.name, 0) if last else 0
        records, key = max(_by_key(stream.name, last), default=(0, ""))
        held = [partition.records for partition in stream.partitions]
        if (stream.name, key) in shared:
            continue
        if count >= _ENOUGH and records >= _NEARLY_ALL * count:
            yield OneKey(stream.name, column, min(Fraction(records, count), Fraction(1)), key)
        elif len(held) > 1 and sum(held) >= _ENOUGH and max(held) == sum(held):
            yield OneKey(stream.name, column, Fraction(1), partition=held.index(max(held)))


def _by_key(stream: str, last: Statistics | None) -> Iterator[tuple[int, str]]:
    """How many of a stream's records the tasks of a stage counted for each frequent key."""
    counts = Counter[tuple[str, str]]()
    for key in last.keys if last else ():
        counts[key.task.stage, key.key] += key.records.get(stream, 0)
    yield from ((records, key) for (_, key), records in counts.items())


def _row(found: Surprise) -> tuple[str, str, Then]:
    then: Then
    match found:
        case NotItsQuery():
            what = f"once records come in several batches, it is not its query: in step {found.step}, {found.why}"
            return f"table {found.table}", what, found.instead
        case OtherEngine():
            return _of_engine(found)
        case JoinsATable():
            what = f"it joins what {' and '.join(found.tables)} holds when the batch is planned: what changes there "
            then = (
                "if times of both sides are to decide, use join_as_of or join_within; "
                "else say so in its test: depends_on_batches"
            )
            return f"step {found.step}", f"{what}later changes no row that is published", then
        case JoinsInABatch():
            what = f"it joins records of {' and '.join(found.streams)} only if one batch brings both"
            then = (
                "use join_within for records close in time, join_as_of for what was valid at the time, "
                "or declare one side as a table"
            )
            return f"step {found.step}", what, then
        case OrderMatters():
            what = (
                f"it calls {' and '.join(found.functions)} of records that were moved: their order depends on the tasks"
            )
            return f"step {found.step}", what, "say the order, as in list(page ORDER BY seen, page), or use min and max"
        case OrderedByItsKey():
            what = (
                f"it orders the records of a key by {found.column}, which is the key: all are equal in it, "
                "and the one with the greatest columns is given"
            )
            then = "give as the first argument of latest what says which record is later, as latest('seen')"
            return f"step {found.step}", what, then
        case NeverLate():
            what = (
                f"it gives what is over once, and by declaration no record of {' and '.join(found.streams)} is late: "
            )
            then = "declare by how much records may be late: late="
            return (
                f"step {found.step}",
                f"{what}one that comes after a later one of its partition may come too late",
                then,
            )
        case OnlyGrows():
            rows = "" if not found.rows else f", {many(found.rows, 'row')} by now"
            what = f"it keeps a row for each key that it ever saw{rows}, and removes none"
            return f"step {found.step}", what, _of_growing(found.op)
        case OneKey():
            return f"stream {found.stream}", *_of_one_key(found)


def _of_engine(found: OtherEngine) -> tuple[str, str, Then]:
    then = ("see which rows it changes: ", found.compare)
    if found.answer is None:
        what = f"nobody has compared its answers with those of {found.was}, which made the rows before this batch"
        return f"DuckDB {found.now}", what, then
    what = f"DuckDB {found.now} answers otherwise than {found.was}, which made the rows before this batch"
    return " and ".join(found.steps), f"{what}: {found.answer}", then


def _of_one_key(found: OneKey) -> tuple[str, str]:
    if found.partition is None:
        what = f"{percent(found.share)} of its records have one {found.column}, {found.key!r}: one task has them"
        return what, "rekey it by another column, or use partial and combine"
    what = f"all its records lie in partition {found.partition}: {found.column} may have one value only"
    return what, "look at the producer's key, and rekey by another column if it is so"


def _of_growing(op: Op) -> str:
    if op is Op.RECENT:
        return "if keys have no end, add a window to the key of both flows, as a day"
    expire = "if keys have no end, let them expire with time= and keep="
    if op is Op.COMBINE:
        return f"{expire}, or add a window to the key, as a day, and aggregate without running"
    return expire
