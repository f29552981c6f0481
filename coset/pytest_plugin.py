"""What pytest loads where Coset is installed: the project's imports are allowed, and a fixture runs pipelines.

Nothing else of Coset is imported before a test needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from coset.testing import MakeTrial
    from partitioning.authoring.pipeline import Pipeline

_FILE = "coset.toml"


def pytest_configure(config: pytest.Config) -> None:
    """Let tests find and call what the coset.toml beside them says, as commands and DAGs do: modules in its
    `python_path`, and functions in the `imports` of its environments, unless COSET_IMPORTS is set."""
    if not (config.rootpath / _FILE).is_file():
        return
    from coset.project.coset_toml import project_of  # noqa: PLC0415
    from partitioning.errors import Refused  # noqa: PLC0415
    from partitioning.imports import ALLOWED  # noqa: PLC0415

    try:
        project = project_of(config.rootpath)
    except Refused as refusal:
        raise pytest.UsageError(str(refusal)) from refusal
    sys.path[:0] = [str(folder) for folder in project.python_folders if str(folder) not in sys.path]
    imports = dict.fromkeys(name for each in project.environments.values() for name in each.imports)
    os.environ.setdefault(ALLOWED, ",".join(imports))


@pytest.fixture
def coset_trial() -> Iterator[MakeTrial]:
    """Makes a trial of a pipeline: a folder with landed records and a store, which go away after the test. Before that
    its tables are held against their queries."""
    from contextlib import ExitStack  # noqa: PLC0415

    from coset.testing import Trial, runs  # noqa: PLC0415

    with ExitStack() as stack:
        trials = list[Trial]()

        def make(pipeline: Pipeline) -> Trial:
            trials.append(stack.enter_context(Trial.made(pipeline)))
            return trials[-1]

        yield make
        for trial in trials:
            runs.unasked.append(trial.verify())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tables that no test has held against their query, nor asked which these are."""
    if runs := sys.modules.get("coset.testing.runs"):
        told = dict.fromkeys(f"{table}: {why}" for each in runs.unasked for table, why in each.items())
        if told:
            terminalreporter.section("tables that are not verified")
            terminalreporter.write_line("\n".join(told))
