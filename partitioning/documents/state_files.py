"""State as earlier batches left it: the files that their verdicts name, as a plan pins them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from partitioning.commands import Replan
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.artefact import Artefact, Role
from partitioning.model.leaving import Left, LeftPartition, left_in
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import StateInput, StateRun
from partitioning.model.verdict import Verdict
from partitioning.values import replace


def states_left(ledger: Ledger, plan: Plan, stages: Iterable[str] | None = None) -> Left:
    """The state that these stages, or all, continue from: by the name of the input, oldest runs first.

    Raises Refused, with all findings, if a verdict is not the one that the plan names, or names other files.
    """
    wanted = None if stages is None else set(stages)
    left, findings, kept = dict[str, Mapping[int, LeftPartition]](), list[Finding](), StateFiles(ledger, plan)
    for stage in (stage for stage in plan.stages if wanted is None or stage.name in wanted):
        for read in (read for read in stage.inputs if isinstance(read, StateInput)):
            files = list[tuple[Artefact, ...]]()
            for run in read.runs:
                try:
                    files.append(kept.of(read, run))
                except Refused as refusal:
                    findings.extend(refusal.findings)
            if len(files) == len(read.runs):
                left |= left_as(read, files)
    if findings:
        raise Refused(*findings)
    return left


def left_as(read: StateInput, files: Sequence[Sequence[Artefact]]) -> Left:
    """The rows of a state, oldest runs first. `files` has those of each of its runs, in their order."""
    runs = reversed([*zip(read.runs, files, strict=True)])
    return left_in((file.task, replace(file, name=read.name), run.version) for run, named in runs for file in named)


class StateFiles:
    """The files of states that a plan names. A verdict is fetched once, however many of them it names."""

    def __init__(self, ledger: Ledger, plan: Plan, verdict: Verdict | None = None) -> None:
        """A `verdict` that is given need not be stored."""
        self._ledger = ledger
        self._plan = plan
        self._verdicts: dict[tuple[int, str], Verdict | None] = {}
        if verdict:
            self._verdicts[verdict.batch, digest(verdict)] = verdict

    def of(self, read: StateInput, run: StateRun) -> tuple[Artefact, ...]:
        """The files of a run of a state. Raises Refused if they are not those that the plan was made from."""
        verdict = self._verdict(run)
        where = self._ledger.uri(self._ledger.key("verdicts", run.batch))
        then = ("restore the document from a backup, or ", Replan(self._plan.pipeline))
        if verdict is None or digest(verdict) != run.verdict:
            there = "is gone" if verdict is None else f"has the digest {digest(verdict)}"
            what = f"the verdict {run.verdict}, which names {read.name}, {there}"
            raise Refused.of(Kind.STATE_GONE, what, where, then, verdict=run.verdict, state=read.name)
        name = read.written_as(run)
        named = (file for file in verdict.artefacts if (file.role, file.name) == (Role.STATE, name))
        files = tuple(sorted(named, key=lambda file: (file.task, file.path)))
        if (records := sum(file.records for file in files)) != run.records:
            what = f"it names {records:,} records of {read.name}, planned are {run.records:,}"
            raise Refused.of(Kind.STATE_GONE, what, where, then, state=read.name, records=records, planned=run.records)
        return files

    def _verdict(self, run: StateRun) -> Verdict | None:
        """The verdict that a run names, which may be a backfill's; that of the batch if there is no such one."""
        place = run.batch, run.verdict
        if place not in self._verdicts:
            first = None
            for verdict in self._ledger.verdicts(run.batch):
                first = first or verdict
                if digest(verdict) == run.verdict:
                    first = verdict
                    break
            self._verdicts[place] = first
        return self._verdicts[place]
