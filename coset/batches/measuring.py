"""Measuring: the figures of result tables that expectations ask for, by DuckDB over the rows as they stream by, and
what they were after the batches before.

Of a table that is appended to they are those of the batch's rows, of others those of the whole table after the batch.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any

import duckdb
import pyarrow as pa

from coset.batches.attempt import Attempt
from coset.batches.backfills.effects import rows_beside
from coset.batches.backfills.swaps import in_force
from coset.batches.result_rows import rows_of_files, table_files
from coset.batches.tables.table_rows import rows_left
from coset.sources.databases import connect_to_ask, words_of
from coset.sources.rows import Rows
from partitioning.commands import Repeat
from partitioning.documents.document import canonical
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import at_once
from partitioning.errors import Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_columns
from partitioning.model.figures import BEFORE
from partitioning.model.graph import quote
from partitioning.model.measures import FigureForm, Measure, Measured, MeasureKind, measures_of
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.private import mentions
from partitioning.model.receipt import files_of
from partitioning.model.verdict import Verdict
from spark_jobs.engine.task_database import connect
from spark_jobs.sql.expressions import Rules, columns_named, nodes, parse
from spark_jobs.tables.table_schema import table_schema

# Batches that were given up have no figures; among so many before there are enough of others.
_LOOKED_AT = 2 * BEFORE
# By how much a time may exceed the minute of planning, and count.
_AHEAD = 86_400 * 10**6
_LONGEST = 2**63


def check_measurable(write: PlannedWrite, private: Collection[str]) -> None:
    """Raise Refused, with all findings, for ready-made expectations on what the columns of a table do not give, and for
    those whose figures would show a value of a private column."""
    schema, findings = table_schema(write), list[Finding]()
    if not (measures := measures_of(write.declared)):
        return
    with _empty(schema) as connection:
        for measure in measures:
            findings.extend(_unfit(connection, write, schema, measure, private))
    refuse(findings)


def measured(attempt: Attempt, outputs: Mapping[str, Rows]) -> tuple[tuple[Measured, ...], Mapping[str, str]]:
    """The figures of an attempt, and by table why some could not be taken.

    Raises what reading raises.
    """
    found, failed = list[Measured](), dict[str, str]()
    for write in attempt.plan.writes():
        table, measures = write.declared.table, measures_of(write.declared)
        if measures:
            rows = _whole(attempt, write, outputs[table])
            try:
                for one, value in values(attempt.plan.as_of, write, measures, rows):
                    found.append(Measured.of(table, str(one), value))
            except duckdb.Error as error:
                failed[table] = words_of(error)
    return tuple(found), failed


def figures(
    ledger: Ledger, plan: Plan, attempt: int, found: Sequence[Measured], failed: Mapping[str, str]
) -> list[dict[str, object]]:
    """What Great Expectations judges: a row for each figure that is asked for, with the values `before`.

    The figures before are kept beside the attempt when it is judged first, so that it is judged once more as it was
    then, whatever was swapped in since. A backfill has none before it: what it changes is compared.
    """
    asked = {
        (write.declared.table, str(one)): (write, one) for write in plan.writes() for one in measures_of(write.declared)
    }
    if not asked:
        return []
    before = _kept(ledger, plan, attempt, set(asked)) if ledger.original is None else {}
    known = {(one.table, one.figure): one.number for one in found}
    return [
        {
            "table": table,
            "figure": figure,
            "value": json.dumps(known.get((table, figure))),
            "before": json.dumps(before.get(f"{table} {figure}", [])),
            "appended": write.declared.mode.only_adds,
            "backfilled": ledger.original is not None,
            "failed": failed.get(table, "") if (table, figure) not in known else "",
            "as_of": plan.as_of,
        }
        for (table, figure), (write, _) in asked.items()
    ]


def _kept(ledger: Ledger, plan: Plan, attempt: int, asked: set[tuple[str, str]]) -> dict[str, list[tuple[int, float]]]:
    key = ledger.key("audits", plan.batch, f"attempt-{attempt}", "figures-before")
    stored = ledger.store.get(key) or ledger.store.put_new(key, canonical(_before(ledger, plan, asked)))
    kept: dict[str, list[tuple[int, float]]] = json.loads(stored)
    return kept


def _before(ledger: Ledger, plan: Plan, asked: set[tuple[str, str]]) -> dict[str, list[tuple[int, float]]]:
    """The batches before that know a figure, oldest first, by the rows that readers see of them, and its values."""
    layers = in_force(ledger.store, ledger.pipeline)

    def verdict_of(batch: int) -> Verdict | None:
        return layers.top(batch).published(batch)

    numbers = range(max(0, plan.batch - _LOOKED_AT), plan.batch)
    known = zip(numbers, at_once(verdict_of, numbers), strict=True)
    published = [(batch, verdict) for batch, verdict in known if verdict]
    before = dict[str, list[tuple[int, float]]]()
    for batch, verdict in published[-BEFORE:]:
        for one in verdict.measured:
            if (one.table, one.figure) in asked and one.number is not None:
                before.setdefault(f"{one.table} {one.figure}", []).append((batch, one.number))
    return before


def _whole(attempt: Attempt, write: PlannedWrite, rows: Rows) -> Rows:
    """The rows of a batch, and those that stay of an upserted table. In a backfill they are not the table's: it begins
    with all of them, in its first batch."""
    if not write.declared.mode.by_key or write.anew:
        return rows
    ledger, table = attempt.ledger, write.declared.table
    files = table_files(attempt, table)
    if ledger.original is None:
        count, left = rows_left(ledger.store, write, files_of(attempt.artefacts, table))
    else:
        beside = rows_of_files(ledger, write, rows_beside(ledger, attempt.plan, table, files))
        count, left = beside.count, beside.read

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from rows.read(columns)
        yield from left(columns)

    return Rows(rows.schema, rows.count + count, read)


def values(
    as_of: int | None, write: PlannedWrite, measures: Sequence[Measure], rows: Rows
) -> Iterator[tuple[Measure, int | float | None]]:
    """What is measured in these rows of a table. Times that are more than a day after `as_of` do not count.

    Raises duckdb.Error if an expression cannot be asked of a row.
    """
    for measure in measures:
        if measure.kind is MeasureKind.ROWS:
            yield measure, rows.count
        elif measure.kind is MeasureKind.KEYS:
            # By a query of its own: more keys than fit into memory go to disk.
            columns = key_columns(write.declared.key)
            keys = ", ".join(map(quote, columns))
            # Of several columns null is a value like others.
            known = "true" if len(columns) > 1 else f"{keys} IS NOT NULL"
            distinct = f"SELECT count(*) FROM (SELECT DISTINCT {keys} FROM measured WHERE {known})"
            yield measure, int(_one(rows.select(columns), distinct)[0])
    # Only these may fail, by what a row has.
    streamed = [measure for measure in measures if measure.kind.sql]
    yield from zip(streamed, _asked(as_of, streamed, rows), strict=True)


def _asked(as_of: int | None, measures: Sequence[Measure], rows: Rows) -> list[int | float | None]:
    """All figures of one pass over the columns that they name."""
    if not measures:
        return []
    schema = rows.schema
    expressions = [_expression(measure, schema) for measure in measures]
    latest = _LONGEST - 1 if as_of is None else as_of + _AHEAD
    with _empty(schema) as connection:
        listed = ", ".join(_aggregate(connection, measure, schema, latest) for measure in measures)
        named = {
            part.lower() for text in expressions for parts in columns_named(parse(connection, text)) for part in parts
        }
        every = any(node["class"] == "STAR" for text in expressions for node in nodes(parse(connection, text)))
    columns = [name for name in schema.names if every or name.lower() in named] or schema.names[:1]
    return [_number(value) for value in _one(rows.select(columns), f"SELECT {listed} FROM measured")]


def _one(rows: Rows, select: str) -> Sequence[Any]:
    """The only row of a query over `measured`."""

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows.read(rows.schema.names):
            yield from pa.Table.from_batches([batch]).cast(rows.schema).to_batches()

    with connect() as connection:
        connection.register("measured", pa.RecordBatchReader.from_batches(rows.schema, batches()))
        (row,) = connection.execute(select).fetchall()
    return row


def _aggregate(connection: duckdb.DuckDBPyConnection, measure: Measure, schema: pa.Schema, latest: int) -> str:
    """The measure as SQL over `measured`. Raises duckdb.Error if the table does not give it."""
    of = _expression(measure, schema)
    # With fewer digits lost, less depends on the order of rows.
    total = "fsum" if _type(connection, of) in ("FLOAT", "DOUBLE") else "sum"
    return measure.kind.sql.format(of=of, latest=latest, sum=total)


def _expression(measure: Measure, schema: pa.Schema) -> str:
    """The column as SQL: the table's column of that name, if there is one."""
    return quote(measure.of) if measure.of in schema.names else measure.of


def _type(connection: duckdb.DuckDBPyConnection, of: str) -> str:
    return str(connection.execute(f"DESCRIBE SELECT ({of}) AS of FROM measured").fetchall()[0][1])


def _number(value: Any) -> int | float | None:
    if value is None:
        return None
    if isinstance(value, int) and abs(value) < _LONGEST:
        return value
    number = float(value)
    return number if isfinite(number) else None


@contextmanager
def _empty(schema: pa.Schema) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to ask, with an empty table `measured`."""
    with connect_to_ask() as connection:
        connection.register("measured", schema.empty_table())
        yield connection
        connection.unregister("measured")


def _unfit(
    connection: duckdb.DuckDBPyConnection,
    write: PlannedWrite,
    schema: pa.Schema,
    measure: Measure,
    private: Collection[str],
) -> Iterator[Finding]:
    """Why a measure cannot be taken of a table."""
    where, has = f"table {write.declared.table!r}, {measure}", f"it has {', '.join(schema.names)}"

    def finding(what: str, then: str) -> Finding:
        return Finding.of(Kind.EXPECTATION_FAILS, what, where, (f"{then}; {has}; then ", Repeat()), wrong=what)

    if measure.kind is MeasureKind.KEYS and not {*key_columns(write.declared.key)} <= {*schema.names}:
        yield finding("the rows of the table have no key", "count the distinct values of a column otherwise")
    if not measure.kind.sql:
        return
    if measure.kind.form in (FigureForm.AGE, FigureForm.NUMBER) and mentions(measure.of, private):
        yield finding(f"verdicts would show a value of the private column {measure.of}", "leave the expectation out")
        return
    of = _expression(measure, schema)
    try:
        tree = parse(connection, of)
        columns = {name.lower() for name in schema.names}
        for what, then in Rules(connection).broken(tree, aggregates=False, columns=columns, relations=()).items():
            yield finding(what, then)
            return
        if measure.kind.form is FigureForm.AGE and not (kind := _type(connection, of)).startswith(
            ("TIMESTAMP", "DATE")
        ):
            yield finding(f"{measure.of} is {kind}, and no time", "cast it to TIMESTAMP")
            return
        connection.execute(f"SELECT {_aggregate(connection, measure, schema, 0)} FROM measured").fetchall()
    except Refused as refusal:
        yield from refusal.findings
    except duckdb.Error as error:
        yield finding(
            f"{measure.of!r} cannot be asked of the table: {words_of(error)}", "correct the column or expression"
        )
