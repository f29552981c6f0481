"""Expressions: parses the SQL that users write in steps, and decides what it may do.

One rule decides: the result must not depend on the number of tasks. So an expression sees one record at a time, or in
an aggregate the records of one key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import duckdb

from coset.sources.databases import connect_to_ask
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind

Tree = Mapping[str, Any]

# The classes of expressions that are allowed. SUBQUERY, WINDOW and POSITIONAL_REFERENCE get reasons of their own below.
_CLASSES = {
    *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION"),
    *("LAMBDA", "LAMBDA_REF", "OPERATOR", "STAR", "TYPE"),
}
# Parts of a SELECT as the parse tree names them, in SQL's words.
_PARTS = {
    "from_table": "FROM",
    "where_clause": "WHERE",
    "group_expressions": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "sample": "USING SAMPLE",
    "modifiers": "ORDER BY, LIMIT or DISTINCT",
    "aggregate_handling": "GROUP BY ALL",
}
# Functions of the machine or of how it runs a query, not of a record.
_OF_THE_MACHINE = {"current_setting", "getvariable", "pg_backend_pid", "getenv", "vector_type", "version"}
# DuckDB says that this one may change with its versions: state by such a key would be lost, and another run differ.
_OF_THE_VERSION = {"hash"}
# How a parse tree names the type whose offset in another zone is that of today; Arrow has no such type either.
_ZONED_TIME = re.compile('"(TIMETZ|TIME WITH TIME ZONE)"', re.IGNORECASE)
# DuckDB reads these names as clocks, and those as who asks and where, if there is no such column.
_CLOCKS = {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
_OF_THE_SESSION = {"user", "current_user", "session_user", "current_role", "current_catalog", "current_schema"}
# DuckDB 2 says of two kinds of functions that they are the same within a query only: clocks, and those of a time with a
# zone, which go by the zone that is set, UTC everywhere.
_FUNCTIONS = """
    SELECT lower(function_name), replace(function_type, 'window', 'aggregate'), macro_definition FROM duckdb_functions()
    WHERE function_type IN ('aggregate', 'window', 'macro') OR stability = 'VOLATILE'
    OR stability = 'CONSISTENT_WITHIN_QUERY' AND NOT (
        parameter_types <> [] AND regexp_matches(parameter_types::VARCHAR || return_type, 'TIMESTAMPTZ|TIME ZONE')
    )
"""


def parse(connection: duckdb.DuckDBPyConnection, text: str) -> Tree:
    """The parse tree of a list of expressions. Raises Refused with one finding if the text is something else."""
    found = parsed(connection, f"SELECT {text}")
    if found["error"]:
        raise Refused(_unfit(found["error_message"], text, _word_of_sql(connection, text)))
    if len(found["statements"]) != 1 or found["statements"][0]["node"]["type"] != "SELECT_NODE":
        raise Refused(_unfit("only a list of SELECT expressions is allowed here", text))
    # A comment at the end swallows the added comma, which then is no token.
    if duckdb.tokenize(f"{text},")[-1][0] != len(text.encode()):
        what = "a comment at the end hides what follows it"
        raise Refused.of(Kind.SQL, what, text, "leave it out, or end its line", text=text)
    tree: Tree = found["statements"][0]["node"]
    return {**tree, "from_table": None} if tree["from_table"]["type"] == "EMPTY" else tree


def parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """What DuckDB reads in SQL: parse trees, or an error."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    return json.loads(text)


def _word_of_sql(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    """The word of SQL that spoils a text unless it is in quotes, as the name of a column may be, or nothing.

    >>> with connect_to_ask() as connection:
    ...     _word_of_sql(connection, "max(at::TIMESTAMP) AS last")
    'at'
    """
    encoded = text.encode()
    begins = [begin for begin, kind in duckdb.tokenize(text) if kind == duckdb.token_type.keyword]
    words = {found[0].decode() for begin in begins if (found := re.compile(rb"[A-Za-z]\w*").match(encoded, begin))}
    for word in sorted(words):
        quoted = re.sub(rf'(?<![\w"]){word}(?![\w"])', f'"{word}"', text)
        if not parsed(connection, f"SELECT {quoted}")["error"]:
            return word
    return ""


def _unfit(what: str, text: str, word: str = "") -> Finding:
    then = (
        f'write DuckDB SQL expressions; a column named {word} is written "{word}"'
        if word
        else "write DuckDB SQL expressions"
    )
    return Finding.of(Kind.SQL, what, text, then, wrong=what)


def objects(tree: Any) -> Iterator[Mapping[str, Any]]:
    """All that a parse tree, or several, is made of."""
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for child in tree:
            yield from objects(child)


def nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    """All expressions in a parse tree, or in several."""
    return (each for each in objects(tree) if "class" in each)


def columns_named(tree: Any) -> Iterator[tuple[str, ...]]:
    """The columns that expressions name: `flights.dep_delay` as its two parts."""
    for node in nodes(tree):
        if node["class"] == "COLUMN_REF":
            yield tuple(node["column_names"])


def names_made(tree: Tree) -> set[str]:
    """Names that expressions define themselves, in lower case: aliases, of which none is known in its own expression,
    and lambda arguments."""
    names, of_lambdas = set[str](), set[str]()
    for node in nodes(tree):
        alias = str(node.get("alias", "")).lower()
        if alias not in {parts[0].lower() for parts in columns_named(node)}:
            names.add(alias)
        if node["class"] == "LAMBDA":
            of_lambdas.update(parts[0].lower() for parts in columns_named(node["lhs"]))
    return names | of_lambdas


@cache
def _functions() -> Sequence[tuple[str, str, str]]:
    """Name, kind and definition of the functions that `Rules` knows. Cached because DuckDB lists them slowly."""
    with connect_to_ask() as connection:
        return connection.execute(_FUNCTIONS).fetchall()


class Rules:
    """The rules of expressions, over DuckDB's list of functions."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._bare = parse(connection, "NULL")
        self._aggregates: set[str] = set()
        self._unsteady: set[str] = set()
        self._macros: dict[str, list[str]] = {}
        for name, kind, definition in _functions():
            if kind == "aggregate":
                self._aggregates.add(name)
            elif kind == "macro":
                self._macros.setdefault(name, []).append(definition)
            elif name != "error":  # DuckDB calls it volatile only to keep it from running while it plans
                self._unsteady.add(name)

    def broken(
        self, tree: Tree, *, aggregates: bool, columns: Collection[str] | None, relations: Collection[str]
    ) -> dict[str, str]:
        """The rules that an expression breaks, each with its remedy. `columns` and `relations` are the known names; the
        columns are None if what gives them is refused."""
        broken = {
            f"{_PARTS.get(part, part)} is no part of an expression": "write it as a step of its own"
            for part in tree
            if part != "select_list" and tree[part] != self._bare.get(part)
        }
        if _is_collated(tree):
            what = "what COLLATE makes is compared by it until it is kept or moves, and not any more then"
            broken[what] = "compare with it at once, a COLLATE NOCASE = b, or make texts alike: lower(a)"
        for node in self._looked_into(tree):
            broken.update(self._broken_by(node, aggregates))
            broken.update(_ordered_by_nothing(node))
            if columns is not None and node["class"] == "COLUMN_REF" and len(node["column_names"]) == 1:
                broken.update(_made_up(node["column_names"][0], columns, relations))
        return broken

    def aggregates(self, tree: Tree) -> bool:
        """Whether each expression of a list aggregates or is constant."""
        return all(
            any(function(node) in self._aggregates for node in self._looked_into(item))
            or not any(node["class"] in {"COLUMN_REF", "STAR"} for node in nodes(item))
            for item in tree["select_list"]
        )

    def called(self, call: Tree) -> set[str]:
        """The aggregates that the call of a function calls, itself or as a macro."""
        opened = (self._looked_into(parse(self._connection, each)) for each in self._macros.get(function(call), ()))
        return {function(call), *(function(node) for nodes in opened for node in nodes)} & self._aggregates

    def written(self, named: Mapping[str, Tree]) -> str:
        """The SQL of expressions, by the names of their columns."""
        select = [{**tree, "alias": name} for name, tree in named.items()]
        node = {**self._bare, "select_list": select, "from_table": {"type": "EMPTY", "alias": "", "sample": None}}
        said = json.dumps({"error": False, "statements": [{"node": node, "named_param_map": []}]})
        ((sql,),) = self._connection.execute("SELECT json_deserialize_sql(?)", [said]).fetchall()
        return str(sql).removeprefix("SELECT ")

    def _broken_by(self, node: Mapping[str, Any], aggregates: bool) -> Iterable[tuple[str, str]]:
        kind, name = node["class"], function(node)
        if kind == "SUBQUERY":
            yield "a subquery would see the records of one task only", "use a join"
        elif kind == "WINDOW":
            yield "a window function would see the records of one task only", "use aggregate"
        elif kind == "POSITIONAL_REFERENCE":
            yield f"#{node['index']} names a column by its place", "name it"
        elif kind not in _CLASSES:
            yield f"{kind} is not known to be the same in each task", "write it otherwise"
        elif name in self._aggregates and not aggregates:
            yield f"{name} would see the records of one task only", "use it in aggregate, by key"
        elif name in self._unsteady or name in _OF_THE_MACHINE:
            yield _unsteady(name)
        elif name in _OF_THE_VERSION:
            yield f"{name} may give another result in the next version of DuckDB", "use md5_number or sha256 of a text"
        elif name == "age" and len(node["arguments"]) < 2:  # of `a.age()` none is listed
            yield "age of one time goes by today's date", "give it both times: age(later, earlier)"
        elif kind == "CAST" and _ZONED_TIME.search(json.dumps(node["type_expr"])):
            yield "TIME WITH TIME ZONE goes by today's date in another zone", "use TIME, or TIMESTAMP WITH TIME ZONE"

    def _looked_into(self, tree: Any, opened: frozenset[str] = frozenset()) -> Iterator[Mapping[str, Any]]:
        """All expressions in a parse tree, and those in the macros that it calls."""
        for node in nodes(tree):
            yield node
            if (name := function(node)) not in opened:
                for definition in self._macros.get(name, ()):
                    yield from self._looked_into(parse(self._connection, definition), opened | {name})


def function(node: Tree) -> str:
    """The function that an expression calls, in small letters, or nothing."""
    return str(node.get("function_name", "")).lower()


def _ordered_by_nothing(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The rule that an aggregate breaks which is ordered by a number that is meant as a column's place."""
    orders = (node.get("order_bys") or {}).get("orders", ())
    if any(each["expression"]["class"] == "CONSTANT" for each in orders):
        yield "ORDER BY a constant orders nothing: in an aggregate a number is no column's place", "name the column"


def _is_collated(tree: Any) -> bool:
    """Whether COLLATE is in expressions outside of what is compared."""
    if isinstance(tree, list):
        return any(map(_is_collated, tree))
    if not isinstance(tree, dict) or str(tree.get("type")).startswith("COMPARE_"):
        return False
    return tree.get("class") == "COLLATE" or _is_collated(list(tree.values()))


def _made_up(name: str, columns: Collection[str], relations: Collection[str]) -> Iterator[tuple[str, str]]:
    """The rules that a name breaks to which DuckDB gives a meaning though there is no such column."""
    if name.lower() in columns:
        return
    if name.lower() in _CLOCKS:
        yield _unsteady(name)
    if name.lower() in _OF_THE_SESSION:
        yield f"{name} is no column, and says who asks", "use the records' own columns"
    if name.lower() in relations:
        yield f"{name} names a whole record", "name its columns"


def _unsteady(name: str) -> tuple[str, str]:
    return f"{name} gives another result in each task and each run", "use the records' own columns"
