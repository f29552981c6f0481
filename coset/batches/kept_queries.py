"""Kept queries: whether a table behind rows that change has, as a batch would publish it, the rows of its query.

The query is asked of what steps keep: the newest row of each key, as the batch leaves it. DuckDB answers it in one
piece, of all keys, without a word of what goes or comes; the batch added what changed to what there was.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain

import duckdb
import pyarrow as pa

from coset.batches.attempt import Attempt
from coset.batches.kept import KeptState, kept_states, rows_kept, states_of
from coset.batches.result_rows import rows_of_files, table_files
from coset.batches.tables.first_rows import all_rows
from coset.batches.tables.logs import Logs
from coset.batches.tables.table_rows import rows_left
from partitioning.documents.ledger import Ledger
from partitioning.explain.table_query import logical_sql
from partitioning.model.composite_key import canonical, key_parts
from partitioning.model.graph import Graph, Op, Step, quote
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.private import MASK, is_private
from partitioning.model.receipt import files_of
from partitioning.model.stage_inputs import StateInput
from partitioning.sections import size
from spark_jobs.engine.task_database import connect
from spark_jobs.tables.table_schema import table_schema

# So much is looked at whatever a batch reads; of more, a quarter of what it reads.
_LEAST = 1 << 20
_PART = 4
# So many keys of a table are told.
_MOST = 1000
# Calls whose answer does not depend on the order of rows.
_CALL = re.compile(r"(\w+)\s*\(")
_OF_ANY_ORDER = frozenset(
    {"count", "sum", "min", "max", "avg", "bool_and", "bool_or", "filter", "distinct", "cast", "try_cast", "decimal"}
    | {"coalesce", "nullif", "greatest", "least", "abs", "round", "length", "lower", "upper", "date_trunc", "extract"}
)
# Sums of these have other last digits in another order.
_FLOATING = re.compile(r"\b(?:FLOAT|REAL|DOUBLE)\b")

# Of each key whose rows are not right: those that are there, and those that are right.
_Wrong = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Query:
    """A table, the steps whose rows are kept, and its query over these. Or why there is none."""

    write: PlannedWrite
    bases: Sequence[str] = ()
    sql: str = ""
    why_not: str = ""


def held_against_state(attempt: Attempt, logs: Logs | None = None) -> Iterator[dict[str, object]]:
    """For each upserted table behind rows that change a row with how many `rows` are right, or why it is `unseen`; and
    one for each `key` whose rows are not right, but were before the batch: those `there` once it is published, and
    those that are `right`. Tables are as in the `logs`.

    Raises Refused as `kept_states`. A backfill's batch has no rows here, as its result is compared.
    """
    plan, ledger = attempt.plan, attempt.ledger
    asked = [] if ledger.original is not None else list(_queries(plan))
    after = {state.step: state for state in states_of(attempt)} if any(each.sql for each in asked) else {}
    for query in asked:
        row: dict[str, object] = {"table": query.write.declared.table}
        if unseen := query.why_not or _too_much(plan, query, after):
            yield row | {"unseen": unseen}
            continue
        try:
            with _Rows(ledger, query, after) as rows:
                count, wrong = rows.wrong(_after(attempt, query.write, logs))
            # What was wrong before, because a step began anew or others changed rows, is not of this batch.
            before = _wrong_before(attempt, query) if wrong else ()
        except duckdb.Error as error:
            yield row | {"unseen": f"DuckDB does not answer its query: {' '.join(str(error).split())}"}
            continue
        yield row | {"rows": count}
        hidden = any(is_private(column.name, plan.private) for column in query.write.columns)
        for key in sorted(wrong.keys() - before)[:_MOST]:
            shown = (MASK, MASK, MASK) if hidden else (key, *wrong[key])
            yield row | dict(zip(("key", "there", "right"), shown, strict=True))


def _queries(plan: Plan) -> Iterator[_Query]:
    graph = plan.graph
    steps = {step.name: step for step in graph.steps}
    for write in plan.writes():
        above = graph.above(write.declared.step)
        if write.declared.mode.by_key and any(steps[name].op is Op.CHANGES for name in above & steps.keys()):
            yield _query(graph, steps, plan, write)


def _query(graph: Graph, steps: Mapping[str, Step], plan: Plan, write: PlannedWrite) -> _Query:
    bases, between = dict[str, None](), set[str]()
    below = [write.declared.step]
    while below:
        name = below.pop()
        if name in between or name in bases:
            continue
        step = steps.get(name)
        if step is None:
            return _Query(write, why_not=f"no step keeps the records of {name} that it is made of")
        if step.keeps_its_rows and not _is_of_lives(step) and not _changes(graph, steps, step):
            bases[name] = None
            continue
        if why_not := _why_not(graph, step):
            return _Query(write, why_not=why_not)
        between.add(name)
        below += _inputs(step)
    read = {each.step: each for stage in plan.stages for each in stage.inputs if isinstance(each, StateInput)}
    if plan.anew or any(read[name].declared for name in bases if name in read):
        return _Query(write, why_not="a step begins anew in this batch, or keeps its rows otherwise")
    parts = (f"{quote(step.name)} AS ({logical_sql(graph, step.name)})" for step in graph.steps if step.name in between)
    columns = ", ".join(quote(column.name) for column in write.columns)
    sql = f"WITH {', '.join(parts)} SELECT {columns} FROM {quote(write.declared.step)}"
    return _Query(write, tuple(bases), sql)


def _is_of_lives(step: Step) -> bool:
    return bool(step.state and step.state.of_lives)


def _changes(graph: Graph, steps: Mapping[str, Step], step: Step) -> bool:
    return any(steps[name].op is Op.CHANGES for name in graph.above(step.name) & steps.keys())


def _why_not(graph: Graph, step: Step) -> str:
    """Why no query over what is kept goes through a step. Empty if one does."""
    if step.function or step.op is Op.TO_STREAM:
        return f"step {step.name} is {'a function' if step.function else 'of the rows of each batch'}"
    timed = "getvariable(" in logical_sql(graph, step.name) or (step.state and step.state.sql)
    if timed or _is_of_lives(step):
        return f"step {step.name} goes by time"
    if step.op in {Op.AGGREGATE, Op.COGROUP, Op.COMBINE}:
        calls = {name.lower() for each in step.expressions for name in _CALL.findall(each)}
        if others := sorted(calls - _OF_ANY_ORDER):
            return f"step {step.name} calls {others[0]}, whose answer may depend on the order of rows"
    return ""


def _inputs(step: Step) -> Sequence[str]:
    """The inputs that a step means: not those that only say which keys came."""
    match step.op:
        case Op.CHANGES:
            return step.inputs[-1:]
        case Op.KEEP | Op.ROWS | Op.UPSERT:
            return step.inputs[:1]
        case _:
            return step.inputs


def _too_much(plan: Plan, query: _Query, after: Mapping[str, KeptState]) -> str:
    """Why reading what is kept, and the table, would cost too much. Empty if it does not."""
    names = (*query.bases, query.write.declared.step)
    read = sum(sum(after[name].bytes) for name in names if name in after)
    if read <= max(_LEAST, sum(group.bytes for group in plan.groups) // _PART):
        return ""
    return f"{size(read)} would be read: `coset verify {plan.pipeline} --sample next` looks at its keys in turn"


def _after(attempt: Attempt, write: PlannedWrite, logs: Logs | None) -> pa.RecordBatchReader:
    """The rows that a table has once the attempt is published."""
    columns = [column.name for column in write.columns]
    schema = pa.schema([field for field in table_schema(write) if field.name in columns])
    made = rows_of_files(attempt.ledger, write, table_files(attempt, write.declared.table))
    left = files_of(attempt.artefacts, write.declared.table)
    _, stay = rows_left(attempt.ledger.store, write, left, logs)
    batches = chain(made.read(schema.names), stay(schema.names))
    return pa.RecordBatchReader.from_batches(schema, (batch.select(schema.names).cast(schema) for batch in batches))


def _wrong_before(attempt: Attempt, query: _Query) -> Collection[str]:
    """The keys whose rows were not right before the batch."""
    ledger, plan = attempt.ledger, attempt.plan
    before = ledger.published_before(plan.batch)
    if before is None or query.write.declared.table not in before.tables:
        return ()
    states = {state.step: state for state in kept_states(ledger, before.batch)}
    with _Rows(ledger, query, states) as rows, all_rows(ledger.store, query.write.declared.table) as there:
        return rows.wrong(there)[1].keys()


class _Rows:
    """The rows that a query gives of states, in a database of their own."""

    def __init__(self, ledger: Ledger, query: _Query, states: Mapping[str, KeptState]) -> None:
        self._ledger, self._query, self._states = ledger, query, states

    def __enter__(self) -> _Rows:
        with ExitStack() as stack:
            self._connection = stack.enter_context(connect())
            for name in (name for name in self._query.bases if name in self._states):
                with rows_kept(self._ledger, self._states[name]) as rows:
                    self._store(name, rows)
            self._connection.execute(f'CREATE TEMP TABLE "@right" AS {self._query.sql}')
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wrong(self, there: pa.RecordBatchReader) -> tuple[int, _Wrong]:
        """How many rows are right, and those of the keys whose rows in a table are not."""
        write = self._query.write
        self._store("@there", there)
        columns = [column.name for column in write.columns if not _FLOATING.search(column.type)]
        key = write.declared.key
        named = quote(key) if key in columns else canonical(key_parts(key))
        packed = ", ".join(f"{quote(name)} := {quote(name)}" for name in columns)
        row = f"({named})::VARCHAR AS key, to_json(struct_pack({packed}))::VARCHAR AS row"
        there_are, right_are = (f'SELECT {row} FROM "@{side}"' for side in ("there", "right"))
        both = (
            f"SELECT key, row, true AS is_there FROM ({there_are} EXCEPT ALL {right_are}) "
            f"UNION ALL SELECT key, row, false FROM ({right_are} EXCEPT ALL {there_are})"
        )
        texts = "coalesce(string_agg(row, '; ' ORDER BY row) FILTER ({}), '')"
        listed = (texts.format(side) for side in ("is_there", "NOT is_there"))
        found = self._connection.execute(f"SELECT key, {', '.join(listed)} FROM ({both}) GROUP BY key").fetchall()
        ((count,),) = self._connection.execute('SELECT count(*) FROM "@right"').fetchall()
        return count, {key: both_are for key, *both_are in found}

    def _store(self, name: str, rows: pa.RecordBatchReader) -> None:
        self._connection.register("@given", rows)
        self._connection.execute(f'CREATE TEMP TABLE {quote(name)} AS SELECT * FROM "@given"')
        self._connection.unregister("@given")
