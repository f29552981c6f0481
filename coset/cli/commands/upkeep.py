"""Commands for upkeep."""

from __future__ import annotations

from typing import Annotated

import typer

from coset.batches.runners.choice import RunnerKind, runner
from coset.cli.app import AsJson, Master, Memory, Named, RunnerOption, StoreRoot, app, root_of
from coset.cli.output import Command
from partitioning.model.read_ends import What
from partitioning.numbers import DAYS


@app.command(cls=Command)
def clean(
    pipeline: Named,
    store: StoreRoot = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove files of decided batches that no verdict names: those of interrupted and of duplicate runs."""
    from coset.cli import batches

    batches.clean(pipeline, root_of(store), dry_run=dry_run, as_json=as_json)


@app.command(cls=Command)
def compact(
    pipeline: Named,
    store: StoreRoot = None,
    keep_days: Annotated[
        int, typer.Option("--keep-days", help="Keep the table versions of the last N days readable.")
    ] = 7,
    across: Annotated[
        bool,
        typer.Option(
            "--across-batches", help="Merge files of several batches too. No backfill can replace these afterwards."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Merge small files of the result tables, and remove files that no recent version has."""
    from coset.cli import batches

    batches.compact(pipeline, root_of(store), DAYS.check(keep_days, "--keep-days"), across=across, as_json=as_json)


@app.command(cls=Command)
def restore(
    pipeline: Named,
    store: StoreRoot = None,
    kind: RunnerOption = None,
    master: Master = "local[*]",
    memory: Memory = "1GB",
    as_json: AsJson = False,
) -> None:
    """Rebuild lost state by running the batches again that wrote it. Existing state stays as it is."""
    from coset.cli import state

    state.restore(pipeline, root_of(store), runner(kind or RunnerKind.at(master), master, memory), as_json=as_json)


@app.command("hand-over", cls=Command)
def hand_over(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The name of a result table.")],
    to: Annotated[str, typer.Option("--to", metavar="PIPELINE", help="The name of the new owner.")],
    why: Annotated[str, typer.Option("--why", help="The reason, kept in the table's log.")],
    before: Annotated[
        str | None,
        typer.Option("--from", metavar="PIPELINE", help="The current owner, if there is one."),
    ] = None,
    store: StoreRoot = None,
    as_json: AsJson = False,
) -> None:
    """Give a result table to another pipeline, which alone plans for it and publishes to it from then on."""
    from coset.cli import tables

    tables.hand_over(table, root_of(store), before, to, why, as_json=as_json)


@app.command("accept-changes", cls=Command)
def accept_changes(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The name of a result table.")],
    up_to: Annotated[int, typer.Option("--up-to", metavar="VERSION", help="The last version to accept.")],
    why: Annotated[str, typer.Option("--why", help="The reason, kept in the table's log.")],
    store: StoreRoot = None,
    as_json: AsJson = False,
) -> None:
    """Accept the changes that others made to the rows of a result table. Batches continue from there."""
    from coset.cli import tables

    tables.accept_changes(table, root_of(store), up_to, why, as_json=as_json)


@app.command(cls=Command)
def forget(
    pipeline: Named,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A stream that the pipeline has read.")],
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition.")] = None,
    keep_offsets: Annotated[
        bool,
        typer.Option("--keep-offsets", help="Keep the position; forget only which files or topic were read."),
    ] = False,
    why: Annotated[str, typer.Option("--why", help="The reason, kept with the pipeline.")] = "",
    store: StoreRoot = None,
    as_json: AsJson = False,
) -> None:
    """Forget how far a stream was read: the next batch reads it from its log start offset."""
    from coset.cli.ends import show_forget

    what = What.SOURCE if keep_offsets else What.POSITION
    show_forget(pipeline, root_of(store), stream, partition, what, why, as_json=as_json)


@app.command(cls=Command)
def incidents(
    pipeline: Named,
    store: StoreRoot = None,
    ended: Annotated[bool, typer.Option("--all", help="Show those that have ended, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what stops the pipeline: since when, how often, and who owns it."""
    from coset.cli.incidents import show_incidents

    show_incidents(pipeline, root_of(store), ended=ended, as_json=as_json)
