"""Commands for backfills: previewed, run, compared, put in place, taken back."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coset.cli.app import (
    USUAL_MASTER,
    Again,
    Docs,
    Master,
    Memory,
    Named,
    RunnerOption,
    SparkConf,
    StoreRoot,
    root_of,
    runner_of,
    settings_of,
)
from coset.cli.asked import ONCE, OWN
from coset.cli.command import Panel, command
from coset.cli.output import Answer
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.numbers import GROUPS, MINUTES


class Input(StrEnum):
    """Which landed files a backfill reads: those that its batches read, or those that exist now."""

    PLANNED = "planned"
    REPAIRED = "repaired"


_Why = Annotated[str, typer.Option("--why", help="The reason, kept with the swap."), OWN]


@command(Panel.BACKFILL, final=lambda given: given["cancel"] is not None)
def backfill(
    pipeline: Named,
    first: Annotated[int | None, typer.Option("--from", min=0, help="The first batch to run again."), ONCE] = None,
    last: Annotated[
        int | None, typer.Option("--to", min=0, help="The last batch to run again. By default, only this one."), ONCE
    ] = None,
    cascade: Annotated[
        bool,
        typer.Option(
            "--cascade", help="Run all later batches too, because they continue from the state of earlier ones."
        ),
        ONCE,
    ] = False,
    store: StoreRoot = None,
    settings: Again = settings_of,
    given: Annotated[
        Input,
        typer.Option("--input", help="repaired: read the files that hold the offsets now, not those that were read."),
        OWN,
    ] = Input.PLANNED,
    why: Annotated[str, typer.Option("--why", help="The reason, kept with the backfill."), OWN] = "",
    at_once: Annotated[int | None, typer.Option("--groups-at-once", help="Run at most N task groups at once.")] = None,
    window: Annotated[
        str | None,
        typer.Option(
            "--window", metavar="HOURS", help="When task groups may start: 22:00-06:00 Europe/Berlin, or UTC."
        ),
    ] = None,
    live: Annotated[int, typer.Option("--wait-for-live", help="Wait at most N minutes for an open live batch.")] = 30,
    pause: Annotated[
        int | None, typer.Option("--pause", help="Pause this backfill: no more task groups start."), ONCE
    ] = None,
    resume: Annotated[int | None, typer.Option("--resume", help="Resume this backfill."), ONCE] = None,
    cancel: Annotated[
        int | None, typer.Option("--cancel", help="Give up this backfill and remove its files."), ONCE
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would run. Stores nothing."), ONCE] = False,
    kind: RunnerOption = None,
    master: Master = USUAL_MASTER,
    memory: Memory = "1GB",
    conf: SparkConf = None,
    docs: Docs = Path(".coset/docs"),
) -> Answer:
    """Run published batches again beside the published data, compare, and swap the rows in if they are the same."""
    from coset.batches.backfills.hours import Hours
    from coset.cli import backfills

    if sum(number is not None for number in (first, pause, resume, cancel)) != 1:
        where = "--from, --pause, --resume, --cancel"
        raise Refused.of(Kind.ARGUMENT, "it is not said what to do with which backfill", where, "give one of them")
    if cascade and last is not None:
        what, where = "--cascade runs all later batches, and --to names the last one", "--to, --cascade"
        raise Refused.of(Kind.ARGUMENT, what, where, "give one of them", options=where)
    if first is None and (preview or cascade or last is not None):
        where = "--to, --cascade, --preview"
        what = "these options are about a backfill that begins"
        raise Refused.of(Kind.ARGUMENT, what, where, "give them with --from only", options=where)
    root = root_of(store)
    if pause is not None:
        return backfills.pause(pipeline, root, pause, why)
    if cancel is not None:
        return backfills.cancel(pipeline, root, cancel, why, docs)
    if at_once is not None:
        GROUPS.check(at_once, "--groups-at-once")
    MINUTES.check(live, "--wait-for-live")
    limits = backfills.Limits(at_once, Hours.parse(window) if window else None, live)
    runs = runner_of(kind, master, memory, conf)
    if resume is not None:
        return backfills.resume(pipeline, root, resume, limits, runs, docs)
    assert first is not None
    to = None if cascade else first if last is None else last
    asked = backfills.Asked(first, to, settings(), why, given is Input.REPAIRED)
    if preview:
        return backfills.preview(pipeline, root, asked)
    return backfills.begin(pipeline, root, asked, limits, runs, docs)


@command(Panel.BACKFILL)
def backfills(
    pipeline: Named,
    number: Annotated[int | None, typer.Argument(help="The number of the backfill to show.")] = None,
    store: StoreRoot = None,
) -> Answer:
    """List the backfills and which of them readers see, or show the comparison of one."""
    from coset.cli import backfills

    if number is None:
        return backfills.listed(pipeline, root_of(store))
    return backfills.shown(pipeline, root_of(store), number)


@command(Panel.BACKFILL)
def swap(
    pipeline: Named,
    number: Annotated[int, typer.Argument(help="The number of the backfill.")],
    approve: Annotated[str, typer.Option("--approve", help="The digest of the comparison that you approve."), ONCE],
    store: StoreRoot = None,
    why: _Why = "",
    docs: Docs = Path(".coset/docs"),
) -> Answer:
    """Replace the rows that readers see by those of a backfill: one commit for each table."""
    from coset.cli import backfills

    return backfills.swap(pipeline, root_of(store), number, approve, why, docs)


@command(Panel.BACKFILL)
def undo(
    pipeline: Named,
    number: Annotated[int, typer.Argument(help="The number of the backfill.")],
    store: StoreRoot = None,
    why: _Why = "",
    docs: Docs = Path(".coset/docs"),
) -> Answer:
    """Undo a backfill: readers see the rows of before it."""
    from coset.cli import backfills

    return backfills.undo(pipeline, root_of(store), number, why, docs)


@command(Panel.LOOK)
def gaps(pipeline: Named, store: StoreRoot = None) -> Answer:
    """List the offsets that no published batch holds, with the command that reads them."""
    from coset.cli import backfills

    return backfills.gaps(pipeline, root_of(store))
