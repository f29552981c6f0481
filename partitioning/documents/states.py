"""State as earlier batches left it: the files that their verdicts name, as a plan pins them."""

from __future__ import annotations

from collections.abc import Iterable

from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.errors import Finding, Refused, plan_anew
from partitioning.model.artefact import Artefact, Role
from partitioning.model.leaving import Left, left_in
from partitioning.model.plan import Plan, StateInput, StateRun


def states_left(ledger: Ledger, plan: Plan, stages: Iterable[str] | None = None) -> Left:
    """What steps kept that these stages, or all, go on from: by the name of the input, oldest runs first.

    Raises Refused, with all findings, if a verdict is not the one that the plan names, or names other files.
    """
    wanted = None if stages is None else set(stages)
    reads = (
        read
        for stage in plan.stages
        if wanted is None or stage.name in wanted
        for read in stage.inputs
        if isinstance(read, StateInput)
    )
    files, findings = list[tuple[int, Artefact]](), list[Finding]()
    for read in reads:
        for run in reversed(read.runs):
            try:
                files.extend((file.task, file) for file in run_files(ledger, plan, read.name, run))
            except Refused as refusal:
                findings.extend(refusal.findings)
    if findings:
        raise Refused(*findings)
    return left_in(files)


def run_files(ledger: Ledger, plan: Plan, state: str, run: StateRun) -> tuple[Artefact, ...]:
    """The files of a run of a state. Raises Refused if they are not those that the plan was made from."""
    verdict = ledger.verdict(run.batch)
    where = ledger.uri(ledger.key("verdicts", run.batch))
    then = f"restore the document from a backup, or {plan_anew(plan.pipeline)}"
    if verdict is None or digest(verdict) != run.verdict:
        there = "is gone" if verdict is None else f"has the digest {digest(verdict)}"
        raise Refused(Finding(f"the verdict {run.verdict}, which names {state}, {there}", where, then))
    files = tuple(
        sorted(
            (file for file in verdict.artefacts if (file.role, file.name) == (Role.STATE, state)),
            key=lambda file: (file.task, file.path),
        )
    )
    if (records := sum(file.records for file in files)) != run.records:
        raise Refused(Finding(f"it names {records:,} records of {state}, planned are {run.records:,}", where, then))
    return files
