"""SQL: the connection that runs the steps, the check of a pipeline's expressions, the columns they need.

What an expression may do follows from one rule: its result must not depend on how many tasks there are, so
it sees one record at a time, or in `aggregate` the records of one key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb

from partitioning.errors import Finding, Refused
from partitioning.graph import Step, Write, quote
from partitioning.pipeline import Pipeline
from partitioning.plan import PlannedStream, Stage
from partitioning.streams import Column, Discovered

PARTITION = "_partition"
LINEAGE = ("_batch", "_task")

# Parts of a SELECT that an expression must leave alone, as the parse tree names them.
_FOREIGN_PARTS = {
    "from_table": "FROM",
    "where_clause": "WHERE",
    "group_expressions": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "sample": "USING SAMPLE",
    "modifiers": "ORDER BY, LIMIT or DISTINCT",
    "aggregate_handling": "GROUP BY ALL",
}
_NOTHING = {"aggregate_handling": "STANDARD_HANDLING"}
# Columns that DuckDB makes up if there is none of that name.
_CLOCKS = {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
# Spark and other readers of Delta tables refuse them in a column's name.
_NO_NAME = set(" ,;{}()\n\t=")
_FUNCTIONS = """
    SELECT lower(function_name), function_type, macro_definition FROM duckdb_functions()
    WHERE function_type IN ('aggregate', 'macro') OR stability IN ('VOLATILE', 'CONSISTENT_WITHIN_QUERY')
"""


def connect(memory_limit: str = "1GB", temp: Path | None = None, threads: int = 1) -> duckdb.DuckDBPyConnection:
    """A database in memory that can reach nothing: no files, no network, no extensions, no Python variables.

    What does not fit into `memory_limit` goes to the folder `temp`; without one it is an error.
    """
    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": memory_limit,
            "python_enable_replacements": "false",
            "temp_directory": str(temp or ""),
            "threads": str(threads),
        }
    )
    # Local time zones would give the same plan other results on another machine.
    connection.execute("SET TimeZone = 'UTC'; SET enable_external_access = false; SET lock_configuration = true")
    return connection


def create_views(connection: duckdb.DuckDBPyConnection, steps: Iterable[Step]) -> None:
    """Make each step a view, over relations that are named as the streams and are there already."""
    for step in steps:
        _create_view(connection, step)


def check(pipeline: Pipeline, discovered: Sequence[Discovered]) -> Mapping[str, tuple[Column, ...]]:
    """The columns of each result table, by table.

    A record's `_partition` and offset are in a result only if some expression on the way names them.
    Raises Refused, with all findings, for anything that is wrong with an expression: the step, the
    column and the columns there are are named.
    """
    with connect() as connection:
        return _Check(connection, pipeline).results(discovered)


def columns_needed(stage: Stage, stream: PlannedStream) -> tuple[str, ...]:
    """The columns of a stream that the steps and tables of a stage use, in the stream's order.

    They are all of them if a `*` occurs; the key always is one. A name counts whatever stream it is meant
    for, so this may give too many, never too few.
    """
    named = {stream.declared.key.lower()}
    named.update(column.name.lower() for write in stage.writes for column in write.columns)
    for node in _all_nodes(_parse_all(stage.steps)):
        if node["class"] == "STAR":
            return tuple(column.name for column in stream.columns)
        if node["class"] == "COLUMN_REF":
            named.update(part.lower() for part in node["column_names"])
    return tuple(column.name for column in stream.columns if column.name.lower() in named)


@lru_cache(maxsize=64)
def _parse_all(steps: tuple[Step, ...]) -> Sequence[Mapping[str, Any]]:
    """The parse trees of all expressions; kept, because every task of a stage asks for the same."""
    with connect() as connection:
        return [_parse(connection, text) for step in steps for text in step.expressions]


class _Check:
    """The check of one pipeline: what each step gives, and the findings so far."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, pipeline: Pipeline) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._columns: dict[str, tuple[Column, ...]] = {}
        self._named: dict[str, frozenset[str]] = {}
        self._findings: list[Finding] = []
        self._aggregates: set[str] = set()
        self._unsteady: set[str] = set()
        self._macros: dict[str, list[str]] = {}
        for name, kind, definition in connection.execute(_FUNCTIONS).fetchall():
            if kind == "aggregate":
                self._aggregates.add(name)
            elif kind == "macro":
                self._macros.setdefault(name, []).append(definition)
            elif name != "error":  # volatile only so that it is not called while planning
                self._unsteady.add(name)

    def results(self, discovered: Sequence[Discovered]) -> Mapping[str, tuple[Column, ...]]:
        for stream in discovered:
            self._stream(stream)
        for step in self._pipeline.steps:
            self._step(step)
        results = {write.table: self._result(write) for write in self._pipeline.writes if write.step in self._columns}
        if self._findings:
            raise Refused(*self._findings)
        return results

    def _stream(self, stream: Discovered) -> None:
        where = f"stream {stream.stream!r}"
        columns = (*stream.columns, Column(PARTITION, "INTEGER"))
        if not self._repeated(columns, where, "land it with other column names"):
            listed = ", ".join(f"{quote(column.name)} {column.type}" for column in columns)
            self._connection.execute(f"CREATE TEMP TABLE {quote(stream.stream)} ({listed})")
            self._columns[stream.stream] = columns
            self._named[stream.stream] = frozenset()

    def _step(self, step: Step) -> None:
        trees = [tree for text in step.expressions if (tree := self._expression(step, text))]
        if len(trees) < len(step.expressions) or not all(name in self._columns for name in step.inputs):
            return
        try:
            described = self._connection.execute(f"DESCRIBE {step.sql}").fetchall()
            columns = tuple(Column(name, kind) for name, kind, *_ in described)
            if self._repeated(columns, _where(step), "name one of them otherwise with AS, or leave it out: * EXCLUDE"):
                return
            _create_view(self._connection, step)
        except duckdb.Error as error:
            self._findings.extend(self._explained(step, trees, error))
            return
        self._columns[step.name] = columns
        named = {node["column_names"][-1].lower() for node in _all_nodes(trees) if node["class"] == "COLUMN_REF"}
        self._named[step.name] = frozenset(named).union(*(self._named[name] for name in step.inputs))

    def _result(self, write: Write) -> tuple[Column, ...]:
        hidden = {PARTITION} | {stream.offset.lower() for stream in self._pipeline.streams}
        hidden -= self._named[write.step]
        columns = tuple(column for column in self._columns[write.step] if column.name.lower() not in hidden)
        where = f"table {write.table!r}, from step {write.step!r}"
        for column in columns:
            if write.lineage and column.name.lower() in LINEAGE:
                what = f"column {column.name!r} is there already, and lineage=True adds one of that name"
                self._findings.append(Finding(what, where, "name the column otherwise"))
            if _NO_NAME & set(column.name):
                what = f"a table cannot have a column named {column.name!r}"
                self._findings.append(Finding(what, where, "give it a plain name with AS"))
        return columns

    def _expression(self, step: Step, text: str) -> Mapping[str, Any] | None:
        """The parse tree of an expression that may be used in `step`, else None and findings."""
        before = len(self._findings)
        try:
            tree = _parse(self._connection, text)
        except Refused as refusal:
            (finding,) = refusal.findings
            self._found(step, text, finding.what, finding.then)
            return None
        parts = [words for part, words in _FOREIGN_PARTS.items() if tree[part] and tree[part] != _NOTHING.get(part)]
        for words in parts:
            self._found(step, text, f"{words} is no part of an expression", "write it as a step of its own")
        for what, then in dict(self._forbidden(step, tree, set())).items():
            self._found(step, text, what, then)
        return tree if len(self._findings) == before else None

    def _forbidden(self, step: Step, tree: Any, opened: set[str]) -> Iterator[tuple[str, str]]:
        """What `tree` must not do and what to do instead; macros are looked into."""
        for node in _nodes(tree):
            kind = node["class"]
            name = str(node.get("function_name", "")).lower()
            if kind == "SUBQUERY":
                yield "a subquery would see the records of one task only", "use a join"
            elif kind == "WINDOW":
                yield "a window function would see the records of one task only", "use aggregate"
            elif kind == "POSITIONAL_REFERENCE":
                yield f"#{node['index']} names a column by its place", "name it"
            elif name in self._aggregates and step.op != "aggregate":
                yield f"{name} would see the records of one task only", "use it in aggregate, by key"
            elif name in self._unsteady:
                yield _unsteady(name)
            elif kind == "COLUMN_REF" and len(node["column_names"]) == 1:
                yield from self._no_column(step, node["column_names"][0])
            elif name in self._macros and name not in opened:
                opened.add(name)
                for definition in self._macros[name]:
                    yield from self._forbidden(step, _parse(self._connection, definition), opened)

    def _no_column(self, step: Step, name: str) -> Iterator[tuple[str, str]]:
        """What is wrong with a name for which DuckDB makes something up if there is no such column."""
        if name.lower() in {column.name.lower() for source in step.inputs for column in self._columns.get(source, ())}:
            return
        if name.lower() in _CLOCKS:
            yield _unsteady(name)
        if name.lower() in {source.lower() for source in self._columns}:
            yield f"{name} names a whole record", "name its columns"

    def _explained(self, step: Step, trees: Sequence[Any], error: duckdb.Error) -> list[Finding]:
        """One finding for each unknown column, or what DuckDB says."""
        there = {name: [column.name for column in self._columns[name]] for name in step.inputs}
        listed = "; ".join(f"{name} has {', '.join(names)}" for name, names in there.items())
        unknown = sorted({name for tree in trees for name in self._unknown(step, tree)})
        if unknown:
            then = f"correct the name; {listed}"
            return [Finding(f"there is no column {name!r}", _where(step), then) for name in unknown]
        what = str(error).partition("\n")[0].partition("Error: ")[2] or str(error)
        return [Finding(what, _where(step), f"correct the expression; {listed}")]

    def _unknown(self, step: Step, tree: Any) -> Iterator[str]:
        inputs = {name.lower() for name in step.inputs}
        columns = {column.name.lower() for name in step.inputs for column in self._columns[name]}
        nodes = list(_nodes(tree))
        own = {str(node.get("alias", "")).lower() for node in nodes}
        own.update(
            node["column_names"][0].lower()
            for outer in nodes
            if outer["class"] == "LAMBDA"
            for node in _nodes(outer["lhs"])
            if node["class"] == "COLUMN_REF"
        )
        for node in nodes:
            if node["class"] == "COLUMN_REF":
                first, *rest = (part.lower() for part in node["column_names"])
                if first not in columns | own and not (rest and self._is_column(inputs, first, rest[0])):
                    yield ".".join(node["column_names"])

    def _is_column(self, inputs: set[str], alias: str, name: str) -> bool:
        """Whether `alias.name` is a column: of the input of that name, or of any if it has another name."""
        asked = {alias} if alias in inputs else inputs
        return any(
            name == column.name.lower()
            for step in self._columns
            if step.lower() in asked
            for column in self._columns[step]
        )

    def _repeated(self, columns: Sequence[Column], where: str, then: str) -> bool:
        names = [column.name.lower() for column in columns]
        repeated = sorted({name for name in names if names.count(name) > 1})
        self._findings.extend(Finding(f"two columns are named {name!r}", where, then) for name in repeated)
        return bool(repeated)

    def _found(self, step: Step, text: str, what: str, then: str) -> None:
        self._findings.append(Finding(what, f"{_where(step)}: {text}", then))


def _create_view(connection: duckdb.DuckDBPyConnection, step: Step) -> None:
    connection.execute(f"CREATE TEMP VIEW {quote(step.name)} AS {step.sql}")


def _unsteady(name: str) -> tuple[str, str]:
    return f"{name} gives another result in each task and each run", "use the records' own columns"


def _parse(connection: duckdb.DuckDBPyConnection, text: str) -> Mapping[str, Any]:
    """The parse tree of a list of expressions. Raises Refused, with one finding, if it is none."""
    row = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT {text}"]).fetchone()
    assert row is not None
    parsed = json.loads(row[0])
    if parsed["error"]:
        raise Refused(Finding(parsed["error_message"], text, "write DuckDB SQL expressions"))
    if len(parsed["statements"]) != 1 or parsed["statements"][0]["node"]["type"] != "SELECT_NODE":
        raise Refused(Finding("this is more than expressions", text, "write DuckDB SQL expressions"))
    tree: Mapping[str, Any] = parsed["statements"][0]["node"]
    return {**tree, "from_table": None} if tree["from_table"]["type"] == "EMPTY" else tree


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    """All expressions in a parse tree."""
    if isinstance(tree, dict):
        if "class" in tree:
            yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for child in tree:
            yield from _nodes(child)


def _all_nodes(trees: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    return (node for tree in trees for node in _nodes(tree))


def _where(step: Step) -> str:
    return f"step {step.name!r}"
