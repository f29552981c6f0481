"""Commands for upkeep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coset.cli.app import USUAL_MASTER, Master, Memory, Named, RunnerOption, SparkConf, StoreRoot, root_of, runner_of
from coset.cli.asked import ONCE, OWN
from coset.cli.command import Panel, always, command
from coset.cli.output import Answer
from partitioning.model.read_ends import What
from partitioning.numbers import DAYS

_Why = Annotated[str, typer.Option("--why", help="The reason, kept in the table's log."), OWN]


@command(Panel.UPKEEP, final=lambda given: not given["dry_run"])
def clean(
    pipeline: Named,
    store: StoreRoot = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed."), ONCE] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Look at all batches, and not only at those since the last time.")
    ] = False,
) -> Answer:
    """Remove files of decided batches that no verdict names: those of interrupted and of duplicate runs."""
    from coset.cli import batches

    return batches.clean(pipeline, root_of(store), dry_run=dry_run, everything=everything)


@command(Panel.UPKEEP, final=always)
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
) -> Answer:
    """Merge small files of the result tables, and remove files that no recent version has."""
    from coset.cli import batches

    return batches.compact(pipeline, root_of(store), DAYS.check(keep_days, "--keep-days"), across=across)


@command(Panel.UPKEEP)
def restore(
    pipeline: Named,
    store: StoreRoot = None,
    kind: RunnerOption = None,
    master: Master = USUAL_MASTER,
    memory: Memory = "1GB",
    conf: SparkConf = None,
) -> Answer:
    """Rebuild lost state by running the batches again that wrote it. Existing state stays as it is."""
    from coset.cli import state

    return state.restore(pipeline, root_of(store), runner_of(kind, master, memory, conf))


@command(Panel.UPKEEP, "hand-over", final=always)
def hand_over(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The name of a result table.")],
    to: Annotated[str, typer.Option("--to", metavar="PIPELINE", help="The name of the new owner."), ONCE],
    why: _Why,
    before: Annotated[
        str | None, typer.Option("--from", metavar="PIPELINE", help="The current owner, if there is one."), ONCE
    ] = None,
    store: StoreRoot = None,
) -> Answer:
    """Give a result table to another pipeline, which alone plans for it and publishes to it from then on."""
    from coset.cli import tables

    return tables.hand_over(table, root_of(store), before, to, why)


@command(Panel.UPKEEP, "accept-changes", final=always)
def accept_changes(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The name of a result table.")],
    up_to: Annotated[int, typer.Option("--up-to", metavar="VERSION", help="The last version to accept."), ONCE],
    why: _Why,
    store: StoreRoot = None,
) -> Answer:
    """Accept the changes that others made to the rows of a result table. Batches continue from there."""
    from coset.cli import tables

    return tables.accept_changes(table, root_of(store), up_to, why)


@command(Panel.UPKEEP)
def iceberg(pipeline: Named, store: StoreRoot = None) -> Answer:
    """Take the Iceberg tables of a pipeline to what its tables are, as each batch does where the catalogue answers."""
    from coset.cli import tables

    return tables.iceberg(pipeline, root_of(store))


@command(Panel.UPKEEP, "move-tables", final=always)
def move_tables(
    to: Annotated[str, typer.Argument(metavar="ADDRESS", help="Where the tables were copied to.")],
    why: Annotated[str, typer.Option("--why", help="The reason, kept with the store.")],
    store: StoreRoot = None,
) -> Answer:
    """Let all result tables of the store lie at another address, to which they were copied as they are."""
    from coset.cli import tables

    return tables.move(to, root_of(store), why)


@command(Panel.UPKEEP, final=always)
def forget(
    pipeline: Named,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A stream that the pipeline has read.")],
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition."), ONCE] = None,
    keep_offsets: Annotated[
        bool,
        typer.Option("--keep-offsets", help="Keep the position; forget only which files or topic were read."),
        ONCE,
    ] = False,
    why: Annotated[str, typer.Option("--why", help="The reason, kept with the pipeline.")] = "",
    store: StoreRoot = None,
) -> Answer:
    """Forget how far a stream was read: the next batch reads it from its log start offset."""
    from coset.cli.ends import forgotten

    what = What.SOURCE if keep_offsets else What.POSITION
    return forgotten(pipeline, root_of(store), stream, partition, what, why)


@command(Panel.LOOK)
def incidents(
    pipeline: Named,
    store: StoreRoot = None,
    ended: Annotated[bool, typer.Option("--all", help="Show those that have ended, too.")] = False,
) -> Answer:
    """Show what stops the pipeline: since when, how often, and who owns it."""
    from coset.cli.incidents import listed

    return listed(pipeline, root_of(store), ended=ended)


@command(Panel.PROJECT)
def pack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write: coset-env.tar.gz.")],
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="MODULE", help="A module or package of yours too, with what it needs. Repeatable."
        ),
    ] = None,
) -> Answer:
    """Pack what tasks import into an archive for Spark's workers, which then need no Coset."""
    from coset.cli.pack import packed

    return packed(file, also or ())
