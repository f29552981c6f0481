"""An Airflow of its own for these tests: home, database, connections. It is set up before Airflow is imported."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from coset.batches.runners.spark_server import SparkServer
    from demo.s3_server import S3Server

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


@pytest.fixture(scope="session")
def known_dags(airflow: Path) -> Path:
    """Airflow's home; its database knows our DAGs, and one of others."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    (others := airflow / "others").mkdir()
    (others / "other.py").write_text('from airflow.sdk import DAG\n\ndag = DAG("other", tags=["backfill"])\n')
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(DagBag(), "dags-folder", None)
    sync_bag_to_db(DagBag(others, bundle_path=others, bundle_name="dags-folder"), "dags-folder", None)
    return airflow


@pytest.fixture(scope="module")
def landing(s3: S3Server) -> str:
    """The first part of the flights, landed; gives the source's URI."""
    from demo.landing import land

    land(0, "s3://landing/topics")
    return "s3://landing/topics"


@pytest.fixture(scope="module")
def server(landing: str, spark_server: SparkServer) -> Iterator[SparkServer]:
    """A Spark server, and the connections: to it by default, to a master, and to a server that is gone."""
    connections = {
        "default": {"conn_type": "spark", "host": spark_server.address, "password": spark_server.token},
        "master": {"conn_type": "spark", "host": "local[2]", "extra": {"conf": {"spark.driver.cores": "2"}}},
        "gone": {"conn_type": "spark", "host": "sc://127.0.0.1:1", "extra": {"master": "local[2]"}},
        "stranger": {"conn_type": "spark", "host": spark_server.address, "password": "wrong"},
    }
    with pytest.MonkeyPatch.context() as environment:
        for name, connection in connections.items():
            environment.setenv(f"AIRFLOW_CONN_SPARK_{name.upper()}", json.dumps(connection))
        yield spark_server


@pytest.fixture
def store_root(landing: str, server: SparkServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty store of its own; COSET_STORE names it."""
    root = f"s3://coset/{uuid.uuid4().hex}"
    monkeypatch.setenv("COSET_STORE", root)
    return root


@pytest.fixture
def parsed(
    airflow: Path, store_root: str, landing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Gives the DAG of a pipeline of the tests, parsed once from a file of its own."""
    from airflow.dag_processing.dagbag import DagBag

    def parse(pipeline: str, arguments: str = "") -> Any:
        (tmp_path / f"{pipeline}.py").write_text(
            '"""Airflow: a DAG of a pipeline of the tests."""\n\n'
            "from coset import Settings\n"
            "from coset.airflow import Place, coset_dag\n"
            f"from tests.pipelines.{pipeline} import pipeline\n\n"
            f"dag = coset_dag(pipeline{arguments})\n"
        )
        local = {"classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {"path": str(tmp_path)}}
        monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([{"name": pipeline} | local]))
        return DagBag(dag_folder=str(tmp_path)).dags[pipeline]

    monkeypatch.setenv("FLIGHTS_SOURCE", landing)
    return parse
