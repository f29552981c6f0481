"""Commands to try a pipeline with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coset.cli.app import AsJson, Named, StoreRoot, app, root_of
from coset.cli.output import Command


@app.command(cls=Command)
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that is empty or not there yet.")],
) -> None:
    """Write a new repository with a pipeline, its DAG, its test and a file for CI, all of which work."""
    from coset.cli import starting

    starting.init(folder)


@app.command(cls=Command)
def doctor(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="Look for the streams of this pipeline too.")
    ] = None,
    store: StoreRoot = None,
    as_json: AsJson = False,
) -> None:
    """Look at versions, Java, this machine and the store, and say what is wrong and what to do."""
    from coset.cli.doctor import examine

    raise typer.Exit(examine(pipeline, root_of(store), as_json=as_json))


@app.command(cls=Command)
def land(
    pipeline: Named,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A stream that the pipeline declares.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV with a header, JSON lines or Parquet.")],
    as_json: AsJson = False,
) -> None:
    """Land rows of your own in a stream's source, each in the partition of its key, to try a pipeline on them."""
    from coset.cli import trial

    trial.land(pipeline, stream, file, as_json=as_json)


@app.command(cls=Command)
def rows(
    pipeline: Named,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Only this table.")] = None,
    store: StoreRoot = None,
    most: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Show at most N rows of each.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show the first rows of the result tables."""
    from coset.cli import trial

    trial.rows(pipeline, root_of(store), table, most, as_json=as_json)
