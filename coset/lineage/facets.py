"""Facets: the plan and the judgement of a batch in OpenLineage's terms, and datasets by its naming conventions.

Columns: from which columns of streams each column of a result table is made, as the SQL of the steps says. Where it
cannot be said, because a function makes the column or the SQL is of a kind that is not read here, it is None: a
column may have an origin too many, and never one too few. A column that only decides which rows there are is no origin.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import attr
from openlineage.client.generated.base import RunFacet
from openlineage.client.generated.column_lineage_dataset import ColumnLineageDatasetFacet, Fields, InputField
from openlineage.client.generated.data_quality_assertions_dataset import Assertion
from openlineage.client.generated.test_run import TestExecution, TestRunFacet

from coset.sources.databases import connect_to_ask
from partitioning.kinds import Kind
from partitioning.model.graph import Step, Write, state_of
from partitioning.model.measures import NOT_JUDGED
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.sources import FOLDER, IcebergSource, KafkaSource, LandedSource
from partitioning.model.streams import Column, Stream
from partitioning.version import VERSION
from spark_jobs.sql.expressions import nodes, parsed


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
            # Kept rows were selected from the same inputs.
            relations[state_of(step.name).lower()] = _selected(_parsed(step.state.sql), relations)
        return _selected(_parsed(step.sql), relations)
    except _Unread:
        return None


def _parsed(sql: str) -> Mapping[str, Any]:
    found = parsed(connect_to_ask(), sql)
    if found["error"]:
        raise _Unread
    node: Mapping[str, Any] = found["statements"][0]["node"]
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


PRODUCER = f"urn:coset:{VERSION}"

# What is expected of a result table by its pipeline, in the judgement.
OF_TABLE = "Result table {}"
# Where the SQL does not say it: the column of a function, or of what comes after one.
_UNKNOWN = "not known: the SQL of the pipeline does not say what it is made of"
_SCHEMA = "urn:coset:lineage:1-0-0:offsets_run_facet.json#/$defs/CosetOffsetsRunFacet"
# What OpenLineage calls otherwise. Judgements of earlier versions name none: each unmet one kept its batch.
_SEVERITIES = {"error": "error", "warning": "warn"}


class DatasetName(NamedTuple):
    """A dataset, by its namespace and its name."""

    namespace: str
    name: str


def of_stream(stream: Stream) -> DatasetName:
    """A stream's topic in the first broker of its source, or the folder with its files.

    >>> tuple(of_stream(Stream("flights", "kafka://a:9092,b:9092", "tail", 4)))
    ('kafka://a:9092', 'flights')
    """
    match stream.origin:
        case LandedSource(uri):
            return _below(uri, stream.name)
        case KafkaSource(brokers):
            return DatasetName(f"kafka://{brokers[0].rpartition('@')[2]}", stream.name)
        case IcebergSource() as source:
            return DatasetName(f"iceberg://{source.catalogue}", source.identifier(stream.name))


def of_table(tables: str, table: str) -> DatasetName:
    """A result table, by its folder at the address of its store's tables.

    >>> tuple(of_table("s3://lake/coset/tables", "totals")), tuple(of_table("file:///lake/tables", "totals"))
    (('s3://lake', 'coset/tables/totals'), ('file', '/lake/tables/totals'))
    """
    return _below(tables, table)


def _below(root: str, path: str) -> DatasetName:
    """A folder below an address."""
    address = root.rstrip("/")
    if address.startswith(FOLDER):
        return DatasetName("file", f"{address.removeprefix(FOLDER)}/{path}")
    scheme, _, rest = address.partition("://")
    bucket, _, prefix = rest.partition("/")
    return DatasetName(f"{scheme}://{bucket}", "/".join(part for part in (prefix, path) if part))


@attr.define
class CosetOffsetsRunFacet(RunFacet):
    """The offsets that a batch reads, as `offsets_run_facet.json` describes them."""

    batch: int
    plan: str
    partitions: list[dict[str, Any]]

    @staticmethod
    def _get_schema() -> str:
        return _SCHEMA


def offsets(plan: Plan, digest: str) -> CosetOffsetsRunFacet:
    """The offsets that the batch reads of each stream partition."""
    ranges = [
        {"stream": each.partition.stream, "partition": each.partition.partition, "from": each.start, "to": each.end}
        for each in plan.ranges()
    ]
    return CosetOffsetsRunFacet(plan.batch, digest, ranges, producer=PRODUCER)


def column_lineage(plan: Plan) -> Callable[[PlannedWrite], ColumnLineageDatasetFacet]:
    """Gives of each result table from which columns of streams its columns are made, and which it is not known of."""
    streams = {stream.declared.name: of_stream(stream.declared) for stream in plan.streams}
    origins = column_origins([(stream.declared, stream.columns) for stream in plan.streams], plan.steps)

    def of_table(write: PlannedWrite) -> ColumnLineageDatasetFacet:
        made = origins(write.declared, [column.name for column in write.columns])
        return ColumnLineageDatasetFacet({name: _fields(found) for name, found in made.items()}, producer=PRODUCER)

    def _fields(found: Origins) -> Fields:
        if found is None:
            return Fields([], transformationDescription=_UNKNOWN)
        return Fields([InputField(*streams[each.stream], each.column) for each in sorted(found)])

    return of_table


def tests(judgement: Mapping[str, Any]) -> TestRunFacet:
    """Each expectation with its observed value. One that could not be judged, or not yet, is skipped, with the
    reason."""
    return TestRunFacet([_test(result, found) for result, found in _judged(judgement)], producer=PRODUCER)


def assertions(judgement: Mapping[str, Any], table: str) -> list[Assertion]:
    """The pipeline's expectations on a result table. Those that could not be judged are only in the tests of the
    run."""
    titles = (OF_TABLE.format(table), f"{OF_TABLE.format(table)}, figures")
    return [
        Assertion(
            result["expectation"],
            bool(result["success"]),
            column=result["kwargs"].get("column"),
            severity=_SEVERITIES[_severity(result)],
            expected=_expected(result),
            actual=_actual(result),
        )
        for result, found in _judged(judgement)
        if result["table"] in titles and _unjudged(result, found) is None
    ]


def _test(result: Mapping[str, Any], found: Mapping[str, Any] | None) -> TestExecution:
    unjudged = _unjudged(result, found)
    reason = unjudged if found is None else found["what"]
    return TestExecution(
        name=f"{result['table']}: {result['expectation']}",
        status="skip" if unjudged is not None else "pass" if result["success"] else "fail",
        severity=_SEVERITIES[_severity(result)],
        type=result["expectation"],
        expected=_expected(result),
        actual=None if unjudged is not None else _actual(result),
        params={"table": result["table"]} | ({"reason": reason} if reason is not None else {}),
    )


def _judged(judgement: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    """Each result, with its finding or warning if it is not met. Those have the order of the results."""
    unmet = {"error": iter(judgement.get("findings", ())), "warning": iter(judgement.get("warnings", ()))}
    for result in judgement.get("results", ()):
        yield result, None if result["success"] else next(unmet[_severity(result)])


def _severity(result: Mapping[str, Any]) -> str:
    return str(result.get("severity", "error"))


def _unjudged(result: Mapping[str, Any], found: Mapping[str, Any] | None) -> str | None:
    """Why it says neither that the expectation is met nor that it is not; None if it does."""
    if found is not None:
        return str(found["what"]) if found["kind"] == Kind.EXPECTATION_FAILS else None
    why = ((result["result"] or {}).get("details") or {}).get(NOT_JUDGED)
    return None if why is None else str(why)


def _expected(result: Mapping[str, Any]) -> str:
    given = {name: value for name, value in result["kwargs"].items() if name not in ("batch_id", "column")}
    return json.dumps(given, sort_keys=True)


def _actual(result: Mapping[str, Any]) -> str:
    """The observed value, or the number of unexpected rows, which may be zero."""
    seen = result["result"] or {}
    value = seen.get("observed_value")
    return json.dumps(seen.get("unexpected_count", 0) if value is None else value)
