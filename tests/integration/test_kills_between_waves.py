"""A batch of three waves that is killed between any two of them goes on, and every flight counts exactly once."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from coset.sources.s3 import storage_options
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.artefact import Role
from tests.examples import few
from tests.flights import land_some, queried
from tests.forked import coset
from tests.killed import arm

_PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "flights_by_route.py")
# A group's receipt is stored when what its tasks left is there: before it all that they left is nobody's.
_POINTS = ("group-0.before", "group-0.after", "group-1.before", "group-2.after")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Some flights, landed."""
    where = str(tmp_path_factory.mktemp("landed") / "topics")
    land_some(where)
    return where


@pytest.fixture(scope="module")
def airports() -> list[tuple[str | None, int, int]]:
    """Flights and origins by destination, straight from the package's data."""
    query = "SELECT dest, count(*), count(DISTINCT origin) FROM flights GROUP BY 1 ORDER BY 1"
    return queried(query)


@pytest.mark.parametrize("point", few(_POINTS, always=0))
def test_a_run_killed_at(point: str, source: str, store: Store, airports: list[tuple[str | None, int, int]]) -> None:
    environment = os.environ | {"FLIGHTS_SOURCE": source}
    words = ("run", "--runner", "local", _PIPELINE, "--store", store.root, "--groups", "1")
    killed = coset(*words, environment=environment, first=partial(arm, point))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    finished = coset(*words, environment=environment)
    assert finished.returncode == 0, finished.stderr
    table = DeltaTable(f"{store.root}/tables/airports", storage_options=storage_options())
    rows = table.to_pyarrow_table(columns=["dest", "flights", "origins"]).sort_by("dest").to_pylist()
    assert [(row["dest"], row["flights"], row["origins"]) for row in rows] == airports

    # What the killed run left beside it goes, with what has served; a batch needs neither any more.
    assert list(store.list("flights_by_route/left/"))
    cleaned = coset("clean", _PIPELINE, "--store", store.root, environment=environment)
    assert cleaned.returncode == 0, cleaned.stderr
    assert not list(store.list("flights_by_route/left/"))
    ledger = Ledger(store, "flights_by_route")
    verdict = ledger.verdict(0)
    assert verdict is not None
    assert {artefact.role for artefact in verdict.artefacts} == {Role.TABLE, Role.KEYS}
