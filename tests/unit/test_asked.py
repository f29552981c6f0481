"""What a command was asked is in the next steps that it names: gone through for every option of every command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from coset.cli import pipelines
from coset.cli.asked import OPTIONS, Asked
from coset.cli.main import app
from coset.project.here import NOWHERE
from partitioning.commands import BackfillAsking, Cancel, Command, Inspect, Land, PlanAsking, Repeat, Resume, Run, Shown
from tests.unit.test_findings import ASKED

GROUP: Any = typer.main.get_command(app)
# What says what one command is to do, or in which form it answers: nobody repeats it. An option that is not here is
# repeated by each command that has it.
ONCE = {
    "accept-changes": {"--up-to"},
    "backfill": {"--from", "--to", "--cascade", "--pause", "--resume", "--cancel", "--preview"},
    "clean": {"--dry-run"},
    "explain": {"--batch", "--when", "--svg", "--mermaid", "--query"},
    "forget": {"--partition", "--keep-offsets"},
    "hand-over": {"--from", "--to"},
    "records": {"--batch", "--offenders", "--set-aside", "--expectation", "--stream", "--key", "--limit", "--sql"},
    "report": {"--batch", "--since", "--html"},
    "schemes": {"--scheme", "--write"},
    "state": {"--batch", "--key", "--parquet"},
    "status": {"--when"},
    "swap": {"--approve"},
}
FORM = {"--yes", "--json", "--wide"}
# What a backfill is asked of its own batches, no batch after them takes over; nor does one command another's reason.
OWN = {("backfill", option) for option in ("--scheme", "--groups", "--begin-anew", "--go-on", "--input", "--why")}
OWN |= {(verb, "--why") for verb in ("swap", "undo", "hand-over", "accept-changes")}
VALUES = ("a b", "0.5", "3", "local", "repaired")


def options(verb: str) -> Iterator[Any]:
    yield from (each for each in GROUP.commands[verb].params if each.opts[0].startswith("--") and each.name != "help")


EVERY = [(verb, option) for verb in GROUP.commands for option in options(verb)]


def asked(verb: str, *words: str) -> Asked:
    """What a command is asked by these words, and by others that it cannot do without."""
    required = (each for each in GROUP.commands[verb].params if each.required and each.opts[0] not in words)
    needed = [word for each in required for word in ((each.opts[0], "3") if each.opts[0].startswith("--") else ("3",))]
    with GROUP.commands[verb].make_context(verb, [*needed, *words], **GROUP.context_settings) as context:
        return Asked.of(verb, context, {})


def sample(verb: str, option: Any) -> list[str]:
    """The words of an option, with the first of the values that it takes."""
    for words in [[option.opts[0]]] if option.is_flag else [[option.opts[0], value] for value in VALUES]:
        with suppress(typer.BadParameter):
            asked(verb, *words)
            return words
    pytest.fail(f"{option.opts[0]} takes none of {VALUES}")


@cache
def all_given() -> Any:
    """All options of all commands, as each command repeats them."""
    every = [pair for verb, option in EVERY for pair in asked(verb, *sample(verb, option)).options]
    return Asked(tuple(every)).by_verb({"store": "s3://lake/coset", "env": "prod"})


def alike(one: Any, other: Any) -> bool:
    """Whether two commands have one option, as a user sees it."""
    of_one, of_other = ((each.opts, each.help, each.envvar, each.metavar) for each in (one, other))
    return of_one == of_other


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in {each.variable for known in OPTIONS.values() for each in known.values()}:
        monkeypatch.delenv(variable, raising=False)


def test_every_option_of_every_command_is_known() -> None:
    assert OPTIONS.keys() == GROUP.commands.keys()
    for verb in GROUP.commands:
        seen = {(each.name, each.opts[0], each.envvar or "", each.multiple) for each in options(verb)}
        known = {(name, each.name, each.variable, each.repeatable) for name, each in OPTIONS[verb].items()}
        assert known == seen, verb


@pytest.mark.parametrize(("verb", "option"), EVERY, ids=lambda each: each if isinstance(each, str) else each.opts[0])
def test_an_option_is_repeated_by_each_command_that_has_it(verb: str, option: Any) -> None:
    name = option.opts[0]
    have_it = {other for other in GROUP.commands if any(alike(option, each) for each in options(other))}
    if name in FORM or name in ONCE.get(verb, ()):
        have_it = set()
    elif (verb, name) in OWN:
        have_it = {verb}
    by_verb = asked(verb, *(words := sample(verb, option))).by_verb()
    repeated = {other for other, given in by_verb.items() if name in {each.name for each in given}}
    assert repeated == have_it
    for other in have_it:
        (given,) = (each for each in by_verb[other] if each.name == name)
        assert shlex.split(" ".join(given.words())) == words


def test_a_variable_is_said_in_words_by_each_command_that_has_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {(each.opts[0], each.envvar) for _, each in EVERY if each.envvar}
    assert ("--store", "COSET_STORE") in variables
    for name, variable in variables:
        # The command of now has only some of them.
        monkeypatch.setenv(variable, "a b")
        for verb, given in asked("status").by_verb().items():
            words = [word for each in given if each.name == name for word in each.words()]
            assert words == [f"{name} 'a b'"] * any(each.opts[0] == name and each.envvar for each in options(verb))
        monkeypatch.delenv(variable)


@pytest.mark.parametrize("command", ASKED, ids=str)
def test_each_command_that_is_named_can_be_told_where_to_act(command: Command) -> None:
    """It takes all options that others have in common with it, and what is known of where it acts."""
    line = Shown(given=all_given()).line(command)
    if line is None:
        assert command == Repeat()
        return
    _, verb, *words = shlex.split(line.replace("--from N", "--from 1"))
    with GROUP.commands[verb].make_context(verb, words, **GROUP.context_settings) as context:
        assert isinstance(command, Land | Inspect) or context.params["store"] == "s3://lake/coset"


def test_what_the_step_itself_says_counts_and_what_may_stand_twice_stands_beside_it() -> None:
    words = ("--begin-anew", "totals", "--scheme", "a=max", "--scheme", "tasks(4)", "--store", "my trial")
    given = Shown(given=asked("plan", *words).by_verb())
    ours = "--store 'my trial' --scheme a=max --scheme 'tasks(4)' --begin-anew totals"
    assert given.line(PlanAsking("late")) == f"coset plan late {ours}"
    assert given.line(PlanAsking("late", begin_anew="sums")) == f"coset plan late --begin-anew sums {ours}"
    assert given.line(PlanAsking("late", begin_anew="totals")) == (
        f"coset plan late --begin-anew totals {ours.removesuffix(' --begin-anew totals')}"
    )
    given = Shown(given=asked("backfill", "--from", "3", "--input", "repaired", "--begin-anew", "sums").by_verb())
    assert given.line(BackfillAsking("late", 0)) == "coset backfill late --from 0 --begin-anew sums --input repaired"
    assert given.line(Run("late")) == "coset run late"
    # What goes on was planned with them.
    paused = ("--pause", "3", "--why", "it is late", "--scheme", "tasks(4)", "--input", "repaired", "--store", "trial")
    given = Shown(given=asked("backfill", *paused).by_verb())
    for command in (Resume("late", 3), Run("late.backfill-3")):
        assert given.line(command) == "coset backfill late --resume 3 --store trial"
    assert given.line(Cancel("late", 3)) == "coset backfill late --cancel 3 --store trial"


def test_a_secret_is_not_repeated() -> None:
    given = Shown(given=asked("run", "--master", "sc://spark:15002/;token=hush").by_verb())
    assert given.line(Run("late")) == "coset run late --master '…'"


def test_elsewhere_paths_are_whole_and_the_store_and_the_pipeline_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "late.py").write_text("from coset import Pipeline\npipeline = Pipeline('late')\n")
    with pipelines.called(NOWHERE, asked("run", "--docs", "pages", "--runner", "local")):
        pipelines.load("late.py")
        pipelines.in_store(f"file://{tmp_path}/.coset/store")
        assert pipelines.shown().line(Run("late")) == "coset run late.py --runner local --docs pages"
        assert pipelines.elsewhere().line(Run("late")) == (
            f"coset run {tmp_path}/late.py --store {tmp_path}/.coset/store --runner local --docs {tmp_path}/pages"
        )
