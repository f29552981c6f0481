"""Facets: the plan and the judgement of a batch in OpenLineage's terms, and datasets by its naming conventions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, assert_never

import attr
from openlineage.client.generated.base import RunFacet
from openlineage.client.generated.column_lineage_dataset import ColumnLineageDatasetFacet, Fields, InputField
from openlineage.client.generated.data_quality_assertions_dataset import Assertion
from openlineage.client.generated.test_run import TestExecution, TestRunFacet

from coset.lineage.columns import Origins, column_origins
from partitioning.kinds import Kind
from partitioning.model.measures import NOT_JUDGED
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.sources import FOLDER, IcebergSource, KafkaSource, LandedSource
from partitioning.model.streams import Stream
from partitioning.version import VERSION

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
        case _:
            assert_never(stream.origin)


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
    steps = (step for stage in plan.stages for step in stage.steps)
    origins = column_origins([(stream.declared, stream.columns) for stream in plan.streams], steps)

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
