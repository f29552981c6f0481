"""Backfills on the command line: preview, run, compare, swap, undo; and the gaps there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import asdict

from coset.batches.backfills import actions
from coset.batches.backfills import outlook as found_gaps
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.limits import Limited, Limits, go_on, paused
from coset.batches.backfills.outlook import outlook
from coset.batches.backfills.pages import comparison_sections, preview_sections
from coset.batches.backfills.request import backfill, backfills, comparison_of
from coset.batches.backfills.swaps import Half, accepted_since, blockers, half, swaps
from coset.batches.runners.runner import Runner, check_runs
from coset.cli import pipelines
from coset.cli.output import Answer, Block, Table, counted, progress, show, step
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Resume, Run, SwapAsking
from partitioning.documents.document import digest, plain
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.backfill import Backfill, Swap, SwapKind, Swapped
from partitioning.model.plan import Plan
from partitioning.values import replace

__all__ = ["Asked", "Limits"]


def preview(named: str, root: str, asked: Asked) -> Answer:
    """What a backfill would run, and what is built on it."""
    pipeline, store = pipelines.load(named), store_at(root)
    pairs = actions.preview(pipeline, store, asked)

    def value() -> object:
        batches = [
            {"batch": before.batch, "before": _shape(before), "now": _shape(now), "records": before.records}
            for before, now in pairs
        ]
        ahead = outlook(store, pipeline.name, [before for before, _ in pairs])
        return {"batches": batches} | asdict(ahead)

    return Answer(value, preview_sections(store, pipeline.name, pairs, pipelines.shown()))


def begin(named: str, root: str, asked: Asked, limits: Limits, runner: Runner, docs: Path) -> Answer:
    """Do all steps of a backfill that need no approval."""
    pipeline, store = pipelines.load(named), store_at(root)
    check_runs(pipeline.steps, pipeline.name, runner)
    return _run(pipeline, store, actions.begin(pipeline, store, asked), limits, runner, docs)


def resume(named: str, root: str, number: int, limits: Limits, runner: Runner, docs: Path) -> Answer:
    """The same for one that was begun, as it was asked for then."""
    pipeline, store = pipelines.load(named), store_at(root)
    request = backfill(store, pipeline.name, number)
    check_runs(pipeline.steps, pipeline.name, runner)
    return _run(pipeline, store, request, limits, runner, docs)


def pause(named: str, root: str, number: int, why: str) -> Answer:
    """Let a backfill start nothing more until it is let go on."""
    store, request = _named(named, root, number)
    actions.pause(store, request, why)
    then = pipelines.shown().says((Resume(request.pipeline, number), " lets it go on"))
    said = f"{request} is paused: task groups that run come to their end, and no other starts; {then}"
    return Answer({"backfill": number, "paused": True}, [said])


def cancel(named: str, root: str, number: int, why: str, docs: Path) -> Answer:
    """Give a backfill up."""
    store, request = _named(named, root, number)
    removed = actions.cancel(pipelines.load(named), store, request, why, docs)
    value = {"backfill": number, "cancelled": True, "removed": len(removed.files)}
    return Answer(value, [f"{request} is cancelled; removed {removed}"])


def listed(named: str, root: str) -> Answer:
    """All backfills."""
    pipeline, store = pipelines.load(named), store_at(root)
    known, turns = list(backfills(store, pipeline.name)), list(swaps(store, pipeline.name))
    stopped = half(store, pipeline.name)
    columns = ("backfill", "batches", "asked by", "at", "why", "state")
    rows = (
        (one.number, str(one).rpartition(": ")[2], one.who, one.at, one.why, _state(store, one, turns, stopped))
        for one in known
    )
    table = Table(f"Backfills of {pipeline.name}", columns, rows, empty=f"{pipeline.name} has no backfills")
    value = {"backfills": map(plain, known), "swaps": map(plain, turns), "half": stopped.plain if stopped else None}
    return Answer(value, [table])


def shown(named: str, root: str, number: int) -> Answer:
    """One backfill and its comparison."""
    store, one = _named(named, root, number)
    found = comparison_of(store, one)
    value = {"backfill": plain(one), "comparison": plain(found) if found else None}
    if found is None:
        then = pipelines.shown().says((Resume(one.pipeline, one.number), " goes on with it"))
        return Answer(value, [f"{one} is not compared yet: {then}"])
    compared = comparison_sections(found, blockers(store, one, found), pipelines.shown())
    text: list[Block] = [*compared, f"Its digest is {digest(found)}"]
    if (stopped := half(store, one.pipeline)) and stopped.swap.backfill == one.number:
        text.append(pipelines.shown().says((f"It is {stopped}; ", Run(one.pipeline), " finishes that")))
    return Answer(value, text)


def swap(named: str, root: str, number: int, approved: str, why: str, docs: Path) -> Answer:
    """Put a backfill's rows in place."""
    swapped = actions.swap(*_named(named, root, number), approved, why, docs=docs)
    return Answer(swapped, [_said(swapped, SwapKind.SWAP)])


def undo(named: str, root: str, number: int, why: str, docs: Path) -> Answer:
    """Take a backfill back."""
    store, request = _named(named, root, number)
    went = accepted_since(store, request)
    swapped = actions.undo(store, request, why, docs=docs)
    told = f"Changes of others that were accepted since are taken back, too: in {', '.join(went)}"
    return Answer(swapped, [_said(swapped, SwapKind.UNDO), *([told] if went else [])])


def gaps(named: str, root: str) -> Answer:
    """The offsets that no published batch holds."""
    pipeline = pipelines.load(named)
    found = found_gaps.gaps(Ledger(store_at(root), pipeline.name))
    none = f"No gaps: published batches hold all offsets of {pipeline.name} from the first to the last committed"
    rows = [(str(gap.range), len(gap.range), gap.why, pipelines.shown().says(gap.then)) for gap in found]
    title, columns = f"Offsets of {pipeline.name} in no published batch", ("range", "records", "why", "next")
    value = [{"range": offsets, "why": why, "next": then} for offsets, _, why, then in rows]
    return Answer(value, [Table(title, columns, rows, empty=none)])


def _named(named: str, root: str, number: int) -> tuple[Store, Backfill]:
    store = store_at(root)
    return store, backfill(store, pipelines.load(named).name, number)


def _run(pipeline: Pipeline, store: Store, request: Backfill, limits: Limits, runner: Runner, docs: Path) -> Answer:
    go_on(store, request)
    show(f"This is {request}")
    with runner as used:
        pace = Limited(store, request, limits, partial(progress, "wait"))
        with counted(len(request.batches), "batches", "check"):
            actions.run(pipeline, store, request, used, docs, step, pace, counted)
    with step("compare") as said:
        reviewed = actions.review(store, request, docs)
        said.append(str(reviewed.found))
    found, blocked = reviewed.found, reviewed.blockers
    alike = not (found.needs_approval or blocked or reviewed.taken_back)
    swapped = actions.swap(store, request, digest(found), request.why, docs=docs) if alike else None
    value = {"backfill": request.number, "comparison": plain(found), "swapped": swapped}
    compared = comparison_sections(found)
    if blocked:
        findings = (replace(finding, what=f"it cannot be put in place: {finding.what}") for finding in blocked)
        return Answer(value, compared, Refused(*findings))
    approve = SwapAsking(request.pipeline, request.number, digest(found))
    then = pipelines.shown().says(("Next: look at it, then ", approve))
    return Answer(value, [*compared, then if swapped is None else _said(swapped, SwapKind.SWAP)])


def _shape(plan: Plan) -> dict[str, int]:
    return {"tasks": sum(len(stage.tasks) for stage in plan.stages), "groups": len(plan.groups)}


def _state(store: Store, one: Backfill, turns: Sequence[Swap], stopped: Half | None) -> str:
    if stopped and stopped.swap.backfill == one.number:
        return str(stopped)
    mine = Counter(turn.turn for turn in turns if turn.backfill == one.number)
    if mine[SwapKind.SWAP] > mine[SwapKind.UNDO]:
        return "in place"
    if mine[SwapKind.UNDO]:
        return "taken back"
    if mine[SwapKind.CANCEL]:
        return "cancelled"
    if paused(store, one):
        return "paused"
    found = comparison_of(store, one)
    return "not compared yet" if found is None else f"compared: {found}"


def _said(swapped: Swapped, to: SwapKind) -> str:
    return f"It {'is in place' if to is SwapKind.SWAP else 'is taken back'}: {swapped}"
