"""Column check: the SQL of a pipeline against the columns of its streams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import duckdb

from coset.sources.databases import connect_to_ask, words_of
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.state_sql import MARKS
from partitioning.documents.document import canonical
from partitioning.errors import Finding, Refused, noting, refuse
from partitioning.imports import imported, is_import_path
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_columns, key_parts
from partitioning.model.graph import Graph, Op, Step, Write, quote, waiting
from partitioning.model.streams import Column, Discovered, Stream
from spark_jobs.sql.combined_results import CombinedResults
from spark_jobs.sql.database import create_state, create_views, described, null_columns
from spark_jobs.sql.expressions import Rules, Tree, columns_named, parse
from spark_jobs.sql.key_check import unfit_keys, unfit_state_key
from spark_jobs.sql.relation_columns import KnownRelations, RelationColumns, is_plain, renaming
from spark_jobs.tables.table_schema import RESIDUE

PARTITION = "_partition"
LINEAGE = ("_batch", "_task")

_AGGREGATING = {Op.AGGREGATE, Op.COGROUP, Op.PARTIAL, Op.COMBINE}


def check_sql(pipeline: Pipeline, discovered: Sequence[Discovered]) -> Mapping[str, tuple[Column, ...]]:
    """The columns of each result table, by table.

    A result has a record's `_partition` and offset only if an expression on the way names them. Raises Refused with all
    findings on expressions, columns and types. A finding names the step, the column and the columns that exist. What
    was found once is not looked for again by the process: the next batch has the same SQL.
    """
    columns = [(found.stream, found.columns, found.untyped) for found in discovered]
    asked = _Asked(canonical((pipeline.graph, columns)), pipeline, discovered)
    return _checked(asked) if _are_imported(pipeline.graph) else _check(asked)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is checked: it is the same if what is `said` of it is."""

    said: bytes
    pipeline: Pipeline = field(compare=False)
    discovered: Sequence[Discovered] = field(compare=False)


def _check(asked: _Asked) -> Mapping[str, tuple[Column, ...]]:
    with connect_to_ask() as connection:
        return _Check(connection, asked.pipeline).results(asked.discovered)


_checked = lru_cache(maxsize=32)(_check)


def _are_imported(graph: Graph) -> bool:
    """Whether all that a graph names by an import path can be imported, which the environment decides."""
    hashes = {stream.hash for stream in graph.streams}
    named = hashes.union(*((step.hash, step.function or "") for step in graph.steps))
    try:
        for path in filter(is_import_path, named):
            imported(path, "a step")
    except Refused:
        return False
    return True


class _Check:
    """The check of one pipeline: the columns of each stream and step, and the findings so far."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, pipeline: Pipeline) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._rules = Rules(connection)
        self._relations = KnownRelations(pipeline)
        self._combined = CombinedResults(connection, pipeline, self._rules, self._relations)
        self._findings: list[Finding] = []
        # The columns without a type, in small letters, with their streams.
        self._untyped: dict[str, str] = {}
        # Whether a stream is a table whose engine drops columns.
        self._may_lose = False

    def results(self, discovered: Sequence[Discovered]) -> Mapping[str, tuple[Column, ...]]:
        streams = {stream.name: stream for stream in self._pipeline.streams}
        for stream in discovered:
            self._stream(streams[stream.stream], stream)
        for step in self._pipeline.steps:
            self._step(step)
        results = {write.table: self._result(write) for write in self._pipeline.writes if write.step in self._relations}
        refuse(self._findings)
        return results

    def _stream(self, stream: Stream, discovered: Discovered) -> None:
        where = f"stream {stream.name!r}"
        self._imported(stream.hash, where)
        columns = (*discovered.columns, Column(PARTITION, "INTEGER"))
        self._untyped |= {name.lower(): stream.name for name in discovered.untyped}
        self._may_lose |= bool(discovered.ids)
        there = {name.lower() for name in (*(column.name for column in discovered.columns), *discovered.untyped)}
        for name in (name for name in stream.private if name.lower() not in there):
            then = f"correct its name; there are {', '.join(column.name for column in discovered.columns)}"
            what = f"there is no column {name!r} to be private"
            self._findings.append(Finding.of(Kind.DECLARATION, what, where, then, name=name))
        if "" in there:
            what, then = "one of its columns has no name", "land it with a name"
            self._findings.append(Finding.of(Kind.SQL_COLUMN, what, where, then, stream=stream.name))
            return
        if not self._repeated(columns, where, "land it with other column names; SQL does not tell cases apart"):
            try:
                self._table(stream.name, columns)
            except duckdb.Error as error:
                # As of a struct whose parts differ in case only.
                what, then = words_of(error), "land it with other names of parts; SQL does not tell cases apart"
                self._findings.append(Finding.of(Kind.SQL_COLUMN, what, where, then, stream=stream.name))
                return
            made_of_others = {stream.key.lower()} if key_parts(stream.key) else set[str]()
            self._relations[stream.name] = RelationColumns(
                columns, frozenset({stream.offset.lower(), PARTITION, *made_of_others})
            )
            if stream.time:
                self._time(stream, stream.time.sql)

    def _time(self, stream: Stream, text: str) -> None:
        """Add the findings of the expression that says when a stream's records happened."""
        where, relation = f"time of stream {stream.name!r}", self._relations[stream.name]
        try:
            tree = parse(self._connection, text)
        except Refused as refusal:
            self._findings.extend(
                Finding(Kind.SQL, each.what, where, each.next, each.about) for each in refusal.findings
            )
            return
        wrong = self._rules.broken(
            tree, aggregates=False, columns=relation.names, relations=frozenset({stream.name.lower()})
        )
        self._findings.extend(Finding.of(Kind.SQL, what, where, then, wrong=what) for what, then in wrong.items())
        if wrong:
            return
        if unknown := sorted(self._relations.unknown([stream.name], tree)):
            self._findings.extend(self._missing(name, where, [stream.name]) for name in unknown)
            return
        try:
            described(self._connection, f"SELECT ({text})::TIMESTAMP FROM {quote(stream.name)}")
        except duckdb.Error as error:
            what = words_of(error)
            then = "give one expression that can be cast to TIMESTAMP; of Kafka's, make_timestamp_ms(ts)"
            self._findings.append(Finding.of(Kind.SQL, what, where, then, said=what))

    def _step(self, step: Step) -> None:
        self._imported(step.hash, _where(step))
        checked = [self._expression(step, text, inputs) for text, inputs in _expressions(step)]
        trees = [tree for tree in checked if tree is not None]
        if len(trees) < len(checked) or not all(name in self._relations for name in step.inputs):
            return
        columns = self._declared(step) if step.function else self._selected(step, trees)
        if columns is None:
            return
        relation = self._relation(step, columns, trees)
        unfit = unfit_keys(step, columns, self._relations)
        self._findings.extend(unfit)
        if not unfit and self._repeatable(step, relation):
            self._findings.extend(self._combined.findings(step, trees))
            self._relations[step.name] = relation

    def _expression(self, step: Step, text: str, inputs: Sequence[str]) -> Tree | None:
        """The parse tree of an expression of `step`. None, with findings, if the step may not use it."""
        known = [self._relations[name].names for name in inputs if name in self._relations]
        try:
            tree = parse(self._connection, text)
        except Refused as refusal:
            (finding,) = refusal.findings
            self._findings.append(
                Finding(Kind.SQL, finding.what, f"{_where(step)}: {text}", finding.next, finding.about)
            )
            return None
        wrong = self._rules.broken(
            tree,
            aggregates=step.op in _AGGREGATING,
            columns=frozenset[str]().union(*known) if len(known) == len(inputs) else None,
            relations={name.lower() for name in self._relations},
        )
        if not self._rules.aggregates(tree):
            if step.op is Op.COGROUP:
                wrong["a cogroup has one row for each key, and this would make more"] = "aggregate it"
            elif step.op is Op.AGGREGATE and waiting(step, {each.name: each for each in self._pipeline.steps}):
                wrong["there is one row for each key and window, and this would make more"] = "aggregate it"
        if step.op is Op.LATEST and text == step.expressions[0] and not any(columns_named(tree)):
            what = "a constant says of no record that it is later: a number is no column's place here"
            wrong[what] = "name the column that says which record is later"
        for name in self._hiding_rows(step):
            what = f"column {name!r} is called as its flow, so which of two equal records is the latest is open"
            wrong[what] = "name the flow otherwise before: filter('true', name='…')"
        for name in self._relations.lost(inputs, tree):
            wrong[f"{name!r} is not in all flows that were merged"] = "select it in each of them before"
        self._findings.extend(
            Finding.of(Kind.SQL, what, f"{_where(step)}: {text}", then, wrong=what) for what, then in wrong.items()
        )
        return None if wrong else tree

    def _hiding_rows(self, step: Step) -> Iterator[str]:
        """The columns that hide the rows by which a step orders equal records: SQL calls a row as its flow."""
        if step.op in {Op.LATEST, Op.JOIN} and (relation := self._relations.get(step.inputs[-1])):
            for name in sorted(relation.names):
                if re.search(f"(?:, |ORDER BY ){re.escape(quote(name))} DESC\\) = 1", step.sql, re.IGNORECASE):
                    yield name

    def _selected(self, step: Step, trees: Sequence[Tree]) -> tuple[Column, ...] | None:
        """The columns of a step's SELECT, as DuckDB describes it. Each side of a cogroup is described alone first."""
        if step.op is Op.MERGE and not self._alike(step, {name: self._relations[name] for name in step.inputs}):
            return None
        if step.op is Op.COGROUP:
            sides = [
                self._described(step, [tree], self._pipeline.flow(name).aggregated(text), (name,))
                for name, text, tree in zip(step.inputs, step.expressions, trees, strict=True)
            ]
            if None in sides:
                return None
        if step.state and step.state.sql:
            if self._described(step, trees, step.state.sql, step.inputs) is None:
                return None
            create_state(self._connection, step)
        columns = self._described(step, trees, step.sql, step.inputs)
        if columns is not None:
            create_views(self._connection, [step])
        return columns

    def _described(
        self, step: Step, trees: Sequence[Tree], sql: str, inputs: Sequence[str]
    ) -> tuple[Column, ...] | None:
        try:
            columns = described(self._connection, sql)
        except duckdb.Error as error:
            self._findings.extend(self._explained(step, trees, error, inputs))
            return None
        then, key = "name one of them otherwise with AS, or leave it out: * EXCLUDE", key_columns(step.key)
        if step.op is Op.REKEY:
            then, key = f"name the new key otherwise: {step.key}_key", ()
        return None if self._repeated(columns, _where(step), then, key) else columns

    def _declared(self, step: Step) -> tuple[Column, ...] | None:
        """The declared columns of a function's result, with types as DuckDB writes them."""
        before = len(self._findings)
        self._imported(step.function or "", _where(step))
        columns = self._typed(step, step.columns)
        if step.state:
            self._findings.extend(unfit_state_key(step, self._typed(step, step.state.columns), self._relations))
        if len(self._findings) > before:
            return None
        self._table(step.name, columns)
        return tuple(columns)

    def _typed(self, step: Step, declared: Sequence[Column]) -> list[Column]:
        """Declared columns of a function's result or state, with types as DuckDB writes them."""
        columns = []
        for column in declared:
            try:
                columns.append(Column(column.name, str(self._connection.sqltype(column.type))))
            except duckdb.Error:
                what = f"column {column.name!r} is declared as {column.type!r}, which is no DuckDB type"
                then = "name a type, as BIGINT"
                self._findings.append(
                    Finding.of(Kind.SQL_TYPE, what, _where(step), then, column=column.name, type=column.type)
                )
        self._repeated(columns, _where(step), "declare each column once")
        return columns

    def _relation(self, step: Step, columns: tuple[Column, ...], trees: Sequence[Tree]) -> RelationColumns:
        made_of_others = {step.key.lower()} if key_parts(step.key) else set[str]()
        if step.function:
            return RelationColumns(columns, frozenset(made_of_others))
        inputs = [self._relations[name] for name in step.inputs]
        asked = {parts[-1].lower() for parts in columns_named(list(trees))}
        names = {column.name.lower() for column in columns}
        hidden = (frozenset[str]().union(*(relation.hidden for relation in inputs)) - asked) & names
        hidden |= made_of_others
        hidden |= MARKS & names
        lost = frozenset[str]().union(*(relation.lost for relation in inputs))
        if step.op is Op.MERGE:
            lost |= {name for name in hidden if not all(name in relation.names for relation in inputs)}
        return RelationColumns(columns, hidden, lost & hidden)

    def _repeatable(self, step: Step, relation: RelationColumns) -> bool:
        """Whether a combine can be applied to its own result, which unifiers do."""
        return step.op is not Op.COMBINE or self._alike(
            step, {step.inputs[0]: self._relations[step.inputs[0]], step.name: relation}
        )

    def _alike(self, step: Step, relations: Mapping[str, RelationColumns]) -> bool:
        """Whether all relations have the same columns. Adds a finding for each difference."""
        shown = {name: relation.shown for name, relation in relations.items()}
        before = len(self._findings)
        for column in dict.fromkeys(column for relation in shown.values() for column in relation):
            types = {name: relation.get(column, "missing") for name, relation in shown.items()}
            if step.op is Op.MERGE and len(set(types.values())) > 1:
                # A merge takes it as the type of the others, as DuckDB does.
                untyped = {name for name in types if column in null_columns(self._connection, name)}
                types = {name: kind for name, kind in types.items() if name not in untyped}
            if len(set(types.values())) > 1:
                listed = ", ".join(f"{kind} in {name}" for name, kind in types.items())
                then = "give them the same columns, of the same types: cast, or leave it out"
                others = sorted(set(types.values()) - {"INTEGER", "missing"})
                if step.op is not Op.MERGE and "INTEGER" in types.values() and others:
                    then = f"{then}; a bare NULL is INTEGER: write NULL::{others[0]}"
                what = f"column {column!r} is {listed}"
                self._findings.append(Finding.of(Kind.SQL_TYPE, what, _where(step), then, column=column, listed=listed))
        return len(self._findings) == before

    def _imported(self, path: str, where: str) -> None:
        """Add the findings of an import path that cannot be imported or called."""
        with noting(self._findings):
            if is_import_path(path):
                imported(path, where)

    def _table(self, name: str, columns: Sequence[Column]) -> None:
        """Make a relation of these columns and no other: a table also has a `rowid`, by the order of its rows."""
        listed = ", ".join(f"{quote(column.name)} {column.type}" for column in columns)
        table = quote(f"{name} with its rows")
        self._connection.execute(f"CREATE TEMP TABLE {table} ({listed})")
        self._connection.execute(f"CREATE TEMP VIEW {quote(name)} AS FROM {table}")

    def _result(self, write: Write) -> tuple[Column, ...]:
        relation = self._relations[write.step]
        columns = tuple(column for column in relation.columns if column.name.lower() in relation.shown)
        where = f"table {write.table!r}, from step {write.step!r}"
        flows: tuple[Stream | Step, ...] = (*self._pipeline.streams, *self._pipeline.steps)
        written = next(each for each in flows if each.name == write.step)
        added = dict.fromkeys(LINEAGE, "lineage=True") if write.lineage else {}
        if write.mode.by_key:
            added[RESIDUE] = f"mode={write.mode.value!r}"
        for column in columns:
            if why := added.get(column.name.lower()):
                what = f"column {column.name!r} is there already, and {why} adds one of that name"
                then = "name the column otherwise"
                self._findings.append(Finding.of(Kind.SQL_TYPE, what, where, then, column=column.name))
            if not is_plain(column.name):
                what = f"a table cannot have a column named {column.name!r}"
                calls = renaming([each.name for each in columns], written.key, written.key_format)
                then = "land it under a plain name, without blanks and any of ,;{}()="
                if calls:
                    then = f"give it a plain name with AS, or before the write by {calls}"
                self._findings.append(Finding.of(Kind.SQL_TYPE, what, where, then, column=column.name))
        return columns

    def _explained(
        self, step: Step, trees: Sequence[Tree], error: duckdb.Error, inputs: Sequence[str]
    ) -> list[Finding]:
        """A finding for each unknown column, or one with DuckDB's message."""
        there = frozenset[str]().union(*(self._relations[name].names for name in inputs))
        named = {parts[-1] for parts in columns_named(list(trees)) if parts[-1].lower() in self._untyped.keys() - there}
        unknown = sorted(named or {name for tree in trees for name in self._relations.unknown(inputs, tree)})
        if unknown:
            return [self._missing(name, _where(step), inputs) for name in unknown]
        what = words_of(error)
        then = f"correct the expression; {self._relations.listed(inputs)}"
        return [Finding.of(Kind.SQL, what, _where(step), then, said=what)]

    def _missing(self, name: str, where: str, inputs: Sequence[str]) -> Finding:
        """The finding on a column that no input has."""
        what, then = f"there is no column {name!r}", f"correct the name; {self._relations.listed(inputs)}"
        if self._may_lose:
            then = f"{then}; for a column that an Iceberg table no longer has write a null of its type, as NULL::BIGINT"
        column = name.rpartition(".")[2]
        if stream := self._untyped.get(column.lower()):
            what = f"column {column!r} of stream {stream!r} is null in all records so far, so nothing says its type"
            declared = {column: "VARCHAR"}
            then = f"declare it, as cast={declared!r}, or land a file in which it has a value"
        return Finding.of(Kind.SQL_COLUMN, what, where, then, name=name)

    def _repeated(self, columns: Sequence[Column], where: str, then: str, key: Sequence[str] = ()) -> bool:
        """Whether columns have one name, with a finding for each. Those of a step's `key` are there by themselves."""
        names = [column.name.lower() for column in columns]
        repeated = sorted({name for name in names if names.count(name) > 1})
        there = {name.lower(): name for name in key}
        for name in repeated:
            what, do = f"two columns are named {name!r}", then
            if own := there.get(name):
                what = f"{what}: the key is there without being named"
                do = f"leave {own} out, of * by * EXCLUDE ({quote(own)})"
                do = f"{do}; if it is another value, name it otherwise with AS"
            self._findings.append(Finding.of(Kind.SQL_TYPE, what, where, do, name=name))
        return bool(repeated)


def _expressions(step: Step) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A step's expressions, each with the inputs whose columns it can use."""
    for number, text in enumerate(step.expressions):
        yield text, (step.inputs[number],) if step.op is Op.COGROUP else step.inputs


def _where(step: Step) -> str:
    return f"step {step.name!r}"
