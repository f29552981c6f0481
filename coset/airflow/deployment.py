"""What the environment of Airflow's processes says: which store there is, and where the Data Docs go."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.configuration import AIRFLOW_HOME

from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind


def store_root() -> str:
    """The root of the store. Raises Refused if the environment names none."""
    root = os.environ.get("COSET_STORE")
    if not root:
        raise Refused(
            Finding(
                Kind.STORE_UNNAMED,
                "no store is named",
                "environment variable COSET_STORE",
                "set it, as COSET_STORE=s3://coset",
            )
        )
    return root


def docs_folder() -> Path:
    """The folder of the Data Docs."""
    return Path(os.environ.get("COSET_DOCS") or Path(AIRFLOW_HOME) / "coset" / "docs")
