"""What a process has from the one that it is forked from, and what its tasks and its questions share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from numba.core.registry import CPUDispatcher

from coset.sources.databases import connect_to_ask
from partitioning.authoring.settings import Settings
from partitioning.documents.stores import store_at
from partitioning.model.schemes import Scheme
from spark_jobs.engine.task_database import connect
from tests.forked import at_once
from tests.real_batches import delays, land_delays
from tests.running import next_batch, run_groups


def compiled() -> set[tuple[str, str]]:
    """The functions that Numba has loaded, with the types of their arguments."""
    engine = [vars(module) for name, module in sys.modules.items() if name.startswith("spark_jobs.engine.")]
    functions = [each for names in engine for each in names.values() if isinstance(each, CPUDispatcher)]
    return {(str(function), str(types)) for function in functions for types in function.signatures}


def loading(root: str, scheme: str, _: int) -> Callable[[], set[tuple[str, str]]]:
    """A process that runs all tasks of a batch, and tells which functions are loaded only then."""

    def loaded() -> set[tuple[str, str]]:
        before = compiled()
        run_groups(next_batch(delays(store_at(root)), root, Settings(scheme=Scheme.parse(scheme))))
        return compiled() - before

    return loaded


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(3)"])
def test_a_process_has_all_compiled_functions_that_its_tasks_need(scheme: str, tmp_path: Path) -> None:
    land_delays(store_at(str(tmp_path)))
    assert at_once(1, partial(loading, str(tmp_path), scheme)) == [set()]


def asking(_: int) -> Callable[[], list[tuple[int]]]:
    def asked() -> list[tuple[int]]:
        with connect() as connection:
            connection.execute("CREATE TABLE seen AS SELECT 7 AS number")
        with connect_to_ask() as connection:
            return connection.execute("FROM seen").fetchall()

    return asked


def test_tasks_and_questions_of_a_process_share_a_database_which_is_slow_to_open() -> None:
    assert at_once(1, asking) == [[(7,)]]
