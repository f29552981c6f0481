"""An Airflow of its own for these tests: home, database, connections. It is set up before Airflow is imported."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from batches.runners.spark_server import SparkServer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Airflow's home; the environment names it and our folders."""
    assert "airflow" not in sys.modules, "Airflow reads its home when it is imported"
    home = tmp_path_factory.mktemp("airflow")
    with pytest.MonkeyPatch.context() as environment:
        settings = {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
            "COSET_DOCS": str(home / "docs"),
        }
        for name, value in settings.items():
            environment.setenv(name, value)
        migrate = [str(Path(sys.executable).with_name("airflow")), "db", "migrate"]
        subprocess.run(migrate, check=True, capture_output=True)
        yield home


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real S3 server with the first part of the flights landed, and room for stores; gives the source's URI."""
    from demo.landing import land
    from demo.s3_server import start_server

    server = start_server(tmp_path_factory.mktemp("s3"), ("landing", "coset"))
    try:
        with pytest.MonkeyPatch.context() as environment:
            for name, value in server.environment.items():
                environment.setenv(name, value)
            land(0, "s3://landing/topics")
            yield "s3://landing/topics"
    finally:
        server.stop()


@pytest.fixture(scope="module")
def server(landing: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    """A Spark server, and the connections: to it by default, to a master, and to a server that is gone."""
    from batches.runners.spark_server import start_spark

    server = start_spark("local[2]", tmp_path_factory.mktemp("spark") / "spark.log")
    connections = {
        "default": {"conn_type": "spark", "host": server.address, "password": server.token},
        "master": {"conn_type": "spark", "host": "local[2]"},
        "gone": {"conn_type": "spark", "host": "sc://127.0.0.1:1", "extra": {"master": "local[2]"}},
        "stranger": {"conn_type": "spark", "host": server.address, "password": "wrong"},
    }
    try:
        with pytest.MonkeyPatch.context() as environment:
            for name, connection in connections.items():
                environment.setenv(f"AIRFLOW_CONN_SPARK_{name.upper()}", json.dumps(connection))
            yield server
    finally:
        server.stop()


@pytest.fixture
def store_root(landing: str, server: SparkServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty store of its own; COSET_STORE names it."""
    root = f"s3://coset/{uuid.uuid4().hex}"
    monkeypatch.setenv("COSET_STORE", root)
    return root
