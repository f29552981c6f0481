"""Facets: what the plan and the judgement of a batch say, in OpenLineage's terms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import attr
from openlineage.client.generated.base import RunFacet
from openlineage.client.generated.data_quality_assertions_dataset import Assertion
from openlineage.client.generated.test_run import TestExecution, TestRunFacet

from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from partitioning.version import VERSION

PRODUCER = f"urn:coset:{VERSION}"

# What is expected of a result table by its pipeline, in the judgement.
OF_TABLE = "Result table {}"
_SCHEMA = "urn:coset:lineage:1-0-0:offsets_run_facet.json#/$defs/CosetOffsetsRunFacet"
# Every expectation that is not met keeps a batch from being published.
_SEVERITY = "error"


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
    """What the batch reads of each stream partition."""
    ranges = [
        {"stream": each.partition.stream, "partition": each.partition.partition, "from": each.start, "to": each.end}
        for each in plan.ranges()
    ]
    return CosetOffsetsRunFacet(plan.batch, digest, ranges, producer=PRODUCER)


def tests(judgement: Mapping[str, Any]) -> TestRunFacet:
    """Each expectation with what was seen. One that could not be judged is skipped, with the reason."""
    return TestRunFacet([_test(result, found) for result, found in _judged(judgement)], producer=PRODUCER)


def assertions(judgement: Mapping[str, Any], table: str) -> list[Assertion]:
    """What the pipeline expects of a result table. What could not be judged is in the tests of the run only."""
    return [
        Assertion(
            result["expectation"],
            bool(result["success"]),
            column=result["kwargs"].get("column"),
            severity=_SEVERITY,
            expected=_expected(result),
            actual=_actual(result),
        )
        for result, found in _judged(judgement)
        if result["table"] == OF_TABLE.format(table) and not _skipped(found)
    ]


def _test(result: Mapping[str, Any], found: Mapping[str, Any] | None) -> TestExecution:
    skipped = _skipped(found)
    reason = {"reason": found["what"]} if found is not None else {}
    return TestExecution(
        name=f"{result['table']}: {result['expectation']}",
        status="skip" if skipped else "pass" if result["success"] else "fail",
        severity=_SEVERITY,
        type=result["expectation"],
        expected=_expected(result),
        actual=None if skipped else _actual(result),
        params={"table": result["table"], **reason},
    )


def _judged(judgement: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    """Each result, and its finding if it is not met: there is one for each of those, in their order."""
    findings = iter(judgement.get("findings", ()))
    for result in judgement.get("results", ()):
        yield result, None if result["success"] else next(findings)


def _skipped(found: Mapping[str, Any] | None) -> bool:
    return found is not None and found["kind"] == Kind.EXPECTATION_FAILS


def _expected(result: Mapping[str, Any]) -> str:
    given = {name: value for name, value in result["kwargs"].items() if name not in ("batch_id", "column")}
    return json.dumps(given, sort_keys=True)


def _actual(result: Mapping[str, Any]) -> str:
    """The value that was seen, or how many rows were not as expected; zero too."""
    seen = result["result"] or {}
    value = seen.get("observed_value")
    return json.dumps(seen.get("unexpected_count", 0) if value is None else value)
