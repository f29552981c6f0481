"""Backfills on the command line: preview, run, compare, swap, undo; and the gaps there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import to_builtins

from batches.backfills import gaps as found_gaps
from batches.backfills import steps
from batches.backfills.backfill import backfill, backfills
from batches.backfills.steps import Asked
from batches.backfills.swaps import swaps
from batches.runners.runner import Runner
from cli import pipelines
from cli.output import show, show_json, show_table, step
from partitioning.authoring.pipeline import Pipeline
from partitioning.diff.diff import diff
from partitioning.documents.document import digest, plain
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import S3Store, Store
from partitioning.model.backfill import Backfill, Comparison, Swap, Swapped, Turn
from partitioning.model.plan import Plan, StateInput
from partitioning.sections import size

__all__ = ["Asked", "gaps", "listed", "preview", "run", "swap", "undo"]


def preview(named: str, root: str, asked: Asked, *, as_json: bool) -> None:
    """Show what a backfill would run."""
    pipeline = pipelines.load(named)
    pairs = steps.preview(pipeline, S3Store(root), asked)
    if as_json:
        show_json(
            [
                {"batch": before.batch, "before": _shape(before), "now": _shape(now), "records": before.records}
                for before, now in pairs
            ]
        )
        return
    columns = ("batch", "records", "bytes", "tasks before", "tasks now", "groups before", "groups now", "results")
    rows = [(*_row(before, now), str(diff(before, now).results).partition(":")[0]) for before, now in pairs]
    show_table(f"What a backfill of {pipeline.name} would run", columns, rows, list(_notes(pipeline, root, pairs)))


def run(named: str, root: str, asked: Asked, runner: Runner, docs: Path, *, as_json: bool) -> None:
    """Do all steps of a backfill that need no approval."""
    pipeline, store = pipelines.load(named), S3Store(root)
    request = steps.begin(pipeline, store, asked)
    if not as_json:
        show(f"This is {request}")
    with runner as used:
        steps.run(pipeline, store, request, used, docs, step)
    found = steps.comparison(store, request, docs)
    swapped = steps.swap(store, request, digest(found), asked.why) if found.same and not found.changes else None
    if as_json:
        show_json({"backfill": request.number, "comparison": plain(found), "swapped": _plain(swapped)})
        return
    _show_comparison(found)
    if swapped is not None:
        show(_said(swapped, Turn.SWAP))
    else:
        show(f"Next: look at it, then `coset swap {named} {request.number} --approve {digest(found)}`")


def listed(named: str, root: str, number: int | None, *, as_json: bool) -> None:
    """List all backfills, or show the comparison of one."""
    pipeline, store = pipelines.load(named), S3Store(root)
    if number is not None:
        _show_one(store, backfill(store, pipeline.name, number), as_json=as_json)
        return
    known, turns = list(backfills(store, pipeline.name)), list(swaps(store, pipeline.name))
    if as_json:
        show_json({"backfills": [plain(one) for one in known], "swaps": [plain(one) for one in turns]})
    elif not known:
        show(f"{pipeline.name} has no backfills")
    else:
        columns = ("backfill", "batches", "asked by", "at", "why", "state")
        rows = [
            (one.number, _batches(one), one.who, one.at, one.why, _state(store, one, _turns(turns, one)))
            for one in known
        ]
        show_table(f"Backfills of {pipeline.name}", columns, rows)


def swap(named: str, root: str, number: int, approved: str, why: str, *, as_json: bool) -> None:
    """Put a backfill's rows in place."""
    store = S3Store(root)
    swapped = steps.swap(store, backfill(store, pipelines.load(named).name, number), approved, why)
    show_json(_plain(swapped)) if as_json else show(_said(swapped, Turn.SWAP))


def undo(named: str, root: str, number: int, why: str, *, as_json: bool) -> None:
    """Take a backfill back."""
    store = S3Store(root)
    swapped = steps.undo(store, backfill(store, pipelines.load(named).name, number), why)
    show_json(_plain(swapped)) if as_json else show(_said(swapped, Turn.UNDO))


def gaps(named: str, root: str, *, as_json: bool) -> None:
    """Show the offsets that no published batch holds."""
    pipeline = pipelines.load(named)
    found = found_gaps.gaps(Ledger(S3Store(root), pipeline.name))
    if as_json:
        show_json([{"range": str(gap.range), "why": gap.why, "next": gap.then} for gap in found])
    elif not found:
        show(f"No gaps: published batches hold all offsets of {pipeline.name} from the first to the last committed")
    else:
        rows = [(str(gap.range), f"{len(gap.range):,}", gap.why, gap.then) for gap in found]
        show_table(f"Offsets of {pipeline.name} in no published batch", ("range", "records", "why", "next"), rows)


def _row(before: Plan, now: Plan) -> tuple[object, ...]:
    read = sum(partition.bytes for stream in before.streams for partition in stream.partitions)
    were, are = _shape(before), _shape(now)
    return before.batch, f"{before.records:,}", size(read), were["tasks"], are["tasks"], were["groups"], are["groups"]


def _shape(plan: Plan) -> dict[str, int]:
    return {"tasks": sum(len(stage.tasks) for stage in plan.stages), "groups": len(plan.groups)}


def _notes(pipeline: Pipeline, root: str, pairs: tuple[tuple[Plan, Plan], ...]) -> Iterator[str]:
    seconds = _seconds(Ledger(S3Store(root), pipeline.name), [before for before, _ in pairs])
    if seconds is not None:
        yield f"The tasks of the first runs took {seconds:,.0f} seconds in all."
    last = pairs[-1][0]
    keeps = sorted({step.name for stage in last.stages for step in stage.steps if step.state})
    if keeps:
        yield f"Later batches go on from what {', '.join(keeps)} keep after batch {last.batch}: it must stay the same."
    reads = sum(isinstance(read, StateInput) for _, now in pairs for stage in now.stages for read in stage.inputs)
    if reads:
        yield "Nothing is stored yet; what a batch keeps is known to the next one once it has run."


def _seconds(ledger: Ledger, plans: list[Plan]) -> float | None:
    milliseconds = 0
    for plan in plans:
        verdict = ledger.verdict(plan.batch)
        for group in plan.groups:
            receipt = ledger.receipt(plan.batch, verdict.attempt, group.group) if verdict else None
            if receipt is None:
                return None
            milliseconds += sum(task.milliseconds or 0 for task in receipt.tasks)
    return milliseconds / 1000


def _show_one(store: Store, one: Backfill, *, as_json: bool) -> None:
    found = steps.compared(store, one)
    if as_json:
        show_json({"backfill": plain(one), "comparison": plain(found) if found else None})
    elif found is None:
        show(f"{one} is not compared yet: run `coset backfill` with the same words again")
    else:
        _show_comparison(found)
        show(f"Its digest is {digest(found)}")


def _show_comparison(found: Comparison) -> None:
    columns = ("batch", "table", "rows before", "rows now", "keys that differ")
    rows = [
        (table.batch, table.table, f"{table.rows[0]:,}", f"{table.rows[1]:,}", f"{table.keys:,}")
        for table in found.tables
    ]
    notes = [f"Compared: {found}."]
    if found.changes:
        notes.append(f"The pipeline was changed: {'; '.join(found.changes)}.")
    rows += [
        (found.plans[-1][0], f"what {state.step} keeps", f"{state.rows[0]:,}", f"{state.rows[1]:,}", f"{state.keys:,}")
        for state in found.states
    ]
    show_table(f"Backfill {found.backfill} of {found.pipeline}", columns, rows, notes)
    first = [(table.batch, table.table, *difference) for table in found.tables for difference in table.first]
    first += [(found.plans[-1][0], state.step, *difference) for state in found.states for difference in state.first]
    if first:
        show_table("The first keys that differ", ("batch", "table", "key", "before", "now"), first)


def _turns(turns: Sequence[Swap], one: Backfill) -> Counter[Turn]:
    return Counter(turn.turn for turn in turns if turn.backfill == one.number)


def _state(store: Store, one: Backfill, turns: Counter[Turn]) -> str:
    if turns[Turn.SWAP] > turns[Turn.UNDO]:
        return "in place"
    if turns[Turn.UNDO]:
        return "taken back"
    found = steps.compared(store, one)
    return "not compared yet" if found is None else f"compared: {found}"


def _batches(one: Backfill) -> str:
    return str(one).rpartition(": ")[2]


def _said(swapped: Swapped, to: Turn) -> str:
    tables = ", ".join(f"{table} at version {version}" for table, version in swapped.tables.items())
    verb = "is in place" if to is Turn.SWAP else "is taken back"
    return f"It {verb}: {tables or 'no table had to change'}"


def _plain(swapped: Swapped | None) -> object:
    return None if swapped is None else to_builtins(swapped)
