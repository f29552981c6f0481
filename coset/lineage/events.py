"""Events: the outcome of an attempt as OpenLineage's run events. These are pure functions of values.

The job is the pipeline, and the run is an attempt. Its id comes from the plan's digest and the attempt's number, so
that repeated events are of the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated.base import DatasetFacet, RunFacet
from openlineage.client.generated.data_quality_assertions_dataset import DataQualityAssertionsDatasetFacet
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields
from openlineage.client.generated.tags_run import TagsRunFacet, TagsRunFacetFields

from coset.lineage import facets
from coset.lineage.facets import PRODUCER, of_stream, of_table
from partitioning.documents.document import digest
from partitioning.model.journal import as_iso
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.verdict import Commit, Outcome, Verdict


@dataclass(frozen=True, slots=True)
class AttemptRun:
    """An attempt: its plan, its number, the address of its store's tables, the namespace of its job if one is given,
    and the environment if there is one."""

    plan: Plan
    attempt: int
    tables: str
    given: str
    environment: str

    @property
    def run(self) -> UUID:
        """The id of the run. Environments may read the same topics, and so have the same plans."""
        whose = f":{self.environment}" if self.environment else ""
        return uuid5(NAMESPACE_URL, f"coset:{digest(self.plan)}:{self.attempt}{whose}")

    @property
    def namespace(self) -> str:
        """The namespace of its job: a pipeline is another job in each environment."""
        return self.given or (f"coset.{self.environment}" if self.environment else "coset")


def started(told: AttemptRun, at: int) -> RunEvent:
    """The attempt starts. `at` is in milliseconds since 1970."""
    outputs = [_output(told, write) for write in told.plan.writes()]
    return _event(told, RunState.START, Outcome.UNRUN, at, {}, outputs)


def failed(told: AttemptRun, outcome: Outcome, at: int, judgement: Mapping[str, Any]) -> RunEvent:
    """Its audit or check closed it, with this outcome. The judgement has their findings and results."""
    what = "\n".join(found["what"] for found in judgement["findings"])
    run: dict[str, RunFacet] = {"errorMessage": ErrorMessageRunFacet(what, "PYTHON", producer=PRODUCER)}
    return _event(told, RunState.FAIL, outcome, at, run | _tests(judgement), _outputs(told, judgement))


def given_up(told: AttemptRun, verdict: Verdict, at: int) -> RunEvent:
    """Somebody gave it up."""
    why = ErrorMessageRunFacet(f"given up: {verdict.why}", "PYTHON", producer=PRODUCER)
    return _event(told, RunState.ABORT, Outcome.GIVEN_UP, at, {"errorMessage": why}, [])


def completed(told: AttemptRun, verdict: Verdict, commit: Commit, at: int, judgement: Mapping[str, Any]) -> RunEvent:
    """It is published: each table with its Delta version and the rows, bytes and files written."""
    versions = {each.table: each.version for each in commit.tables}
    outputs = _outputs(told, judgement)
    for write, output in zip(told.plan.writes(), outputs, strict=True):
        table = write.declared.table
        files = verdict.rows_of(table)
        written = OutputStatisticsOutputDatasetFacet(
            sum(file.records for file in files), sum(file.size for file in files), len(files), producer=PRODUCER
        )
        version = DatasetVersionDatasetFacet(str(versions[table]), producer=PRODUCER)
        output.facets = {**(output.facets or {}), "version": version}
        output.outputFacets = {**(output.outputFacets or {}), "outputStatistics": written}
    return _event(told, RunState.COMPLETE, Outcome.PROVED, at, _tests(judgement), outputs)


def _event(
    told: AttemptRun,
    state: RunState,
    outcome: Outcome,
    at: int,
    run: Mapping[str, RunFacet],
    outputs: list[OutputDataset],
) -> RunEvent:
    said = {"outcome": str(outcome)} | ({"environment": told.environment} if told.environment else {})
    tags = TagsRunFacet([TagsRunFacetFields(*tag, "COSET") for tag in said.items()], producer=PRODUCER)
    offsets = facets.offsets(told.plan, digest(told.plan))
    inputs = [InputDataset(*of_stream(stream.declared)) for stream in told.plan.streams]
    return RunEvent(
        eventTime=as_iso(at),
        eventType=state,
        run=Run(str(told.run), {"coset_offsets": offsets, "tags": tags, **run}),
        job=Job(told.namespace, told.plan.pipeline),
        inputs=inputs,
        outputs=outputs,
        producer=PRODUCER,
    )


def _tests(judgement: Mapping[str, Any]) -> dict[str, RunFacet]:
    return {"test": facets.tests(judgement)} if judgement.get("results") else {}


def _outputs(told: AttemptRun, judgement: Mapping[str, Any]) -> list[OutputDataset]:
    outputs, made_of = [], facets.column_lineage(told.plan)
    for write in told.plan.writes():
        output = _output(told, write)
        output.facets = {**(output.facets or {}), "columnLineage": made_of(write)}
        if asserted := facets.assertions(judgement, write.declared.table):
            # The specification has this facet for inputs. For an output the same schema is used.
            own: Any = {"dataQualityAssertions": DataQualityAssertionsDatasetFacet(asserted, producer=PRODUCER)}
            output.outputFacets = own
        outputs.append(output)
    return outputs


def _output(told: AttemptRun, write: PlannedWrite) -> OutputDataset:
    columns = [SchemaDatasetFacetFields(column.name, column.type) for column in write.columns]
    schema: dict[str, DatasetFacet] = {"schema": SchemaDatasetFacet(columns, producer=PRODUCER)}
    return OutputDataset(*of_table(told.tables, write.declared.table), facets=schema)
