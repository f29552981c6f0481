"""The `coset` command: from plans to published batches, and what is around them; `--help` lists it."""

from __future__ import annotations

import gc
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from batches.runners.choice import RunnerKind, runner
from cli.output import Command, console
from partitioning.authoring.settings import Settings
from partitioning.errors import Finding, Refused

app = typer.Typer(
    help="Keyed batches over partitioned streams on Spark: planned, proved, then published.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,
)

Named = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="A Python file that defines `pipeline`, or a name in dags/pipelines.")
]
StoreRoot = Annotated[
    str | None, typer.Option("--store", envvar="COSET_STORE", help="Where plans and tables lie: s3://bucket/prefix.")
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


class Input(StrEnum):
    """Of which landed files a backfill runs its batches: those that they have read, or those that there are now."""

    PLANNED = "planned"
    REPAIRED = "repaired"


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@app.command(cls=Command)
def plan(
    pipeline: Named,
    store: StoreRoot = None,
    scheme: SchemeTexts = None,
    groups: Groups = None,
    limit: Limit = None,
    accept_loss: AcceptLoss = None,
    settings: SettingsFile = None,
    as_json: AsJson = False,
) -> None:
    """Plan the next batch and store the plan; an open batch keeps the plan that it has."""
    from cli import plans

    plans.make(pipeline, _root(store), _settings(scheme, groups, limit, settings, accept_loss), as_json=as_json)


@app.command(cls=Command)
def explain(
    pipeline: Named,
    store: StoreRoot = None,
    batch: BatchNumber = None,
    scheme: SchemeTexts = None,
    groups: Groups = None,
    limit: Limit = None,
    settings: SettingsFile = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw the plan to this file too, as SVG.")] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart for Markdown instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a plan: of --batch, of the open batch, or what the next plan would be. Stores nothing."""
    from cli import plans

    if mermaid and as_json:
        raise Refused(Finding("a plan is shown as JSON or as Mermaid", "--json, --mermaid", "choose one of them"))
    form = plans.Form(as_json, mermaid, svg)
    if batch is None:
        plans.explain_next(pipeline, _root(store), _settings(scheme, groups, limit, settings), form)
    else:
        plans.explain_batch(pipeline, _root(store), batch, form)


@app.command(cls=Command)
def diff(
    plans: Annotated[
        list[str],
        typer.Argument(
            metavar="[PIPELINE] OLD NEW",
            help="Two batches of a pipeline, NEW or `next` for what would be planned now; or two plans by file or URI.",
        ),
    ],
    store: StoreRoot = None,
    scheme: SchemeTexts = None,
    groups: Groups = None,
    limit: Limit = None,
    settings: SettingsFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare two plans: what changed, which keys change hands, and whether results stay the same. Stores nothing."""
    from cli import diff

    match plans:
        case [pipeline, old, new]:
            asked = _settings(scheme, groups, limit, settings)
            diff.compare_batches(pipeline, old, new, _root(store), asked, as_json=as_json)
        case [old, new]:
            diff.compare_files(old, new, as_json=as_json)
        case _:
            raise diff.misused(plans)


@app.command(cls=Command)
def run(
    pipeline: Named,
    store: StoreRoot = None,
    scheme: SchemeTexts = None,
    groups: Groups = None,
    limit: Limit = None,
    accept_loss: AcceptLoss = None,
    settings: SettingsFile = None,
    kind: RunnerOption = None,
    master: Master = "local[*]",
    memory: Memory = "1GB",
    docs: Docs = Path(".coset/docs"),
    until_done: Annotated[bool, typer.Option("--all", help="Batch after batch, until nothing is left.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also a batch that waits, because its checks failed twice in the same way.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run one batch: plan, run its task groups, audit, check, publish, report. An open batch is finished first."""
    from cli import batches

    runs = runner(kind or RunnerKind.at(master), master, memory)
    options = batches.RunOptions(_settings(scheme, groups, limit, settings, accept_loss), runs, docs, again)
    batches.run(pipeline, _root(store), options, until_done=until_done, as_json=as_json)


@app.command(cls=Command)
def status(pipeline: Named, store: StoreRoot = None, as_json: AsJson = False) -> None:
    """Show how far each stream partition is: committed, latest, lag; and what an open batch still needs."""
    from cli.status import show_status

    raise typer.Exit(show_status(pipeline, _root(store), as_json=as_json))


@app.command(cls=Command)
def metrics(pipeline: Named, store: StoreRoot = None) -> None:
    """Print how far each stream partition is, and what waits, as OpenMetrics text."""
    from cli.metrics import show_metrics

    raise typer.Exit(show_metrics(pipeline, _root(store)))


@app.command(cls=Command)
def assign(
    streams: Annotated[list[str], typer.Option("--stream", help="A stream and its partition count: views=8.")],
    scheme: Annotated[
        str | None, typer.Option("--scheme", help="max, cogroup (if none is named), elastic(F) or tasks(L).")
    ] = None,
    tasks: Annotated[int | None, typer.Option("--tasks", help="The same as --scheme 'tasks(L)'.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show which task would read which stream partitions. Needs no data and no store."""
    from cli.assign import show_assignment, what_if

    assignment, warning = what_if(streams, scheme, tasks)
    if warning:
        console(stderr=True).print(warning, markup=False)
    show_assignment(assignment, streams, as_json=as_json)


@app.command(cls=Command)
def schemes(
    pipeline: Named,
    store: StoreRoot = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--scheme", metavar="[STAGE=]SCHEME", help="One more to compare; may be given more than once."),
    ] = None,
    target_bytes: Annotated[
        int, typer.Option("--target-bytes", help="The work that a task should have, in bytes read.")
    ] = 128_000_000,
    target_seconds: Annotated[
        float | None, typer.Option("--target-seconds", help="The same in seconds, once a batch has shown its pace.")
    ] = None,
    min_tasks: Annotated[int, typer.Option("--min-tasks", help="The fewest tasks to propose for a stage.")] = 1,
    max_tasks: Annotated[int, typer.Option("--max-tasks", help="The most tasks to propose for a stage.")] = 1000,
    settings: SettingsFile = None,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write what is proposed to this file, for --settings to read.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare schemes on the real sizes, propose one, and name hot keys. Stores nothing."""
    from cli import sizes
    from partitioning.sizing.proposal import Targets

    targets = Targets(bytes=target_bytes, seconds=target_seconds, min_tasks=min_tasks, max_tasks=max_tasks)
    asked = sizes.Asked(given or [], targets, write)
    sizes.schemes(pipeline, _root(store), _settings(None, None, None, settings), asked, as_json=as_json)


@app.command(cls=Command)
def takeover(
    checkpoints: Annotated[
        Path, typer.Argument(metavar="CHECKPOINTS", help="A file with what Samza's CheckpointTool printed.")
    ],
    streams: Annotated[
        list[str] | None, typer.Option("--stream", help="A stream and its partition count: views=8. For each.")
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", help="Instead: a pipeline, whose streams are held against them.")
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", help="The streams' system in Samza, if it has more.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print where the first batch starts after a Samza job, as a [starts] table for --settings. Stores nothing."""
    from cli.takeover import take_over

    take_over(checkpoints, streams or [], pipeline, system, as_json=as_json)


@app.command(cls=Command)
def report(
    pipeline: Named,
    store: StoreRoot = None,
    batch: BatchNumber = None,
    docs: Docs = Path(".coset/docs"),
    as_json: AsJson = False,
) -> None:
    """Show what became of a batch: of --batch, or of the newest."""
    from cli import batches

    batches.report(pipeline, _root(store), batch, docs, as_json=as_json)


@app.command(cls=Command)
def state(
    pipeline: Named,
    step: Annotated[str | None, typer.Argument(help="The step; without it, all that keep something.")] = None,
    store: StoreRoot = None,
    batch: BatchNumber = None,
    key: Annotated[str | None, typer.Option("--key", help="Only what is kept of this key.")] = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", dir_okay=False, help="Write all rows to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a step keeps from batch to batch: as --batch left it, or the last published one."""
    from cli import state as shown

    shown.show_state(pipeline, _root(store), step, batch, key, parquet, as_json=as_json)


@app.command(cls=Command)
def abandon(
    pipeline: Named,
    why: Annotated[str, typer.Option("--why", help="The reason, kept in the verdict.")],
    store: StoreRoot = None,
    as_json: AsJson = False,
) -> None:
    """Give up the open batch: nothing of it is published, its records belong to the next plan."""
    from cli import batches

    batches.abandon(pipeline, _root(store), why, as_json=as_json)


@app.command(cls=Command)
def replan(
    pipeline: Named,
    why: Annotated[str, typer.Option("--why", help="The reason, kept in the verdict of the batch that is given up.")],
    store: StoreRoot = None,
    scheme: SchemeTexts = None,
    groups: Groups = None,
    limit: Limit = None,
    settings: SettingsFile = None,
    as_json: AsJson = False,
) -> None:
    """Give up the open batch and plan its records again, as the pipeline and its input are now."""
    from cli import batches

    asked = _settings(scheme, groups, limit, settings)
    batches.replan(pipeline, _root(store), asked, why, as_json=as_json)


@app.command(cls=Command)
def backfill(
    pipeline: Named,
    first: Annotated[int | None, typer.Option("--from", min=0, help="The first batch to run again.")] = None,
    last: Annotated[int | None, typer.Option("--to", min=0, help="The last one; that alone, if not given.")] = None,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="All later ones too: they go on from what earlier ones keep.")
    ] = False,
    store: StoreRoot = None,
    scheme: SchemeTexts = None,
    groups: Groups = None,
    settings: SettingsFile = None,
    given: Annotated[
        Input,
        typer.Option("--input", help="repaired: of the files that hold the offsets now, not of those that were read."),
    ] = Input.PLANNED,
    why: Annotated[str, typer.Option("--why", help="The reason, kept with the backfill.")] = "",
    at_once: Annotated[
        int | None, typer.Option("--groups-at-once", min=1, help="At most so many task groups at once.")
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            "--window", metavar="HOURS", help="When task groups may start: 22:00-06:00 Europe/Berlin, or UTC."
        ),
    ] = None,
    live: Annotated[
        int, typer.Option("--wait-for-live", min=0, help="Wait at most so many minutes for a live batch that is open.")
    ] = 30,
    pause: Annotated[int | None, typer.Option("--pause", help="Let the backfill of this number start no more.")] = None,
    resume: Annotated[int | None, typer.Option("--resume", help="Go on with the backfill of this number.")] = None,
    cancel: Annotated[
        int | None, typer.Option("--cancel", help="Give the backfill of this number up, and remove its files.")
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only say what would be run. Stores nothing.")] = False,
    kind: RunnerOption = None,
    master: Master = "local[*]",
    memory: Memory = "1GB",
    docs: Docs = Path(".coset/docs"),
    as_json: AsJson = False,
) -> None:
    """Run published batches again beside what is published, compare, and put the rows in place if they are the same."""
    from batches.backfills.hours import Hours
    from cli import backfills

    if sum(number is not None for number in (first, pause, resume, cancel)) != 1:
        where = "--from, --pause, --resume, --cancel"
        raise Refused(Finding("it is not said what to do with which backfill", where, "give one of them"))
    root = _root(store)
    if pause is not None:
        backfills.pause(pipeline, root, pause, why, as_json=as_json)
        return
    if cancel is not None:
        backfills.cancel(pipeline, root, cancel, why, as_json=as_json)
        return
    limits = backfills.Limits(at_once, Hours.parse(window) if window else None, live)
    runs = runner(kind or RunnerKind.at(master), master, memory)
    if resume is not None:
        backfills.resume(pipeline, root, resume, limits, runs, docs, as_json=as_json)
    if first is not None:
        to = None if cascade else first if last is None else last
        asked = backfills.Asked(first, to, _settings(scheme, groups, None, settings), why, given is Input.REPAIRED)
        if preview:
            backfills.preview(pipeline, root, asked, as_json=as_json)
        else:
            backfills.begin(pipeline, root, asked, limits, runs, docs, as_json=as_json)


@app.command(cls=Command)
def backfills(
    pipeline: Named,
    store: StoreRoot = None,
    number: Annotated[int | None, typer.Option("--number", help="One backfill, and its comparison.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the backfills and which of them readers see; or show the comparison of one."""
    from cli import backfills

    backfills.listed(pipeline, _root(store), number, as_json=as_json)


@app.command(cls=Command)
def swap(
    pipeline: Named,
    number: Annotated[int, typer.Argument(help="The number of the backfill.")],
    approve: Annotated[str, typer.Option("--approve", help="The digest of the comparison that was looked at.")],
    store: StoreRoot = None,
    why: Annotated[str, typer.Option("--why", help="The reason, kept with the swap.")] = "",
    as_json: AsJson = False,
) -> None:
    """Put the rows of a backfill in the place of those that readers see: one commit for each table."""
    from cli import backfills

    backfills.swap(pipeline, _root(store), number, approve, why, as_json=as_json)


@app.command(cls=Command)
def undo(
    pipeline: Named,
    number: Annotated[int, typer.Argument(help="The number of the backfill.")],
    store: StoreRoot = None,
    why: Annotated[str, typer.Option("--why", help="The reason, kept with the swap.")] = "",
    as_json: AsJson = False,
) -> None:
    """Take a backfill back: readers see the rows that there were before it."""
    from cli import backfills

    backfills.undo(pipeline, _root(store), number, why, as_json=as_json)


@app.command(cls=Command)
def gaps(pipeline: Named, store: StoreRoot = None, as_json: AsJson = False) -> None:
    """Name the offsets that no published batch holds, and the command that takes them."""
    from cli import backfills

    backfills.gaps(pipeline, _root(store), as_json=as_json)


@app.command(cls=Command)
def clean(
    pipeline: Named,
    store: StoreRoot = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove the files of decided batches that no verdict names: of runs that were cut off, or came second."""
    from cli import batches

    batches.clean(pipeline, _root(store), dry_run=dry_run, as_json=as_json)


@app.command(cls=Command)
def compact(
    pipeline: Named,
    store: StoreRoot = None,
    keep_days: Annotated[
        int, typer.Option("--keep-days", min=1, help="What tables were in so many days can still be read.")
    ] = 7,
    across: Annotated[
        bool,
        typer.Option("--across-batches", help="Files of several batches too: no backfill can exchange these then."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put small files of the result tables together, and remove those that no version of the last days has."""
    from cli import batches

    batches.compact(pipeline, _root(store), keep_days, across=across, as_json=as_json)


@app.command(cls=Command)
def demo(
    home: Annotated[
        Path, typer.Option("--home", envvar="COSET_HOME", help="The folder that everything is kept in.")
    ] = Path(".coset"),
) -> None:
    """Run the main job on real flights: an S3 server, three arrivals, three batches through Airflow and Spark."""
    from demo import demo

    demo.run(home)


@app.command(cls=Command)
def serve(
    home: Annotated[
        Path, typer.Option("--home", envvar="COSET_HOME", help="The folder that everything is kept in.")
    ] = Path(".coset"),
    airflow: Annotated[bool, typer.Option("--airflow", help="Airflow's scheduler and web page too.")] = False,
) -> None:
    """Keep the demo's S3 server and a Spark server running, to look around and to run pipelines; Ctrl-C ends them."""
    from demo import demo

    demo.serve(home, airflow=airflow)


def _root(store: str | None) -> str:
    if not store:
        raise Refused(Finding("no store is named", "--store", "give --store s3://bucket/prefix, or set COSET_STORE"))
    return store


def _settings(
    scheme: list[str] | None,
    groups: int | None,
    limit: int | None,
    file: Path | None,
    accept_loss: list[str] | None = None,
) -> Settings:
    try:
        base = Settings.read(file.read_text(encoding="utf-8"), str(file)) if file else None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(Finding(f"the settings cannot be read: {error}", str(file), "name a TOML file")) from error
    return Settings.parse(scheme=scheme, groups=groups, limit=limit, accept_loss=accept_loss or (), base=base)


def main() -> None:
    """The entry point of the `coset` command."""
    # Importing makes many objects that stay: to look for garbage among them, at Python's usual pace, takes a second.
    gc.set_threshold(50_000, 20, 100)
    # So that a terminated command, too, ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    app()


if __name__ == "__main__":
    main()
