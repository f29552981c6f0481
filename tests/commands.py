"""The `coset` command in this process, and a store for the pipeline that tests give it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from coset.cli.main import app
from partitioning.documents.store import Store
from tests.landed import land_table

PIPELINE, SLOW = (str(Path(__file__).parent / "pipelines" / name) for name in ("delays.py", "slow.py"))


@pytest.fixture
def landed(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with a hundred flights of twenty planes; the plan and all else goes to the same store."""
    return land_first(store, monkeypatch)


def land_first(store: Store, environment: pytest.MonkeyPatch) -> Store:
    """Land the planes and a hundred flights, and let the environment name the store."""
    environment.setenv("DELAYS_SOURCE", f"{store.root}/topics")
    environment.setenv("COSET_STORE", store.root)
    planes = pa.table({"tailnum": [f"N{number}" for number in range(20)], "seats": pa.array(range(20), pa.int64())})
    land_table(planes, "planes", f"{store.root}/topics", key="tailnum", partitions=2)
    arrive(store, 100)
    return store


def arrive(store: Store, count: int) -> None:
    """Land some flights more."""
    tails = [f"N{number % 20}" for number in range(count)]
    table = pa.table({"tailnum": tails, "delay": pa.array(range(count), pa.int64())})
    land_table(table, "flights", f"{store.root}/topics", key="tailnum", partitions=4)


def coset(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def succeeded(*words: str) -> Result:
    """Run a command that succeeds."""
    result = coset(*words)
    assert result.exit_code == 0, result.output
    return result


def refused(result: Result, *parts: str, code: int = 3) -> None:
    """Assert that a command refused with this exit code, naming all of `parts`, where, and what is next."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    for part in (*parts, "  where: ", "  next:  "):
        assert part in result.stderr
