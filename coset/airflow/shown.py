"""How findings are shown in Airflow: next steps name what its pages offer, and the commands that do the same."""

from __future__ import annotations

import sys
from pathlib import Path

from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Shown
from partitioning.environment_name import environment
from partitioning.texts import visible

# What the command line calls the pipelines of this process's DAGs, by pipeline name.
_NAMED: dict[str, str] = {}
# Commands find a file in this folder by its name alone.
_FOLDER = ("dags", "pipelines")


def shown() -> Shown:
    """How a task shows findings."""
    name = environment()
    return Shown(named=_NAMED, airflow=True, options=f"--env {name}" if name else "")


def say(sentence: str) -> None:
    """Print a sentence to a task's log. Text of users in it is made harmless and stays on one line."""
    print(visible(sentence))


def say_page(page: str) -> None:
    """Print a page of Markdown, whose texts are harmless already, to a task's log."""
    print(page)


def remember(pipeline: Pipeline) -> None:
    """Find and keep the file that defines a pipeline. Commands need its path if it is not in the folder of
    pipelines."""
    modules = [module for module in list(sys.modules.values()) if vars(module).get("pipeline") is pipeline]
    files = sorted(file for module in modules if (file := getattr(module, "__file__", None)))
    named = {file.stem if file.parts[-3:-1] == _FOLDER else str(file) for file in map(Path, files)}
    _NAMED[pipeline.name] = min(named, key=lambda name: (len(name), name), default=pipeline.name)
