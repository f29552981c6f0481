"""The `coset` command's application, and the options that several of its commands have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from coset.batches.runners.choice import RunnerKind
from coset.cli.output import console, progress, say
from partitioning.authoring.settings import Settings
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.schemes import SchemeKind
from partitioning.model.sources import address_of
from partitioning.version import VERSION

# Of more tasks than these it is said, before they are planned, that it takes a while.
_MANY = 20_000
# Where plans and tables lie if nobody says it.
_USUAL_STORE = ".coset/store"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"coset {VERSION}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Keyed batches over partitioned streams on Spark: planned, proved, then published."""


Named = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="A Python file that defines `pipeline`, or a name in dags/pipelines.")
]
StoreRoot = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="COSET_STORE",
        help="Where plans and tables lie: s3://bucket/prefix, or a folder (.coset/store).",
    ),
]
SchemeTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--scheme",
        metavar="[STAGE=]SCHEME",
        help="max, cogroup, elastic(F), tasks(L) or records(N), for all stages or, repeated, for one each; "
        "for a new plan only.",
    ),
]
Groups = Annotated[
    int | None, typer.Option("--groups", help="How many task groups, that is Spark jobs (2); for a new plan only.")
]
Limit = Annotated[
    int | None, typer.Option("--limit", help="At most so many records of each stream partition; for a new plan only.")
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", envvar="COSET_SETTINGS", help="A TOML file with settings; options go over it."),
]
AcceptLoss = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-loss",
        metavar="RANGE",
        help="Offsets that are gone unread, as the error named them: views-0@[900,1200); may be given more than once.",
    ),
]
BeginAnew = Annotated[
    list[str] | None,
    typer.Option(
        "--begin-anew",
        metavar="STEP",
        help="A new or changed step that is to begin with nothing, as the error named it; may be given more than once.",
    ),
]
GoOn = Annotated[
    list[str] | None,
    typer.Option(
        "--go-on",
        metavar="STEP",
        help="A step that is to go on from what it kept, though what comes before it changed; may be given more than "
        "once.",
    ),
]
TakeAway = Annotated[
    list[str] | None,
    typer.Option(
        "--take-away",
        metavar="NAME",
        help="A table or step of which the batch may take away any number of rows; may be given more than once; "
        "for a new plan only.",
    ),
]
BatchNumber = Annotated[int | None, typer.Option("--batch", help="The number of a batch.")]
Docs = Annotated[Path, typer.Option("--docs", envvar="COSET_DOCS", help="The local folder of the Data Docs.")]
RunnerOption = Annotated[
    RunnerKind | None,
    typer.Option(
        "--runner",
        help="spark: one application of the run's own; spark-submit: one for each task group; connect: a Spark "
        "server that runs already; local: processes without Spark. If not given, --master says it.",
    ),
]
Master = Annotated[
    str, typer.Option("--master", envvar="SPARK_MASTER", help="The Spark master, or a Spark server: sc://host:port.")
]
Memory = Annotated[str, typer.Option("--memory", help="What each task may use before it spills.")]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def root_of(store: str | None) -> str:
    """The store's root: the one that is named, or else a folder of the working folder, which is said."""
    if not store:
        store = _USUAL_STORE
        say(console(stderr=True), f"No --store is given and COSET_STORE is not set: the store is the folder {store}")
    # What has a colon in its first part was meant as an address, even if it is none.
    return store if ":" in store.partition("/")[0] else address_of(os.path.abspath(store))


def settings_of(
    scheme: list[str] | None,
    groups: int | None,
    limit: int | None,
    file: Path | None,
    accept_loss: list[str] | None = None,
    *,
    take_away: list[str] | None = None,
    begin_anew: list[str] | None = None,
    go_on: list[str] | None = None,
) -> Settings:
    """The settings of a file, if there is one, and of what else was said. Raises Refused, with all findings."""
    try:
        base = Settings.read(file.read_text(encoding="utf-8"), str(file)) if file else None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(
            Finding(
                Kind.LOCAL_FILE,
                f"the settings cannot be read: {error}",
                str(file),
                "name a TOML file",
                about(file=file),
            )
        ) from error
    settings = Settings.parse(
        scheme=scheme,
        groups=groups,
        limit=limit,
        accept_loss=accept_loss or (),
        take_away=take_away or (),
        begin_anew=begin_anew or (),
        go_on=go_on or (),
        base=base,
    )
    for named in filter(None, (settings.scheme, *settings.schemes.values())):
        if named.kind in {SchemeKind.TASKS, SchemeKind.ELASTIC} and (named.number or 0) >= _MANY:
            progress("plan", f"{named}: to plan so many tasks takes a while, and memory")
    return settings
