"""Other stores that know a pipeline. Before its first batch is planned in a store, it is asked about if another one has
batches of it that this folder, the project or a variable names: that one may have been meant.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Thread

from coset.cli import pipelines
from coset.cli.app import USUAL_STORE
from coset.cli.output import console, say
from partitioning.commands import Command, Option
from partitioning.documents.stores import named_root, store_at
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind
from partitioning.model.sources import FOLDER

NEW = Option("--new-store")
_STORE = "COSET_STORE"
# A store that does not answer within these seconds keeps nobody from a first batch.
_WITHIN = 3.0


@dataclass(frozen=True, slots=True)
class Other:
    """Another store, by its root, and who names it; the environment, if one does."""

    root: str
    by: str
    environment: str = ""

    def __str__(self) -> str:
        return f"{self.root} ({self.by})"

    @property
    def options(self) -> list[Option]:
        """What a command needs to act there."""
        store = Option("--store", (self.root.removeprefix(FOLDER),))
        return [store, *([Option("--env", (self.environment,))] if self.environment else [])]


def check_meant(pipeline: str, root: str, command: Command, *, new: bool) -> None:
    """Raise Refused if the store at `root` has no batch of the pipeline and others have, unless a `new` one is meant.
    The `command` is the one that was asked for."""
    if new or not (others := knowing(pipeline, root)):
        return
    shown = pipelines.shown()
    there = [f"to go on in {each.root}: `{shown.line(command, *each.options)}`" for each in others]
    then = "; ".join([*there, f"if a new store is meant: `{shown.line(command, NEW)}`"])
    roots = [each.root for each in others]
    raise Refused.of(Kind.STORE_NEW, _sentence(pipeline, others), root, then, pipeline=pipeline, others=roots)


def to_begin(pipeline: str, root: str) -> list[Option]:
    """The options that a command needs to begin in the store at `root`: what keeps `check_meant` from asking."""
    return [NEW] if knowing(pipeline, root) else []


def elsewhere(pipeline: str, root: str) -> str:
    """A sentence on other stores that have batches of a pipeline, if the one at `root` has none; empty otherwise."""
    others = knowing(pipeline, root)
    return _sentence(pipeline, others) if others else ""


def knowing(pipeline: str, root: str) -> list[Other]:
    """The other stores that have batches of a pipeline, if the one at `root` has none. Those that cannot be asked now
    are told on stderr, and take no more than seconds."""
    others = {each.root: each for each in _named() if each.root != root}
    if not others or _knows(root, pipeline):
        return []
    known, failed = dict[str, bool](), dict[str, str]()

    def ask() -> None:
        for other in others:
            try:
                known[other] = _knows(other, pipeline)
            except CosetError as error:
                failed[other] = error.findings[0].what

    # Nobody waits for it at the end of the process either.
    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_WITHIN)
    for other in others.keys() - known.keys():
        why = failed.get(other, "it does not answer")
        say(console(stderr=True), f"Whether {others[other]} has batches of {pipeline} is not known: {why}")
    return [each for root, each in others.items() if known.get(root)]


def _sentence(pipeline: str, others: list[Other]) -> str:
    have = "has" if len(others) == 1 else "have"
    return f"no batch of {pipeline} was ever planned in this store, and {' and '.join(map(str, others))} {have} some"


def _knows(root: str, pipeline: str) -> bool:
    return any(store_at(root).list(f"{pipeline}/plans/", 1))


def _named() -> Iterator[Other]:
    """The stores that this folder, the environments of the project and the variable name, those of folders first."""
    here = pipelines.here()
    if os.path.isdir(USUAL_STORE):
        yield Other(named_root(USUAL_STORE), "the folder here")
    environments = ((name, each.variables(here.project.folder)) for name, each in here.project.environments.items())
    named = [
        Other(named_root(said[_STORE]), f"environment {name}", name) for name, said in environments if _STORE in said
    ]
    if variable := os.environ.get(_STORE):
        named.append(Other(named_root(variable), _STORE))
    yield from sorted(named, key=lambda each: not each.root.startswith(FOLDER))
