"""Backfills on the command line: preview, run, compare, swap, undo; and the gaps there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec import to_builtins

from coset.batches.backfills import actions
from coset.batches.backfills import gaps as found_gaps
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.comparison.pages import comparison_sections, preview_sections
from coset.batches.backfills.outlook import outlook
from coset.batches.backfills.pacing.control import go_on, paused
from coset.batches.backfills.pacing.limits import Limited, Limits
from coset.batches.backfills.request import backfill, backfills
from coset.batches.backfills.swap.swaps import Half, half, hindrances, swaps
from coset.batches.runners.runner import Runner
from coset.cli import pipelines
from coset.cli.output import progress, show, show_json, show_table, step
from partitioning.commands import Run
from partitioning.documents.document import digest, plain
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.backfill import Backfill, Swap, SwapKind, Swapped
from partitioning.model.plan import Plan
from partitioning.sections import Section
from partitioning.values import replace

__all__ = ["Asked", "Limits", "begin", "cancel", "gaps", "listed", "pause", "preview", "resume", "swap", "undo"]


def preview(named: str, root: str, asked: Asked, *, as_json: bool) -> None:
    """Show what a backfill would run, and what is built on it."""
    pipeline, store = pipelines.load(named), store_at(root)
    pairs = actions.preview(pipeline, store, asked)
    if not as_json:
        _show(preview_sections(store, pipeline.name, pairs, named))
        return
    ahead = outlook(store, pipeline.name, [before for before, _ in pairs])
    batches = [
        {"batch": before.batch, "before": _shape(before), "now": _shape(now), "records": before.records}
        for before, now in pairs
    ]
    show_json({"batches": batches} | to_builtins(ahead, str_keys=True))


def begin(named: str, root: str, asked: Asked, limits: Limits, runner: Runner, docs: Path, *, as_json: bool) -> None:
    """Do all steps of a backfill that need no approval."""
    pipeline, store = pipelines.load(named), store_at(root)
    _run(named, store, actions.begin(pipeline, store, asked), limits, runner, docs, as_json=as_json)


def resume(named: str, root: str, number: int, limits: Limits, runner: Runner, docs: Path, *, as_json: bool) -> None:
    """The same for one that was begun, as it was asked for then."""
    store = store_at(root)
    request = backfill(store, pipelines.load(named).name, number)
    _run(named, store, request, limits, runner, docs, as_json=as_json)


def pause(named: str, root: str, number: int, why: str, *, as_json: bool) -> None:
    """Let a backfill start nothing more until it is let go on."""
    store = store_at(root)
    request = backfill(store, pipelines.load(named).name, number)
    actions.pause(store, request, why)
    then = f"`coset backfill {named} --resume {number}` lets it go on"
    if as_json:
        show_json({"backfill": number, "paused": True})
    else:
        show(f"{request} is paused: task groups that run come to their end, and no other starts; {then}")


def cancel(named: str, root: str, number: int, why: str, *, as_json: bool) -> None:
    """Give a backfill up."""
    pipeline, store = pipelines.load(named), store_at(root)
    request = backfill(store, pipeline.name, number)
    removed = actions.cancel(pipeline, store, request, why)
    if as_json:
        show_json({"backfill": number, "cancelled": True, "removed": len(removed.files)})
    else:
        show(f"{request} is cancelled; removed {removed}")


def listed(named: str, root: str, number: int | None, *, as_json: bool) -> None:
    """List all backfills, or show the comparison of one."""
    pipeline, store = pipelines.load(named), store_at(root)
    if number is not None:
        _show_one(store, backfill(store, pipeline.name, number), as_json=as_json)
        return
    known, turns = list(backfills(store, pipeline.name)), list(swaps(store, pipeline.name))
    stopped = half(store, pipeline.name)
    if as_json:
        listed = {"backfills": [plain(one) for one in known], "swaps": [plain(one) for one in turns]}
        show_json(listed | {"half": half_plain(stopped)})
    elif not known:
        show(f"{pipeline.name} has no backfills")
    else:
        columns = ("backfill", "batches", "asked by", "at", "why", "state")
        rows = [
            (one.number, _batches(one), one.who, one.at, one.why, _state(store, one, _turns(turns, one), stopped))
            for one in known
        ]
        show_table(f"Backfills of {pipeline.name}", columns, rows)


def swap(named: str, root: str, number: int, approved: str, why: str, *, as_json: bool) -> None:
    """Put a backfill's rows in place."""
    store = store_at(root)
    swapped = actions.swap(store, backfill(store, pipelines.load(named).name, number), approved, why)
    show_json(_plain(swapped)) if as_json else show(_said(swapped, SwapKind.SWAP))


def undo(named: str, root: str, number: int, why: str, *, as_json: bool) -> None:
    """Take a backfill back."""
    store = store_at(root)
    swapped = actions.undo(store, backfill(store, pipelines.load(named).name, number), why)
    show_json(_plain(swapped)) if as_json else show(_said(swapped, SwapKind.UNDO))


def gaps(named: str, root: str, *, as_json: bool) -> None:
    """Show the offsets that no published batch holds."""
    pipeline = pipelines.load(named)
    found = found_gaps.gaps(Ledger(store_at(root), pipeline.name))
    if as_json:
        show_json(
            [{"range": str(gap.range), "why": gap.why, "next": pipelines.shown().says(gap.then)} for gap in found]
        )
    elif not found:
        show(f"No gaps: published batches hold all offsets of {pipeline.name} from the first to the last committed")
    else:
        rows = [(str(gap.range), f"{len(gap.range):,}", gap.why, pipelines.shown().says(gap.then)) for gap in found]
        show_table(f"Offsets of {pipeline.name} in no published batch", ("range", "records", "why", "next"), rows)


def _run(
    named: str, store: Store, request: Backfill, limits: Limits, runner: Runner, docs: Path, *, as_json: bool
) -> None:
    go_on(store, request)
    if not as_json:
        show(f"This is {request}")
    with runner as used:
        pace = Limited(store, request, limits, partial(progress, "wait"))
        actions.run(pipelines.load(named), store, request, used, docs, step, pace)
    reviewed = actions.review(store, request, docs)
    found, hindered = reviewed.found, reviewed.hindrances
    alike = not (found.needs_approval or hindered or reviewed.taken_back)
    swapped = actions.swap(store, request, digest(found), request.why) if alike else None
    if as_json:
        show_json({"backfill": request.number, "comparison": plain(found), "swapped": _plain(swapped)})
    else:
        _show(comparison_sections(found))
    if hindered:
        raise Refused(*(replace(finding, what=f"it cannot be put in place: {finding.what}") for finding in hindered))
    if as_json:
        return
    if swapped is not None:
        show(_said(swapped, SwapKind.SWAP))
    else:
        show(f"Next: look at it, then `coset swap {named} {request.number} --approve {digest(found)}`")


def _show(sections: Iterable[Section]) -> None:
    for shown in sections:
        show_table(shown.title, shown.columns, shown.rows, shown.notes)


def _shape(plan: Plan) -> dict[str, int]:
    return {"tasks": sum(len(stage.tasks) for stage in plan.stages), "groups": len(plan.groups)}


def _show_one(store: Store, one: Backfill, *, as_json: bool) -> None:
    found = actions.compared(store, one)
    if as_json:
        show_json({"backfill": plain(one), "comparison": plain(found) if found else None})
    elif found is None:
        show(f"{one} is not compared yet: run `coset backfill` with the same words again")
    else:
        _show(comparison_sections(found, hindrances(store, one, found)))
        show(f"Its digest is {digest(found)}")
        if (stopped := half(store, one.pipeline)) and stopped.swap.backfill == one.number:
            show(pipelines.shown().says((f"It is {stopped}; ", Run(one.pipeline), " finishes that")))


def _turns(turns: Sequence[Swap], one: Backfill) -> Counter[SwapKind]:
    return Counter(turn.turn for turn in turns if turn.backfill == one.number)


def half_plain(stopped: Half | None) -> dict[str, object] | None:
    """A swap that is half done, for programs."""
    if stopped is None:
        return None
    return {"backfill": stopped.swap.backfill, "turn": stopped.swap.turn} | {
        "done": stopped.done,
        "missing": stopped.missing,
    }


def _state(store: Store, one: Backfill, turns: Counter[SwapKind], stopped: Half | None) -> str:
    if stopped and stopped.swap.backfill == one.number:
        return str(stopped)
    if turns[SwapKind.SWAP] > turns[SwapKind.UNDO]:
        return "in place"
    if turns[SwapKind.UNDO]:
        return "taken back"
    if turns[SwapKind.CANCEL]:
        return "cancelled"
    if paused(store, one):
        return "paused"
    found = actions.compared(store, one)
    return "not compared yet" if found is None else f"compared: {found}"


def _batches(one: Backfill) -> str:
    return str(one).rpartition(": ")[2]


def _said(swapped: Swapped, to: SwapKind) -> str:
    return f"It {'is in place' if to is SwapKind.SWAP else 'is taken back'}: {swapped}"


def _plain(swapped: Swapped | None) -> object:
    return None if swapped is None else to_builtins(swapped)
