"""Pipelines as the command line names them: the path of a Python file that defines `pipeline`, or a name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from coset.cli.asked import Asked
from coset.project import pipeline_files
from coset.project.here import NOWHERE, Here
from coset.reports import next_steps
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Shown
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.sources import FOLDER


@dataclass(slots=True)
class _Call:
    """What a command was called with: the project it is in, the options, the store's root once it is known, and how it
    named the pipelines that were loaded."""

    here: Here
    asked: Asked
    root: str = ""
    named: dict[str, str] = field(default_factory=dict)


_CALL = _Call(NOWHERE, Asked())


@contextmanager
def called(here: Here, asked: Asked) -> Iterator[None]:
    """Meanwhile pipelines are those of this project and environment, and what a command was `asked` is in the next
    steps that are shown."""
    global _CALL
    before, _CALL = _CALL, _Call(here, asked)
    try:
        with next_steps.shown_as(elsewhere):
            yield
    finally:
        _CALL = before


def here() -> Here:
    """The project and the environment that the command is about."""
    return _CALL.here


def load(named: str) -> Pipeline:
    """The pipeline that is named, as it is in the environment.

    Raises Refused if there is none, if its file fails, or if it defines no `pipeline`.
    """
    pipeline = pipeline_files.load(_CALL.here, named)
    _CALL.named[pipeline.name] = named
    return pipeline


def tables_of(pipeline: Pipeline, named: str, asked: Collection[str]) -> list[str]:
    """The result tables that are asked for, all if none is. Raises Refused for one that the pipeline does not write."""
    tables = [write.table for write in pipeline.writes]
    if unknown := sorted(set(asked).difference(tables)):
        what, then = f"the pipeline writes no table {unknown[0]!r}", f"name one of {', '.join(tables)}"
        raise Refused.of(Kind.TABLE_UNKNOWN, what, named, then, table=unknown[0])
    return [table for table in tables if not asked or table in asked]


def in_store(root: str) -> str:
    """The root of the command's store, which is noted."""
    _CALL.root = root
    return root


def of_project() -> dict[str, Pipeline | Refused]:
    """All pipelines of the project by their places, or why they cannot be loaded."""
    found = dict(pipeline_files.load_all(_CALL.here))
    for place, pipeline in found.items():
        if isinstance(pipeline, Pipeline):
            _CALL.named.setdefault(pipeline.name, place if not _CALL.here.name else pipeline.name)
    return found


def none_of_project() -> str:
    """That the project has no pipeline, in a sentence."""
    return f"No pipeline is in {', '.join(_CALL.here.project.pipelines)}"


def shown() -> Shown:
    """How findings are shown here: their commands call a pipeline as the user does, who may have named a file, and act
    as the user asked."""
    return Shown(named=_quoted(_CALL.named), given=_CALL.asked.by_verb())


def elsewhere() -> Shown:
    """How they are shown where nobody knows the folder in which the command runs: on pages and in messages."""
    named = {name: os.path.abspath(place) if os.path.isfile(place) else place for name, place in _CALL.named.items()}
    known = {"store": _CALL.root.removeprefix(FOLDER), "env": _CALL.here.name}
    given = _CALL.asked.by_verb({name: value for name, value in known.items() if value})
    return Shown(named=_quoted(named), given=given)


def _quoted(named: Mapping[str, str]) -> dict[str, str]:
    return {name: shlex.quote(place) for name, place in named.items()}


def told(findings: Iterable[Finding]) -> list[dict[str, object]]:
    """Findings for programs."""
    return [finding.plain(shown()) for finding in findings]
