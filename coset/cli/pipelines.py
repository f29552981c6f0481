"""Pipelines as the command line names them: the path of a Python file that defines `pipeline`, or a name."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from coset.project import pipeline_files
from coset.project.here import NOWHERE, Here
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Shown
from partitioning.errors import Finding, Refused


@dataclass(slots=True)
class _Call:
    """What a command was called with: the project it is in, `options` that the next one needs too, those of `planning`
    that the next plan needs, and how it named the pipelines that were loaded."""

    here: Here
    options: str = ""
    planning: tuple[tuple[str, str], ...] = ()
    named: dict[str, str] = field(default_factory=dict)


_CALL = _Call(NOWHERE)


@contextmanager
def called(here: Here, asked: str | None) -> Iterator[None]:
    """Meanwhile pipelines are those of this project and environment, which the command `asked` for by name or not."""
    global _CALL
    before, _CALL = _CALL, _Call(here, f"--env {shlex.quote(asked)}" if asked else "")
    try:
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
    _CALL.named[pipeline.name] = shlex.quote(named)
    return pipeline


def planning(given: Iterable[tuple[str, str]]) -> None:
    """The command was given these options, with their values, that say how to plan."""
    _CALL.planning = tuple(given)


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
    """How findings are shown here: their commands call a pipeline as the user does, who may have named a file."""
    return Shown(named=_CALL.named, options=_CALL.options, planning=_CALL.planning)


def told(findings: Iterable[Finding]) -> list[dict[str, object]]:
    """Findings for programs."""
    return [finding.plain(shown()) for finding in findings]
