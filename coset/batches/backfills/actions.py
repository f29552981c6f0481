"""The actions of a backfill: preview, begin, run, compare, swap, undo, pause, cancel.

The command line and Airflow call them with the documents loaded. Any process may repeat one after an interruption.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET

from coset.batches.backfills import limits, swaps
from coset.batches.backfills.comparing import compare
from coset.batches.backfills.effects import Layers, first_behind, keeping, unlike
from coset.batches.backfills.limits import check_may_run, check_not_cancelled
from coset.batches.backfills.pages import comparison_page, put_comparison, put_page
from coset.batches.backfills.planned_again import asking_anew, planned_again, uncast
from coset.batches.backfills.request import backfills, comparison_key, comparison_of, published_batches, put
from coset.batches.backfills.swaps import blockers, cancelled, finish, in_force, in_place, taken_back, turn
from coset.batches.ends import ends_after
from coset.batches.interpreter import Show, run_batch
from coset.batches.pace import Pace
from coset.batches.ref import BatchRef
from coset.batches.runners.runner import Runner
from coset.batches.sweeping import STATES_KEPT, LeftOver, sweep
from coset.batches.tables.held import not_exchangeable
from coset.batches.tables.iceberg import follow
from coset.reports import batch_index
from coset.reports.overview import note_backfill
from coset.reports.site import Site
from coset.sources.counting import Counting, uncounted
from coset.sources.pinned import not_as_planned
from partitioning import commands
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.toml_writer import to_toml
from partitioning.commands import Backfills, Restore, Run
from partitioning.diff.table_changes import results
from partitioning.documents.document import digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.receipts import StateFiles
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, Comparison, SwapKind, Swapped, name_of, pipeline_of
from partitioning.model.plan import Plan
from partitioning.planning.changed_queries import ChangedQuery, unlike_queries
from partitioning.values import replace
from spark_jobs.engine.occasions import clock_time


@dataclass(frozen=True, slots=True)
class Asked:
    """The batches to run again, with which settings, and why. Without `last`, all up to the newest.

    `repaired` reads the files that hold their offsets now, not the files of their plans.
    """

    first: int
    last: int | None
    settings: Settings
    why: str = ""
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Review:
    """A comparison for the person who decides, and the blockers that approval does not remove.

    `decided` is the number of the pipeline's swaps so far.
    """

    store: Store
    request: Backfill
    found: Comparison
    blockers: tuple[Finding, ...]
    taken_back: bool
    in_place: bool
    decided: int

    @property
    def needs_approval(self) -> bool:
        """Whether somebody has to approve it. A backfill that was taken back always needs that."""
        return (self.found.needs_approval or self.taken_back) and not self.in_place

    @property
    def digest(self) -> str:
        """The digest that is approved."""
        return digest(self.found)

    @property
    def page(self) -> str:
        """The page for the reviewer, in Markdown."""
        return comparison_page(self.store, self.request, self.found, self.blockers)


def preview(pipeline: Pipeline, store: Store, asked: Asked) -> tuple[tuple[Plan, Plan], ...]:
    """Each batch as it was planned, and as the backfill would plan it. Stores nothing.

    The state between these batches is assumed not to change. Raises Refused with all findings if a batch cannot be
    planned, if files that it read are gone or changed, or if its rows cannot be exchanged any more.
    """
    ledger = Ledger(store, pipeline.name)
    again = Ledger(store, name_of(pipeline.name, len(list(backfills(store, pipeline.name)))))
    pairs, findings = list[tuple[Plan, Plan]](), list[Finding]()
    request = commands.BackfillAsking(pipeline.name, asked.first, asked.last, asked.last is None, asked.repaired)
    for batch in published_batches(ledger, asked.first, asked.last):
        stored = ledger.plan(batch)
        assert stored is not None
        settings = _going_on(pipeline, asked.settings) if pairs else asked.settings
        plan = planned_again(pipeline, again, batch, settings, request)
        pairs.append((stored, replace(plan, anew=(), on=(), accepted={}) if pairs else plan))
    if not asked.repaired:
        anew = commands.BackfillAsking(pipeline.name, asked.first, pairs[-1][0].batch, repaired=True)
        findings.extend(not_as_planned((stream for stored, _ in pairs for stream in stored.streams), anew))
    findings.extend(uncast(pipeline, ends_after(ledger, ledger.standing().published)))
    findings.extend(_swept(again, pairs[0][1]))
    layers = in_force(store, pipeline.name)
    last = pairs[-1][1]
    behind = tuple(_unlike_behind(ledger, layers, last))
    for plan, changed in behind:
        found = unlike_queries(pipeline.name, last.graph, plan, asked.settings, changed)
        findings.extend(asking_anew(finding, request) for finding in found)
    pairs[-1] = (pairs[-1][0], _as_accepted(last, behind))
    findings.extend(_appended_now(pairs))
    findings.extend(not_exchangeable([(layers.top(stored.batch), stored.batch) for stored, _ in pairs]))
    if findings:
        raise Refused(*findings)
    return tuple(pairs)


def _appended_now(pairs: Iterable[tuple[Plan, Plan]]) -> Iterator[Finding]:
    """A finding for each table that batches replaced and would append to: it has the rows of one of them alone."""
    told = set[str]()
    for stored, now in pairs:
        replaced = {write.declared.table for write in stored.writes() if not write.declared.mode.keeps}
        appended = {write.declared.table for write in now.writes() if write.declared.mode.only_adds}
        for table in sorted(replaced & appended - told):
            told.add(table)
            what = "each batch replaced the table's rows, so those of the batches before the last are in no file of it"
            where, then = f"table {table!r}", "keep its mode, or write to a table of another name"
            yield Finding.of(Kind.BACKFILL_TABLE, what, where, then, table=table)


def _unlike_behind(ledger: Ledger, layers: Layers, last: Plan) -> Iterator[tuple[Plan, tuple[ChangedQuery, ...]]]:
    """The plans behind the last one of a backfill, and the tables of each that would have rows of both queries."""
    shown = layers.top(last.batch).plan(last.batch)
    for plan, tables in first_behind(ledger, layers, last.batch, keeping(last)):
        # A difference that is there already stays.
        as_now = {*unlike(shown, plan, tables)} if shown else set()
        yield plan, tuple(each for each in unlike(last, plan, tables) if each not in as_now)


def _as_accepted(last: Plan, behind: Iterable[tuple[Plan, tuple[ChangedQuery, ...]]]) -> Plan:
    """The last plan of a backfill, which somebody asked for, with the tables that batches behind it have rows of too,
    of another query."""
    since = {each.write.table: plan.batch for plan, changed in behind for each in changed}
    return replace(last, accepted=since | last.accepted)


def _going_on(pipeline: Pipeline, settings: Settings) -> Settings:
    """Settings for a later batch of the backfill: the state before it will be of the pipeline as it is now."""
    keeping = tuple(step.name for step in pipeline.steps if step.state)
    named = (*keeping, *(write.table for write in pipeline.writes))
    return replace(settings, begin_anew=named, go_on=named)


def _swept(ledger: Ledger, plan: Plan) -> Iterator[Finding]:
    """Findings on state that the first batch needs and that is gone."""
    files, pipeline = StateFiles(ledger, plan), pipeline_of(plan.pipeline) or plan.pipeline
    for read in plan.states:
        named = [file for run in read.runs for file in files.of(read, run)]
        if any(ledger.store.head(file.path) is None for file in named):
            what = f"the state of {read.step} after batch {read.batch} was cleaned away or is lost"
            then = (f"begin at batch 0, or at one of the last {STATES_KEPT}; if state is lost: ", Restore(pipeline))
            yield Finding.of(
                Kind.STATE_GONE, what, f"batch {plan.batch} of {plan.pipeline}", then, step=read.step, batch=read.batch
            )


def begin(pipeline: Pipeline, store: Store, asked: Asked, who: str = "") -> Backfill:
    """Begin a backfill, or return the newest if it has the same request, is not compared yet, and none of its batches
    is planned of another pipeline.

    `who` asks for it, by default the user of this process. Raises Refused as `preview`.
    """
    known = list(backfills(store, pipeline.name))
    batches = published_batches(Ledger(store, pipeline.name), asked.first, asked.last)
    if known:
        newest = known[-1]
        wanted = batches, to_toml(asked.settings), asked.repaired
        alike = (newest.batches, newest.settings, newest.repaired is True) == wanted
        open_ = alike and comparison_of(store, newest) is None and newest.number not in cancelled(store, pipeline.name)
        if open_ and _is_of(pipeline, store, newest, asked):
            return newest
    preview(pipeline, store, asked)
    request = Backfill(
        pipeline.name,
        len(known),
        batches,
        to_toml(asked.settings),
        who=who or getpass.getuser(),
        why=asked.why,
        at=clock_time(),
        repaired=asked.repaired or UNSET,
    )
    stored = put(store, request)
    note_backfill(
        Site(None, store), pipeline.name, stored.number, f"{stored}, begun {stored.at[:19].replace('T', ' ')} UTC"
    )
    return stored


def _is_of(pipeline: Pipeline, store: Store, backfill: Backfill, asked: Asked) -> bool:
    """Whether what is planned of a backfill is what would be planned of this pipeline."""
    ledger = Ledger(store, backfill.name)
    known = ledger.plan(backfill.batches[0]) if ledger.has_plan(backfill.batches[0]) else None
    if known is None:
        return True
    request = commands.BackfillAsking(pipeline.name, asked.first, asked.last, asked.last is None, asked.repaired)
    found = results(known, planned_again(pipeline, ledger, backfill.batches[0], asked.settings, request))
    return not (found.changed or found.added or found.removed or any(was != now for was, now in found.code.values()))


def run(
    pipeline: Pipeline,
    store: Store,
    backfill: Backfill,
    runner: Runner,
    docs: Path,
    show: Show,
    pace: Pace | None = None,
    counting: Counting = uncounted,
) -> None:
    """Plan and run the batches in order. Each continues from the state of the one before.

    The `pace` says when task groups may start; what goes through many rows is `counting`. Raises the errors of a batch,
    and Refused if the backfill is cancelled.
    """
    for batch in backfill.batches:
        with show(f"plan batch {batch}") as said:
            plan = planned(pipeline, store, backfill, batch)
            said.append(f"Batch {batch} is planned again: {plan.records:,} records")
        run_batch(BatchRef.of(store, plan), runner, docs, show, pace, counting=counting)


def planned(pipeline: Pipeline, store: Store, backfill: Backfill, batch: int) -> Plan:
    """The stored plan of a batch, which is made if it is missing. The batches before it have run.

    Raises Refused if the backfill is cancelled or paused, and as `planned_again`.
    """
    check_may_run(store, backfill)
    ledger = Ledger(store, backfill.name)
    plan = ledger.plan(batch) if ledger.has_plan(batch) else None
    if plan is not None:
        return plan
    settings, batches = Settings.read(backfill.settings, str(backfill)), backfill.batches
    asked = commands.BackfillAsking(backfill.pipeline, batches[0], batches[-1], repaired=backfill.repaired is True)
    plan = planned_again(pipeline, ledger, batch, settings, asked)
    if batch == batches[-1]:
        original, layers = Ledger(store, backfill.pipeline), in_force(store, backfill.pipeline)
        plan = _as_accepted(plan, _unlike_behind(original, layers, plan))
    return ledger.put_plan(plan)


def next_batch(pipeline: Pipeline, store: Store, backfill: Backfill) -> tuple[BatchRef, str]:
    """The next batch to run, with its plan stored, and a sentence. The last batch if all have run.

    A batch is planned after the one before it has run, because it continues from its state. Raises Refused as
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
    """Compare as `comparison`, and find out whether the rows can be put in place and need approval."""
    found = comparison(store, backfill, docs)
    decided, back = len(list(swaps.swaps(store, backfill.pipeline))), taken_back(store, backfill)
    blocked = blockers(store, backfill, found)
    return Review(store, backfill, found, blocked, back is not None, in_place(store, backfill), decided)


def comparison(store: Store, backfill: Backfill, docs: Path | None = None) -> Comparison:
    """Compare the backfill's rows with those that readers see now, and store the comparison. `docs` gets a page of it.

    If the backfill is already in place, the stored comparison is returned. Raises Refused if a batch has not run, and
    CosetError if the rows differ though the pipeline is the same.
    """
    check_not_cancelled(store, backfill)
    finish(store, backfill.pipeline)
    known = comparison_of(store, backfill)
    if known and in_place(store, backfill):
        return known
    found = compare(store, backfill)
    store.put(comparison_key(backfill), encode(found))
    if docs is not None:
        back = taken_back(store, backfill)
        put_comparison(site := Site(docs, store), found, blockers(store, backfill, found), back)
        note_backfill(site, backfill.pipeline, backfill.number, f"{backfill}, compared: {found}; not swapped in")
    if not (found.same or found.changes or found.may_differ or found.repairs or found.taken_back):
        what = f"the pipeline is the same, but its rows are not: {found}"
        where = f"{store.root}/{comparison_key(backfill)}"
        then = "report it: another scheme must not change a result, unless sums of floats depend on their order"
        raise CosetError.of(Kind.BACKFILL_UNEQUAL, what, where, then, backfill=backfill.name, found=found)
    return found


def swap(
    store: Store,
    backfill: Backfill,
    approved: str,
    why: str,
    who: str = "",
    *,
    decided: int | None = None,
    docs: Path | None = None,
) -> Swapped:
    """Let readers see the backfill's rows.

    `approved` is the digest of the comparison that `who` approved, by default the user of this process. `decided` is
    the number of swaps at that time, and `docs` the folder whose pages show it. Raises Refused if the backfill was
    taken back since then, if the comparison is another now, and as `swaps.turn`.
    """
    if decided is not None and (back := taken_back(store, backfill)) and back.number >= decided:
        what = f"{back.who} took it back at {back.at}: {back.why or 'no reason was given'}"
        then = commands.SwapAsking(backfill.pipeline, backfill.number, approved)
        raise Refused.of(Kind.BACKFILL_TURN, what, str(backfill), then, backfill=backfill.name, swap=back.number)
    found = _compared(store, backfill)
    if digest(found) != approved:
        what = f"{approved} was approved, but the comparison is {digest(found)} now"
        look = ("look at it again: ", Backfills(backfill.pipeline, backfill.number))
        where = f"{store.root}/{comparison_key(backfill)}"
        raise Refused.of(Kind.BACKFILL_APPROVAL, what, where, look, approved=approved)
    swapped = turn(store, backfill, found, SwapKind.SWAP, who=who or getpass.getuser(), why=why, at=clock_time())
    return _turned(store, backfill, found, swapped, docs)


def undo(store: Store, backfill: Backfill, why: str, who: str = "", *, docs: Path | None = None) -> Swapped:
    """Let readers see the earlier rows again. Raises as `swaps.turn`."""
    found = _compared(store, backfill)
    swapped = turn(store, backfill, found, SwapKind.UNDO, who=who or getpass.getuser(), why=why, at=clock_time())
    return _turned(store, backfill, found, swapped, docs)


def pause(store: Store, backfill: Backfill, why: str) -> None:
    """Start no task group of a backfill until it is resumed. Raises Refused if it is cancelled."""
    limits.pause(store, backfill, who=getpass.getuser(), why=why, at=clock_time())


def cancel(pipeline: Pipeline, store: Store, backfill: Backfill, why: str, docs: Path | None = None) -> LeftOver:
    """End a backfill for good, remove its files, and return them. Its documents stay. Raises as `swaps.cancel`."""
    over = swaps.cancel(store, backfill, who=getpass.getuser(), why=why, at=clock_time())
    site = Site.shown(docs, store, pipeline.name)
    if found := comparison_of(store, backfill):
        put_page(site, found, decided=over)
    note_backfill(site, backfill.pipeline, backfill.number, None)
    return sweep(pipeline, store)


def _turned(store: Store, backfill: Backfill, found: Comparison, swapped: Swapped, docs: Path | None) -> Swapped:
    """Update the Data Docs, which say whose rows readers see, and the Iceberg tables."""
    exchanged, site = in_force(store, backfill.pipeline).exchanged(), Site.shown(docs, store, backfill.pipeline)
    put_page(site, found, decided=list(swaps.swaps(store, backfill.pipeline))[swapped.number])
    batch_index.exchange(site, backfill.pipeline, backfill.batches, exchanged)
    note_backfill(site, backfill.pipeline, backfill.number, None)
    follow(store, backfill.pipeline)
    return swapped


def _compared(store: Store, backfill: Backfill) -> Comparison:
    found = comparison_of(store, backfill)
    if found is None:
        where = f"{store.root}/{comparison_key(backfill)}"
        then = (Run(backfill.name), " goes on where it stopped")
        raise Refused.of(Kind.BACKFILL_UNREADY, f"{backfill} is not compared yet", where, then, backfill=backfill)
    return found
