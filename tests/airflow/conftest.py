"""An Airflow of its own for these tests: home, database and connection. It is set up before Airflow is imported."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Airflow's home; the environment names it, our folders and a local Spark."""
    assert "airflow" not in sys.modules, "Airflow reads its home when it is imported"
    home = tmp_path_factory.mktemp("airflow")
    with pytest.MonkeyPatch.context() as environment:
        settings = {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
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


@pytest.fixture
def store_root(landing: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty store of its own; COSET_STORE names it."""
    root = f"s3://coset/{uuid.uuid4().hex}"
    monkeypatch.setenv("COSET_STORE", root)
    return root
