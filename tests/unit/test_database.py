"""The database that runs SQL: it reaches nothing, its time is UTC, and what does not fit is spilled."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from math import inf, nan
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb import Error as Fails

from coset.sources.databases import connect_to_ask, new_database
from spark_jobs.engine.task_database import _database, connect
from spark_jobs.engine.task_folder import KeptFolder, task_folder
from spark_jobs.engine.writers import Spool

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


def test_a_database_starts_no_thread_and_without_a_folder_has_too_little_memory(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/task"))
    with new_database("60MB", tmp_path) as database:
        assert database.execute(LARGE).fetchall() == [(2_000_000,)]
        # Others of the process may end meanwhile.
        assert set(os.listdir("/proc/self/task")) <= before
    with new_database("60MB", None) as connection, pytest.raises(duckdb.OutOfMemoryException):
        connection.execute(f"CREATE TEMP TABLE sorted AS {LARGE.replace('count(*)', '*')}")


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


# What docs/internals/pipelines.md says of numbers, in each version of DuckDB: what is called, of which `x`, and the
# answer; None where the call fails.
ANSWERS: list[tuple[str, str, object]] = [
    *(("x // 0", x, None) for x in ("7", "7::HUGEINT", "7::UTINYINT", "7.5", "1.5::DOUBLE", "7::BIGNUM")),
    *((call, "7", None) for call in ("x % 0", "mod(x, 0)", "divide(x, 0)", "x::DECIMAL(9, 2) % 0")),
    ("x / 0", "INTERVAL 1 DAY", None),
    *(("x / 0", x, answer) for x, answer in (("1", inf), ("-1.5", -inf), ("0", nan))),
    *((call, "-1::DOUBLE", nan) for call in ("x % 0", "fmod(x, 0)", "pow(x, 0.5)", "acosh(x)")),
    *((call, "-1", Fails) for call in ("sqrt(x)", "ln(x)", "log(x)", "log2(x)", "log10(x)", "log(x, 3)", "geomean(x)")),
    *((call, "0", Fails) for call in ("ln(x)", "log(x)", "log2(x)", "log(2, x)", "cot(x)", "gamma(x)", "lgamma(x)")),
    *(
        (call, "1.5", Fails)
        for call in ("acos(x)", "asin(-x)", "atanh(x)", "log(x - 0.5, 3)", "[sqrt(-y) for y in [x]]")
    ),
    *((f"{name}(-x)", "'inf'::DOUBLE", Fails) for name in ("sqrt", "ln", "log10", "acos", "sin", "cos", "tan", "cot")),
    *((f"{name}(x)", "'nan'::DOUBLE", nan) for name in ("sqrt", "ln", "log2", "acos", "atanh", "sin", "cot", "gamma")),
    *((call, "1", 0.0) for call in ("ln(x)", "log(x)", "log(2, x)", "acos(x)", "x.log2()", "lgamma(x)")),
    *((call, "-1", None) for call in ("TRY(sqrt(x))", "TRY(acos(x - 1))", "sqrt(NULL::DOUBLE)")),
    ("sqrt(x)", "4.00", 2.0),
]


@pytest.mark.parametrize(("call", "x", "answer"), ANSWERS)
def test_numbers_have_one_answer_in_each_version_of_duckdb(call: str, x: str, answer: object) -> None:
    """Asked of a column, and of a constant, which is worked out before the query runs."""
    for source in (f"FROM (SELECT unnest([{x}]) AS x)", f"FROM (SELECT {x} AS x)"):
        with connect_to_ask() as connection:
            if answer is Fails:
                with pytest.raises(Fails, match=r"not defined|undefined|cannot take|out of range|divison by zero"):
                    connection.execute(f"SELECT {call} {source}").fetchall()
            else:
                assert repr(connection.execute(f"SELECT {call} {source}").fetchall()) == repr([(answer,)])


ROWS = [([1, 2, 3], [7, 0, 7]), ([4, 5], [0, 9]), ([6], [7])]


@pytest.mark.parametrize(("held", "spilled"), [(1 << 20, 0), (0, 3)])
def test_rows_keep_their_order_in_each_partition(held: int, spilled: int, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    two = [Spool(schema, tmp_path, held), Spool(schema, tmp_path, held)]
    for one in two:
        for numbers, partitions in ROWS:
            one.add(pa.record_batch([pa.array(numbers)], schema=schema), np.array(partitions))
    for one in two:
        found = {partition: [n for rows in there for n in rows["n"].to_pylist()] for partition, there in one.parts()}
        assert found == {0: [2, 4], 7: [1, 3, 6], 9: [5]}
    assert len(list(tmp_path.iterdir())) == 2 * spilled


HOLDING = """
from spark_jobs.engine.task_folder import task_folder

with task_folder() as folder:
    (folder / "spilled").write_text("much")
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def holding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A process that has such a folder in a temporary folder of this test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    process = subprocess.Popen([sys.executable, "-c", HOLDING], **pipes)  # type: ignore[call-overload]
    yield process
    process.kill()
    process.communicate()


def test_the_folder_of_a_killed_task_goes_with_the_next(holding: subprocess.Popen[str]) -> None:
    assert holding.stdout is not None
    folder = Path(holding.stdout.readline().strip())
    with task_folder():
        assert (folder / "spilled").read_text() == "much"
    os.kill(holding.pid, signal.SIGKILL)
    holding.wait()
    assert folder.exists()
    with task_folder() as own:
        assert not folder.exists()
        assert own.exists()
    assert not own.exists()


def test_folders_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    elsewhere, file = tmp_path / "elsewhere", tmp_path / "coset-orders-file"
    elsewhere.mkdir()
    file.write_text("mine")
    (tmp_path / "coset-orders-link").symlink_to(elsewhere)
    with task_folder():
        pass
    assert elsewhere.exists()
    assert file.read_text() == "mine"


def test_many_at_once_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def use(number: int) -> str:
        with task_folder() as folder:
            (folder / "mine").write_text(str(number))
            return (folder / "mine").read_text()

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(use, range(400))) == [str(number) for number in range(400)]
    assert not list(tmp_path.iterdir())


def test_all_that_a_process_keeps_is_in_one_folder_that_others_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first, second = KeptFolder(), KeptFolder()
    (first.path / "kept").write_text("mine")
    with task_folder():
        assert (first.path / "kept").read_text() == "mine"
    (of_process,) = tmp_path.iterdir()
    assert {*of_process.iterdir()} == {first.path, second.path}
    path = first.path
    del first
    assert not path.exists()
    shutil.rmtree(of_process)
    assert KeptFolder().path.parent.parent == tmp_path
