"""Commands for upkeep."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Annotated

import typer

from coset.cli.app import USUAL_MASTER, Master, Memory, Named, RunnerOption, SparkConf, StoreRoot, root_of, runner_of
from coset.cli.asked import ONCE, OWN
from coset.cli.command import Panel, always, command
from coset.cli.output import Answer, check_reason
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.read_ends import What
from partitioning.model.sources import address_of
from partitioning.numbers import DAYS
from partitioning.sections import many, size

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
        int, typer.Option("--keep-days", help="Keep the table versions of the last N days readable, of 1 or more.")
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
    from coset.batches.tables import handing_over

    root = root_of(store)
    check_reason(why, "why it is handed over")
    handing_over.hand_over(store_at(root), table, before, to, who=getpass.getuser(), why=why)
    no_longer = f", and no longer to {before}" if before else ""
    now = "of this store now" if before == to else f"now{no_longer}"
    return Answer({"table": table, "from": before, "to": to}, [f"Table {table} belongs to pipeline {to} {now}"])


@command(Panel.UPKEEP, "accept-changes", final=always)
def accept_changes(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The name of a result table.")],
    up_to: Annotated[int, typer.Option("--up-to", metavar="VERSION", help="The last version to accept."), ONCE],
    why: _Why,
    store: StoreRoot = None,
) -> Answer:
    """Accept the changes that others made to the rows of a result table. Batches continue from there."""
    from coset.batches.tables.acceptance import accept

    root = root_of(store)
    check_reason(why, "why it is right")
    accept(store_at(root), table, up_to, who=getpass.getuser(), why=why)
    said = f"What was done to table {table} up to version {up_to} is accepted"
    return Answer({"table": table, "version": up_to}, [said])


@command(Panel.UPKEEP)
def iceberg(pipeline: Named, store: StoreRoot = None) -> Answer:
    """Take the Iceberg tables of a pipeline to what its tables are, as each batch does where the catalogue answers."""
    from coset.batches.tables.iceberg import follow
    from coset.batches.tables.iceberg_place import ASKED, asked
    from coset.cli import pipelines

    root = root_of(store)
    named, place = pipelines.load(pipeline).name, asked()
    if place is None:
        what, then = "this environment names no catalogue", 'write iceberg = "CATALOGUE.NAMESPACE" into it'
        raise Refused.of(Kind.SETTING, what, f"environment, or {ASKED}", then, variable=ASKED)
    taken = follow(store_at(root), named)
    said = [f"{name} has what its table has now" for name in taken]
    return Answer({"tables": taken}, said or [f"Nothing to do: no table of {named} has what its Iceberg table lacks"])


@command(Panel.UPKEEP, "move-tables", final=always)
def move_tables(
    to: Annotated[str, typer.Argument(metavar="ADDRESS", help="Where the tables were copied to.")],
    why: Annotated[str, typer.Option("--why", help="The reason, kept with the store.")],
    store: StoreRoot = None,
) -> Answer:
    """Let all result tables of the store lie at another address, to which they were copied as they are."""
    from coset.batches.tables import table_base

    root = root_of(store)
    check_reason(why, "why they are moved")
    there = store_at(root)
    placed = table_base.move(there, to if ":" in to.partition("/")[0] else address_of(os.path.abspath(to)), why)
    moved = f" now, and no longer at {there.tables}, which may be removed"
    said = f"The tables of {placed.root} lie at {placed.tables}"
    text = said + (moved if placed.tables != there.tables else " already")
    return Answer({"tables": placed.tables, "before": there.tables}, [text])


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
    from msgspec import to_builtins

    from coset.batches import ends
    from coset.cli import pipelines

    root = root_of(store)
    check_reason(why, "why it is forgotten")
    what = What.SOURCE if keep_offsets else What.POSITION
    made = ends.forget(Ledger(store_at(root), pipelines.load(pipeline).name), stream, partition, what, why)
    twice, gone = made.counted_twice, [{"offsets": str(one.offsets), "what": one.what} for one in made.forgotten]
    text = (*map(str, made.forgotten), f"{many(twice, 'record')} can be counted twice; result tables stay as they are.")
    return Answer(to_builtins(made) | {"forgotten": gone, "counted_twice": twice}, text)


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
    from coset.batches.runners import shipped

    code, settings = shipped.pack(file, also or ()), shipped.settings_for(file)
    bytes_ = file.stat().st_size
    text = [
        f"{file} has {code}, {size(bytes_)}",
        "Spark's workers need nothing but Spark and this Python. Give the commands that run Spark:",
        *(f"  --conf {name}={value}" for name, value in settings.items()),
    ]
    return Answer({"file": str(file), "bytes": bytes_, "code": code, "settings": settings}, text)
