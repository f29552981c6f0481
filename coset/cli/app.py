"""The `coset` command's application, and the options that several of its commands have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from coset.batches.runners.choice import runner
from coset.batches.runners.given_settings import parsed
from coset.batches.runners.runner import RunnerKind
from coset.cli import pipelines
from coset.cli.asked import ONCE, OWN
from coset.cli.output import console, progress, say
from coset.project.coset_toml import project_of
from coset.project.pipeline_files import names
from partitioning.authoring.settings import ASKED, Asking, Settings
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
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", envvar="COSET_SETTINGS", help="A TOML file with settings. Options override it."),
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


def settings_of(settings: Path | None = None, **asked: Any) -> Settings:
    """The settings of the options and of a file, if one is named. Raises Refused, with all findings."""
    try:
        base = Settings.read(settings.read_text(encoding="utf-8"), str(settings)) if settings else None
    except (OSError, UnicodeDecodeError) as error:
        what = f"the settings cannot be read: {error}"
        raise Refused.of(Kind.LOCAL_FILE, what, str(settings), "name a TOML file", file=settings) from error
    whole = Settings.parse(**{name: said for name, said in asked.items() if said is not None}, base=base)
    for named in filter(None, (whole.scheme, *whole.schemes.values())):
        if named.kind in {SchemeKind.TASKS, SchemeKind.ELASTIC} and (named.number or 0) >= _MANY:
            progress("plan", f"{named}: to plan so many tasks takes a while, and memory")
    return whole


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options by which a command asks how to plan, by the names of what they set. The command gets a function that
    makes settings of them, and is refused only once it calls that."""

    declared: Mapping[str, Any]

    @classmethod
    def of(cls, parameter: Parameter) -> PlanOptions | None:
        """The options that a parameter of a command stands for, if it does."""
        return next((each for each in get_args(parameter.annotation) if isinstance(each, cls)), None)


def _option(name: str, asking: Asking) -> Any:
    info = typer.Option(f"--{name.replace('_', '-')}", metavar=asking.word, help=asking.help)
    return Annotated[int | None if asking.number else list[str] | None, info]


_ASKED = {name: _option(name, asking) for name, asking in ASKED.items()}
_FILE = {"settings": SettingsFile}
# How a batch is planned that may lose records, one that is only shown, and those that run again.
Planning = Annotated[Callable[[], Settings], PlanOptions(_ASKED | _FILE)]
Shown = Annotated[
    Callable[[], Settings], PlanOptions({name: _ASKED[name] for name in _ASKED if name != "accept_loss"} | _FILE)
]
Again = Annotated[
    Callable[[], Settings],
    PlanOptions({name: Annotated[_ASKED[name], OWN] for name in _ASKED if ASKED[name].of_backfills} | _FILE),
]
