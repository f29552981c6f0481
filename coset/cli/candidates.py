"""Candidates: schemes for each stage of a pipeline, tried on what a batch would read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

from coset.batches.history import replayed
from coset.batches.planning import nothing_yet
from coset.sources.discovery import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Standing
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.plan import Plan, Stage
from partitioning.model.read_ends import NOTHING, Ends
from partitioning.model.schemes import COGROUP, MAX, HotKeys, Scheme, elastic, tasks
from partitioning.model.statistics import Statistics
from partitioning.model.streams import Column, Discovered
from partitioning.planning.planner import plan_batch
from partitioning.sections import many
from partitioning.sizing.hotkeys import HotOwn, HotPartition, HotSplit, hot_own, hot_partitions, hot_splits
from partitioning.sizing.proposal import Proposal, Targets, propose, with_scheme
from partitioning.sizing.workload import Footprint, footprint
from partitioning.values import replace as changed
from spark_jobs.sql.column_check import check_sql


@dataclass(frozen=True, slots=True)
class Basis:
    """What schemes are compared on: what a batch would read, what was published before, the last figures."""

    pipeline: Pipeline
    discovered: tuple[Discovered, ...]
    results: Mapping[str, tuple[Column, ...]]
    batch: int
    parent: str | None
    published: Plan | None
    history: tuple[Statistics, ...]
    sentence: str
    ends: Ends = NOTHING

    def plan(self, settings: Settings = DEFAULTS) -> Plan | None:
        """The plan under these settings; None if there is nothing to read."""
        return plan_batch(
            self.pipeline,
            self.discovered,
            self.results,
            batch=self.batch,
            parent=self.parent,
            published=self.published,
            ends=self.ends,
            settings=settings,
            statistics=self.history[-1] if self.history else None,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A way to deal a stage, by all the names that it has: its figures, or the findings with which it was refused."""

    names: tuple[str, ...]
    figures: Footprint | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """The rows of each stage, what is proposed, the hot partitions, each with the row of what spreads it, and what it
    does to split hot keys, or to give them tasks of their own."""

    rows: Mapping[str, tuple[Row, ...]]
    proposal: Proposal
    hot: tuple[tuple[HotPartition, Row], ...]
    splits: tuple[HotSplit, ...] = ()
    joins: tuple[HotOwn, ...] = ()
    own: tuple[HotOwn, ...] = ()


def basis(
    pipeline: Pipeline, standing: Standing, ends: Ends, past: tuple[Statistics, ...], settings: Settings
) -> Basis | str:
    """What is there to compare schemes on, read up to these ends; if nothing has arrived, a sentence that says so.

    An open batch is compared on what it reads, and so is the last published one if nothing is new since.
    """
    if standing.open and standing.plan is not None:
        return _again(pipeline, standing.plan, past, f"Batch {standing.plan.batch} is open and keeps its plan")
    discovered = discover(pipeline.streams, ends)
    batch = standing.plan.batch + 1 if standing.plan else 0
    parent = digest(standing.plan) if standing.plan else None
    results = check_sql(pipeline, discovered)
    new = Basis(pipeline, discovered, results, batch, parent, standing.published, past, "", ends)
    plan = new.plan(settings)
    if plan is not None:
        return replace(new, sentence=f"Batch {batch} would read {many(plan.records, 'record')}")
    if standing.published is None:
        return nothing_yet(discovered)
    return _again(pipeline, standing.published, past, f"Nothing is new since batch {standing.published.batch}")


def _again(pipeline: Pipeline, plan: Plan, past: tuple[Statistics, ...], why: str) -> Basis:
    """The batch of a plan, to be planned once more."""
    results = {write.declared.table: write.columns for write in plan.writes()}
    sentence = f"{why}: schemes are compared on the {many(plan.records, 'record')} of that batch"
    return Basis(pipeline, replayed(plan), results, plan.batch, plan.parent, None, past, sentence)


def compare(basis: Basis, settings: Settings, texts: Sequence[str], targets: Targets) -> Compared:
    """The figures of each scheme for each stage, the other stages being planned as they would be.

    Raises Refused if the batch cannot be planned as it would be, or for a given scheme that is none.
    """
    plan = basis.plan(settings)
    assert plan is not None
    proposal = propose(plan, basis.history, targets)
    asked = [_asked(text, plan) for text in texts]
    hot = tuple(_spread(basis, settings, plan))
    rows = {
        stage.name: tuple(_rows(basis, settings, plan, stage, _candidates(stage, proposal, asked, hot, targets)))
        for stage in plan.stages
    }
    left, split, own = (
        plan if settings.hot_keys is each else _about_hot_keys(basis, settings, each)
        for each in (HotKeys.LEAVE, HotKeys.SPLIT, HotKeys.OWN_TASK)
    )
    joins = tuple(each for each in hot_own(split) if each.tasks > 1)
    return Compared(rows, proposal, hot, hot_splits(left, split), joins, hot_own(own))


def _about_hot_keys(basis: Basis, settings: Settings, hot_keys: HotKeys) -> Plan:
    """The plan that does this about hot keys, whatever the settings say."""
    plan = basis.plan(changed(settings, hot_keys=hot_keys))
    assert plan is not None
    return plan


def _spread(basis: Basis, settings: Settings, plan: Plan) -> Iterator[tuple[HotPartition, Row]]:
    """The hot partitions, each with its stage as what spreads it would have it."""
    rows: dict[tuple[str, Scheme], Row] = {}
    for hot in hot_partitions(plan):
        if (hot.stage, hot.scheme) not in rows:
            rows[hot.stage, hot.scheme] = _dealt(basis, settings, plan.stage(hot.stage), hot.scheme)
        yield hot, rows[hot.stage, hot.scheme]


def _dealt(basis: Basis, settings: Settings, stage: Stage, scheme: Scheme) -> Row:
    """A stage under another scheme."""
    try:
        other = basis.plan(with_scheme(settings, stage.name, [step.name for step in stage.steps], scheme))
    except Refused as refusal:
        return Row((str(scheme),), None, refusal.findings)
    assert other is not None
    return Row((str(scheme),), footprint(other, other.stage(stage.name)), ())


def _asked(text: str, plan: Plan) -> tuple[str, Scheme]:
    """`[STAGE=]SCHEME`: a stage or a step of one, and a scheme. Raises Refused if there is none such."""
    name, _, scheme = text.rpartition("=")
    names = [name for stage in plan.stages for name in (stage.name, *(step.name for step in stage.steps))]
    if name and name not in names:
        listed = ", ".join(stage.name for stage in plan.stages)
        what = f"there is no stage or step {name!r}"
        raise Refused.of(Kind.SCHEME, what, "--scheme", f"name one of {listed}, or a step", name=name)
    return name, Scheme.parse(scheme)


def _candidates(
    stage: Stage,
    proposal: Proposal,
    asked: Sequence[tuple[str, Scheme]],
    hot: Sequence[tuple[HotPartition, Row]],
    targets: Targets,
) -> Iterator[tuple[str, Scheme]]:
    """Schemes to compare for a stage, each with the word that is said of it; none for what repeats another stage."""
    if stage.repeats:
        return
    for scheme in (COGROUP, MAX, elastic(2), elastic(4)):
        yield str(scheme), scheme
    meeting = lcm(*(each.placement.partitions for each in stage.inputs))
    if len(stage.inputs) > 1 and meeting <= targets.max_tasks:
        yield f"tasks({meeting})", tasks(meeting)
    for partition, row in hot:
        if partition.stage == stage.name and row.figures is not None:
            yield str(partition.scheme), partition.scheme
    for name, scheme in asked:
        if name in ("", stage.name, *(step.name for step in stage.steps)):
            yield str(scheme), scheme
    for sized in proposal.stages:
        if sized.stage == stage.name and sized.scheme is not None:
            yield "proposed", sized.scheme


def _rows(
    basis: Basis, settings: Settings, plan: Plan, stage: Stage, candidates: Iterator[tuple[str, Scheme]]
) -> Iterator[Row]:
    """A row for each way to deal the stage, under all the names it has; then those that are refused."""
    deals = [(stage.tasks, Row((str(stage.scheme), "now"), footprint(plan, stage), ()))]
    refused: list[Row] = []
    for name, scheme in candidates:
        try:
            other = basis.plan(with_scheme(settings, stage.name, [step.name for step in stage.steps], scheme))
        except Refused as refusal:
            refused.append(Row((name,), None, refusal.findings))
            continue
        assert other is not None
        planned = other.stage(stage.name)
        same = next((place for place, (tasks, _) in enumerate(deals) if tasks == planned.tasks), None)
        if same is None:
            deals.append((planned.tasks, Row((name,), footprint(other, planned), ())))
        elif name not in (row := deals[same][1]).names:
            deals[same] = planned.tasks, replace(row, names=(*row.names, name))
    yield from (row for _, row in sorted(deals, key=lambda deal: len(deal[0])))
    yield from dict.fromkeys(refused)
