"""`coset doctor`: what is here is found to fit, and what does not fit is told with what to do."""

from __future__ import annotations

import json
import os
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from coset.batches.runners.spark_server import SparkServer
from coset.cli import doctor
from coset.cli.doctor import Level, _airflow, clock, engine, misfit, race
from demo.s3_server import S3Server
from partitioning.documents.store import Store
from tests.commands import PIPELINE, coset, landed, succeeded
from tests.integration.test_folder_store import LastWins
from tests.memory_store import MemoryStore

__all__ = ["landed"]


def levels(*words: str) -> dict[str, str]:
    found = json.loads(coset("doctor", *words, "--json").stdout)
    return {check["what"]: check["level"] for check in found}


@pytest.mark.parametrize("columns", ["80", "", None])
def test_where_there_is_no_terminal_nothing_that_is_copied_is_broken(
    columns: str | None, landed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    # What is measured is another number each time.
    told, shown = (re.sub(r"\d+", "0", coset("doctor", PIPELINE, *form).stdout) for form in (["--json"], []))
    whole = [any(check["seen"] in line for line in shown.splitlines()) for check in json.loads(told)]
    assert all(whole) is not bool(columns)


def test_here_nothing_is_wrong_and_the_store_is_left_as_it_was(landed: Store) -> None:
    before = list(landed.list(""))
    result = succeeded("doctor", PIPELINE)
    assert ": nothing is wrong" in result.stdout
    assert "of 8 who wrote an object at once, one won" in result.stdout
    assert "flights, planes: " in result.stdout or "stream partitions as declared" in result.stdout
    assert list(landed.list("")) == before
    found = levels(PIPELINE)
    assert {
        found[what]
        for what in ("Python", "packages", "DuckDB", "conditional writes", "store", "table log", "clock", "streams")
    } == {"ok"}


def test_so_it_is_in_s3(s3: S3Server, store: Store) -> None:
    assert levels("--store", store.root)["conditional writes"] == "ok"
    assert list(store.list("")) == []


@pytest.mark.usefixtures("s3")
def test_a_store_that_does_not_answer_is_wrong_with_what_to_do(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    result = coset("doctor", "--store", store.root, "--json")
    assert result.exit_code == 3
    (check,) = [each for each in json.loads(result.stdout) if each["what"] == "store"]
    assert check["level"] == "wrong"
    assert check["then"]


def test_a_stream_that_is_not_there_is_wrong(landed: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "lost.py"
    file.write_text(
        "from coset import Pipeline\n"
        f"pipeline = Pipeline('lost', source={str(tmp_path / 'nothing')!r})\n"
        "pipeline.stream('orders', key='k', partitions=2).write('orders')\n"
    )
    result = coset("doctor", str(file))
    assert result.exit_code == 3
    assert ": 1 thing wrong" in result.stdout


def test_a_store_in_which_several_win_or_whose_clock_is_off_is_told(tmp_path: Path) -> None:
    assert race(MemoryStore(), "here").level is Level.OK
    found = race(LastWins(f"file://{tmp_path}"), "here")
    assert found.level is Level.WRONG
    assert found.seen == "of 8 who wrote an object at once, 8 were told that theirs is stored"
    assert "If-None-Match" in found.then
    assert [clock(skew).level for skew in (-4, 40, -2_000)] == [Level.OK, Level.WARNING, Level.WRONG]
    assert clock(-2_000).seen == "the store's is 33 min behind this one"


def test_packages_of_extras_need_not_be_there_and_others_must_fit() -> None:
    assert misfit(Requirement("nobody-has-this; extra == 'spark'")) is None
    missing, other = misfit(Requirement("nobody-has-this>=2")), misfit(Requirement("duckdb<1"))
    assert missing is not None
    assert (missing.seen, missing.then) == ("is not installed", "pip install 'nobody-has-this>=2'")
    assert other is not None
    assert other.then == "pip install 'duckdb<1'"


def test_an_engine_that_was_not_tested_is_told_and_so_are_other_versions_than_those_tested_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = Requirement("duckdb>=1.5.0,<2.1")
    assert [engine(there, needed, "2.0.1").level for there in ("1.5.0", "1.5.5", "2.0.1")] == [Level.OK] * 3
    newer = engine("2.0.2", needed, "2.0.1")
    assert (newer.level, newer.seen) == (Level.WARNING, "2.0.2; tested from 1.5.0 to 2.0.1")
    assert newer.then == "pip install 'duckdb==2.0.1': another version may give other results"
    listed = ["rich>=13", "duckdb>=1.5.0", 'rich==0.1; extra == "tested"', 'duckdb==99; extra == "tested"']
    monkeypatch.setattr(doctor, "requires", lambda name: listed)
    packages, of_engine = list(doctor._versions())[1:]
    there = {name: version(name) for name in ("rich", "duckdb")}
    told = f"tested most with rich 0.1 (not {there['rich']}), duckdb 99 (not {there['duckdb']})"
    assert packages.seen == f"all that are installed, of 2, fit; {told}"
    assert of_engine.seen == f"{there['duckdb']}; tested from 1.5.0 to 99"


def test_a_spark_server_is_asked_what_its_workers_have(
    spark_server: SparkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in spark_server.environment.items():
        monkeypatch.setenv(name, value)
    store = f"file://{tmp_path}/store"
    monkeypatch.setenv("COSET_IMPORTS", f"{os.environ.get('COSET_IMPORTS', '')},not_there")
    found = levels("--store", store)
    assert (found["Spark server"], found["Spark server, imports"]) == ("ok", "warning")
    monkeypatch.setenv("SPARK_MASTER", "sc://127.0.0.1:1")
    result = coset("doctor", "--store", store)
    assert result.exit_code == 3
    assert "the Spark server sc://127.0.0.1:1 cannot be reached" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ('{"conn_type": "spark", "host": "local[*]"}', "ok"),
        ("spark://master:7077", "ok"),
        ('{"conn_type": "spark"}', "wrong"),
    ],
)
def test_the_connection_of_airflow_is_looked_at_where_it_is_set(
    said: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", said)
    (found,) = _airflow()
    assert found.level == level
