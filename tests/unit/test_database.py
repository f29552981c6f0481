"""The database that runs SQL: it reaches nothing, its time is UTC, and what does not fit goes where it is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from spark_jobs.sql.database import connect, connect_to_ask

WAYS = pytest.mark.parametrize("way", [connect, connect_to_ask])


@WAYS
@pytest.mark.parametrize(
    "statement",
    [
        "FROM '/etc/passwd'",
        "FROM read_csv('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/out.csv'",
        "ATTACH '/tmp/other.db'",
        "INSTALL httpfs",
        "SET memory_limit = '9GB'",
        "SET enable_external_access = true",
        "FROM outside",
    ],
)
def test_the_database_can_reach_nothing_and_stays_so(
    statement: str, way: Callable[[], duckdb.DuckDBPyConnection]
) -> None:
    outside = duckdb.sql("SELECT 1")  # noqa: F841
    with way() as connection, pytest.raises(duckdb.Error):
        connection.execute(statement)


@WAYS
def test_local_time_is_utc_on_every_machine(
    way: Callable[[], duckdb.DuckDBPyConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    with way() as connection:
        query = "SELECT date_part('hour', TIMESTAMPTZ '2013-01-01 10:00:00+00')"
        assert connection.execute(query).fetchone() == (10,)


def test_what_is_made_for_a_question_is_gone_with_it() -> None:
    with connect_to_ask() as one, connect_to_ask() as another:
        one.execute("CREATE TEMP TABLE views AS SELECT 1 AS v")
        with pytest.raises(duckdb.CatalogException):
            another.execute("FROM views")
    with connect_to_ask() as later, pytest.raises(duckdb.CatalogException):
        later.execute("FROM views")


# Sorting this takes more than the memory that is given.
LARGE = "SELECT count(*) FROM (SELECT md5(range::VARCHAR) AS m, range FROM range(2000000) ORDER BY m)"


def test_what_does_not_fit_into_memory_goes_to_the_temporary_folder(tmp_path: Path) -> None:
    with connect("60MB", tmp_path) as connection:
        connection.execute(f"CREATE TABLE sorted AS {LARGE.replace('count(*)', '*')}")
        assert connection.execute("SELECT count(*) FROM sorted").fetchone() == (2_000_000,)
        assert any(tmp_path.iterdir())


def test_without_a_temporary_folder_too_little_memory_is_an_error() -> None:
    with connect("60MB") as connection, pytest.raises(duckdb.OutOfMemoryException):
        connection.execute(f"CREATE TABLE sorted AS {LARGE.replace('count(*)', '*')}")
