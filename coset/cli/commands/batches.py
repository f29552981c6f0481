"""Commands for batches: planned, explained, run, looked at, given up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coset.batches.runners.choice import RunnerKind, runner
from coset.cli.app import (
    AcceptLoss,
    AsJson,
    BatchNumber,
    BeginAnew,
    Docs,
    GoOn,
    Groups,
    Limit,
    Master,
    Memory,
    Named,
    RunnerOption,
    SchemeTexts,
    SettingsFile,
    StoreRoot,
    TakeAway,
    app,
    root_of,
    settings_of,
)
from coset.cli.output import Command, console, say
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind


@app.command(cls=Command)
def plan(
    pipeline: Named,
    store: StoreRoot = None,
    scheme: SchemeTexts = None,
    groups: Groups = None,
    limit: Limit = None,
    accept_loss: AcceptLoss = None,
    take_away: TakeAway = None,
    settings: SettingsFile = None,
    begin_anew: BeginAnew = None,
    go_on: GoOn = None,
    as_json: AsJson = False,
) -> None:
    """Plan the next batch and store the plan. An open batch keeps its plan."""
    from coset.cli import plans

    plans.make(
        pipeline,
        root_of(store),
        settings_of(
            scheme, groups, limit, settings, accept_loss, take_away=take_away, begin_anew=begin_anew, go_on=go_on
        ),
        as_json=as_json,
    )


@app.command(cls=Command)
def explain(
    pipeline: Named,
    store: StoreRoot = None,
    batch: BatchNumber = None,
    scheme: SchemeTexts = None,
    groups: Groups = None,
    limit: Limit = None,
    take_away: TakeAway = None,
    settings: SettingsFile = None,
    begin_anew: BeginAnew = None,
    go_on: GoOn = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw the plan to this file too, as SVG.")] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart for Markdown instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a plan: of --batch, of the open batch, or what the next plan would be. Stores nothing."""
    from coset.cli import plans

    if mermaid and as_json:
        raise Refused(
            Finding(Kind.ARGUMENT, "a plan is shown as JSON or as Mermaid", "--json, --mermaid", "choose one of them")
        )
    form = plans.Form(as_json, mermaid, svg)
    if batch is None:
        asked = settings_of(scheme, groups, limit, settings, take_away=take_away, begin_anew=begin_anew, go_on=go_on)
        plans.explain_next(pipeline, root_of(store), asked, form)
    else:
        plans.explain_batch(pipeline, root_of(store), batch, form)


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
    take_away: TakeAway = None,
    settings: SettingsFile = None,
    begin_anew: BeginAnew = None,
    go_on: GoOn = None,
    as_json: AsJson = False,
) -> None:
    """Compare two plans: what changed, which keys move, and whether results stay the same. Stores nothing."""
    from coset.cli import diff

    match plans:
        case [pipeline, old, new]:
            asked = settings_of(
                scheme, groups, limit, settings, take_away=take_away, begin_anew=begin_anew, go_on=go_on
            )
            diff.compare_batches(pipeline, old, new, root_of(store), asked, as_json=as_json)
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
    take_away: TakeAway = None,
    settings: SettingsFile = None,
    begin_anew: BeginAnew = None,
    go_on: GoOn = None,
    kind: RunnerOption = None,
    master: Master = "local[*]",
    memory: Memory = "1GB",
    docs: Docs = Path(".coset/docs"),
    until_done: Annotated[bool, typer.Option("--all", help="Run batch after batch until nothing is left.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Run a batch again whose checks failed twice in the same way.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run one batch: plan, run its task groups, audit, check, publish, report. An open batch is finished first."""
    from coset.cli import batches

    runs = runner(kind or RunnerKind.at(master), master, memory)
    options = batches.RunOptions(
        settings_of(
            scheme, groups, limit, settings, accept_loss, take_away=take_away, begin_anew=begin_anew, go_on=go_on
        ),
        runs,
        docs,
        again,
    )
    batches.run(pipeline, root_of(store), options, until_done=until_done, as_json=as_json)


@app.command("list", cls=Command)
def list_pipelines(store: StoreRoot = None, as_json: AsJson = False) -> None:
    """List the pipelines in dags/pipelines of this folder, and those that have run in the store."""
    from coset.cli.catalogue import show_pipelines

    raise typer.Exit(show_pipelines(root_of(store), as_json=as_json))


@app.command(cls=Command)
def status(pipeline: Named, store: StoreRoot = None, as_json: AsJson = False) -> None:
    """Show how far each stream partition is: committed, latest, lag; and what an open batch still needs."""
    from coset.cli.status import show_status

    raise typer.Exit(show_status(pipeline, root_of(store), as_json=as_json))


@app.command(cls=Command)
def metrics(pipeline: Named, store: StoreRoot = None) -> None:
    """Print how far each stream partition is, and what waits, as OpenMetrics text."""
    from coset.cli.metrics import show_metrics

    raise typer.Exit(show_metrics(pipeline, root_of(store)))


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
    from coset.cli.assign import show_assignment, what_if

    assignment, warning = what_if(streams, scheme, tasks)
    if warning:
        say(console(stderr=True), warning)
    show_assignment(assignment, streams, as_json=as_json)


@app.command(cls=Command)
def schemes(
    pipeline: Named,
    store: StoreRoot = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--scheme", metavar="[STAGE=]SCHEME", help="One more to compare. Repeatable."),
    ] = None,
    target_bytes: Annotated[
        int, typer.Option("--target-bytes", help="The target size of a task, in bytes read.")
    ] = 128_000_000,
    target_seconds: Annotated[
        float | None, typer.Option("--target-seconds", help="The target in seconds, once a batch has run.")
    ] = None,
    min_tasks: Annotated[int, typer.Option("--min-tasks", help="The fewest tasks to propose for a stage.")] = 1,
    max_tasks: Annotated[int, typer.Option("--max-tasks", help="The most tasks to propose for a stage.")] = 1000,
    settings: SettingsFile = None,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write the proposal to this file, for --settings.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare schemes on the real sizes, propose one, and name hot keys. Stores nothing."""
    from coset.cli import sizes
    from partitioning.sizing.proposal import Targets

    targets = Targets(bytes=target_bytes, seconds=target_seconds, min_tasks=min_tasks, max_tasks=max_tasks)
    asked = sizes.Asked(given or [], targets, write)
    sizes.schemes(pipeline, root_of(store), settings_of(None, None, None, settings), asked, as_json=as_json)


@app.command(cls=Command)
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
    as_json: AsJson = False,
) -> None:
    """Print where the first batch starts after a Samza job, as a [starts] table for --settings. Stores nothing."""
    from coset.cli.takeover import take_over

    take_over(checkpoints, streams or [], pipeline, system, as_json=as_json)


@app.command(cls=Command)
def report(
    pipeline: Named,
    store: StoreRoot = None,
    batch: BatchNumber = None,
    docs: Docs = Path(".coset/docs"),
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Instead: all attempts of the last 12h, 7d or 2w.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", dir_okay=False, help="Write it to this file too, as one page to send.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the outcome of a batch: of --batch, or of the newest; or with --since how the last days went."""
    if since is not None:
        from coset.cli import reports

        reports.show_since(pipeline, root_of(store), since, html, as_json=as_json)
        return
    from coset.cli import batches

    batches.report(pipeline, root_of(store), batch, docs, html, as_json=as_json)


@app.command(cls=Command)
def state(
    pipeline: Named,
    step: Annotated[str | None, typer.Argument(help="The step. Without it, all steps with state.")] = None,
    store: StoreRoot = None,
    batch: BatchNumber = None,
    key: Annotated[str | None, typer.Option("--key", help="Only the state of this key.")] = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", dir_okay=False, help="Write all rows to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of a step after --batch, or after the last published batch."""
    from coset.cli import state as shown

    shown.show_state(pipeline, root_of(store), step, batch, key, parquet, as_json=as_json)


@app.command(cls=Command)
def abandon(
    pipeline: Named,
    why: Annotated[str, typer.Option("--why", help="The reason, kept in the verdict.")],
    store: StoreRoot = None,
    as_json: AsJson = False,
) -> None:
    """Give up the open batch. Nothing of it is published; its records go into the next plan."""
    from coset.cli import batches

    batches.abandon(pipeline, root_of(store), why, as_json=as_json)


@app.command(cls=Command)
def replan(
    pipeline: Named,
    why: Annotated[str, typer.Option("--why", help="The reason, kept in the verdict of the batch that is given up.")],
    store: StoreRoot = None,
    scheme: SchemeTexts = None,
    groups: Groups = None,
    limit: Limit = None,
    accept_loss: AcceptLoss = None,
    take_away: TakeAway = None,
    settings: SettingsFile = None,
    begin_anew: BeginAnew = None,
    go_on: GoOn = None,
    as_json: AsJson = False,
) -> None:
    """Give up the open batch and plan its records again, with the current pipeline and input."""
    from coset.cli import batches

    asked = settings_of(
        scheme, groups, limit, settings, accept_loss, take_away=take_away, begin_anew=begin_anew, go_on=go_on
    )
    batches.replan(pipeline, root_of(store), asked, why, as_json=as_json)
