"""How findings are shown in Airflow: next steps name what its pages offer, and the commands that do the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from coset.project.here import last
from coset.project.pipeline_files import files_of
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Option, Shown
from partitioning.errors import CosetError
from partitioning.model.sources import FOLDER
from partitioning.texts import environment, visible

# What the command line calls the pipelines of this process's DAGs, by pipeline name.
_NAMED: dict[str, str] = {}
# Commands find a file in this folder by its name alone.
_FOLDER = ("dags", "pipelines")


class _Given(Mapping[str, tuple[Option, ...]]):
    """What commands need to act where and how Airflow's tasks do, for whoever types them elsewhere. It is found out
    when the first of them is shown, as it takes the command line."""

    def __getitem__(self, verb: str) -> tuple[Option, ...]:
        return self._by_verb[verb]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_verb)

    def __len__(self) -> int:
        return len(self._by_verb)

    @cached_property
    def _by_verb(self) -> Mapping[str, tuple[Option, ...]]:
        # Airflow is not in every process that shows findings in its words.
        from coset.airflow.deployment import store_root  # noqa: PLC0415
        from coset.cli.asked import Asked  # noqa: PLC0415
        from coset.cli.commands import backfills, batches, upkeep  # noqa: F401, PLC0415  they declare options

        known = {"env": environment()}
        with suppress(CosetError):
            known["store"] = store_root().removeprefix(FOLDER)
        return Asked.by_variables(last().variables).by_verb({name: value for name, value in known.items() if value})


def shown() -> Shown:
    """How a task shows findings."""
    return Shown(named=_NAMED, airflow=True, given=_Given())


def shown_on_pages() -> Shown:
    """How a task shows them to readers who may not be in Airflow."""
    return Shown(named=_NAMED, given=_Given())


def say(sentence: str) -> None:
    """Print a sentence to a task's log. Text of users in it is made harmless and stays on one line."""
    print(visible(sentence))


def say_page(page: str) -> None:
    """Print a page of Markdown, whose texts are harmless already, to a task's log."""
    print(page)


def remember(pipeline: Pipeline) -> None:
    """Find and keep the file that defines a pipeline. Commands need its path if it is not in the folder of
    pipelines."""
    files = map(Path, files_of(pipeline))
    named = {file.stem if file.parts[-3:-1] == _FOLDER else str(file) for file in files}
    _NAMED[pipeline.name] = min(named, key=lambda name: (len(name), name), default=pipeline.name)
