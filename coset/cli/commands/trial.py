"""Commands around a project: to begin, to look whether all is there, to try, to take over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coset.cli.app import Named, StoreRoot, root_of
from coset.cli.command import Panel, command
from coset.cli.output import Answer
from partitioning.documents.stores import named_root


@command(Panel.PROJECT)
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that is empty or not there yet.")],
    address: Annotated[
        str | None,
        typer.Option("--from", metavar="ADDRESS", help="The topic that the pipeline is to read, as for inspect."),
    ] = None,
) -> Answer:
    """Write a new repository with a pipeline, its DAG, its test and a file for CI, all of which work."""
    from coset.cli import starting

    return starting.init(folder, named_root(address) if address else None)


@command(Panel.PROJECT)
def inspect(
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS",
            help="A topic: its folder, s3://bucket/topics/orders or one of this machine, kafka://broker:9092/orders; "
            "or an Iceberg table, iceberg://catalogue.namespace.orders.",
        ),
    ],
) -> Answer:
    """Look at what a topic holds, find its key and how its producer places it, and print its declaration. Stores
    nothing."""
    from coset.cli import inspection

    return inspection.inspect(named_root(address))


@command(Panel.PROJECT)
def schemas(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic whose keys a schema registry knows.")],
) -> Answer:
    """Ask the schema registry for the schemas of a topic's keys, and print them as a stream declares them. Stores
    nothing."""
    from coset.cli import registered_keys

    return registered_keys.schemas(topic)


@command(Panel.PROJECT)
def doctor(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="Look for the streams of this pipeline too.")
    ] = None,
    store: StoreRoot = None,
) -> Answer:
    """Look at versions, Java, Spark's server, this machine and the store, and say what is wrong and what to do."""
    from coset.cli.doctor import examine

    return examine(pipeline, root_of(store))


@command(Panel.PROJECT)
def land(
    pipeline: Named,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A stream that the pipeline declares.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV with a header, JSON lines or Parquet.")],
) -> Answer:
    """Land rows of your own in a stream's source, each in the partition of its key, to try a pipeline on them."""
    from coset.cli import trial

    return trial.land(pipeline, stream, file)


@command(Panel.LOOK)
def rows(
    pipeline: Named,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Only this table.")] = None,
    store: StoreRoot = None,
    most: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Show at most N rows of each.")] = 10,
) -> Answer:
    """Show the first rows of the result tables."""
    from coset.cli import trial

    return trial.rows(pipeline, root_of(store), table, most)


@command(Panel.LOOK)
def show(
    pipeline: Named,
    step: Annotated[
        str | None, typer.Option("--step", help="A step, or a stream (the one that the last result table holds).")
    ] = None,
    most: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Show at most N rows.")] = 20,
    sample: Annotated[
        str,
        typer.Option("--sample", metavar="N|SHARE", help="How many of the newest records of each stream partition."),
    ] = "10000",
) -> Answer:
    """Show rows of a step, made of what has landed, while you write it. Stores nothing."""
    from coset.batches.step_rows import Sample
    from coset.cli import trial

    return trial.step(pipeline, step, Sample.parse(sample), most)


@command(Panel.LOOK)
def verify(
    pipeline: Named,
    table: Annotated[
        list[str] | None, typer.Option("--table", metavar="TABLE", help="Only this table. Repeatable.")
    ] = None,
    sample: Annotated[
        str,
        typer.Option(
            "--sample",
            metavar="PART/PARTS|next",
            help="Only the keys of one part: 3/16 is the third of sixteen; next the one of sixteen that was verified "
            "longest ago, next/32 of 32.",
        ),
    ] = "1/1",
    as_of: Annotated[
        int | None,
        typer.Option(
            "--as-of", metavar="BATCH", min=0, help="As this batch published them, over the records up to it."
        ),
    ] = None,
    store: StoreRoot = None,
) -> Answer:
    """Compute the result tables anew from all records that batches took, and compare every row. What was found of them
    as they are now is remembered, and nothing else is stored."""
    from coset.batches.verified import sample_of
    from coset.cli import verified_tables

    return verified_tables.verify(pipeline, root_of(store), table or [], sample_of(sample), as_of)


@command(Panel.PROJECT)
def takeover(
    checkpoints: Annotated[
        Path, typer.Argument(metavar="CHECKPOINTS", help="A file with what Samza's CheckpointTool printed.")
    ],
    streams: Annotated[
        list[str] | None, typer.Option("--stream", help="A stream and its partition count: views=8. Repeatable.")
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", help="Instead of --stream: a pipeline, to compare with its streams.")
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", help="The streams' system in Samza, if there are several.")
    ] = None,
) -> Answer:
    """Print where the first batch starts after a Samza job, as the table `starts` for --settings. Stores nothing."""
    from coset.cli.takeover import take_over

    return take_over(checkpoints, streams or [], pipeline, system)
