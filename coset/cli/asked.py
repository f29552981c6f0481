"""What a command was asked: the options that it was given, which the next steps that it names have too.

An option is repeated by every command that declares the same one. What says otherwise stands beside its declaration:
`Annotated[int | None, typer.Option("--batch"), ONCE]`. So an option of which nobody thinks is not lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from inspect import Parameter, Signature
from pathlib import Path
from typing import get_args

import typer
from typer.models import OptionInfo

from coset.batches.runners.given_settings import CREDENTIAL
from partitioning.commands import Option

# The options that commands need, by their verbs.
ByVerb = Mapping[str, tuple[Option, ...]]
# What stands in the place of a secret.
_HIDDEN = "…"


class Repeated(Enum):
    """Which next steps repeat an option, of those that are commands with the same one."""

    BY_ALL = "it says where or how commands act"
    BY_ITSELF = "it is about what this command plans: only the same command repeats it, where it plans anew"
    NEVER = "it says what this one command is to do, or the form of its answer"


ONCE, OWN = Repeated.NEVER, Repeated.BY_ITSELF


@dataclass(frozen=True, slots=True)
class DeclaredOption:
    """An option as a command declares it: its name, the variable that can give it, whether it has several values, and
    whether they are paths. Commands have the same one if they share its declaration, the `info`."""

    info: OptionInfo
    name: str
    variable: str
    repeatable: bool
    is_path: bool
    repeated: Repeated

    @classmethod
    def of(cls, parameter: Parameter) -> DeclaredOption | None:
        """The declaration of a parameter that is an option."""
        kind, *said = get_args(parameter.annotation) or (None,)
        info = next((each for each in said if isinstance(each, OptionInfo)), None)
        if info is None:
            return None
        kinds = {kind, *get_args(kind)}
        return cls(
            info,
            name=str(info.default),
            variable=info.envvar if isinstance(info.envvar, str) else "",
            repeatable=list[str] in kinds,
            is_path=Path in kinds,
            repeated=next((each for each in said if isinstance(each, Repeated)), Repeated.BY_ALL),
        )

    def given(self, value: object, *, whole: bool = False) -> Option:
        """The option with what it was given; paths are `whole`, if it is to be used from another folder."""
        is_own = self.repeated is Repeated.BY_ITSELF
        if value is True:
            return Option(self.name, own=is_own)
        values = list(map(str, value if isinstance(value, list | tuple) else [value]))
        if self.is_path and whole:
            values = list(map(os.path.abspath, values))
        shown = tuple(_HIDDEN if CREDENTIAL.search(each) else each for each in values)
        return Option(self.name, shown, self.repeatable, is_own)


# The options of all commands, by the commands' verbs and the names of their parameters.
OPTIONS: dict[str, dict[str, DeclaredOption]] = {}


def declare(verb: str, of: Signature) -> None:
    """Note the options of a command."""
    options = {name: DeclaredOption.of(parameter) for name, parameter in of.parameters.items()}
    OPTIONS[verb] = {name: option for name, option in options.items() if option}


@dataclass(frozen=True, slots=True)
class Asked:
    """The options that were given, with their values, and the `verb` of the command that they were given to."""

    options: tuple[tuple[DeclaredOption, object], ...] = ()
    verb: str = ""

    @classmethod
    def of(cls, verb: str, called: typer.Context, said: Mapping[str, str]) -> Asked:
        """What a command was called with by its words, and what else variables say: its next steps may read more of
        them. Variables that are `said` anyway are left out."""
        named = ((option, called.params[name]) for name, option in OPTIONS[verb].items() if _is_typed(called, name))
        return cls((*cls.by_variables(said).options, *named), verb)

    @classmethod
    def by_variables(cls, said: Mapping[str, str]) -> Asked:
        """What variables say, but for what is `said` of them anyway."""
        known = {each.info: each for options in OPTIONS.values() for each in options.values()}
        set_to = ((each, os.environ.get(each.variable, "")) for each in known.values() if each.variable)
        return cls(tuple((each, value) for each, value in set_to if value and value != said.get(each.variable)))

    def by_verb(self, known: Mapping[str, str] | None = None) -> ByVerb:
        """What each command needs to act as it was asked. Elsewhere than where it was asked, paths are whole, and it
        needs what is `known`, by the names of parameters, whether it was given or not."""
        given = {option.info: (option.repeated, value) for option, value in self.options}
        whole = known is not None

        def needed(verb: str) -> Iterator[Option]:
            for name, option in OPTIONS[verb].items():
                repeated, value = given.get(option.info, (Repeated.NEVER, None))
                if known and name in known:
                    yield option.given(known[name])
                elif repeated is Repeated.BY_ALL or (repeated is Repeated.BY_ITSELF and verb == self.verb):
                    yield option.given(value, whole=whole)

        return {verb: tuple(needed(verb)) for verb in OPTIONS}


def _is_typed(called: typer.Context, name: str) -> bool:
    source = called.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
