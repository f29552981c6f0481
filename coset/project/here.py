"""Here: the project and the environment in which this process works."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coset.project.coset_toml import project_of
from coset.project.project import FILE, Environment, Project
from partitioning.authoring.pipeline import Pipeline
from partitioning.texts import ENVIRONMENT, environment


@dataclass(frozen=True, slots=True)
class Here:
    """A project, and the name of its environment that is meant; empty if it has none."""

    project: Project
    name: str = ""

    @property
    def environment(self) -> Environment:
        """What is said of the environment."""
        return self.project.environments[self.name] if self.name else Environment()

    @property
    def called(self) -> str:
        """The environment, in a few words."""
        kind = ", production" if self.environment.production else ""
        return f"Environment {self.name}{kind} ({self.project.folder / FILE})"

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the environment stands for."""
        return self.environment.variables(self.project.folder)

    def applied(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline as it is in this environment. Raises Refused if a stream cannot be read so."""
        return self.environment.applied(pipeline, self.project.folder) if self.name else pipeline


# For what is about no pipeline.
NOWHERE = Here(Project(folder=Path()))


_LAST = NOWHERE


def last() -> Here:
    """The project and environment that this process entered last."""
    return _LAST


def enter(folder: Path, named: str | None = None) -> Here:
    """The project around a folder, and its environment: the one `named`, else that of COSET_ENV, else its default.

    Variables that are not set are given what the environment says, for this process and those that it starts.
    Raises Refused, with all findings.
    """
    global _LAST
    project = project_of(folder)
    here = _LAST = Here(project, project.chosen(named or environment()))
    if here.name:
        os.environ[ENVIRONMENT] = here.name
        for name, value in here.variables.items():
            os.environ[name] = os.environ.get(name) or value
    # Airflow has its folder of DAGs on its own path, but not on that of processes which it starts.
    sys.path[:0] = _without(sys.path, project)
    started = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    if folders := _without(started, project):
        os.environ["PYTHONPATH"] = os.pathsep.join((*folders, *started))
    return here


def _without(path: Sequence[str], project: Project) -> list[str]:
    """The project's folders in which modules are found that the path does not have."""
    return [str(each) for each in project.python_folders if str(each) not in path]


@contextmanager
def entered(folder: Path, named: str | None = None) -> Iterator[Here]:
    """The same, and afterwards all variables are as they were."""
    before, path = dict(os.environ), list(sys.path)
    try:
        yield enter(folder, named)
    finally:
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(before)
