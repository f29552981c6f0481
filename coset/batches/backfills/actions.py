"""What is done about a backfill: preview, begin, run beside, compare, swap, undo, pause, cancel.

The command line and Airflow do the same, with the documents loaded. Each may be stopped and repeated by anyone.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from msgspec import UNSET

from coset.batches.backfills.comparison.comparing import compare
from coset.batches.backfills.comparison.pages import comparison_page
from coset.batches.backfills.pacing import control
from coset.batches.backfills.pacing.control import check_goes_on, check_not_cancelled
from coset.batches.backfills.planned_again import planned_again
from coset.batches.backfills.request import backfills, comparison_key, published_batches, put
from coset.batches.backfills.swap import swaps
from coset.batches.backfills.swap.swaps import (
    cancelled,
    finish,
    hindrances,
    in_force,
    in_place,
    taken_back,
    turn,
)
from coset.batches.interpreter import Show, run_batch
from coset.batches.pace import Pace
from coset.batches.ref import BatchRef
from coset.batches.runners.runner import Runner
from coset.batches.sweeping import STATES_KEPT, LeftOver, sweep
from coset.batches.tables.held import not_exchangeable
from coset.reports import batch_index
from coset.reports.site import Site
from coset.sources.pinned import not_as_planned
from expectations.docs import publish_comparison
from partitioning import commands
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.toml_writer import to_toml
from partitioning.commands import Backfills, Restore, Run
from partitioning.documents.document import decode, digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.state_files import StateFiles
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, Comparison, SwapKind, Swapped, name_of, pipeline_of
from partitioning.model.plan import Plan, StateInput
from partitioning.values import replace


@dataclass(frozen=True, slots=True)
class Asked:
    """Which batches are to be run again, how, and why; of the files that there are now, if their input was repaired.
    Without a last one, all up to the newest."""

    first: int
    last: int | None
    settings: Settings
    why: str = ""
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Review:
    """A comparison for whoever decides, and the findings for which it cannot be put in place, whoever approves it.

    So many swaps of the pipeline were `decided` before.
    """

    store: Store
    request: Backfill
    found: Comparison
    hindrances: tuple[Finding, ...]
    taken_back: bool
    in_place: bool
    decided: int

    @property
    def needs_approval(self) -> bool:
        """Whether somebody has to approve it: also what was taken back, whatever it is."""
        return (self.found.needs_approval or self.taken_back) and not self.in_place

    @property
    def digest(self) -> str:
        """What is approved."""
        return digest(self.found)

    @property
    def page(self) -> str:
        """The page for the reviewer, in Markdown."""
        return comparison_page(self.store, self.request, self.found, self.hindrances)


def preview(pipeline: Pipeline, store: Store, asked: Asked) -> tuple[tuple[Plan, Plan], ...]:
    """Each batch as it was planned, and as the backfill would plan it. Stores nothing.

    What later batches keep of earlier ones is taken to be what it was. Raises Refused, with all findings, if a batch
    cannot be planned so, if files that it has read are gone or changed, or if its rows cannot be exchanged any more.
    """
    ledger = Ledger(store, pipeline.name)
    again = Ledger(store, name_of(pipeline.name, len(list(backfills(store, pipeline.name)))))
    pairs, findings = list[tuple[Plan, Plan]](), list[Finding]()
    for batch in published_batches(ledger, asked.first, asked.last):
        stored = ledger.plan(batch)
        assert stored is not None
        settings = _going_on(pipeline, asked.settings) if pairs else asked.settings
        plan = planned_again(pipeline, again, batch, settings, repaired=asked.repaired)
        pairs.append((stored, replace(plan, anew=UNSET, on=UNSET) if pairs else plan))
    if not asked.repaired:
        anew = commands.BackfillAsking(pipeline.name, asked.first, pairs[-1][0].batch, repaired=True)
        findings.extend(not_as_planned((stream for stored, _ in pairs for stream in stored.streams), anew))
    findings.extend(_swept(again, pairs[0][1]))
    layers = in_force(store, pipeline.name)
    findings.extend(not_exchangeable([(layers.top(stored.batch), stored.batch) for stored, _ in pairs]))
    if findings:
        raise Refused(*findings)
    return tuple(pairs)


def _going_on(pipeline: Pipeline, settings: Settings) -> Settings:
    """Settings for a batch before which others will have run: what these keep is of the pipeline as it is now."""
    keeping = tuple(step.name for step in pipeline.steps if step.state)
    return replace(settings, begin_anew=keeping, go_on=keeping)


def _swept(ledger: Ledger, plan: Plan) -> Iterator[Finding]:
    """What the first batch would go on from and is not there any more."""
    files, pipeline = StateFiles(ledger, plan), pipeline_of(plan.pipeline) or plan.pipeline
    for read in (read for stage in plan.stages for read in stage.inputs if isinstance(read, StateInput)):
        named = [file for run in read.runs for file in files.of(read, run)]
        if any(ledger.store.head(file.path) is None for file in named):
            yield Finding(
                Kind.STATE_GONE,
                f"what {read.step} kept up to batch {read.batch} was cleaned away, or is lost",
                f"batch {plan.batch} of {plan.pipeline}",
                (f"begin at batch 0, or at one of the last {STATES_KEPT}; what is lost of it: ", Restore(pipeline)),
                about(step=read.step, batch=read.batch),
            )


def begin(pipeline: Pipeline, store: Store, asked: Asked, who: str = "") -> Backfill:
    """The backfill that was asked for: the newest, if the same was asked and it is not compared yet, else a new one; by
    `who`, if that is not the user of this process.

    Raises Refused as `preview`.
    """
    known = list(backfills(store, pipeline.name))
    batches = published_batches(Ledger(store, pipeline.name), asked.first, asked.last)
    if known:
        newest = known[-1]
        wanted = batches, to_toml(asked.settings), asked.repaired
        alike = (newest.batches, newest.settings, newest.repaired is True) == wanted
        if alike and compared(store, newest) is None and newest.number not in cancelled(store, pipeline.name):
            return newest
    preview(pipeline, store, asked)
    request = Backfill(
        pipeline.name,
        len(known),
        batches,
        to_toml(asked.settings),
        who=who or _who(),
        why=asked.why,
        at=_now(),
        repaired=asked.repaired or UNSET,
    )
    return put(store, request)


def run(
    pipeline: Pipeline,
    store: Store,
    backfill: Backfill,
    runner: Runner,
    docs: Path,
    show: Show,
    pace: Pace | None = None,
) -> None:
    """Plan and run every batch that has not run yet, in order: each goes on from what the one before it keeps.

    With a `pace` task groups start by that. Raises what a batch raises, and Refused if the backfill is cancelled.
    """
    for batch in backfill.batches:
        with show(f"plan batch {batch}") as said:
            plan = planned(pipeline, store, backfill, batch)
            said.append(f"Batch {batch} is planned again: {plan.records:,} records")
        run_batch(BatchRef.of(store, plan), runner, docs, show, pace)


def planned(pipeline: Pipeline, store: Store, backfill: Backfill, batch: int) -> Plan:
    """The plan of a batch, stored; those before it have run.

    Raises Refused if the backfill is cancelled or paused, and as `planned_again`.
    """
    check_goes_on(store, backfill)
    ledger = Ledger(store, backfill.name)
    plan = ledger.plan(batch) if ledger.has_plan(batch) else None
    if plan is not None:
        return plan
    settings, repaired = Settings.read(backfill.settings, str(backfill)), backfill.repaired is True
    return ledger.put_plan(planned_again(pipeline, ledger, batch, settings, repaired=repaired))


def next_batch(pipeline: Pipeline, store: Store, backfill: Backfill) -> tuple[BatchRef, str]:
    """The batch that is to be run, its plan stored, and a sentence; the last one, if all have run.

    Only once a batch has run the next one can be planned: it goes on from what that one keeps. Raises Refused as
    `planned`.
    """
    batch = next(iter(batches_left(store, backfill)), backfill.batches[-1])
    plan = planned(pipeline, store, backfill, batch)
    return BatchRef.of(store, plan), f"{backfill}; now batch {batch}: {plan.records:,} records"


def batches_left(store: Store, backfill: Backfill) -> tuple[int, ...]:
    """The batches that have not run yet."""
    ledger = Ledger(store, backfill.name)
    return tuple(batch for batch in backfill.batches if not ledger.has_plan(batch) or ledger.verdict(batch) is None)


def review(store: Store, backfill: Backfill, docs: Path | None = None) -> Review:
    """Compare as `comparison`, and say whether the rows can be put in place, and who has to approve them."""
    found = comparison(store, backfill, docs)
    decided, back = len(list(swaps.swaps(store, backfill.pipeline))), taken_back(store, backfill)
    hindered = hindrances(store, backfill, found)
    return Review(store, backfill, found, hindered, back is not None, in_place(store, backfill), decided)


def comparison(store: Store, backfill: Backfill, docs: Path | None = None) -> Comparison:
    """Compare what the backfill gives with what readers see now, and store it; with `docs`, its page in Data Docs too.

    If they see it already, it is what they saw before. Raises Refused if a batch has not run, and CosetError if it
    gives other rows though the pipeline is the same.
    """
    check_not_cancelled(store, backfill)
    finish(store, backfill.pipeline)
    known = compared(store, backfill)
    if known and in_place(store, backfill):
        return known
    found = compare(store, backfill)
    store.put(comparison_key(backfill), encode(found))
    if docs is not None:
        publish_comparison(Site(docs, store), found, hindrances(store, backfill, found))
    if not found.same and not found.changes and not found.functions and not found.repairs:
        raise CosetError(
            Finding(
                Kind.BACKFILL_UNEQUAL,
                f"the pipeline is the same, but what it gives is {found}",
                f"{store.root}/{comparison_key(backfill)}",
                "report it: another scheme must not change a result, unless sums of floats depend on their order",
                about(backfill=backfill.name, found=found),
            )
        )
    return found


def compared(store: Store, backfill: Backfill) -> Comparison | None:
    """The comparison as it was made last, None if there is none yet."""
    data = store.get(comparison_key(backfill))
    return None if data is None else decode(Comparison, data, f"{store.root}/{comparison_key(backfill)}")


def swap(
    store: Store, backfill: Backfill, approved: str, why: str, who: str = "", *, decided: int | None = None
) -> Swapped:
    """Let readers see the backfill's rows. `approved` is the digest of the comparison that was looked at; by `who`, if
    that is not the user of this process; after so many swaps were `decided`, if that is known.

    Raises Refused if it was taken back since, if the comparison is not the one that there is, and as `swaps.turn`.
    """
    if decided is not None and (back := taken_back(store, backfill)) and back.number >= decided:
        raise Refused(
            Finding(
                Kind.BACKFILL_TURN,
                f"{back.who} took it back at {back.at}: {back.why or 'no reason was given'}",
                str(backfill),
                commands.SwapAsking(backfill.pipeline, backfill.number, approved),
                about(backfill=backfill.name, swap=back.number),
            )
        )
    found = _compared(store, backfill)
    if digest(found) != approved:
        raise Refused(
            Finding(
                Kind.BACKFILL_APPROVAL,
                f"{approved} was approved, the comparison is {digest(found)}",
                f"{store.root}/{comparison_key(backfill)}",
                ("look at it again: ", Backfills(backfill.pipeline, backfill.number)),
                about(approved=approved),
            )
        )
    return _turned(store, backfill, turn(store, backfill, found, SwapKind.SWAP, who=who or _who(), why=why, at=_now()))


def undo(store: Store, backfill: Backfill, why: str, who: str = "") -> Swapped:
    """Let readers see the rows that there were before. Raises as `swaps.turn`."""
    found = _compared(store, backfill)
    return _turned(store, backfill, turn(store, backfill, found, SwapKind.UNDO, who=who or _who(), why=why, at=_now()))


def pause(store: Store, backfill: Backfill, why: str) -> None:
    """Let no task group of a backfill start until it is let go on. Raises Refused if it is cancelled."""
    control.pause(store, backfill, who=_who(), why=why, at=_now())


def cancel(pipeline: Pipeline, store: Store, backfill: Backfill, why: str) -> LeftOver:
    """Let nobody run a backfill or put it in place any more, and remove its files; what was removed.

    Its documents stay. Raises as `swaps.cancel`.
    """
    swaps.cancel(store, backfill, who=_who(), why=why, at=_now())
    return sweep(pipeline, store)


def _turned(store: Store, backfill: Backfill, swapped: Swapped) -> Swapped:
    """Say in the Data Docs whose rows readers see now."""
    exchanged = in_force(store, backfill.pipeline).exchanged()
    batch_index.exchange(store, backfill.pipeline, backfill.batches, exchanged)
    return swapped


def _compared(store: Store, backfill: Backfill) -> Comparison:
    found = compared(store, backfill)
    if found is None:
        where = f"{store.root}/{comparison_key(backfill)}"
        raise Refused(
            Finding(
                Kind.BACKFILL_UNREADY,
                f"{backfill} is not compared yet",
                where,
                (Run(backfill.name), " goes on where it stopped"),
                about(backfill=backfill),
            )
        )
    return found


def _who() -> str:
    return getpass.getuser()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
