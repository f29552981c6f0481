"""Commands for batches: planned, explained, run, looked at, given up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coset.cli.app import (
    USUAL_MASTER,
    BatchNumber,
    Docs,
    Master,
    Memory,
    Named,
    NamedOrAll,
    NewStore,
    Planning,
    RunnerOption,
    SettingsFile,
    Shown,
    SparkConf,
    StoreRoot,
    When,
    one_of,
    root_of,
    runner_of,
    settings_of,
    when_of,
)
from coset.cli.asked import ONCE
from coset.cli.command import Panel, always, command, gives_up
from coset.cli.output import Answer
from partitioning.errors import Refused
from partitioning.kinds import Kind


@command(Panel.RUN, final=gives_up)
def plan(
    pipeline: Named,
    store: StoreRoot = None,
    settings: Planning = settings_of,
    new_store: NewStore = False,
) -> Answer:
    """Plan the next batch and store the plan. An open batch keeps its plan."""
    from coset.cli import plans

    return plans.make(
        pipeline,
        root_of(store),
        settings(),
        new_store=new_store,
    )


@command(Panel.LOOK)
def explain(
    pipeline: Named,
    store: StoreRoot = None,
    batch: BatchNumber = None,
    settings: Shown = settings_of,
    when: When = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw the plan to this file too, as SVG."), ONCE] = None,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print a Mermaid flowchart for Markdown instead."), ONCE
    ] = False,
    query: Annotated[
        str | None,
        typer.Option("--query", metavar="TABLE", help="Print the query that this result table is, for DuckDB."),
        ONCE,
    ] = None,
) -> Answer:
    """Show a plan: of --batch, of the open batch, or what the next plan would be. Stores nothing."""
    from coset.cli import plans

    if query is not None:
        return plans.query(pipeline, root_of(store), query, batch)
    form = plans.Form(mermaid, svg, when_of(when))
    if batch is None:
        asked = settings()
        return plans.explain_next(pipeline, root_of(store), asked, form)
    return plans.explain_batch(pipeline, root_of(store), batch, form)


@command(Panel.LOOK)
def diff(
    plans: Annotated[
        list[str],
        typer.Argument(
            metavar="[PIPELINE] OLD NEW",
            help="Two batches of a pipeline, NEW or `next` for what would be planned now; or two plans by file or URI.",
        ),
    ],
    store: StoreRoot = None,
    settings: Shown = settings_of,
) -> Answer:
    """Compare two plans: what changed, which keys move, and whether results stay the same. Stores nothing."""
    from coset.cli.plans import compare_batches, compare_files, misused

    match plans:
        case [pipeline, old, new]:
            asked = settings()
            return compare_batches(pipeline, old, new, root_of(store), asked)
        case [old, new]:
            return compare_files(old, new)
        case _:
            raise misused(plans)


@command(Panel.RUN, final=gives_up)
def run(
    pipeline: NamedOrAll = None,
    store: StoreRoot = None,
    settings: Planning = settings_of,
    kind: RunnerOption = None,
    master: Master = USUAL_MASTER,
    memory: Memory = "1GB",
    conf: SparkConf = None,
    docs: Docs = Path(".coset/docs"),
    until_done: Annotated[
        bool,
        typer.Option(
            "--all", help="Run batch after batch until nothing is left; without PIPELINE, of all of the project."
        ),
    ] = False,
    new_store: NewStore = False,
    again: Annotated[
        bool, typer.Option("--again", help="Run a batch again whose checks failed twice in the same way.")
    ] = False,
) -> Answer:
    """Run one batch: plan, run its task groups, audit, check, publish, report. An open batch is finished first."""
    from coset.cli import batches

    runs = runner_of(kind, master, memory, conf)
    options = batches.RunOptions(
        settings(),
        runs,
        docs,
        again,
        new_store,
    )
    one = one_of(pipeline, every=until_done)
    if one is None:
        return batches.run_all(root_of(store), options)
    return batches.run(one, root_of(store), options, until_done=until_done)


@command(Panel.LOOK, "list")
def list_pipelines(store: StoreRoot = None) -> Answer:
    """List the pipelines of the project, and those that have run in the store."""
    from coset.cli.catalogue import listed

    return listed(root_of(store))


@command(Panel.LOOK)
def status(
    pipeline: NamedOrAll = None,
    store: StoreRoot = None,
    every: Annotated[bool, typer.Option("--all", help="Show all pipelines of the project.")] = False,
    when: When = None,
) -> Answer:
    """Show how far each stream partition is: committed, latest, lag; what an open batch still needs; and up to which
    event time rows were given."""
    from coset.cli import status

    one = one_of(pipeline, every=every)
    if one is None:
        return status.all_standing(root_of(store), when_of(when))
    return status.standing(one, root_of(store), when_of(when))


@command(Panel.LOOK)
def metrics(pipeline: Named, store: StoreRoot = None) -> Answer:
    """Print how far each stream partition is, and what waits, as OpenMetrics text."""
    from coset.cli.metrics import printed

    return printed(pipeline, root_of(store))


@command(Panel.LOOK)
def assign(
    streams: Annotated[list[str], typer.Option("--stream", help="A stream and its partition count: views=8.")],
    scheme: Annotated[
        str | None, typer.Option("--scheme", help="max, cogroup (if none is named), elastic(F) or tasks(L).")
    ] = None,
    tasks: Annotated[int | None, typer.Option("--tasks", help="The same as --scheme 'tasks(L)'.")] = None,
) -> Answer:
    """Show which task would read which stream partitions. Needs no data and no store."""
    from coset.cli.assign import dealt

    return dealt(streams, scheme, tasks)


@command(Panel.LOOK)
def schemes(
    pipeline: Named,
    store: StoreRoot = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--scheme", metavar="[STAGE=]SCHEME", help="One more to compare. Repeatable."),
        ONCE,
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
        Path | None, typer.Option("--write", help="Write the proposal to this file, for --settings."), ONCE
    ] = None,
) -> Answer:
    """Compare schemes on the real sizes, propose one, and name hot keys. Stores nothing."""
    from coset.cli import sizes
    from partitioning.sizing.proposal import Targets

    targets = Targets(bytes=target_bytes, seconds=target_seconds, min_tasks=min_tasks, max_tasks=max_tasks)
    by = settings_of(settings)
    return sizes.schemes(pipeline, root_of(store), by, given or [], targets, write)


@command(Panel.LOOK)
def report(
    pipeline: Named,
    store: StoreRoot = None,
    batch: BatchNumber = None,
    docs: Docs = Path(".coset/docs"),
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Instead: all attempts of the last 12h, 7d or 2w."),
        ONCE,
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", dir_okay=False, help="Write it to this file too, as one page to send."),
        ONCE,
    ] = None,
) -> Answer:
    """Show the outcome of a batch: of --batch, or of the newest; or with --since how the last days went."""
    if since is not None and batch is not None:
        what, where = "--since is about all attempts, and --batch about one batch", "--batch, --since"
        raise Refused.of(Kind.ARGUMENT, what, where, "give one of them", options=where)
    if since is not None:
        from coset.cli import reports

        return reports.since(pipeline, root_of(store), since, html)
    from coset.cli import batches

    return batches.report(pipeline, root_of(store), batch, docs, html)


@command(Panel.LOOK)
def records(
    pipeline: Named,
    batch: BatchNumber = None,
    store: StoreRoot = None,
    of_offenders: Annotated[
        bool,
        typer.Option("--offenders", help="Only those that do not meet an expectation, with the rows made of them."),
        ONCE,
    ] = False,
    aside: Annotated[
        bool,
        typer.Option("--set-aside", help="Only those that cannot be used and were set aside, with the reason."),
        ONCE,
    ] = False,
    expectation: Annotated[
        str | None, typer.Option("--expectation", metavar="NAME", help="Only offenders of this: expect_…"), ONCE
    ] = None,
    stream: Annotated[str | None, typer.Option("--stream", help="Only records of this stream."), ONCE] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only records of this key."), ONCE] = None,
    most: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Show at most N records of each."), ONCE] = 20,
    sql: Annotated[bool, typer.Option("--sql", help="Print SQL for DuckDB that selects the same."), ONCE] = False,
) -> Answer:
    """Show records that a batch read, of --batch or of the newest, with file, partition and offset. Stores nothing."""
    if expectation is not None and not of_offenders:
        what, where = "these options do not say what to show", "--expectation"
        raise Refused.of(Kind.ARGUMENT, what, where, "add --offenders", options=where)
    if aside and (of_offenders or key is not None or sql):
        what, then = "--set-aside goes with --batch, --stream and --limit only", "leave the others out"
        raise Refused.of(Kind.ARGUMENT, what, "--set-aside", then, options="--set-aside")
    from coset.batches.offenders import Asked
    from coset.cli import found_records

    asked = Asked(most, expectation, stream, key)
    if aside:
        return found_records.set_aside(pipeline, root_of(store), batch, asked)
    found = found_records.offending if of_offenders else found_records.read
    return found(pipeline, root_of(store), batch, asked, sql=sql)


@command(Panel.LOOK)
def state(
    pipeline: Named,
    step: Annotated[str | None, typer.Argument(help="The step. Without it, all steps with state.")] = None,
    store: StoreRoot = None,
    batch: BatchNumber = None,
    key: Annotated[str | None, typer.Option("--key", help="Only the state of this key."), ONCE] = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", dir_okay=False, help="Write all rows to this file."), ONCE
    ] = None,
) -> Answer:
    """Show the state of a step after --batch, or after the last published batch."""
    from coset.cli import state as kept

    return kept.kept(pipeline, root_of(store), step, batch, key, parquet)


@command(Panel.RUN, final=always)
def abandon(
    pipeline: Named,
    why: Annotated[str, typer.Option("--why", help="The reason, kept in the verdict.")],
    store: StoreRoot = None,
    docs: Docs = Path(".coset/docs"),
) -> Answer:
    """Give up the open batch. Nothing of it is published; its records go into the next plan."""
    from coset.cli import batches

    return batches.abandon(pipeline, root_of(store), why, docs)


@command(Panel.RUN, final=always)
def replan(
    pipeline: Named,
    why: Annotated[str, typer.Option("--why", help="The reason, kept in the verdict of the batch that is given up.")],
    store: StoreRoot = None,
    docs: Docs = Path(".coset/docs"),
    settings: Planning = settings_of,
) -> Answer:
    """Give up the open batch and plan its records again, with the current pipeline and input."""
    from coset.cli import batches

    asked = settings()
    return batches.replan(pipeline, root_of(store), asked, why, docs)
