"""The `coset` command's application, and the options that several of its commands have."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coset.batches.runners.choice import RunnerKind, runner
from coset.batches.runners.given_settings import parsed
from coset.cli import pipelines
from coset.cli.asked import ONCE
from coset.cli.output import console, progress, say
from coset.project.coset_toml import project_of
from coset.project.pipeline_files import names
from partitioning.authoring.settings import Settings
from partitioning.documents.stores import named_root
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind
from partitioning.model.schemes import SchemeKind
from partitioning.version import VERSION

if TYPE_CHECKING:
    from coset.batches.runners.runner import Runner
    from partitioning.explain.watermarks import Period

# Planning more tasks than this is announced, because it takes a while.
_MANY = 20_000
# The default store.
USUAL_STORE = ".coset/store"
# The default master.
USUAL_MASTER = "local[*]"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"coset {VERSION}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Keyed batches over partitioned streams on Spark: planned, proved, then published."""


_PIPELINE = typer.Argument(
    metavar="PIPELINE",
    help="The name of a pipeline of the project, or a Python file that defines `pipeline`.",
    autocompletion=lambda incomplete: [name for name in _names() if name.startswith(incomplete)],
)
Named = Annotated[str, _PIPELINE]
NamedOrAll = Annotated[str | None, _PIPELINE]
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
        help="max, cogroup, elastic(F), tasks(L) or records(N), for all stages or, repeated, for one stage each "
        "(new plans only).",
    ),
]
Groups = Annotated[
    int | None, typer.Option("--groups", help="How many task groups, that is Spark jobs (2; new plans only).")
]
Limit = Annotated[
    int | None, typer.Option("--limit", help="Read at most N records of each stream partition (new plans only).")
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", envvar="COSET_SETTINGS", help="A TOML file with settings. Options override it."),
]
AcceptLoss = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-loss",
        metavar="RANGE",
        help="Accept the loss of unread offsets, as the error named them: views-0@[900,1200). Repeatable.",
    ),
]
BeginAnew = Annotated[
    list[str] | None,
    typer.Option(
        "--begin-anew",
        metavar="NAME",
        help="Start a new or changed step without its old state, or a new table, as the error named it. Repeatable.",
    ),
]
GoOn = Annotated[
    list[str] | None,
    typer.Option(
        "--go-on",
        metavar="NAME",
        help="Continue a step from its old state, or a table from its rows, as the error named it. Repeatable.",
    ),
]
TakeAway = Annotated[
    list[str] | None,
    typer.Option(
        "--take-away",
        metavar="NAME",
        help="Let the batch remove any number of rows of this table or step. Repeatable (new plans only).",
    ),
]
When = Annotated[
    str | None,
    typer.Option("--when", help="Say with which batch the rows of a day, hour or minute come: 2026-11-27T10, in UTC."),
    ONCE,
]
NewStore = Annotated[
    bool, typer.Option("--new-store", help="Begin in a store that has no batch of it, though another one has.")
]
BatchNumber = Annotated[int | None, typer.Option("--batch", help="The number of a batch."), ONCE]
Docs = Annotated[Path, typer.Option("--docs", envvar="COSET_DOCS", help="The local folder of the Data Docs.")]
RunnerOption = Annotated[
    RunnerKind | None,
    typer.Option(
        "--runner",
        envvar="COSET_RUNNER",
        help="spark: one application for the run; spark-submit: one for each task group; connect: a running Spark "
        "server; local: processes without Spark. By default --master decides, or that PySpark is not installed.",
    ),
]
Master = Annotated[
    str, typer.Option("--master", envvar="SPARK_MASTER", help="The Spark master, or a Spark server: sc://host:port.")
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        help="A setting of Spark, as spark.executor.memory=4g; counts before those of coset.toml. Repeatable.",
    ),
]
Memory = Annotated[str, typer.Option("--memory", help="How much memory each task may use before it spills.")]


def _names() -> list[str]:
    """The pipelines of the project around the working folder, for a shell to complete; none if it cannot be read."""
    try:
        return names(project_of(Path.cwd()))
    except CosetError:
        return []


def runner_of(kind: RunnerKind | None, master: str, memory: str, conf: list[str] | None) -> Runner:
    """The runner of the options, which says on stderr what it waits for. Raises Refused if they do not go together."""

    def tell(group: int, sentence: str) -> None:
        progress(f"run group {group}", sentence)

    return runner(kind or _usual(master), master, memory, parsed(conf or (), "--conf"), tell)


def _usual(master: str) -> RunnerKind:
    """The runner where none is named: Spark's, or where neither a master is named nor PySpark is installed, the one
    that needs none, which is announced."""
    if master == USUAL_MASTER and find_spec("pyspark") is None:
        told = f"PySpark is not installed, and no --runner or --master is given: the runner is {RunnerKind.LOCAL}"
        say(console(stderr=True), told)
        return RunnerKind.LOCAL
    return RunnerKind.at(master)


def one_of(named: str | None, *, every: bool) -> str | None:
    """The pipeline that is named, or None if all are meant. Raises Refused if it is neither."""
    if named is None and not every:
        then = "name one, or give `--all` for all of the project"
        raise Refused.of(Kind.ARGUMENT, "no pipeline is named", "PIPELINE", then)
    return named


def root_of(store: str | None) -> str:
    """The store's root: the named one, else a folder of the working folder, which is announced."""
    if not store:
        store = USUAL_STORE
        say(console(stderr=True), f"No --store is given and COSET_STORE is not set: the store is the folder {store}")
    return pipelines.in_store(named_root(store))


def when_of(text: str | None) -> Period | None:
    """The time of --when. Raises Refused for what is none."""
    from partitioning.explain.watermarks import Period  # noqa: PLC0415

    try:
        return None if text is None else Period.parse(text)
    except ValueError:
        then = "give a day, an hour or a minute: 2026-11-27, 2026-11-27T10, 2026-11-27T10:30"
        raise Refused.of(Kind.ARGUMENT, f"{text!r} is no time", "--when", then, when=text) from None


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
    """The settings of the options and of a file, if one is named. Raises Refused, with all findings."""
    try:
        base = Settings.read(file.read_text(encoding="utf-8"), str(file)) if file else None
    except (OSError, UnicodeDecodeError) as error:
        what = f"the settings cannot be read: {error}"
        raise Refused.of(Kind.LOCAL_FILE, what, str(file), "name a TOML file", file=file) from error
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
