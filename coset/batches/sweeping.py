"""Sweeping: which files that tasks left no document names, now or ever, and their removal.

A file counts once a verdict names it. So of a batch that is decided, whatever its verdict does not name is left over:
from runs that were cut off, from those that came second, from attempts that failed. Open batches are left alone, and so
is what a damaged document may name. State
counts as long as one of the last published batches left it or went on from it. Of a backfill that is cancelled nothing
counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from coset.batches.backfills.request import backfills, comparison_key
from coset.batches.backfills.swap.swaps import cancelled
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Entry, Store
from partitioning.errors import Finding, Refused
from partitioning.model.artefact import Artefact, Role
from partitioning.model.backfill import name_of, pipeline_of
from partitioning.model.graph import state_of
from partitioning.model.plan import Plan, StateInput
from partitioning.sections import many, size
from partitioning.values import Value

# So many published batches can be gone on from, or looked at.
STATES_KEPT = 10
_TABLES = "tables/"
_PLANS = re.compile(r"([^/]+)/plans/[0-9]+\.json\.gz")
# Rows, what was left for later tasks, and sampled keys, each in a folder of the run that wrote it. The audit tables
# beside the keys stay.
_BATCH = re.compile(r"/data/plan-([0-9]+)/attempt-|/left/([0-9]+)/attempt-|/audits/([0-9]+)/attempt-[0-9]+/keys-")


class LeftOver(Value, frozen=True):
    """The files that may go; the batches whose files may not, because they are open; and the documents that are
    damaged, whose batches' files may not either."""

    files: tuple[Entry, ...]
    open: tuple[int, ...]
    damaged: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        files = f"{many(len(self.files), 'file')} ({size(sum(file.size for file in self.files))})"
        said = f"{files} that no verdict names"
        if self.open:
            listed, verb = ", ".join(f"batch {batch}" for batch in self.open), "is" if len(self.open) == 1 else "are"
            said = f"{said}; {listed} {verb} open and left alone"
        if self.damaged:
            verb = "document is" if len(self.damaged) == 1 else "documents are"
            said = f"{said}; {len(self.damaged)} {verb} damaged, and what may be named there is left alone"
        return said


def left_over(pipeline: Pipeline, store: Store) -> LeftOver:
    """What tasks left in the pipeline's tables and audits and no document names. Deletes nothing."""
    # Files first, documents second: whoever wrote a file had a plan before it.
    written = [entry for prefix in _prefixes(pipeline, store) for entry in store.list(prefix)]
    by_place: dict[tuple[str, int], list[Entry]] = {}
    for entry in written:
        if match := _BATCH.search(entry.key):
            batch = int(next(filter(None, match.groups())))
            by_place.setdefault((entry.key[: match.start()], batch), []).append(entry)
    ledgers = [Ledger(store, name) for name in sorted(_pipelines(store)) if not _is_cancelled(store, name)]
    states = _states(Ledger(store, pipeline.name)) | _states_at_work(store, pipeline.name)
    files, undecided, damaged = list[Entry](), set[int](), dict[Finding, None]()
    for (place, batch), entries in sorted(by_place.items()):
        try:
            named = _named(ledgers, place, batch)
        except Refused as refusal:
            damaged |= dict.fromkeys(refusal.findings)
            continue
        if named is None:
            undecided.add(batch)
        else:
            files.extend(entry for entry in entries if entry.key not in named or _over(named[entry.key], batch, states))
    return LeftOver(tuple(files), tuple(sorted(undecided)), tuple(damaged))


def sweep(pipeline: Pipeline, store: Store) -> LeftOver:
    """Remove what is left over; what was removed. Batches may run meanwhile."""
    removed = left_over(pipeline, store)
    for file in removed.files:
        store.delete(file.key)
    return removed


def _prefixes(pipeline: Pipeline, store: Store) -> Iterator[str]:
    for write in pipeline.writes:
        yield f"{_TABLES}{write.table}/data/"
    for name in (pipeline.name, *(again.name for again in backfills(store, pipeline.name))):
        yield f"{name}/left/"
        yield f"{name}/audits/"


def _pipelines(store: Store) -> set[str]:
    return {match[1] for entry in store.list("") if (match := _PLANS.fullmatch(entry.key))}


def _is_cancelled(store: Store, name: str) -> bool:
    """Whether this is a backfill whose files count for nothing any more."""
    pipeline = pipeline_of(name)
    try:
        return pipeline is not None and name in {name_of(pipeline, number) for number in cancelled(store, pipeline)}
    except Refused:
        # Of a pipeline whose decisions are damaged all files count.
        return False


def _over(file: Artefact, batch: int, states: Collection[tuple[int, str]]) -> bool:
    """Whether a file of a batch is state that is not kept any more."""
    return file.role is Role.STATE and (batch, file.name) not in states


def _states(ledger: Ledger) -> set[tuple[int, str]]:
    """The states that are kept, each with the batch that left it: one of the last, or one that these go on from."""
    kept = set[tuple[int, str]]()
    plan = ledger.standing().published
    for _ in range(STATES_KEPT):
        if plan is None:
            break
        for stage in plan.stages:
            kept.update((plan.batch, state_of(step.name)) for step in stage.steps)
            reads = (read for read in stage.inputs if isinstance(read, StateInput))
            kept.update((run.batch, read.name) for read in reads for run in read.runs)
        plan = ledger.published_before(plan.batch)
    return kept


def _states_at_work(store: Store, pipeline: str) -> set[tuple[int, str]]:
    """The states that backfills need which are not compared yet: those of their batches, and those before them."""
    kept = set[tuple[int, str]]()
    over = cancelled(store, pipeline)
    for again in (again for again in backfills(store, pipeline) if again.number not in over):
        if store.head(comparison_key(again)) is None:
            plans = (Ledger(store, again.name).plan(batch) for batch in again.batches)
            for stage in (stage for plan in plans if plan for stage in plan.stages):
                kept.update((batch, state_of(step.name)) for step in stage.steps for batch in again.batches)
                reads = (read for read in stage.inputs if isinstance(read, StateInput))
                kept.update((run.batch, read.name) for read in reads for run in read.runs)
    return kept


def _named(ledgers: Sequence[Ledger], place: str, batch: int) -> dict[str, Artefact] | None:
    """The files of a batch in a place that verdicts name; None if a batch of that number is open that writes there.

    A place is a pipeline's or a backfill's own, or a table's, which several may have written. Raises Refused if a
    document that may name files there is damaged.
    """
    table, named = place.removeprefix(_TABLES) if place.startswith(_TABLES) else None, dict[str, Artefact]()
    for ledger in (ledger for ledger in ledgers if table is not None or ledger.pipeline == place):
        verdict = ledger.verdict(batch)
        if verdict is not None:
            named.update((artefact.path, artefact) for artefact in verdict.artefacts)
        elif (plan := ledger.plan(batch)) is not None and (table is None or table in _written(plan)):
            return None
    return named


def _written(plan: Plan) -> set[str]:
    return {write.declared.table for write in plan.writes()}
