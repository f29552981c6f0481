"""The database that runs SQL: it reaches nothing, its time is UTC, and what does not fit goes where it is told."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from coset.sources.databases import connect_to_ask, new_database
from spark_jobs.engine.task_database import _database, connect

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


@WAYS
def test_what_is_made_is_gone_with_its_connection(way: Callable[[], duckdb.DuckDBPyConnection]) -> None:
    with way() as one, way() as another:
        one.execute("CREATE TEMP TABLE views AS SELECT 1 AS v")
        with pytest.raises(duckdb.CatalogException):
            another.execute("FROM views")
    with way() as later, pytest.raises(duckdb.CatalogException):
        later.execute("FROM views")


# Sorting this takes more than the memory that is given.
LARGE = "SELECT count(*) FROM (SELECT md5(range::VARCHAR) AS m, range FROM range(2000000) ORDER BY m)"


def test_what_does_not_fit_into_memory_goes_to_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with connect("60MB") as connection:
        connection.execute(f"CREATE TEMP TABLE sorted AS {LARGE.replace('count(*)', '*')}")
        assert connection.execute("SELECT count(*) FROM sorted").fetchone() == (2_000_000,)
        assert any(path.is_file() and path.stat().st_size for path in tmp_path.rglob("*"))
    # The database stays, what was spilled does not. DuckDB 2 keeps a file without bytes that says whose the folder is.
    assert not any(path.is_file() and path.stat().st_size for path in tmp_path.rglob("*"))
    with connect("60MB") as connection, pytest.raises(duckdb.CatalogException):
        connection.execute("FROM sorted")


def test_a_database_starts_no_thread_beside_that_of_its_query(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/task"))
    with new_database("60MB", tmp_path) as database:
        assert database.execute(LARGE).fetchall() == [(2_000_000,)]
        assert len(os.listdir("/proc/self/task")) == before


def test_a_database_that_does_not_answer_or_has_lost_its_folder_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with connect() as connection:
        asked = "SELECT value FROM duckdb_settings() WHERE name = 'temp_directory'"
        ((folder,),) = connection.execute(asked).fetchall()
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        with connect() as another:
            ((other,),) = another.execute(asked).fetchall()
            assert Path(other).is_dir()
            assert other != folder
            # The first one still has what it was given.
            assert connection.execute("SELECT 1").fetchone() == (1,)
    _database(os.getpid(), str(tmp_path), "1GB").connection.close()
    with connect() as later:
        assert later.execute("SELECT 1").fetchone() == (1,)


@WAYS
def test_a_database_that_failed_on_text_that_is_not_utf8_is_made_anew(
    way: Callable[[], duckdb.DuckDBPyConnection],
) -> None:
    text = pa.table({"name": pa.array([bytes([255])]).view(pa.string())})
    with way() as connection:
        connection.register("text", text)
        with pytest.raises(duckdb.Error):
            connection.execute("SELECT upper(name) FROM text")
    with way() as later:
        assert later.execute("SELECT 1").fetchone() == (1,)


def test_a_forked_process_has_a_database_of_its_own() -> None:
    with connect() as ours:
        ours.execute("CREATE TEMP TABLE views AS SELECT 1 AS v")
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            assert pool.submit(_folder).result() != _folder()
        assert ours.execute("FROM views").fetchone() == (1,)


def _folder() -> str:
    with connect() as connection:
        ((folder,),) = connection.execute("SELECT current_setting('temp_directory')").fetchall()
        return str(folder)


def test_without_a_folder_too_little_memory_is_an_error() -> None:
    with new_database("60MB", None) as connection, pytest.raises(duckdb.OutOfMemoryException):
        connection.execute(f"CREATE TEMP TABLE sorted AS {LARGE.replace('count(*)', '*')}")
