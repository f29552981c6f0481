"""The environment of Airflow's processes: the store, and the folder of the Data Docs."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.configuration import AIRFLOW_HOME, conf

from coset.project.here import enter
from partitioning.errors import Refused
from partitioning.kinds import Kind


def store_root() -> str:
    """The root of the store. Raises Refused if neither COSET_STORE nor coset.toml names one."""
    root = _variable("COSET_STORE")
    if not root:
        then = "set it, as COSET_STORE=s3://coset"
        raise Refused.of(Kind.STORE_UNNAMED, "no store is named", "environment variable COSET_STORE", then)
    return root


def docs_folder() -> Path:
    """The folder of the Data Docs."""
    return Path(_variable("COSET_DOCS") or Path(AIRFLOW_HOME) / "coset" / "docs")


def _variable(name: str) -> str | None:
    """A variable of this process; else what the environment of the project around the folder of DAGs says of it, which
    a process that reads no DAG file, as the web server, does not know yet."""
    if not os.environ.get(name):
        enter(Path(conf.get("core", "dags_folder")))
    return os.environ.get(name)
