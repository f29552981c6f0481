"""Engines: what a pipeline's SQL answers otherwise in this version of DuckDB than in the one of its last batch.

What differs between versions lies in `engine_changes.json`; `python -m tests.engines` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec
from packaging.version import Version

from coset.sources.databases import connect_to_ask
from partitioning.model.graph import Graph
from partitioning.model.plan import Plan
from partitioning.model.streams import Column
from partitioning.model.task_engine import Differs, Engine, OtherAnswer
from partitioning.values import Value
from spark_jobs.sql.expressions import nodes, parsed

HERE = duckdb.__version__
# Types that not each pipeline has, with the words by which SQL comes to one that no column has.
RARE = {
    "BIGNUM": "bignum|varint",
    "BIT": r"bit\w*",
    "GEOMETRY": r"geometry|st_\w+",
    "TIME WITH TIME ZONE": r"time with time zone|timetz\w*",
    "TIMESTAMP": r"\w*timestamp\w*|\w*strptime|time_bucket|date_trunc|datetime|date|interval",
    "TIMESTAMP WITH TIME ZONE": r"timestamp\w* with time zone|timestamptz\w*|time zone|to_timestamp|timezone",
    "TIMESTAMP_MS": "timestamp_ms",
    "TIMESTAMP_NS": r"\w+_ns|\w*strptime",
    "TIMESTAMP_S": "timestamp_s",
    "TIME_NS": r"\w+_ns",
    "UHUGEINT": r"uhugeint|uint128|md5_number\w*",
    "UNION": r"union_\w+|union *\(",
    "UUID": r"uuid\w*",
}
# Syntax that the parse tree does not call by the name of a function.
_OPERATORS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<",
    "COMPARE_GREATERTHANOREQUALTO": "<",
    "COMPARE_DISTINCT_FROM": "=",
    "COMPARE_NOT_DISTINCT_FROM": "=",
    "COMPARE_BETWEEN": "BETWEEN",
    "COMPARE_IN": "IN",
    "COMPARE_NOT_IN": "IN",
    "ARRAY_CONSTRUCTOR": "list_value",
    "ARRAY_EXTRACT": "array_extract",
    "ARRAY_SLICE": "array_slice",
    "STRUCT_EXTRACT": "struct_extract",
}
# Functions that call an aggregate that a text names.
_NAME_OTHERS = {"list_aggregate", "list_aggr", "aggregate", "array_aggregate", "array_aggr"}


class _Use(NamedTuple):
    """That a stream or step, the `user`, calls a function or other syntax; where it `may_fail`, it goes on without."""

    name: str
    user: str
    may_fail: bool


class _Change(Value, frozen=True):
    """What differs in a version from the one before it: a function with its aliases, how, in how many calls of all that
    were tried, with arguments of which types, and an example. If each has an argument of a `rare` type, others do not
    differ."""

    since: str
    names: tuple[str, ...]
    how: Differs
    calls: tuple[int, int]
    types: tuple[str, ...]
    rare: tuple[str, ...] = ()
    example: str = ""
    was: str = ""
    now: str = ""


class _Changes(Value, frozen=True):
    """All that differs between versions that were compared, each with the one before it."""

    versions: tuple[str, ...]
    changes: tuple[_Change, ...]


@cache
def _changes() -> _Changes:
    return msgspec.json.decode(Path(__file__).with_name("engine_changes.json").read_bytes(), type=_Changes)


def engine(graph: Graph, columns: Iterable[Column], published: Plan | None) -> Engine:
    """This process's DuckDB, and what a pipeline over these columns uses of all that it answers otherwise than that of
    the last published batch did."""
    now, was = HERE, published.planned_for.version if published else ""
    if was in ("", now):
        return Engine(now)
    changes = _between(*sorted(map(Version, (was, now))))
    if changes is None:
        return Engine(now, was, None)
    used, back, rare = _used(graph), Version(now) < Version(was), _rare(graph, columns)
    changes = [each for each in changes if not each.rare or rare.intersection(each.rare)]
    return Engine(now, was, tuple(answer for change in changes for answer in _answers(change, used, back=back)))


def _between(first: Version, last: Version) -> list[_Change] | None:
    """What differs between two versions, None if nobody has looked. Of one that was left out between others that were
    compared, what differs between these may have come with it."""
    known = sorted(map(Version, _changes().versions))
    below, above = ([each for each in known if each <= first], [each for each in known if each >= last])
    if not below or not above:
        return None
    return [each for each in _changes().changes if below[-1] < Version(each.since) <= above[0]]


def _answers(change: _Change, used: Sequence[_Use], *, back: bool) -> Iterator[OtherAnswer]:
    """What a change does to those who use it: a call that may fail has a value in both versions."""
    how, was, now = (change.how.back, change.now, change.was) if back else (change.how, change.was, change.now)
    users: dict[Differs, dict[str, None]] = {}
    for use in used:
        if use.name in change.names:
            valued = use.may_fail and how is not Differs.TYPE
            users.setdefault(Differs.VALUE if valued else how, {})[use.user] = None
    for answered, by in users.items():
        yield OtherAnswer(change.names[0], answered, tuple(by), change.example, was, now)


def _rare(graph: Graph, columns: Iterable[Column]) -> set[str]:
    """The rare types that a pipeline's SQL may come to."""
    text = "\n".join([*(column.type for column in columns), *(sql for _, sql in _queries(graph))])
    return {kind for kind, words in RARE.items() if re.search(rf"\b({words})\b", text, re.IGNORECASE)}


def _used(graph: Graph) -> list[_Use]:
    """The functions and other syntax of a pipeline's SQL, with the streams and steps that use them."""
    found = list[_Use]()
    # A record that fails is set aside, and counts in the other version.
    may_fail = any(stream.sets_aside for stream in graph.streams)
    with connect_to_ask() as connection:
        for user, sql in _queries(graph):
            tree = parsed(connection, sql)
            assert not tree["error"], sql
            tried = {id(node) for each in nodes(tree) if (part := _tried(each)) for node in nodes(part)}
            for node in nodes(tree):
                fails = may_fail or id(node) in tried
                found += (_Use(name, user, fails) for name in _names(node, connection))
    return found


def _tried(node: Mapping[str, Any]) -> Any:
    """The part of an expression that gives NULL where it would fail."""
    if node["class"] == "CAST":
        return node["type_expr"] if node["try_cast"] else None
    return node["children"] if node["type"] == "OPERATOR_TRY" else None


def _queries(graph: Graph) -> Iterator[tuple[str, str]]:
    for stream in graph.streams:
        if stream.time:
            yield stream.name, f"SELECT ({stream.time.sql})::TIMESTAMP"
    for step in graph.steps:
        yield step.name, step.sql
        if step.state and step.state.sql:
            yield step.name, step.state.sql


def _names(node: Mapping[str, Any], connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """What a part of a query is called in the table of what differs."""
    match node["class"]:
        case "FUNCTION" | "WINDOW":
            yield (name := str(node["function_name"]).lower())
            if name in _NAME_OTHERS:
                constants = (each["literal"] for each in nodes(node["arguments"]) if each["class"] == "CONSTANT")
                yield from (str(constant["text"]).lower() for constant in constants if constant["kind"] == "STRING")
        case "TYPE":
            # A cast to a type, or to a list or struct of it, by any of its names.
            name = str(node["type_name"])
            with suppress(duckdb.Error):
                name = str(connection.sqltype(name)).partition("(")[0]
            yield f"::{name.upper()}"
        case "COLLATE":
            yield f"COLLATE {node['collation']}"
        case _:
            yield _OPERATORS.get(node["type"], "")
