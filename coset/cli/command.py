"""Commands: each returns an answer, is about an environment, and says in the same way what it refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from coset.cli import pipelines
from coset.cli.app import PlanOptions, app, settings_of
from coset.cli.asked import ONCE, Asked, declare
from coset.cli.machine import check_open_files, not_installed
from coset.cli.output import Answer, OutputForm, answer, console, printed, say, show_error
from coset.project.coset_toml import project_of
from coset.project.here import NOWHERE, Here, entered
from coset.project.project import FILE
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind
from partitioning.texts import ENVIRONMENT


class Panel(StrEnum):
    """The groups in which the help lists commands."""

    RUN = "Run"
    LOOK = "Look"
    BACKFILL = "Backfill"
    UPKEEP = "Upkeep"
    PROJECT = "Project"


def _enter(ctx: typer.Context, named: str | None) -> str | None:
    """Enter the project around the working folder and its environment, before other options look for their variables;
    why there is none is told by the command."""
    try:
        ctx.meta[_HERE] = here = ctx.with_resource(entered(Path.cwd(), named))
        # Nobody needs to be told of the environment that is meant if none is named.
        ctx.meta[_SAID] = here.variables | ({} if named else {ENVIRONMENT: here.name})
    except CosetError as error:
        ctx.meta[_HERE] = error
    return named


def _environments(incomplete: str) -> list[str]:
    """The project's environments that begin so, for the shell, which is told of no error."""
    with suppress(CosetError):
        return [name for name in project_of(Path.cwd()).environments if name.startswith(incomplete)]
    return []


# What is asked of commands in the same way.
_COMMON = {
    "env": Annotated[
        str | None,
        typer.Option(
            "--env",
            envvar=ENVIRONMENT,
            callback=_enter,
            is_eager=True,
            autocompletion=_environments,
            help="The environment of coset.toml.",
        ),
    ],
    "yes": Annotated[bool, typer.Option("--yes", help="In production: do not ask, go on."), ONCE],
    "as_json": Annotated[bool, typer.Option("--json", help="Print JSON for programs."), ONCE],
    "wide": Annotated[bool, typer.Option("--wide", help="Wrap no table, however wide it is."), ONCE],
}
# Where a command's context has the project and environment that it is about, and what that says of variables.
_HERE, _SAID = "coset.here", "coset.said"

Given = Mapping[str, Any]
# Whether what a command was given means that what it does cannot be undone.
Final = Callable[[Given], bool]


def always(_: Given) -> bool:
    """It never can be undone."""
    return True


def gives_up(given: Given) -> bool:
    """Something is asked for by which records, state or rows are lost for good."""
    return any(given.get(option) for option in ("accept_loss", "begin_anew", "take_away"))


Does = Callable[..., Answer | None]


def command(panel: Panel, name: str | None = None, *, final: Final | None = None) -> Callable[[Does], Does]:
    """A command of a group: the function's options and help are the command's, and its answer is printed in the form
    that is asked for. Refusals are told on stderr, and by the exit code.

    `final` says of what it is given whether what it does cannot be undone: then production is asked about.
    """

    def register(does: Does) -> Does:
        signed = signature(does, eval_str=True)
        plans = {name: found for name, each in signed.parameters.items() if (found := PlanOptions.of(each))}
        planned = partial(_with_settings, does, plans)
        known = signed.replace(parameters=[each for one in signed.parameters.values() for each in _spread(one)])
        common = tuple(_common(known, asks=final is not None))
        context = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)
        whole = known.replace(parameters=[*known.parameters.values(), *common, context])
        verb = name or does.__name__
        declare(verb, whole)

        @wraps(does)
        def called(ctx: typer.Context, **given: Any) -> None:
            asked = {each.name: given.pop(each.name) for each in common}
            entered = ctx.meta.get(_HERE, NOWHERE)
            here = entered if isinstance(entered, Here) else NOWHERE
            form = OutputForm(asked.get("as_json", False), asked.get("wide", False), here.name)
            with printed(form), pipelines.called(here, Asked.of(verb, ctx, ctx.meta.get(_SAID, {}))):
                raise typer.Exit(_answered(partial(_done, planned, given, asked, final, entered)))

        called.__signature__ = whole  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in whole.parameters.values()}
        app.command(name, rich_help_panel=panel)(called)
        return does

    return register


def _spread(parameter: Parameter) -> Iterator[Parameter]:
    """A parameter, or those of the options that it stands for."""
    if options := PlanOptions.of(parameter):
        for name, annotation in options.declared.items():
            yield Parameter(name, parameter.kind, annotation=annotation, default=None)
    else:
        yield parameter


def _with_settings(does: Does, plans: Mapping[str, PlanOptions], /, **given: Any) -> Answer | None:
    for name, options in plans.items():
        given[name] = partial(settings_of, **{each: given.pop(each) for each in options.declared})
    return does(**given)


def _common(known: Signature, *, asks: bool) -> Iterator[Parameter]:
    """The options that commands have in common: those of form where something is answered, and of the environment where
    there is a pipeline or a store."""
    named = {
        "as_json": known.return_annotation is not None,
        "wide": known.return_annotation is not None,
        "env": bool(known.parameters.keys() & {"pipeline", "plans", "store"}),
        "yes": asks,
    }
    for name, there in named.items():
        if there:
            yield Parameter(
                name, Parameter.KEYWORD_ONLY, annotation=_COMMON[name], default=None if name == "env" else False
            )


def _done(does: Does, given: Given, asked: Given, final: Final | None, entered: Here | CosetError) -> Answer | None:
    if isinstance(entered, CosetError):
        raise entered
    here = entered
    if here.name and not asked.get("as_json"):
        say(console(stderr=True), here.called)
    if final is not None and here.environment.production and final(given):
        _ask(here, yes=bool(asked["yes"]))
    return does(**given)


def _ask(here: Here, *, yes: bool) -> None:
    """Ask whether to go on. Raises Refused if nobody can be asked, and Abort if the answer is no."""
    what = f"environment {here.name} is production, and this cannot be undone"
    if yes:
        return
    if not sys.stdin.isatty():
        where, then = str(here.project.folder / FILE), "if it is meant, add `--yes`"
        raise Refused.of(Kind.ARGUMENT, what, where, then, environment=here.name)
    typer.confirm(f"{what[0].upper()}{what[1:]}. Go on?", abort=True, err=True)


def _answered(does: Callable[[], Answer | None]) -> int:
    """Print what is answered, or why it is refused; the exit code."""
    try:
        try:
            check_open_files()
            given = does()
            return 0 if given is None else answer(given)
        finally:
            # A file that cannot be written is told like all else that is wrong.
            sys.stdout.flush()
    except CosetError as error:
        return _wrong(error)
    except ModuleNotFoundError as error:
        missing = not_installed(error)
        if missing is None:
            raise
        return _wrong(missing)


def _wrong(error: CosetError) -> int:
    show_error(error)
    return error.exit_code
