"""The database that runs SQL: it reaches nothing, its time is UTC, and what does not fit goes where it is told."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from spark_jobs.sql.database import connect


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
def test_the_database_can_reach_nothing_and_stays_so(statement: str) -> None:
    outside = duckdb.sql("SELECT 1")  # noqa: F841
    with connect() as connection, pytest.raises(duckdb.Error):
        connection.execute(statement)


def test_local_time_is_utc_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    with connect() as connection:
        query = "SELECT date_part('hour', TIMESTAMPTZ '2013-01-01 10:00:00+00')"
        assert connection.execute(query).fetchone() == (10,)


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
