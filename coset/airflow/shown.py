"""How findings are shown in Airflow: by what its pages offer, and by the commands that do the same."""

from __future__ import annotations

import sys
from pathlib import Path

from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Shown
from partitioning.texts import visible

# How the command line calls the pipelines of the DAGs that were made here, by their names.
_NAMED: dict[str, str] = {}
# A file in there is called by its name.
_FOLDER = ("dags", "pipelines")


def shown() -> Shown:
    """How a task shows what is wrong."""
    return Shown(named=_NAMED, airflow=True)


def say(sentence: str) -> None:
    """A sentence in the log of a task; what users wrote in it is one line, and obeyed by nobody who shows the log."""
    print(visible(sentence))


def say_page(page: str) -> None:
    """A page of Markdown, in which that was seen to, in the log of a task."""
    print(page)


def remember(pipeline: Pipeline) -> None:
    """Find the file that defines a pipeline: commands need it if it is not in the folder of pipelines."""
    modules = [module for module in list(sys.modules.values()) if vars(module).get("pipeline") is pipeline]
    files = sorted(file for module in modules if (file := getattr(module, "__file__", None)))
    named = {file.stem if file.parts[-3:-1] == _FOLDER else str(file) for file in map(Path, files)}
    _NAMED[pipeline.name] = min(named, key=lambda name: (len(name), name), default=pipeline.name)
