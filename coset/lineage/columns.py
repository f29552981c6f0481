"""Columns: from which columns of streams each column of a result table is made, as the SQL of the steps says.

Where it cannot be said, because a function makes the column or the SQL is of a kind that is not read here, it is None:
a column may have an origin too many, and never one too few. What only decides which rows there are is no origin.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import duckdb

from partitioning.model.graph import Step, Write, state_of
from partitioning.model.streams import Column, Stream
from spark_jobs.sql.expressions import nodes


class Origin(NamedTuple):
    """A column of a stream."""

    stream: str
    column: str


Origins = frozenset[Origin] | None
# The origins of a relation's columns, by their names in lower case; None if nothing is known of it.
Relation = Mapping[str, Origins] | None
_NONE: Origins = frozenset()


class _Unread(Exception):
    """SQL of a kind that is not read here."""


def column_origins(
    streams: Iterable[tuple[Stream, Sequence[Column]]], steps: Iterable[Step]
) -> Callable[[Write, Iterable[str]], dict[str, Origins]]:
    """Gives the origins of the columns of a result table, by their names, of these streams with their columns."""
    relations: dict[str, Relation] = {stream.name.lower(): _of_stream(stream, columns) for stream, columns in streams}
    waiting = {step.name: step for step in steps}
    while ready := [step for step in waiting.values() if not waiting.keys() & {*step.inputs}]:
        for step in ready:
            del waiting[step.name]
            relations[step.name.lower()] = _of_step(step, relations)

    def of_table(write: Write, columns: Iterable[str]) -> dict[str, Origins]:
        made = relations.get(write.step.lower()) or {}
        return {name: made.get(name.lower()) for name in columns}

    return of_table


def _of_stream(stream: Stream, columns: Iterable[Column]) -> Relation:
    # Where a record lies is no column of what was landed.
    place = {"_partition": _NONE, stream.offset.lower(): _NONE}
    return place | {each.name.lower(): frozenset({Origin(stream.name, each.name)}) for each in columns}


def _of_step(step: Step, relations: dict[str, Relation]) -> Relation:
    if step.function:
        return None
    try:
        if step.state and step.state.sql:
            # What is kept was selected from the same inputs.
            relations[state_of(step.name).lower()] = _selected(_parsed(step.state.sql), relations)
        return _selected(_parsed(step.sql), relations)
    except _Unread:
        return None


@cache
def _asked() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def _parsed(sql: str) -> Mapping[str, Any]:
    ((text,),) = _asked().cursor().execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    parsed: Any = json.loads(text)
    if parsed["error"]:
        raise _Unread
    node: Mapping[str, Any] = parsed["statements"][0]["node"]
    return node


def _selected(node: Mapping[str, Any], relations: Mapping[str, Relation]) -> Mapping[str, Origins]:
    """The columns of a query."""
    for each in node["cte_map"]["map"]:
        # DuckDB 2 has the query itself here.
        query = each["value"].get("query_node") or each["value"]["query"]["node"]
        relations = {**relations, each["key"].lower(): _selected(query, relations)}
    match node["type"]:
        case "SELECT_NODE":
            scope = list(_scope(node["from_table"], relations))
            made: dict[str, Origins] = {}
            for item in node["select_list"]:
                made.update(_starred(item, scope) if item["class"] == "STAR" else _named(item, scope, made))
            return made
        case "SET_OPERATION_NODE" if node["setop_type"] == "UNION_BY_NAME":
            sides = [_selected(side, relations) for side in node["children"]]
            return {name: _all(side.get(name, _NONE) for side in sides) for side in sides for name in side}
        case _:
            raise _Unread


_Scope = Sequence[tuple[str, Mapping[str, Origins]]]


def _scope(table: Mapping[str, Any], relations: Mapping[str, Relation]) -> Iterator[tuple[str, Mapping[str, Origins]]]:
    """The relations after FROM, by their aliases."""
    match table["type"]:
        case "BASE_TABLE":
            found = relations.get(table["table_name"].lower())
            if found is None:
                raise _Unread
            yield (table["alias"] or table["table_name"]).lower(), found
        case "SUBQUERY":
            yield table["alias"].lower(), _selected(table["subquery"]["node"], relations)
        case "JOIN":
            yield from _scope(table["left"], relations)
            yield from _scope(table["right"], relations)
        case "EMPTY":
            return
        case _:
            raise _Unread


def _starred(item: Mapping[str, Any], scope: _Scope) -> dict[str, Origins]:
    if item["columns"] or item["expr"] or item["rename_list"]:
        raise _Unread
    out = {name.lower() for name in item["exclude_list"]}
    out |= {each["column"].lower() for each in item["qualified_exclude_list"]}
    chosen = item["relation_name"].lower()
    columns = [columns for alias, columns in scope if chosen in ("", alias)]
    made = {name: origins for each in columns for name, origins in each.items() if name not in out}
    return made | {each["key"].lower(): _of(each["value"], scope, {}) for each in item["replace_list"]}


def _named(item: Mapping[str, Any], scope: _Scope, before: Mapping[str, Origins]) -> dict[str, Origins]:
    """A column of a query by the name that it has there. What has none is no column of a result table."""
    name = item["alias"] or (item["column_names"][-1] if item["class"] == "COLUMN_REF" else "")
    return {name.lower(): _of(item, scope, before)}


def _of(expression: Any, scope: _Scope, before: Mapping[str, Origins]) -> Origins:
    """What an expression is made of; `before` are the columns of the same query that stand before it."""
    found = list(nodes(expression))
    if any(node["class"] == "SUBQUERY" for node in found):
        return None
    arguments = {parts[0] for node in found if node["class"] == "LAMBDA" for parts in _names(nodes(node["lhs"]))}
    return _all(_referred(parts, scope, before) for parts in _names(found) if parts[0] not in arguments)


def _names(found: Iterable[Mapping[str, Any]]) -> Iterator[list[str]]:
    return ([part.lower() for part in node["column_names"]] for node in found if node["class"] == "COLUMN_REF")


def _referred(parts: Sequence[str], scope: _Scope, before: Mapping[str, Origins]) -> Origins:
    """A column, one of a relation, or a whole row. Where it could be of several relations, it is of all of them."""
    first, *rest = parts
    of_alias = [columns for alias, columns in scope if alias == first]
    qualified = [columns[rest[0]] for columns in of_alias if rest and rest[0] in columns]
    plain = [columns[first] for _, columns in scope if first in columns]
    rows = [_all(columns.values()) for columns in of_alias]
    for hits in (qualified, plain, [before[first]] if first in before else [], rows):
        if hits:
            return _all(hits)
    return None


def _all(origins: Iterable[Origins]) -> Origins:
    together = frozenset[Origin]()
    for each in origins:
        if each is None:
            return None
        together |= each
    return together
